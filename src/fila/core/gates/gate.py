"""A gate: whether it is open for a message, and who stands in line at it.

A gate knows its own limit and the parks in line, nothing of queues. The parks of groups that share it take turns: the one to
which least was let through is next, so none gains by messages that are cheap or dear.
"""

from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from fila import limits
from fila.core.gates.bucket import Bucket
from fila.core.gates.rules import Kind, Limit, Rate

if TYPE_CHECKING:
    from fila.core.gates.park import Park


class Gate:
    """What all gates share. One without more is shut: a pause."""

    __slots__ = ("_line", "_ties", "_used", "due_ns", "gone", "kind", "name", "number", "owing", "parks")

    def __init__(self, kind: Kind, name: str, number: int) -> None:
        self.kind = kind
        self.name = name
        # In order of arrival: what orders gates must not be a hash.
        self.number = number
        # By number of the queue: the groups that have lanes here, or messages that it let through and nobody has taken.
        self.parks: dict[int, Park] = {}
        # Those of them that were let through something that nobody has taken.
        self.owing: dict[int, Park] = {}
        # Whether the configuration limits it no more.
        self.gone = False
        # (what was let through to it, tie, park); and that of the last one to which something was.
        self._line: list[tuple[int, int, Park]] = []
        self._ties = 0
        self._used = 0
        # When it asked to be looked at.
        self.due_ns: int | None = None

    # --- whether it is open ------------------------------------------------------------------------------

    def admits(self, cost: int, promised: tuple[int, int]) -> bool:
        """Say whether a message may pass, beside those that were promised to: their number and cost."""
        return False

    def take(self, cost: int) -> None:
        """Let a message pass."""

    def refresh(self, now_ns: int) -> None:
        """Take note of the time."""

    def opens_at_ns(self, cost: int, now_ns: int) -> int | None:
        """Return when to look again for a message that may not pass now; None: when something else happens."""
        return None

    @property
    def is_full(self) -> bool:
        """Whether it has nothing to remember."""
        return True

    def change(self, limit: Limit, now_ns: int) -> None:
        """Take another limit, which holds at once."""

    # --- who waits ---------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether somebody waits here, or was let through and is not away: whoever comes lines up behind."""
        return bool(self.parks)

    def promised(self) -> tuple[int, int]:
        """Return number and cost of what it let through to groups that are taking, and that is not delivered yet."""
        count = cost = 0
        for park in self.owing.values():
            if park.wants:
                count += park.woken_count
                cost += park.woken_cost
        return count, cost

    def line_up(self, park: "Park") -> None:
        """Let a park have its turns."""
        if not park.in_line:
            park.in_line = True
            park.used = max(park.used, self._used)
            self._ties += 1
            heappush(self._line, (park.used, self._ties, park))

    def next_in_line(self) -> "Park | None":
        """Return whose turn it is."""
        return self._line[0][2] if self._line else None

    def leave_line(self) -> None:
        """Let the first in line go."""
        heappop(self._line)[2].in_line = False

    def passed(self, cost: int) -> None:
        """Take note that something was let through to the first in line."""
        self._used, _, park = self._line[0]
        park.used += cost
        self._ties += 1
        heapreplace(self._line, (park.used, self._ties, park))


class RateGate(Gate):
    """A token bucket."""

    __slots__ = ("bucket", "stored")

    def __init__(self, name: str, number: int, bucket: Bucket) -> None:
        super().__init__(Kind.RATE, name, number)
        self.bucket = bucket
        # Whether the store has a record of it.
        self.stored = False

    def admits(self, cost: int, promised: tuple[int, int]) -> bool:
        return self.bucket.admits(cost, promised[1])

    def take(self, cost: int) -> None:
        self.bucket.take(cost)

    def refresh(self, now_ns: int) -> None:
        self.bucket.refill(now_ns)

    def opens_at_ns(self, cost: int, now_ns: int) -> int | None:
        """Return when a message may pass, or a little later so that several do, where nothing is lost by it."""
        bucket = self.bucket
        opens_ns, full_ns = bucket.admits_at_ns(cost), bucket.full_at_ns()
        if opens_ns is None or full_ns is None:
            return opens_ns
        return max(opens_ns, min(full_ns, now_ns + limits.GATE_WAIT_NS))

    @property
    def is_full(self) -> bool:
        return self.bucket.tokens >= self.bucket.burst

    def change(self, limit: Limit, now_ns: int) -> None:
        assert isinstance(limit, Rate)
        self.bucket.change(limit.rate, limit.burst, now_ns)


class ConcurrencyGate(Gate):
    """A number of messages in flight at once; who counts them is told how many there are of each name."""

    __slots__ = ("in_flight", "limit")

    def __init__(self, name: str, number: int, limit: int, in_flight: dict[str, int]) -> None:
        super().__init__(Kind.CONCURRENCY, name, number)
        self.limit = limit
        self.in_flight = in_flight

    def admits(self, cost: int, promised: tuple[int, int]) -> bool:
        return self.in_flight.get(self.name, 0) + promised[0] < self.limit

    def change(self, limit: Limit, now_ns: int) -> None:
        assert isinstance(limit, int)
        self.limit = limit
