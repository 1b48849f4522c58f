"""All that can be asked of the core.

`request` is the host's name for a question: the reply carries it back. Commands carry batches in columns;
their columns were checked against each other at the edge, and the core asserts what it relies on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fila.core.model import Action, Address, GateKeys, QueueSpec, Runs


@dataclass(frozen=True, slots=True)
class CreateQueue:
    """Reply: the queue's number."""

    request: int
    spec: QueueSpec


@dataclass(frozen=True, slots=True)
class DeleteQueue:
    """Remove the queue, its messages and its leases; its consumers are closed. Reply: None."""

    request: int
    queue: str


@dataclass(frozen=True, slots=True)
class PurgeQueue:
    """Remove what waits; leased messages stay. Reply: how many went."""

    request: int
    queue: str


@dataclass(frozen=True, slots=True)
class ListQueues:
    """Reply: a tuple of QueueStats without keys, by name."""

    request: int


@dataclass(frozen=True, slots=True)
class GetStats:
    """Reply: QueueStats with keys."""

    request: int
    queue: str


@dataclass(frozen=True, slots=True)
class SetConfig:
    """Give a key of the runtime configuration a value; a key about gates is removed by an empty one. Reply: None."""

    request: int
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class DeleteConfig:
    """Remove a key of the runtime configuration. Reply: None."""

    request: int
    key: str


@dataclass(frozen=True, slots=True)
class GetConfig:
    """Reply: the value of a key of the runtime configuration."""

    request: int
    key: str


@dataclass(frozen=True, slots=True)
class ListConfig:
    """Reply: a tuple of (key, value) of all keys with this prefix, by key."""

    request: int
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Rest:
    """Leave in the store what only a clean stop leaves there: how full buckets are. Reply: None.

    What is delivered after it undoes it.
    """

    request: int


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Append a batch. Reply: Enqueued.

    `key_index`, `weights` and `costs` are None where all messages belong to the first key, or have weight or cost 1. `gates`
    has the distinct sets of gates that messages wait at, `gate_index` for each message the place of its set: None where all
    have the first. Without `gates` no message waits at any.
    """

    request: int
    queue: str
    sizes: Sequence[int]
    keys: Sequence[str]
    key_index: Sequence[int] | None = None
    weights: Sequence[int] | None = None
    costs: Sequence[int] | None = None
    gates: Sequence[GateKeys] | None = None
    gate_index: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Attach:
    """Begin to consume. Reply: Attached.

    `refill`: what this consumer holds is bounded by its first credit, and every settlement of one of its leases gives
    credit back, when the host has said with Sent that its delivery is on its way (a protocol without credit). `once`: the consumer is detached after its first delivery, and its leases live on.
    """

    request: int
    consumer: int
    queue: str
    credit_messages: int
    credit_bytes: int
    refill: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True)
class Credit:
    """Let the broker send more to a consumer. No reply."""

    consumer: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Begin:
    """The consumer has begun to work on these. No reply."""

    consumer: int
    runs: Runs


@dataclass(frozen=True, slots=True)
class Sent:
    """A delivery is on its way to a consumer with `refill`. No reply."""

    consumer: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Deliver nothing more to a consumer. No reply.

    Its credit is void, now and in future. `seen` is the epoch of the last delivery that was sent: later ones are released.
    """

    consumer: int
    seen: int


@dataclass(frozen=True, slots=True)
class Detach:
    """End a consumer. Reply (None) if `request` is not 0.

    `lost`: its stream broke, and what it had begun (all it held, if it never reported any) counts as an attempt. `seen` is the
    epoch of the last delivery that was sent: later ones are released in any case. None: all were.
    `keep`: its leases live on until they are settled or expire. Otherwise they are released; with `keep_begun`, only those
    that it has not begun.
    """

    request: int
    consumer: int
    lost: bool = False
    keep: bool = False
    keep_begun: bool = False
    seen: int | None = None


@dataclass(frozen=True, slots=True)
class SettleRuns:
    """Ack, nack, release or extend leases of a consumer's deliveries. Reply: the Runs that had ended before."""

    request: int
    consumer: int
    action: Action
    runs: Runs
    error: str = ""
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class SettleMessages:
    """The same by address, on behalf of whoever holds the lease. Reply: a tuple, None or a FilaError for each message.

    An epoch of 0 means the present lease.
    """

    request: int
    queue: str
    action: Action
    addresses: Sequence[Address]
    epochs: Sequence[int] | None = None
    error: str = ""
    timeout_ms: int = 0


Command = (
    CreateQueue
    | DeleteQueue
    | PurgeQueue
    | ListQueues
    | GetStats
    | SetConfig
    | DeleteConfig
    | GetConfig
    | ListConfig
    | Rest
    | Enqueue
    | Attach
    | Credit
    | Begin
    | Sent
    | Stop
    | Detach
    | SettleRuns
    | SettleMessages
)
