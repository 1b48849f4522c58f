"""What hooks are asked and what they answer: columns, for whole batches.

This is the port: a host knows these values and `Policy`, and no engine. Nothing here knows Lua.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class Fault(StrEnum):
    """What a hook failed at. All but MESSAGE count against the script."""

    # The script raised an error.
    SCRIPT = "script"
    # It returned what is not allowed.
    RESULT = "result"
    # It was stopped: it took too long with one message, or all messages of the batch together did.
    TIME = "time"
    BATCH = "batch"
    MEMORY = "memory"
    # The body cannot be read, or has more headers than a hook is given: its sender is to blame.
    MESSAGE = "message"


@dataclass(frozen=True, slots=True)
class HookError:
    """Why a message was not decided by the hook. `line` is the script's, 0 where none can be named."""

    fault: Fault
    message: str
    line: int = 0

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


@dataclass(frozen=True, slots=True)
class KeyLists:
    """For each message a list of keys: `index[i]` is 0 for none, else `lists[index[i] - 1]`. No index: none for all."""

    lists: Sequence[tuple[str, ...]] = ()
    index: Sequence[int] | None = None

    def of(self, place: int) -> tuple[str, ...]:
        """Return the keys of one message."""
        number = self.index[place] if self.index else 0
        return self.lists[number - 1] if number else ()


@dataclass(frozen=True, slots=True)
class Routings:
    """What `on_enqueue` said of a batch, in columns.

    What it left open is the key "", weight 0, cost 0, delay 0; a column that is None is all of that, and without
    `key_index` all messages have the first key. Messages with an entry in `errors` have all of that, as have those from
    `decided` on: the hook was not asked about them, for its breaker is open or the batch took too long.
    """

    count: int
    keys: Sequence[str] = ("",)
    key_index: Sequence[int] | None = None
    weights: Sequence[int] | None = None
    costs: Sequence[int] | None = None
    delays_ms: Sequence[int] | None = None
    throttle_keys: KeyLists = KeyLists()
    concurrency_keys: KeyLists = KeyLists()
    errors: Mapping[int, HookError] = field(default_factory=dict)
    decided: int = 0

    def of(self, place: int) -> "Routing":
        """Return what was said of one message, for display and tests: on the hot path use the columns."""
        return Routing(
            fairness_key=self.keys[self.key_index[place] if self.key_index else 0],
            weight=self.weights[place] if self.weights else 0,
            cost=self.costs[place] if self.costs else 0,
            delay_ms=self.delays_ms[place] if self.delays_ms else 0,
            throttle_keys=self.throttle_keys.of(place),
            concurrency_keys=self.concurrency_keys.of(place),
        )


@dataclass(frozen=True, slots=True)
class Routing:
    """What `on_enqueue` said of one message; what it left open is empty or 0."""

    fairness_key: str = ""
    weight: int = 0
    cost: int = 0
    delay_ms: int = 0
    throttle_keys: tuple[str, ...] = ()
    concurrency_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt. `body` is the stored encoding; `attempts` counts this one."""

    body: bytes
    id: str
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What `on_failure` said of a batch: whether to retry (else: dead letter), after how long.

    A delay of -1 leaves it to the queue's back-off; so do errors, and failures from `decided` on, which are retried.
    """

    retries: Sequence[bool]
    delays_ms: Sequence[int]
    errors: Mapping[int, HookError] = field(default_factory=dict)
    decided: int = 0


class BreakerState(StrEnum):
    """Whether a hook is asked: always, never, or once to see."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True)
class HookStatus:
    """A hook at a glance: messages it was run for, how many of these failed, how many passed it by, and its last error."""

    executions: int
    failures: int
    bypassed: int
    duration_ns: int
    rebuilds: int
    breaker: BreakerState
    last_error: HookError | None


class Policy(Protocol):
    """What decides for a queue. Never raises for what a message or a script does."""

    def route(self, bodies: bytes, sizes: Sequence[int]) -> Routings:
        """Decide about messages that come in: their bodies back to back, and the size of each."""
        ...

    def judge(self, failures: Sequence[Failure]) -> Verdicts:
        """Decide about messages that failed."""
        ...

    def set_config(self, config: Mapping[str, str]) -> None:
        """Take over the runtime configuration: `fila.get` reads it from now on."""
        ...
