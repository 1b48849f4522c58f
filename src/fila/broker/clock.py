"""The only place that reads the clock.

Wall time at the start, and from then on a clock that neither jumps when the system's is set nor stops while the machine
sleeps: a change of the system clock must not expire every lease, or freeze them.
"""

import time


class Clock:
    """Nanoseconds since 1970 that never go back."""

    def __init__(self) -> None:
        self._base_ns = time.time_ns() - _elapsed_ns()

    def not_before(self, now_ns: int) -> None:
        """Move on to at least this time: what the store has seen has been."""
        self._base_ns = max(self._base_ns, now_ns - _elapsed_ns())

    def now_ns(self) -> int:
        """Return the time."""
        return self._base_ns + _elapsed_ns()


def _elapsed_ns() -> int:
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return time.monotonic_ns()
