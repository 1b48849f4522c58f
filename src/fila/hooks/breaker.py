"""The circuit breaker of one hook: after some failures in a row it is not asked for a while.

Pure: time comes in as an argument and never goes back.
"""

from fila.hooks.policy import BreakerState
from fila.limits import MS_NS


class Breaker:
    """Closed until `threshold` failures came in a row, then open for `cooldown_ms`, then half-open.

    Half-open, one message shows whether the hook works again: the breaker closes or opens anew.
    """

    __slots__ = ("_cooldown_ns", "_failures", "_opened_ns", "threshold")

    def __init__(self, threshold: int, cooldown_ms: int) -> None:
        self.threshold = threshold
        self._cooldown_ns = cooldown_ms * MS_NS
        self._failures = 0
        self._opened_ns: int | None = None

    def state(self, now_ns: int) -> BreakerState:
        """Say what the next message meets."""
        if self._opened_ns is None:
            return BreakerState.CLOSED
        if now_ns - self._opened_ns < self._cooldown_ns:
            return BreakerState.OPEN
        return BreakerState.HALF_OPEN

    def failures_in_row(self) -> int:
        """Return how many of the `threshold` failures have come; half-open, one more opens it."""
        return self._failures if self._opened_ns is None else self.threshold - 1

    def record(self, now_ns: int, *, failures_in_row: int, any_success: bool) -> None:
        """Take in what came of some messages: the failures in a row at their end, those before included."""
        state = self.state(now_ns)
        assert state is not BreakerState.OPEN, "an open breaker lets nothing through"
        if failures_in_row >= self.threshold:
            self._opened_ns = now_ns
        elif state is BreakerState.CLOSED or any_success:
            self._failures = failures_in_row
            self._opened_ns = None
