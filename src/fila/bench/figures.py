"""The arithmetic between what was counted and what is reported."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Sample:
    """What one stretch of load was: all of it at once, or several added up."""

    messages: int = 0
    seconds: float = 0.0
    # Unknown where the server runs elsewhere.
    cpu_s: float | None = 0.0
    latencies_s: list[float] = field(default_factory=list)

    def add(self, other: "Sample") -> None:
        """Add another stretch of the same load."""
        self.messages += other.messages
        self.seconds += other.seconds
        self.cpu_s = None if self.cpu_s is None or other.cpu_s is None else self.cpu_s + other.cpu_s
        self.latencies_s += other.latencies_s

    @property
    def msgs_per_s(self) -> float:
        """How fast it went."""
        return self.messages / self.seconds

    @property
    def cpu_us_per_msg(self) -> float | None:
        """What the server's processor time was per message."""
        return None if self.cpu_s is None else self.cpu_s / self.messages * 1e6


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that at least so many percent of the values do not exceed."""
    ordered = sorted(values)
    rank = math.ceil(len(ordered) * percent / 100)
    return ordered[max(rank, 1) - 1]


def median_or_none(values: Sequence[float | None]) -> float | None:
    """Return the median, or None where any value is unknown."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known and len(known) == len(values) else None


def ratio_or_none(dividend: float | None, divisor: float | None) -> float | None:
    """Return a quotient, or None where a part of it is unknown."""
    return None if dividend is None or not divisor else dividend / divisor
