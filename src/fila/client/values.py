"""What the client takes and returns besides messages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from fila.errors import FilaError

# How a queue decides who is served next: deficit round robin, weighted fair queueing, or first in, first out.
Discipline: TypeAlias = Literal["drr", "wfq", "fifo"]


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to enqueue with others."""

    payload: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    fairness_key: str | None = None
    weight: int | None = None
    cost: int | None = None


@dataclass(frozen=True, slots=True)
class EnqueueResult:
    """What became of one message of a batch: its id and offset, or why it was not taken."""

    id: str
    offset: int
    error: FilaError | None = None


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue in a list."""

    name: str
    depth: int
    in_flight: int
    active_consumers: int


@dataclass(frozen=True, slots=True)
class KeyStats:
    """What one fairness key has waiting."""

    key: str
    pending_count: int
    current_deficit: int
    weight: int


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A queue at a glance. `depth` counts waiting messages, `delayed` those of them that wait for a retry."""

    depth: int
    delayed: int
    in_flight: int
    active_fairness_keys: int
    active_consumers: int
    quantum: int
    discipline: str
    visibility_timeout_ms: int
    next_offset: int
    queue_number: int
    keys: tuple[KeyStats, ...]
