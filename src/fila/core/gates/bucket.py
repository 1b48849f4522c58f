"""A token bucket in integers: what a rate lets through, and when it will let through more.

Tokens are counted in nanotokens, and what is left of a division is carried to the next one: so it makes no difference into how
many pieces an interval is cut. A message dearer than the burst passes at a full bucket and leaves a debt.
"""

from fila import limits

SECOND_NS = limits.SECOND_NS
# Nanotokens in one token, which is what a message of cost 1 takes.
TOKEN = 1_000_000_000


class Bucket:
    """Fills at `rate` nanotokens a second, up to `burst` nanotokens."""

    __slots__ = ("_carry", "at_ns", "burst", "rate", "tokens")

    def __init__(self, rate: int, burst: int, tokens: int, now_ns: int) -> None:
        assert rate >= 0, "a rate below zero"
        assert burst >= (TOKEN if rate else 0), "a burst that no message fits"
        self.rate = rate
        self.burst = burst
        # What is there: less than nothing is a debt.
        self.tokens = min(tokens, burst)
        self._carry = 0
        self.at_ns = now_ns

    def refill(self, now_ns: int) -> None:
        """Add what has come since the last time."""
        span_ns = now_ns - self.at_ns
        if not span_ns:
            return
        assert span_ns > 0, "time goes back"
        self.at_ns = now_ns
        if self.tokens >= self.burst:
            return
        gained, self._carry = divmod(self.rate * span_ns + self._carry, SECOND_NS)
        self.tokens += gained
        if self.tokens >= self.burst:
            self.tokens = self.burst
            self._carry = 0

    def change(self, rate: int, burst: int, now_ns: int) -> None:
        """Give it another rate and burst from now on; what is there stays, as far as it fits."""
        self.refill(now_ns)
        self.rate = rate
        self.burst = burst
        self._carry = 0
        self.tokens = min(self.tokens, burst)

    def admits(self, cost: int, promised: int) -> bool:
        """Say whether a message may pass, besides those that were promised to (both in cost)."""
        tokens = self.tokens - promised * TOKEN
        return tokens > 0 and tokens >= min(cost * TOKEN, self.burst)

    def take(self, cost: int) -> None:
        """Let a message pass."""
        self.tokens -= cost * TOKEN

    def admits_at_ns(self, cost: int) -> int | None:
        """Return when a message may pass if none does before; None: never."""
        return self._reaches_ns(min(cost * TOKEN, self.burst)) if self.burst else None

    def full_at_ns(self) -> int | None:
        """Return when it is full if nothing passes before; None: never."""
        return self._reaches_ns(self.burst)

    def _reaches_ns(self, tokens: int) -> int | None:
        missing = tokens - self.tokens
        if missing <= 0:
            return self.at_ns
        if not self.rate:
            return None
        return self.at_ns - (self._carry - missing * SECOND_NS) // self.rate
