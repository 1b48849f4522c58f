"""The keeper of all gates of a shard: which there are, which may be open now, and who goes through first.

A message waits at one gate at a time, in the scheduler of its group there (`park.py`). When something may have opened a gate, the
gate is looked at once in the step: while it is open, whose turn it is gets the message through that its scheduler names into the
group's own discipline, unless another gate of the message is closed: then its lane goes to wait there, and its room is passed on.
What was let through still has to be delivered, and only that takes tokens and slots.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from fila.core.gates.bucket import Bucket
from fila.core.gates.gate import ConcurrencyGate, Gate, RateGate
from fila.core.gates.lanes import GateSet, Lane
from fila.core.gates.park import Park
from fila.core.gates.rules import Entry, Kind, Limit, Rate, Rules
from fila.core.model import GateKeys
from fila.core.outcome import DropBucket, DropRest, PutBucket, PutRest, Write

if TYPE_CHECKING:
    from fila.core.gates.holding import Holding


class Keeper:
    """All gates by kind and name. `hot` is told of the groups that have something to deliver."""

    def __init__(self, now_ns: int, hot: Callable[["Holding"], None]) -> None:
        self.now_ns = now_ns
        self.in_flight: dict[str, int] = {}
        # Gates to be looked at in this step, and again when it has delivered.
        self.attention: dict[Gate, None] = {}
        self.again: dict[Gate, None] = {}
        self.rules = Rules()
        # Told of a group that may have something to deliver.
        self.heat = hot
        self._gates: dict[tuple[Kind, str], Gate] = {}
        self._numbers = 0
        self._sets: dict[GateKeys, GateSet] = {}
        self._users: dict[str, dict[GateKeys, GateSet]] = {}
        # (when, gate's number, gate): when gates may open; one entry of each counts. And when those that nobody uses are full.
        self._openings: list[tuple[int, int, Gate]] = []
        self._idle: list[tuple[int, int, RateGate]] = []
        # Rate gates whose record may be behind.
        self._touched: dict[RateGate, None] = {}
        # Since when new buckets fill from nothing; None: they begin full.
        self._empty_since_ns: int | None = None
        self._restored: dict[str, Bucket] = {}
        self._writes: list[Write] = []
        self._rested = False

    # --- sets of gates ----------------------------------------------------------------------------------

    def use(self, keys: GateKeys) -> GateSet:
        """Return the set of gates with these names, for one group more."""
        gate_set = self._sets.get(keys)
        if gate_set is None:
            gate_set = self._sets[keys] = GateSet(keys)
            for name in dict.fromkeys(keys.throttle + keys.concurrency):
                self._users.setdefault(name, {})[keys] = gate_set
            self._resolve(gate_set)
        gate_set.uses += 1
        return gate_set

    def drop(self, gate_set: GateSet) -> None:
        """Take note that a group knows a set of gates no more."""
        gate_set.uses -= 1
        if gate_set.uses:
            return
        del self._sets[gate_set.keys]
        for name in dict.fromkeys(gate_set.keys.throttle + gate_set.keys.concurrency):
            users = self._users[name]
            del users[gate_set.keys]
            if not users:
                del self._users[name]
                for kind in Kind:
                    self._unused(kind, name)

    def _unused(self, kind: Kind, name: str) -> None:
        """Forget a gate that nobody uses, but not how empty its bucket is."""
        gate = self._gates.get((kind, name))
        if not isinstance(gate, RateGate):
            self._gates.pop((kind, name), None)
            return
        gate.refresh(self.now_ns)
        full_ns = gate.bucket.full_at_ns()
        if full_ns is not None:
            heappush(self._idle, (full_ns, gate.number, gate))

    def _sweep(self) -> None:
        """Forget buckets that nobody uses and that are full again: they would begin full too."""
        while self._idle and self._idle[0][0] <= self.now_ns:
            _, _, gate = heappop(self._idle)
            if gate.name in self._users or self._gates.get((Kind.RATE, gate.name)) is not gate:
                continue
            gate.refresh(self.now_ns)
            if gate.is_full:
                self._forget(gate)
            else:
                self._unused(Kind.RATE, gate.name)

    def _forget(self, gate: Gate) -> None:
        del self._gates[gate.kind, gate.name]
        if isinstance(gate, RateGate):
            self._restored.pop(gate.name, None)
            self._touched.pop(gate, None)
            if gate.stored:
                self._writes.append(DropBucket(gate.name))

    def _resolve(self, gate_set: GateSet) -> None:
        keys = gate_set.keys
        names = {Kind.PAUSE: keys.throttle + keys.concurrency, Kind.CONCURRENCY: keys.concurrency}
        names[Kind.RATE] = keys.throttle
        found = [self._gate(kind, name) for kind in Kind for name in dict.fromkeys(names[kind])]
        gate_set.gates = tuple(gate for gate in found if gate is not None)

    def _gate(self, kind: Kind, name: str) -> Gate | None:
        """Return the gate of that name, made if need be; None: nothing limits it."""
        gate = self._gates.get((kind, name))
        if gate is not None:
            return gate
        limit = self.rules.find(kind, name)
        if limit is None or limit is False:
            return None
        self._numbers += 1
        if isinstance(limit, Rate):
            gate = RateGate(name, self._numbers, self._bucket(name, limit))
            gate.stored = name in self._restored
            self._sweep()
        elif kind is Kind.CONCURRENCY:
            gate = ConcurrencyGate(name, self._numbers, limit, self.in_flight)
        else:
            gate = Gate(kind, name, self._numbers)
        self._gates[kind, name] = gate
        return gate

    def _bucket(self, name: str, limit: Rate) -> Bucket:
        before = self._restored.get(name)
        if before is not None:
            bucket = Bucket(limit.rate, limit.burst, before.tokens, before.at_ns)
        elif self._empty_since_ns is None:
            return Bucket(limit.rate, limit.burst, limit.burst, self.now_ns)
        else:
            bucket = Bucket(limit.rate, limit.burst, 0, self._empty_since_ns)
        bucket.refill(self.now_ns)
        return bucket

    # --- the configuration ------------------------------------------------------------------------------

    def changed(self, entry: Entry, limit: Limit | None) -> None:
        """Let an entry of the configuration hold from now on, also for what waits."""
        self.rules.set(entry, limit)
        if entry.name.endswith("*"):
            prefix = entry.name[:-1]
            # Also those that nobody uses now, and that are remembered because they are not full.
            known = dict.fromkeys([*self._users, *(name for kind, name in self._gates if kind is entry.kind)])
            names = [name for name in known if name.startswith(prefix)]
        else:
            names = [entry.name]
        # First all gates, then the sets that have them: to resolve one set may make gates that others have too.
        gone: list[Gate] = []
        sets: dict[GateKeys, GateSet] = {}
        for name in names:
            gate = self._gates.get((entry.kind, name))
            if not self._limits_anew(entry.kind, name, gate):
                sets.update(self._users.get(name, {}))
                gone += [gate] if gate is not None and gate.gone else []
        for gate_set in sets.values():
            self._resolve(gate_set)
        for gate in gone:
            for park in list(gate.parks.values()):
                park.holding.free_all(park)
            gate.parks.clear()
            gate.owing.clear()

    def _limits_anew(self, kind: Kind, name: str, gate: Gate | None) -> bool:
        """Let a gate take the limit that its name has now; False: there is a gate where there was none, or the other way round."""
        limit = self.rules.find(kind, name)
        if gate is None:
            return limit is None or limit is False or name not in self._users
        if limit is None or limit is False:
            gate.gone = True
            self._forget(gate)
            return False
        gate.refresh(self.now_ns)
        if name not in self._users and gate.is_full:
            # As good as forgotten: it begins anew.
            self._forget(gate)
            return True
        gate.change(limit, self.now_ns)
        self.attention[gate] = None
        return True

    # --- opening ----------------------------------------------------------------------------------------

    def next_wake_ns(self) -> int | None:
        """Return when the next gate may open for somebody."""
        openings = self._openings
        while openings and openings[0][2].due_ns != openings[0][0]:
            heappop(openings)
        return openings[0][0] if openings else None

    def fall_due(self, now_ns: int) -> None:
        """Take note of the time, and of the gates that may be open by now."""
        self.now_ns = now_ns
        while (due_ns := self.next_wake_ns()) is not None and due_ns <= now_ns:
            gate = heappop(self._openings)[2]
            gate.due_ns = None
            self.attention[gate] = None

    def look_again(self) -> None:
        """Look again at the gates whose room was promised: those to whom it was may have had no use for it."""
        self.attention.update(self.again)
        self.again.clear()

    def serve(self) -> None:
        """Let through what may pass the gates that need to be looked at."""
        while self.attention:
            gate = next(iter(self.attention))
            del self.attention[gate]
            gate.refresh(self.now_ns)
            self._serve(gate)

    def _serve(self, gate: Gate) -> None:
        while (park := gate.next_in_line()) is not None:
            if not park.discipline.waiting or gate.parks.get(park.holding.number) is not park:
                gate.leave_line()
                continue
            if not park.wants:
                gate.leave_line()
                park.holding.dozing.append(park)
                continue
            flow, lane = park.choose()
            assert lane.held, "a lane holds nothing"
            cost = park.holding.cost(lane.held[0])
            promised = gate.promised()
            if not gate.admits(cost, promised):
                if promised[0]:
                    self.again[gate] = None
                else:
                    self._expect(gate, gate.opens_at_ns(cost, self.now_ns))
                return
            other = self.closed_among(lane, cost, gate)
            if other is not None:
                park.expel(flow, lane)
                self._move(lane, park, other)
                continue
            offset = park.wake(flow, lane, cost)
            gate.passed(cost)
            park.holding.woken(lane, offset)
            self.heat(park.holding)

    def closed_among(self, lane: Lane, cost: int, but: Gate | None) -> Gate | None:
        """Return the first gate of a lane, but for one, at which a message may not pass now."""
        for gate in lane.tag.gate_set.gates:
            if gate is but:
                continue
            gate.refresh(self.now_ns)
            if not gate.admits(cost, gate.promised()):
                return gate
        return None

    def _expect(self, gate: Gate, due_ns: int | None) -> None:
        if due_ns is not None and (gate.due_ns is None or due_ns < gate.due_ns):
            gate.due_ns = due_ns
            heappush(self._openings, (due_ns, gate.number, gate))

    def _move(self, lane: Lane, park: Park, other: Gate) -> None:
        """Let a lane that its gate would let through wait at another gate."""
        if lane.free:
            # Let through before and not delivered: it is the other gate's from now on.
            cost = sum(map(park.holding.cost, lane.free))
            park.promise(-len(lane.free), -cost)
            self.park(other, park.holding).promise(len(lane.free), cost)
        self.leave_if_empty(park)
        assert lane.held is not None
        lane.at = other
        self.hold(lane, park.holding, len(lane.held), head=True)

    # --- parks ------------------------------------------------------------------------------------------

    def park(self, gate: Gate, holding: "Holding") -> Park:
        """Return what a group has at a gate, made if need be."""
        park = gate.parks.get(holding.number)
        if park is None:
            park = gate.parks[holding.number] = Park(gate, holding)
        return park

    def hold(self, lane: Lane, holding: "Holding", count: int, *, head: bool) -> None:
        """Let messages that a lane holds besides wait at its gate; `head`: another one is its first now."""
        gate = lane.at
        assert gate is not None, "a lane is held at no gate"
        park = self.park(gate, holding)
        park.hold(lane, count, head=head)
        gate.line_up(park)
        if head:
            # Another message may be the next now, and a cheaper one.
            self.attention[gate] = None

    def leave_if_empty(self, park: Park) -> None:
        """Forget a park that has nothing: with nobody waiting, nobody is owed anything."""
        if park.empty:
            park.gate.parks.pop(park.holding.number, None)
            for name in park.flows:
                park.holding.forgets(name, park)

    # --- passing ----------------------------------------------------------------------------------------

    def passes(self, lane: Lane, cost: int) -> None:
        """Take tokens and slots for a message that is delivered."""
        gate_set = lane.tag.gate_set
        for gate in gate_set.gates:
            gate.take(cost)
            if isinstance(gate, RateGate) and (gate.stored or gate.bucket.tokens < 0):
                self._touched[gate] = None
        for name in gate_set.keys.concurrency:
            self.in_flight[name] = self.in_flight.get(name, 0) + 1
        if self._rested:
            self._rested = False
            self._writes.append(DropRest())

    def slots_taken(self, keys: GateKeys) -> None:
        """Take note of a message that was in flight when the broker started."""
        for name in keys.concurrency:
            self.in_flight[name] = self.in_flight.get(name, 0) + 1

    def slots_back(self, keys: GateKeys) -> None:
        """Give back what a message took that is in flight no more."""
        for name in keys.concurrency:
            left = self.in_flight[name] - 1
            assert left >= 0, "a slot comes back twice"
            if left:
                self.in_flight[name] = left
            else:
                del self.in_flight[name]
            gate = self._gates.get((Kind.CONCURRENCY, name))
            if gate is not None and gate.parks:
                self.attention[gate] = None

    # --- what is stored ---------------------------------------------------------------------------------

    def restore(self, record: PutBucket) -> None:
        """Take back how full a bucket was, before `ready`."""
        # Its limit is not known here, and is given to it when it is asked for.
        self._restored[record.name] = Bucket(0, max(0, record.tokens), record.tokens, record.at_ns)

    def ready(self, *, rested: bool, empty: bool) -> None:
        """End recovery: after a clean stop buckets are as they were, after a crash empty or in debt.

        `empty`: the store is new, and nothing can have passed.
        """
        if rested:
            self._writes.append(DropRest())
        elif not empty:
            self._empty_since_ns = self.now_ns
        for name, stored in list(self._restored.items()):
            limit = self.rules.find(Kind.RATE, name)
            bucket = None
            if isinstance(limit, Rate):
                bucket = Bucket(limit.rate, limit.burst, stored.tokens, stored.at_ns)
                bucket.refill(self.now_ns)
                if not rested:
                    bucket.tokens = min(0, bucket.tokens)
            if bucket is None or bucket.tokens >= 0:
                self._writes.append(DropBucket(name))
            if bucket is None or (not rested and bucket.tokens >= 0):
                del self._restored[name]
            else:
                self._restored[name] = bucket

    def rest(self, writes: list[Write]) -> None:
        """Write what a clean stop leaves, where there are rates."""
        if not self.rules.has_rates:
            return
        for gate in self._gates.values():
            if isinstance(gate, RateGate):
                gate.refresh(self.now_ns)
                bucket = gate.bucket
                if bucket.tokens < bucket.burst:
                    writes.append(PutBucket(gate.name, bucket.tokens, self.now_ns))
                    gate.stored = True
        writes.append(PutRest())
        self._rested = True

    def close(self, writes: list[Write]) -> bool:
        """Write what this step means for buckets, and say whether it must be synced before anything goes out."""
        for gate in self._touched:
            if gate.bucket.tokens < 0:
                gate.refresh(self.now_ns)
                writes.append(PutBucket(gate.name, gate.bucket.tokens, self.now_ns))
                gate.stored = True
            elif gate.stored:
                writes.append(DropBucket(gate.name))
                gate.stored = False
        self._touched.clear()
        if not self._writes:
            return False
        writes.extend(self._writes)
        must_sync = any(type(write) is DropRest for write in self._writes)
        self._writes.clear()
        return must_sync

    def gate_of(self, kind: Kind, name: str) -> Gate | None:
        """Return a gate if it is in use."""
        return self._gates.get((kind, name))
