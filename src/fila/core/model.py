"""Values that the core and its hosts share. They cannot be wrong: each checks itself when it is made."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from fila import limits
from fila.errors import InvalidArgumentError


class Discipline(StrEnum):
    """How a queue decides who is served next."""

    DRR = "drr"
    WFQ = "wfq"
    FIFO = "fifo"


class Action(StrEnum):
    """What a client says of a lease."""

    ACK = "ack"
    NACK = "nack"
    RELEASE = "release"
    EXTEND = "extend"


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """What a queue is, as its creator asked for it."""

    name: str
    discipline: Discipline = Discipline.DRR
    quantum: int = limits.QUANTUM_DEFAULT
    visibility_timeout_ms: int = limits.VISIBILITY_TIMEOUT_MS_DEFAULT

    def __post_init__(self) -> None:
        check_queue_name(self.name)
        if not 1 <= self.quantum <= limits.QUANTUM_MAX:
            raise InvalidArgumentError(f"quantum {self.quantum} is not in 1 to {limits.QUANTUM_MAX:,}")
        low, high = limits.VISIBILITY_TIMEOUT_MS_MIN, limits.VISIBILITY_TIMEOUT_MS_MAX
        if not low <= self.visibility_timeout_ms <= high:
            raise InvalidArgumentError(
                f"visibility timeout {self.visibility_timeout_ms} ms is not in {low:,} to {high:,} ms"
            )


def check_queue_name(name: str) -> None:
    """Refuse what cannot name a queue: it appears in logs, paths of metrics and shells."""
    if not name:
        raise InvalidArgumentError("the queue's name is empty")
    if len(name.encode("utf-8", "surrogatepass")) > limits.QUEUE_NAME_BYTES_MAX:
        raise InvalidArgumentError(f"the queue's name is longer than {limits.QUEUE_NAME_BYTES_MAX} bytes")
    if not name.isprintable() or any(character.isspace() for character in name):
        raise InvalidArgumentError(f"the queue's name {name!r} has a space or an unprintable character")


class GateKeys(NamedTuple):
    """The gates that a message waits at, by name: rates, and limits of what is in flight at once. A pause closes both."""

    throttle: tuple[str, ...] = ()
    concurrency: tuple[str, ...] = ()


NO_GATES = GateKeys()


@dataclass(frozen=True, slots=True)
class Address:
    """Where a message lives, and when it came: what its id says."""

    queue_number: int
    offset: int
    enqueued_at_ms: int


@dataclass(frozen=True, slots=True)
class Runs:
    """Some leases of one consumer: `counts[i]` messages of delivery `epochs[i]` from place `positions[i]` on.

    A count of 0 means the delivery from that place to its end.
    """

    epochs: tuple[int, ...]
    positions: tuple[int, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if not len(self.epochs) == len(self.positions) == len(self.counts):
            raise InvalidArgumentError("the columns of the lease runs have unequal lengths")


NO_RUNS = Runs((), (), ())


@dataclass(frozen=True, slots=True)
class KeyStats:
    """What one fairness key has waiting."""

    key: str
    pending: int
    deficit: int
    weight: int


@dataclass(frozen=True, slots=True)
class GateStats:
    """A gate at which messages of a queue wait or may wait.

    Of a rate: `rate`, `burst` and `tokens`, in tokens. Of a concurrency limit: `limit` and `in_flight`. `waiting` counts the
    queue's messages that the gate holds back.
    """

    kind: str
    name: str
    waiting: int
    tokens: float = 0.0
    rate: float = 0.0
    burst: float = 0.0
    limit: int = 0
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A queue at a glance. Without keys, `active_keys` is not counted."""

    number: int
    spec: QueueSpec
    depth: int
    delayed: int
    in_flight: int
    consumers: int
    active_keys: int
    next_offset: int
    keys: tuple[KeyStats, ...] = ()
    gates: tuple[GateStats, ...] = ()
