"""What one group has behind gates: its lanes, and which of their messages are free to go.

A message that may pass all its gates, or did when somebody last looked, is *free*: it stands in the group's own discipline like one
without gates. One that is found at a closed gate when its turn comes is parked there with its whole lane. Looking happens at
delivery, so a gate that closes costs nothing until then.
"""

from collections import deque
from collections.abc import Callable, Sequence
from heapq import nsmallest
from typing import TYPE_CHECKING

from fila import limits
from fila.core.fairness.discipline import Discipline, Key
from fila.core.gates.bucket import TOKEN
from fila.core.gates.gate import ConcurrencyGate, Gate, RateGate
from fila.core.gates.keeper import Keeper
from fila.core.gates.lanes import Lane, LaneSet, Tag
from fila.core.gates.park import Park
from fila.core.model import NO_GATES, GateKeys, GateStats
from fila.core.outcome import Delivery
from fila.core.usage import Usage

if TYPE_CHECKING:
    from fila.core.group import Group

# A lane is found by the number of its tag, above that of its key.
TAG_SHIFT = 32


class Holding:
    """The gated side of a group; there is none until its first message with gates."""

    def __init__(self, group: "Group", keeper: Keeper, usage: Usage) -> None:
        self._group = group
        self._usage = usage
        self._keeper = keeper
        self.number = group.log.number
        self.lanes: dict[int, Lane] = {}
        self._lane_numbers = 0
        # By number; 0 stands for no gates.
        self._tags: list[Tag | None] = [None]
        self._by_keys: dict[GateKeys, Tag] = {}
        self._free_numbers: list[int] = []
        # How many flows of the discipline have lanes: with none it serves as if there were no gates.
        self._mixed = 0
        # How many messages wait at gates.
        self.held = 0
        # Parks that left their gates' lines, because nobody here could take anything.
        self.dozing: list[Park] = []
        # By key's name: the parks that know it.
        self._parks: dict[str, dict[Park, None]] = {}

    # --- what parks ask ---------------------------------------------------------------------------------

    @property
    def wants(self) -> bool:
        """Whether some consumer can take something."""
        return bool(self._group.ready)

    def new_discipline(self, forget: Callable[[Key], None]) -> Discipline:
        """Make a discipline like that of the group."""
        return self._group.new_discipline(forget)

    def weight_of(self, name: str) -> int:
        """Return the weight of a key."""
        return self._group.keys[name].weight

    def cost(self, offset: int) -> int:
        """Return a message's cost."""
        return self._group.log.cost(offset)

    def knows(self, name: str, park: Park) -> None:
        """Hear that a park has an account of a key."""
        self._parks.setdefault(name, {})[park] = None

    def forgets(self, name: str, park: Park) -> None:
        """Hear that it has none any more."""
        parks = self._parks.get(name)
        if parks is not None and parks.pop(park, park) is None and not parks:
            del self._parks[name]

    def reweigh(self, name: str, weight: int) -> None:
        """Give a key another weight wherever it waits."""
        for park in self._parks.get(name, ()):
            park.reweigh(name, weight)

    # --- tags -------------------------------------------------------------------------------------------

    def tag(self, keys: GateKeys) -> int:
        """Return the number of a set of gates, 0 for none."""
        if not any(keys):
            return 0
        tag = self._by_keys.get(keys)
        if tag is None:
            number = self._free_numbers.pop() if self._free_numbers else len(self._tags)
            if number == len(self._tags):
                self._tags.append(None)
            tag = self._tags[number] = self._by_keys[keys] = Tag(number, self._keeper.use(keys))
        return tag.number

    def tags_of(self, gates: Sequence[GateKeys], gate_index: Sequence[int] | None, count: int) -> list[int]:
        """Return the number of the set of gates of each message of a batch."""
        if gate_index is None:
            return [self.tag(gates[0])] * count
        # What no message uses is not made: nothing would take it away again.
        numbers = {place: self.tag(gates[place]) for place in dict.fromkeys(gate_index)}
        return [numbers[place] for place in gate_index]

    def keys_of(self, number: int) -> GateKeys:
        """Return the set of gates of a number, or none where it is forgotten."""
        tag = self._tags[number]
        return NO_GATES if tag is None else tag.gate_set.keys

    def _tag_of(self, offset: int) -> Tag | None:
        return self._tags[self._group.log.gates(offset)]

    def _drop_tag(self, tag: Tag) -> None:
        self._keeper.drop(tag.gate_set)
        del self._by_keys[tag.gate_set.keys]
        self._tags[tag.number] = None
        self._free_numbers.append(tag.number)

    def drop_unused(self) -> None:
        """Forget the sets of gates that no message has."""
        for tag in list(self._by_keys.values()):
            if not tag.live:
                self._drop_tag(tag)

    # --- waiting ----------------------------------------------------------------------------------------

    def push(
        self, keys: Sequence[Key], key_index: Sequence[int] | None, first: int, tags: Sequence[int]
    ) -> None:
        """Let new messages wait."""
        discipline = self._group.discipline
        for place, number in enumerate(tags):
            key = keys[0 if key_index is None else key_index[place]]
            key.live += 1
            tag = self._tags[number]
            if tag is None:
                flow = discipline.shared or key
                flow.lane.append(first + place)
                discipline.waiting += 1
                discipline.woke(flow)
            else:
                tag.live += 1
                self._enter(key, tag, first + place, front=False)

    def push_one(self, key: Key, offset: int, *, front: bool) -> None:
        """Let a message wait again, behind the others of its lane or before them."""
        tag = self._tag_of(offset)
        if tag is not None:
            self._enter(key, tag, offset, front=front)
        elif front:
            self._group.discipline.push_front(key, offset)
        else:
            self._group.discipline.push_back(key, offset)

    def _enter(self, key: Key, tag: Tag, offset: int, *, front: bool) -> None:
        lane = self.lanes.get(tag.number << TAG_SHIFT | key.number)
        if lane is None:
            lane = self._new_lane(key, tag)
            lane.at = self._busy_gate(tag, self._group.log.cost(offset))
        gate = lane.at = None if lane.at is None or lane.at.gone else lane.at
        if gate is None:
            self._enter_free(key, lane, offset, front=front)
        elif front and lane.free:
            # Those that the gate let through come first, and this one before them.
            cost = self.cost(offset)
            park = self._keeper.park(gate, self)
            park.promise(1, cost)
            park.taken_back(lane, -cost)
            self._enter_free(key, lane, offset, front=True)
        else:
            held = lane.held
            if held is None:
                held = lane.held = deque()
            head = front or not held
            if front:
                held.appendleft(offset)
            else:
                held.append(offset)
            self._keeper.hold(lane, self, 1, head=head)

    def _new_lane(self, key: Key, tag: Tag) -> Lane:
        self._lane_numbers += 1
        self._usage.lanes += 1
        lane = self.lanes[tag.number << TAG_SHIFT | key.number] = Lane(
            key.name, key.number, self._lane_numbers, tag
        )
        return lane

    def _drop_lane(self, lane: Lane) -> None:
        self._usage.lanes -= 1
        del self.lanes[lane.tag.number << TAG_SHIFT | lane.key_number]

    def _busy_gate(self, tag: Tag, cost: int) -> Gate | None:
        """Return the gate at which a new lane lines up: where others wait, or it could not pass."""
        for gate in tag.gate_set.gates:
            if gate.busy:
                return gate
            gate.refresh(self._keeper.now_ns)
            if not gate.admits(cost, (0, 0)):
                return gate
        return None

    def _enter_free(self, key: Key, lane: Lane, offset: int, *, front: bool) -> None:
        free = lane.free
        if free is None:
            free = lane.free = deque()
        head = front or not free
        if front:
            free.appendleft(offset)
        else:
            free.append(offset)
        self._grown(self._group.discipline.shared or key, lane, 1, head=head)

    def _grown(self, flow: Key, lane: Lane, count: int, *, head: bool) -> None:
        discipline = self._group.discipline
        if type(flow.lane) is not LaneSet:
            flow.lane = LaneSet(flow.lane or None, None)
            self._mixed += 1
        flow.lane.grown(lane, count, head=head)
        discipline.waiting += count
        discipline.woke(flow)

    def woken(self, lane: Lane, offset: int) -> None:
        """Hear that a gate lets a message through."""
        if not lane.held:
            lane.held = None
        self._enter_free(self._group.keys[lane.key], lane, offset, front=False)

    def free_all(self, park: Park) -> None:
        """Let all lanes of a gate that is no more be free."""
        for lane in park.lanes():
            held, lane.held = lane.held, None
            assert held is not None
            head = not lane.free
            if lane.free is None:
                lane.free = held
            else:
                lane.free.extend(held)
            lane.at = None
            self.held -= len(held)
            self._grown(
                self._group.discipline.shared or self._group.keys[lane.key], lane, len(held), head=head
            )
        for name in list(park.flows):
            self.forgets(name, park)
        self._keeper.heat(self)

    def resume(self) -> None:
        """Stand in line again where somebody can take something now."""
        if self.dozing and self.wants:
            dozing, self.dozing = self.dozing, []
            for park in dozing:
                if park.discipline.waiting and park.gate.parks.get(self.number) is park:
                    park.gate.line_up(park)
                    self._keeper.attention[park.gate] = None

    # --- delivering -------------------------------------------------------------------------------------

    def take(self, count: int, bytes_max: int, force: bool) -> tuple[list[int], list[int]]:
        """Do as `Discipline.take`, and pass the gates."""
        discipline, log = self._group.discipline, self._group.log
        if not self._mixed:
            return discipline.take(count, bytes_max, force)
        offsets: list[int] = []
        while len(offsets) < count and discipline.waiting:
            flow = discipline.choose()
            lanes = flow.lane
            lane = lanes.first() if type(lanes) is LaneSet else None
            if lane is not None:
                assert lane.free
                offset = lane.free[0]
                gate = self._closed(lane, log.cost(offset))
                if gate is not None:
                    self._hold_back(flow, lane, gate)
                    continue
            else:
                plain = lanes.plain if type(lanes) is LaneSet else lanes
                assert plain
                offset = plain[0]
            bytes_max -= log.size(offset)
            if bytes_max < 0 and (offsets or not force):
                break
            offsets.append(offset)
            if type(lanes) is LaneSet:
                lanes.pop(lane)
            else:
                lanes.popleft()
            discipline.waiting -= 1
            cost = log.cost(offset)
            if lane is not None:
                self._passes(lane, cost)
                self._simplify(flow)
            discipline.charge(flow, cost)
        return offsets, list(map(log.key_number, offsets))

    def _closed(self, lane: Lane, cost: int) -> Gate | None:
        """Return the gate that a free lane may not pass."""
        at = lane.at
        if at is None:
            for gate in lane.tag.gate_set.gates:
                gate.refresh(self._keeper.now_ns)
                if gate.busy or not gate.admits(cost, (0, 0)):
                    return gate
            return None
        if not at.gone:
            # It was let through; but somebody else may have taken what there was, or the limit is another one.
            at.refresh(self._keeper.now_ns)
            if not at.admits(cost, (0, 0)):
                return at
        return self._keeper.closed_among(lane, cost, at)

    def _hold_back(self, flow: Key, lane: Lane, gate: Gate) -> None:
        """Park a chosen lane that may not pass; if it was let through, where it came from."""
        free = lane.take_free()
        count = len(free)
        flow.lane.gone(count)
        self._simplify(flow)
        self._group.discipline.waiting -= count
        came_from = None if lane.at is None or lane.at.gone else lane.at
        lane.at = came_from or gate
        if lane.held is None:
            lane.held = free
        else:
            lane.held.extendleft(reversed(free))
        self._keeper.hold(lane, self, count, head=True)
        if came_from is not None:
            park = self._keeper.park(came_from, self)
            cost = sum(map(self.cost, free))
            park.promise(-count, -cost)
            park.taken_back(lane, cost)
            self._keeper.attention[came_from] = None
        if not flow.lane:
            self._group.discipline.drop(flow)

    def _passes(self, lane: Lane, cost: int) -> None:
        self._keeper.passes(lane, cost)
        if not lane.free:
            lane.free = None
        if lane.at is not None:
            park = lane.at.parks.get(self.number)
            if park is not None:
                park.promise(-1, -cost)
                self._keeper.leave_if_empty(park)
        if lane.free is None and lane.held is None:
            self._drop_lane(lane)

    def _simplify(self, flow: Key) -> None:
        """Let a flow without lanes be as it was before it had some."""
        if not flow.lane.has_lanes:
            flow.lane = flow.lane.plain if flow.lane.plain is not None else deque()
            self._mixed -= 1

    # --- the end of leases and messages -------------------------------------------------------------------

    def slots_back(self, offsets: Sequence[int]) -> None:
        """Take note that these are in flight no more."""
        gates = self._group.log.gates
        for number in map(gates, offsets):
            if number:
                self._keeper.slots_back(self.keys_of(number))

    def finish(self, offsets: Sequence[int]) -> None:
        """Take note that these are finished; while their segments are still there."""
        gates = self._group.log.gates
        for number in map(gates, offsets):
            tag = self._tags[number]
            if tag is not None:
                tag.live -= 1
                if not tag.live:
                    self._drop_tag(tag)

    def purge(self) -> None:
        """Take note that only leased messages are left."""
        self._drop_lanes()
        for tag in self._tags:
            if tag is not None:
                tag.live = 0
        for offset in self._group.epochs:
            assert self._group.log.time_ms(offset) is not None, "a leased message is purged"
            tag = self._tag_of(offset)
            if tag is not None:
                tag.live += 1
        self.drop_unused()

    def _drop_lanes(self) -> None:
        self._usage.lanes -= len(self.lanes)
        for gate in dict.fromkeys(lane.at for lane in self.lanes.values() if lane.at is not None):
            gate.parks.pop(self.number, None)
            gate.owing.pop(self.number, None)
            # What was promised here is free for others.
            self._keeper.attention[gate] = None
        self.lanes.clear()
        self._parks.clear()
        self.dozing.clear()
        self._mixed = 0
        self.held = 0

    def remove(self) -> None:
        """Give up everything: the queue is deleted."""
        self.slots_back(list(self._group.epochs))
        self._drop_lanes()
        for tag in list(self._by_keys.values()):
            self._drop_tag(tag)

    # --- recovery and looking -----------------------------------------------------------------------------

    def restore_leased(self, offsets: Sequence[int]) -> None:
        """Take note of what is in flight."""
        for offset in offsets:
            tag = self._tag_of(offset)
            if tag is not None:
                self._keeper.slots_taken(tag.gate_set.keys)

    def restore(self, key: Key, offsets: Sequence[int], waiting: Sequence[int]) -> list[int]:
        """Take back what a key has unfinished, and of that waiting. Return what waits without gates."""
        for offset in offsets:
            tag = self._tag_of(offset)
            if tag is not None:
                tag.live += 1
        plain: list[int] = []
        flow = self._group.discipline.shared or key
        for offset in waiting:
            tag = self._tag_of(offset)
            if tag is None:
                plain.append(offset)
                continue
            lane = self.lanes.get(tag.number << TAG_SHIFT | key.number) or self._new_lane(key, tag)
            if lane.free is None:
                lane.free = deque()
            lane.free.append(offset)
            if type(flow.lane) is not LaneSet:
                flow.lane = LaneSet(flow.lane or None, None)
                self._mixed += 1
            flow.lane.grown(lane, 1, head=len(lane.free) == 1)
        return plain

    def stats(self) -> tuple[GateStats, ...]:
        """Return the gates that messages of the group use."""
        gates = dict.fromkeys(gate for tag in self._by_keys.values() for gate in tag.gate_set.gates)
        return tuple(
            self._gate_stats(gate)
            for gate in nsmallest(limits.STATS_GATES_MAX, gates, key=lambda gate: (gate.name, gate.kind))
        )

    def _gate_stats(self, gate: Gate) -> GateStats:
        gate.refresh(self._keeper.now_ns)
        park = gate.parks.get(self.number)
        waiting = park.discipline.waiting if park is not None else 0
        if isinstance(gate, RateGate):
            bucket = gate.bucket
            tokens, rate, burst = (number / TOKEN for number in (bucket.tokens, bucket.rate, bucket.burst))
            return GateStats(gate.kind.value, gate.name, waiting, tokens, rate, burst)
        if isinstance(gate, ConcurrencyGate):
            in_flight = self._keeper.in_flight.get(gate.name, 0)
            return GateStats(gate.kind.value, gate.name, waiting, limit=gate.limit, in_flight=in_flight)
        return GateStats(gate.kind.value, gate.name, waiting)

    def with_gates(self, delivery: Delivery) -> Delivery:
        """Return a delivery with the gates of its messages, if any has some."""
        numbers = list(map(self._group.log.gates, delivery.offsets))
        if not any(numbers):
            return delivery
        places = {number: place for place, number in enumerate(dict.fromkeys(numbers))}
        return delivery._replace(
            gates=[self.keys_of(number) for number in places],
            gate_index=[places[number] for number in numbers] if len(places) > 1 else None,
        )
