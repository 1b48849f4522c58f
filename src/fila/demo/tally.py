"""What has been sent and delivered so far, and how long it waited. Knows neither the broker nor the screen."""

from collections import deque
from dataclasses import dataclass
from statistics import median

from fila.demo.plan import Discipline


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant in one queue, at a moment."""

    name: str
    planned: int
    sent: int
    delivered: int
    # Of what was delivered: from the broker taking it to the broker handing it out.
    median_wait_ms: float
    longest_wait_ms: float
    # How long the oldest that is not delivered has waited by now; None when there is none.
    waiting_ms: float | None


@dataclass(frozen=True, slots=True)
class Run:
    """One queue, at a moment."""

    discipline: Discipline
    tenants: tuple[Tenant, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """All that there is to show at a moment; the last one is the result."""

    elapsed_seconds: float
    planned_seconds: float
    rate_per_s: int
    runs: tuple[Run, ...]


class Tally:
    """Counts one tenant in one queue."""

    def __init__(self, name: str, planned: int) -> None:
        self._name = name
        self._planned = planned
        self._sent = 0
        self._waits_ms: list[float] = []
        # When those were sent that are not delivered. A tenant's messages keep their order in both disciplines.
        self._sent_at_s: deque[float] = deque()

    @property
    def complete(self) -> bool:
        """Whether all that was planned is delivered."""
        return len(self._waits_ms) >= self._planned

    def send(self, now_s: float, count: int = 1) -> None:
        """Note what is on its way to the broker."""
        self._sent += count
        self._sent_at_s.extend([now_s] * count)

    def deliver(self, wait_ms: float) -> None:
        """Note what came back, and how long it waited."""
        self._sent_at_s.popleft()
        self._waits_ms.append(wait_ms)

    def at(self, now_s: float) -> Tenant:
        """Return what there is to show."""
        waits_ms = self._waits_ms
        return Tenant(
            name=self._name,
            planned=self._planned,
            sent=self._sent,
            delivered=len(waits_ms),
            median_wait_ms=median(waits_ms) if waits_ms else 0.0,
            longest_wait_ms=max(waits_ms, default=0.0),
            waiting_ms=(now_s - self._sent_at_s[0]) * 1000 if self._sent_at_s else None,
        )
