"""All that the core can answer.

An Outcome is an ordered batch. The host must make `writes` durable first (or may leave them for the next sync where
`must_sync` is false), then give the replies and closings, then the deliveries. `facts` are for metrics and logs and
are never read back.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fila.core.model import GateKeys, QueueSpec
from fila.errors import FilaError

# --- replies ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Enqueued:
    """Where a batch went."""

    queue_number: int
    first_offset: int
    count: int
    enqueued_at_ms: int


@dataclass(frozen=True, slots=True)
class Attached:
    """A consumer has begun."""

    queue_number: int
    visibility_timeout_ms: int


# --- writes: what the store must hold -------------------------------------------------------------------
# Named tuples: a commit has one for each page and row, and they are made three times as fast as frozen dataclasses.


class PutQueue(NamedTuple):
    """The queue's record, whole."""

    number: int
    spec: QueueSpec
    created_at_ms: int
    next_offset: int


class DropQueue(NamedTuple):
    """Everything that the store has of a queue goes."""

    number: int


class PutRow(NamedTuple):
    """An index row: the columns of `length` messages from `first` on. `weights` and `costs` None: all 1; `gates` None: none.

    `pages` has, for each message, the distance from the row's segment start to the first message of its page.
    """

    queue: int
    first: int
    length: int
    step: int
    keys: Sequence[str]
    key_index: Sequence[int]
    sizes: Sequence[int]
    times_ms: Sequence[int]
    pages: Sequence[int]
    weights: Sequence[int] | None
    costs: Sequence[int] | None
    gates: Sequence[tuple[tuple[str, ...], tuple[str, ...]]] | None = None
    gate_index: Sequence[int] | None = None


class PutPage(NamedTuple):
    """A page of bodies: bytes `begin` to `end` of what this step appends to the queue, laid back to back."""

    queue: int
    first: int
    begin: int
    end: int
    sizes: Sequence[int]


class DeleteRow(NamedTuple):
    """All messages of an index row are finished."""

    queue: int
    first: int


class DeletePage(NamedTuple):
    """All messages of a page are finished."""

    queue: int
    first: int


class DropRange(NamedTuple):
    """Rows, pages, progress and attempts of whole segments from `first` to before `end` go."""

    queue: int
    first: int
    end: int


class PutProgress(NamedTuple):
    """Which messages of the segment that begins at `first` are finished, one bit each, lowest offset lowest."""

    queue: int
    first: int
    finished: int


class DeleteProgress(NamedTuple):
    """No row of the segment is partly finished any more."""

    queue: int
    first: int


class PutLease(NamedTuple):
    """The leases that one delivery holds; written again when one of them ends other than by an ack, or is extended."""

    queue: int
    epoch: int
    consumer: int
    offsets: Sequence[int]
    deadlines_ns: Sequence[int]  # one entry: the same for all


class DeleteLease(NamedTuple):
    """No lease of the delivery is left."""

    queue: int
    epoch: int


class PutAttempt(NamedTuple):
    """What a failed message carries until it is acked."""

    queue: int
    offset: int
    attempts: int
    not_before_ns: int
    error: str


class DeleteAttempt(NamedTuple):
    """The message is finished."""

    queue: int
    offset: int


class PutConfig(NamedTuple):
    """An entry of the runtime configuration."""

    key: str
    value: str


class DropConfig(NamedTuple):
    """The entry is gone."""

    key: str


class PutBucket(NamedTuple):
    """How full the bucket of a rate gate was, in nanotokens."""

    name: str
    tokens: int
    at_ns: int


class DropBucket(NamedTuple):
    """The bucket needs no record."""

    name: str


class PutRest(NamedTuple):
    """The broker has stopped cleanly: the buckets without a record are full."""


class DropRest(NamedTuple):
    """The broker runs: after a crash the buckets without a record are empty."""


Write = (
    PutQueue
    | DropQueue
    | PutRow
    | PutPage
    | DeleteRow
    | DeletePage
    | DropRange
    | PutProgress
    | DeleteProgress
    | PutLease
    | DeleteLease
    | PutAttempt
    | DeleteAttempt
    | PutConfig
    | DropConfig
    | PutBucket
    | DropBucket
    | PutRest
    | DropRest
)

# --- deliveries and facts ---------------------------------------------------------------------------------


class Delivery(NamedTuple):
    """A batch of leased messages for one consumer, in columns.

    `pages[i]` is the first offset of the page that holds message i. `weights` and `attempts` None: all 1, all 0. `gates` and
    `gate_index` as in Enqueue.
    """

    consumer: int
    queue: int
    queue_name: str
    epoch: int
    leased_at_ns: int
    deadline_ns: int
    offsets: Sequence[int]
    pages: Sequence[int]
    sizes: Sequence[int]
    times_ms: Sequence[int]
    keys: Sequence[str]
    key_index: Sequence[int]
    weights: Sequence[int] | None
    attempts: Sequence[int] | None
    gates: Sequence[GateKeys] | None = None
    gate_index: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that happened to `count` messages of a queue.

    Kinds: enqueue, deliver, ack, nack, expire, release, extend, lost, purge.
    """

    kind: str
    queue: str
    count: int
    bytes: int = 0


@dataclass(slots=True)
class Outcome:
    """What a step decided, in the order that the host must respect."""

    step: int
    now_ns: int
    writes: list[Write] = field(default_factory=list)
    must_sync: bool = False
    replies: list[tuple[int, object]] = field(default_factory=list)
    closings: list[tuple[int, FilaError]] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
