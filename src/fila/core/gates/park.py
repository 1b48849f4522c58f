"""A park: what one group has waiting at one gate, in a scheduler of its own.

The group's discipline is used again here, with the weights of the group's keys, so the laws of fairness that hold in the group
hold among those who wait at the gate, counted in what it lets through.
"""

from typing import TYPE_CHECKING

from fila.core.fairness.discipline import Discipline, Key
from fila.core.gates.gate import Gate
from fila.core.gates.lanes import Lane, LaneSet

if TYPE_CHECKING:
    from fila.core.gates.holding import Holding


class Park:
    """The lanes of a group at a gate, and what the gate has let through to it."""

    __slots__ = (
        "discipline",
        "flows",
        "gate",
        "holding",
        "in_line",
        "used",
        "woken_cost",
        "woken_count",
    )

    def __init__(self, gate: Gate, holding: "Holding") -> None:
        self.gate = gate
        self.holding = holding
        self.discipline: Discipline = holding.new_discipline(self._forget)
        # By key's name: what the discipline knows.
        self.flows: dict[str, Key] = {}
        # Let through and not delivered: how many, of what cost.
        self.woken_count = 0
        self.woken_cost = 0
        # The place in the gate's line.
        self.in_line = False
        self.used = 0

    @property
    def wants(self) -> bool:
        """Whether the group has a consumer that can take something now."""
        return self.holding.wants

    @property
    def empty(self) -> bool:
        """Whether nothing waits here, and nothing that was let through is on its way."""
        return not self.discipline.waiting and not self.woken_count

    def hold(self, lane: Lane, count: int, *, head: bool) -> None:
        """Take note of messages that a lane has here besides; `head`: another one is its first now."""
        flow = self._flow(lane)
        flow.lane.grown(lane, count, head=head)
        self.discipline.waiting += count
        self.holding.held += count
        self.discipline.woke(flow)

    def _flow(self, lane: Lane) -> Key:
        """Return what the discipline orders: a lane's key, made if need be, or all keys as one."""
        flow = self.discipline.shared or self.flows.get(lane.key)
        if flow is None:
            flow = self.flows[lane.key] = self.discipline.new_key(lane.key, 0)
            flow.weight = self.holding.weight_of(lane.key)
            self.holding.knows(lane.key, self)
        if type(flow.lane) is not LaneSet:
            flow.lane = LaneSet(None, self.gate)
        return flow

    def _forget(self, key: Key) -> None:
        """The discipline remembers nothing of a key any more."""
        if not key.lane and self.flows.get(key.name) is key:
            del self.flows[key.name]
            self.holding.forgets(key.name, self)

    def reweigh(self, name: str, weight: int) -> None:
        """Give a key another weight."""
        self.discipline.reweigh(self.flows[name], weight)

    def choose(self) -> tuple[Key, Lane]:
        """Return the flow whose turn it is, and its lane with the oldest head. Something waits."""
        flow = self.discipline.choose()
        lane = flow.lane.first()
        assert lane is not None, "a flow at a gate has no lane"
        return flow, lane

    def wake(self, flow: Key, lane: Lane, cost: int) -> int:
        """Let the first message of the chosen lane through, and return it."""
        offset: int = flow.lane.pop(lane)
        self.discipline.waiting -= 1
        self.holding.held -= 1
        self.discipline.charge(flow, cost)
        self.promise(1, cost)
        return offset

    def promise(self, count: int, cost: int) -> None:
        """Take note of messages that were let through and wait to be delivered, or (negative) are away or back."""
        self.woken_count += count
        self.woken_cost += cost
        if self.woken_count:
            self.gate.owing[self.holding.number] = self
        else:
            self.gate.owing.pop(self.holding.number, None)

    def expel(self, flow: Key, lane: Lane) -> None:
        """Let the chosen lane go: it waits at another gate from now on."""
        assert lane.held is not None
        count = len(lane.held)
        flow.lane.gone(count)
        self.discipline.waiting -= count
        self.holding.held -= count
        if not flow.lane:
            self.discipline.drop(flow)

    def taken_back(self, lane: Lane, cost: int) -> None:
        """Give a lane's key back what a message that did not pass after all had cost it here; (negative) charge it."""
        self.discipline.refund(self._flow(lane), cost)

    def lanes(self) -> list[Lane]:
        """Return all lanes that wait here."""
        flows = [self.discipline.shared] if self.discipline.shared else list(self.flows.values())
        return [lane for flow in flows if type(flow.lane) is LaneSet for lane in flow.lane.lanes()]
