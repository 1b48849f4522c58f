"""A clock that stands still until somebody moves it."""

START_NS = 1_700_000_000_000_000_000


class VirtualClock:
    """Integer nanoseconds that never go back."""

    def __init__(self, now_ns: int = START_NS) -> None:
        self.now_ns = now_ns

    def advance(self, span_ns: int) -> None:
        """Move on by a span of at least 0."""
        assert span_ns >= 0, f"time goes back by {-span_ns} ns"
        self.now_ns += span_ns

    def advance_to(self, time_ns: int) -> None:
        """Move on to a time, or stay if it has passed."""
        self.now_ns = max(self.now_ns, time_ns)
