"""The fairness laws of one queue, judged from who was served when. It knows no scheduler.

Three laws, over every interval and not only over whole rounds:

- Interval law: while two keys are backlogged, unchanged in weight and in the round, their services divided by their
  weights differ by at most quantum + c_max/w_i + c_max/w_j. For start-time fair queueing the quantum falls away, and a
  key counts from the moment it is backlogged.
- Lone message law: the first message of an idle key waits for at most 1 delivery, plus 2 for each key that became active
  before it and was not served yet.

- Coming and going gains nothing: while a key is backlogged, one that drains and comes back gets at most twice its share
  (a key may join the round, pay and be new again in one round), and a constant.

For the first, the smallest value that (service of i - service of j) ever had is kept for each pair: the law is broken
when the difference now exceeds it by more than the bound. That covers every interval in one comparison per delivery and
pair. `c_max` is that of each key's own messages, which is at least as strict as one for all.
"""

from collections.abc import Iterable

from fila import limits
from fila.sim.violation import Violation

# Services are floats of up to 10^12 units; what is below a unit is rounding.
TOLERANCE = 0.5


class Share:
    """What one key got."""

    __slots__ = (
        "ahead",
        "allowance",
        "backlogged",
        "cost_max",
        "counted",
        "guests",
        "idle_at",
        "interval",
        "lowest",
        "name",
        "new",
        "reweighed",
        "served",
        "since",
        "slot",
        "total",
        "version",
        "weight",
    )

    def __init__(self, name: str, slot: int) -> None:
        self.name = name
        self.slot = slot
        # None: not known from outside (the newest message of the key was gone at a restart).
        self.weight: int | None = None
        self.cost_max = 1
        self.allowance = 0.0
        self.backlogged = False
        # Whether an interval of the key runs, the number of that interval, and the service in it.
        self.counted = False
        self.interval = 0
        self.served = 0.0
        # By slot of the other key: the least that own service minus its service was while both were counted.
        self.lowest: list[float] = []
        # Backlogged and not served since. `ahead`: how many were so before it; None if it may not have been idle.
        self.new = False
        # All that it ever got, and how often its weight has changed.
        self.total = 0.0
        self.version = 0
        # By slot of a key that comes and goes: its version, and the least that its total was above twice the own service.
        self.guests: dict[int, tuple[int, float]] = {}
        self.ahead: int | None = None
        # By virtual time: its next start was set by another weight, so it counts from its next delivery on.
        self.reweighed = False
        self.since = 0
        # When it drained: (key, its interval, the service at which rounds enough have passed) of every counted key.
        # None: it was never active.
        self.idle_at: list[tuple[Share, int, float]] | None = None


class Shares:
    """Judge of one queue's services."""

    def __init__(self, *, quantum: int, round_robin: bool) -> None:
        self._quantum = quantum
        self._round_robin = self.round_robin = round_robin
        # Whether a delivery may be of somebody who is not judged here: then nobody's wait is.
        self.has_strangers = False
        self._shares: list[Share] = []
        self._counted: list[Share] = []
        self._new_count = 0
        self._deliveries = 0

    def add(self, name: str) -> Share:
        """Begin to judge a key."""
        share = Share(name, len(self._shares))
        self._shares.append(share)
        for other in self._shares:
            other.lowest.append(0.0)
        share.lowest = [0.0] * len(self._shares)
        return share

    # --- what happens to a key --------------------------------------------------------------------------

    def weigh(self, share: Share, weight: int | None, cost_max: int) -> None:
        """A message has come: note weight and cost. A new weight begins a new interval."""
        if weight == share.weight and cost_max <= share.cost_max:
            return
        changed = weight != share.weight
        share.version += changed
        share.weight = weight
        share.cost_max = max(cost_max, share.cost_max)
        if weight is not None:
            share.allowance = limits.COST_UNITS * share.cost_max / weight
        if not changed:
            return
        if share.counted:
            self._leave(share)
            if self._round_robin:
                self._join(share)
        share.reweighed = not self._round_robin

    def activate(self, shares: Iterable[Share]) -> None:
        """These keys have become backlogged, at once or in an order that is not known."""
        group = [share for share in shares if not share.backlogged]
        self._new_count += len(group)
        for share in group:
            share.backlogged = share.new = True
            share.since = self._deliveries
            share.ahead = self._new_count - 1 if self._round_robin and self._surely_idle(share) else None
            if not self._round_robin and not share.reweighed:
                self._join(share)

    def restore(self, share: Share) -> None:
        """The key was backlogged when the broker started: it has a place in the round."""
        share.backlogged = True
        self._join(share)

    def empty(self, share: Share) -> None:
        """Nothing of the key waits any more."""
        share.backlogged = False
        if share.new:
            share.new = False
            self._new_count -= 1
        if share.counted:
            self._leave(share)
        share.idle_at = []
        if share.weight is not None and self._round_robin:
            # Rounds to pay the greatest debt, and those under way.
            rounds = share.cost_max * limits.COST_UNITS // (self._quantum * share.weight) + 3
            share.idle_at = [
                (other, other.interval, other.served + rounds * self._quantum) for other in self._counted
            ]

    def serve(self, share: Share, cost: int) -> None:
        """A message of the key was delivered: judge."""
        if share.new:
            share.new = False
            self._new_count -= 1
            self._check_wait(share, self._deliveries)
            self._check_guest(share, cost)
        elif share.weight is not None:
            share.total += limits.COST_UNITS * cost / share.weight
        self._deliveries += 1
        if share.counted:
            self._check_intervals(share, cost)
        else:
            share.reweighed = False
            self._join(share)

    def serve_together(self, served: Iterable[tuple[Share, int]], drained: Iterable[Share]) -> None:
        """Messages of these keys and costs were delivered, in an order that is not known: judge what it comes to.

        Those that are drained by it had nothing waiting for a part of it: their intervals end before.
        """
        before = self._deliveries
        moved: dict[Share, None] = {}
        joining: dict[Share, None] = {}
        for share, cost in served:
            if share.new:
                share.new = False
                self._new_count -= 1
                self._check_wait(share, before)
            self._deliveries += 1
            if share.counted:
                assert share.weight is not None
                share.served += limits.COST_UNITS * cost / share.weight
                moved[share] = None
            else:
                share.reweighed = False
                joining[share] = None
        for share in drained:
            self.empty(share)
        for share in moved:
            if share.counted:
                self._check_interval(share)
        for share in joining:
            if share.backlogged and not share.counted:
                self._join(share)

    # --- the laws ---------------------------------------------------------------------------------------

    def _check_wait(self, share: Share, deliveries: int) -> None:
        if share.ahead is None or self.has_strangers:
            return
        waited, allowed = deliveries - share.since, 1 + 2 * share.ahead
        if waited > allowed:
            raise Violation(
                "lone message",
                f"key {share.name!r} was idle, had {share.ahead} keys before it and waited for {waited} deliveries,"
                f" not {allowed}",
            )

    def _check_guest(self, share: Share, cost: int) -> None:
        """Judge the first delivery since the key came back, against all that have been here meanwhile."""
        if share.weight is None:
            return
        before = share.total
        share.total = after = before + limits.COST_UNITS * cost / share.weight
        bound = 2 * share.allowance + TOLERANCE + (6 * self._quantum if self._round_robin else 0)
        for host in self._counted:
            if host is share:
                continue
            least = before - 2 * host.served
            version, known = host.guests.get(share.slot, (-1, 0.0))
            if version == share.version and known < least:
                least = known
            host.guests[share.slot] = (share.version, least)
            if after - 2 * host.served - least > bound + 2 * host.allowance:
                raise Violation(
                    "coming and going",
                    f"key {share.name!r} (weight {share.weight}) comes and goes and gained"
                    f" {after - least:,.0f} while {host.name!r} (weight {host.weight}) was served {host.served:,.0f}",
                )

    def _check_intervals(self, share: Share, cost: int) -> None:
        assert share.weight is not None
        share.served += limits.COST_UNITS * cost / share.weight
        self._check_interval(share)

    def _check_interval(self, share: Share) -> None:
        served = share.served
        bound = share.allowance + TOLERANCE + (self._quantum if self._round_robin else 0)
        slot, lowest = share.slot, share.lowest
        for other in self._counted:
            if other is share:
                continue
            ahead = served - other.served
            if ahead - lowest[other.slot] > bound + other.allowance:
                raise Violation(
                    "interval",
                    f"key {share.name!r} (weight {share.weight}) gained {ahead - lowest[other.slot]:,.0f} on"
                    f" {other.name!r} (weight {other.weight}), allowed {bound + other.allowance:,.0f}",
                )
            other.lowest[slot] = min(other.lowest[slot], -ahead)
            lowest[other.slot] = min(lowest[other.slot], ahead)

    def _surely_idle(self, share: Share) -> bool:
        """Whether the round must have passed the key and its debt be paid: another key's service tells the rounds."""
        if share.idle_at is None:
            return True
        return any(
            # A service may be ahead of its rounds by the dearest message so far.
            other.counted and other.interval == interval and other.served - other.allowance > service
            for other, interval, service in share.idle_at
        )

    # --- intervals --------------------------------------------------------------------------------------

    def _join(self, share: Share) -> None:
        if share.weight is None:
            return
        share.counted = True
        share.interval += 1
        share.served = 0.0
        share.guests.clear()
        for other in self._counted:
            share.lowest[other.slot] = -other.served
            other.lowest[share.slot] = other.served
        self._counted.append(share)

    def _leave(self, share: Share) -> None:
        share.counted = False
        self._counted.remove(share)
