"""What a broker should hold, kept by the checker: queues, messages, leases, consumers. Slow, plain, and apart from the core.

Every change is journaled under its step, so that a crash can take back the steps that the store lost. What follows from the
messages (lanes, shares, timers) is not journaled but built again.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from fila import limits
from fila.core.model import NO_GATES, Discipline, GateKeys, QueueSpec
from fila.sim.shares import Share, Shares
from fila.sim.violation import Violation


class State:
    """Where a message is in its life. Plain numbers: they index counts, once for each message and change."""

    WAITING = 0
    DELAYED = 1
    LEASED = 2
    FINISHED = 3


STATES = ("waiting", "delayed", "leased", "finished")


class Message:
    """One message, and its present lease if it has one."""

    __slots__ = (
        "attempts",
        "begun",
        "body",
        "consumer",
        "cost",
        "deadline_ns",
        "epoch",
        "gates",
        "key",
        "not_before_ns",
        "offset",
        "queue",
        "saved_in",
        "size",
        "state",
        "time_ms",
        "weight",
    )

    def __init__(
        self,
        queue: "QueueModel",
        offset: int,
        key: str,
        *,
        weight: int,
        cost: int,
        time_ms: int,
        body: bytes,
        gates: GateKeys = NO_GATES,
    ) -> None:
        self.queue = queue
        self.gates = gates
        self.offset = offset
        self.key = key
        self.weight = weight
        self.cost = cost
        self.time_ms = time_ms
        self.body = body
        self.size = len(body)
        self.state = State.WAITING
        self.attempts = 0
        self.not_before_ns = 0
        self.epoch = 0
        self.deadline_ns = 0
        self.consumer: ConsumerModel | None = None
        self.begun = False
        # The journal's serial number of the last step that saved it.
        self.saved_in = -1

    def leased_under(self, epoch: int) -> bool:
        """Whether this is the message's present lease; 0 means whichever that is."""
        return self.state is State.LEASED and epoch in {0, self.epoch}


class KeyModel:
    """A key's lanes. An entry that is a list holds messages whose order among themselves is free."""

    __slots__ = ("gated", "lane", "lanes", "ready", "share", "weights")

    def __init__(self, lane: "deque[Message | list[Message]]", share: Share) -> None:
        self.lane = lane
        # The lanes of messages that wait at gates, by these. Once it had one, nobody can tell its share from outside.
        self.lanes: dict[GateKeys, deque[Message | list[Message]]] = {}
        self.gated = False
        self.share = share
        self.ready = 0
        # Every weight that a message of the key ever had.
        self.weights: set[int] = set()


class ConsumerModel:
    """A consumer and what it may still receive."""

    __slots__ = (
        "attached",
        "begun",
        "bytes",
        "held",
        "messages",
        "number",
        "once",
        "queue",
        "refill",
        "stopped",
        "unsent",
    )

    def __init__(self, number: int, queue: "QueueModel", messages: int, byte_count: int) -> None:
        self.number = number
        self.queue = queue
        self.messages = messages
        self.bytes = byte_count
        self.refill = False
        self.once = False
        self.attached = True
        # Whether it wants nothing more: then no credit counts.
        self.stopped = False
        # Whether it ever reported what it has begun.
        self.begun = False
        # With `refill`: deliveries not on their way yet, with the messages and bytes of their leases that ended meanwhile.
        self.unsent: dict[int, tuple[int, int]] = {}
        # Leases it holds, by (queue number, offset), in the order of delivery.
        self.held: dict[tuple[int, int], Message] = {}

    def grant(self, messages: int, byte_count: int) -> None:
        """Add to what it may still receive."""
        if not self.stopped:
            self.messages += messages
            self.bytes += byte_count


class QueueModel:
    """A queue: its unfinished messages, and what waits by key."""

    def __init__(self, number: int, spec: QueueSpec) -> None:
        self.number = number
        self.spec = spec
        self.next_offset = 0
        self.deleted = False
        self.body_bytes_max = 0
        self.messages: dict[int, Message] = {}
        self.counts = [0] * len(STATES)
        self.keys: dict[str, KeyModel] = {}
        # The weight of each key's newest message, finished or not.
        self.weights: dict[str, int] = {}
        self.consumers: dict[int, ConsumerModel] = {}
        self.reset_lanes()

    def reset_lanes(self) -> None:
        """Forget who waits and what they got."""
        self.keys = {}
        self.shared_lane: deque[Message | list[Message]] | None = None
        if self.spec.discipline is Discipline.FIFO:
            self.shared_lane = deque()
        self.shares = Shares(quantum=self.spec.quantum, round_robin=self.spec.discipline is Discipline.DRR)

    @property
    def judged(self) -> bool:
        """Whether the discipline promises shares."""
        return self.shared_lane is None

    def lane_of(self, message: Message) -> "deque[Message | list[Message]]":
        """Return the lane of a message."""
        key = self.key(message.key)
        if not any(message.gates):
            return key.lane
        return key.lanes.setdefault(message.gates, deque())

    def lanes(self) -> list[list[Message]]:
        """Return all lanes, each in order."""
        found = [key.lane for key in self.keys.values()] if self.judged else [self.shared_lane or deque()]
        found += [lane for key in self.keys.values() for lane in key.lanes.values()]
        return [_flat(lane) for lane in found if lane]

    def _gate_key(self, message: Message) -> None:
        """Take note that a key has a message with gates: its share is not judged from now on."""
        if any(message.gates):
            self.shares.has_strangers = True
            key = self.key(message.key)
            if not key.gated:
                key.gated = True
                if key.ready and self.judged:
                    self.shares.empty(key.share)

    def key(self, name: str) -> KeyModel:
        """Return a key, made on first sight."""
        key = self.keys.get(name)
        if key is None:
            lane = self.shared_lane
            key = self.keys[name] = KeyModel(deque() if lane is None else lane, self.shares.add(name))
        return key

    def move(self, message: Message, state: int) -> None:
        """Change a message's state, and keep count."""
        self.counts[message.state] -= 1
        self.counts[state] += 1
        message.state = state
        if state is State.FINISHED:
            del self.messages[message.offset]

    # --- lanes ------------------------------------------------------------------------------------------

    def line_up(self, messages: Sequence[Message], *, front: bool = False, ordered: bool = True) -> None:
        """Put messages at the end of their lanes, or before all others, in this order or in any."""
        waking = self.place(messages, front=front, ordered=ordered)
        if waking and self.judged:
            # Together: which of them stands first in the list of new keys is nobody's promise.
            self.shares.activate(waking)

    def place(self, messages: Sequence[Message], *, front: bool = False, ordered: bool = True) -> list[Share]:
        """Do the same, and leave it to the caller to activate the keys that this wakes."""
        lanes: dict[int, list[Message]] = {}
        for message in messages:
            self.move(message, State.WAITING)
            self._gate_key(message)
            lanes.setdefault(id(self.lane_of(message)), []).append(message)
        waking: list[Share] = []
        for entries in lanes.values():
            lane = self.lane_of(entries[0])
            for message in entries:
                key = self.keys[message.key]
                key.ready += 1
                if key.ready == 1 and not key.gated:
                    waking.append(key.share)
            if not ordered and len(entries) > 1:
                lane.append(entries)
            elif front:
                lane.extendleft(reversed(entries))
            else:
                lane.extend(entries)
        return waking

    def take(self, message: Message) -> None:
        """Take a message off its lane, where it must be the first."""
        key = self.keys[message.key]
        lane = self.lane_of(message)
        head = lane[0]
        if head is message:
            lane.popleft()
        elif isinstance(head, list) and message in head:
            head.remove(message)
            if not head:
                lane.popleft()
        else:
            first = head[0] if isinstance(head, list) else head
            raise Violation(
                "order", f"{describe(message)} was delivered before {describe(first)} of the same lane"
            )
        key.ready -= 1
        if self.judged and not key.gated:
            self.shares.serve(key.share, message.cost)
            if not key.ready:
                self.shares.empty(key.share)

    def clear_lanes(self) -> None:
        """Take note that nothing waits any more."""
        for key in self.keys.values():
            key.lane.clear()
            key.lanes.clear()
            if key.ready:
                key.ready = 0
                if self.judged and not key.gated:
                    self.shares.empty(key.share)

    def weigh(self, name: str, weight: int, cost: int) -> None:
        """A message of the key has come."""
        self.weights[name] = weight
        key = self.key(name)
        key.weights.add(weight)
        self.shares.weigh(key.share, weight, cost)

    def rebuild(self) -> None:
        """Line up after a restart: by offset, every key with its place in the round."""
        weights_seen = {name: key.weights for name, key in self.keys.items()}
        self.reset_lanes()
        newest: dict[str, Message] = {}
        for offset in sorted(self.messages):
            message = self.messages[offset]
            key = self.key(message.key)
            key.share.cost_max = max(key.share.cost_max, message.cost)
            newest[message.key] = message
            self._gate_key(message)
            if message.state is State.WAITING:
                self.lane_of(message).append(message)
                key.ready += 1
        for name, key in self.keys.items():
            key.weights = weights_seen.get(name, set()) | {newest[name].weight}
            # With the newest message gone, which weight was the last is not written down.
            if len(key.weights) == 1:
                self.shares.weigh(key.share, newest[name].weight, key.share.cost_max)
            if key.ready and self.judged and not key.gated:
                self.shares.restore(key.share)


def _flat(lane: "Iterable[Message | list[Message]]") -> list[Message]:
    return [message for entry in lane for message in (entry if isinstance(entry, list) else [entry])]


def describe(message: Message) -> str:
    """Name a message in a complaint."""
    return f"message {message.offset} (key {message.key!r}, {STATES[message.state]}) of queue {message.queue.spec.name!r}"


def backoff_ns(attempts: int) -> int:
    """Return how long a message waits after its failure number `attempts`."""
    if attempts < 2:
        return 0
    span_ms = min(limits.RETRY_BACKOFF_MS_FIRST << min(attempts - 2, 40), limits.RETRY_BACKOFF_MS_MAX)
    return span_ms * limits.MS_NS


class Timers:
    """Deadlines of leases and ends of delays; entries that no longer hold are skipped."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Message, int]] = []
        self._count = 0

    def set(self, message: Message) -> None:
        """Remember when the message's present lease or delay ends."""
        self._count += 1
        time_ns = message.deadline_ns if message.state is State.LEASED else message.not_before_ns
        heappush(self._heap, (time_ns, self._count, message, message.state))

    def next_ns(self) -> int | None:
        """Return when the next of them ends."""
        heap = self._heap
        while heap:
            time_ns, _, message, state = heap[0]
            if message.state is state:
                holds = message.deadline_ns if state is State.LEASED else message.not_before_ns
                if holds == time_ns and not message.queue.deleted:
                    return time_ns
            heappop(heap)
        return None

    def pop_due(self, now_ns: int) -> list[Message]:
        """Return the messages whose lease or delay has ended."""
        due: dict[int, Message] = {}
        while True:
            time_ns = self.next_ns()
            if time_ns is None or time_ns > now_ns:
                return list(due.values())
            message = heappop(self._heap)[2]
            due[id(message)] = message


class Journal:
    """What each step changed, until its writes are durable."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, int, list[tuple[object, ...]]]] = deque()
        self._serial = 0
        self.step = -1
        # When the last step was that no crash can take.
        self.survived_ns = 0

    def begin(self, step: int, now_ns: int) -> None:
        """Journal what follows under this step."""
        assert step > self.step, f"step {step} comes after step {self.step}"
        self.step = step
        self._serial += 1
        self._steps.append((step, now_ns, []))

    def save(self, message: Message) -> None:
        """Note a message's state before its first change in the step."""
        if message.saved_in == self._serial:
            return
        message.saved_in = self._serial
        saved = (message.state, message.attempts, message.not_before_ns, message.epoch, message.deadline_ns)
        self._steps[-1][2].append(("message", message, *saved))

    def note(self, *change: object) -> None:
        """Note another change: ("append" | "create" | "delete", queue, before)."""
        self._steps[-1][2].append(change)

    def forget(self, step: int) -> None:
        """The steps up to this one cannot be lost any more."""
        while self._steps and self._steps[0][0] <= step:
            self.survived_ns = self._steps.popleft()[1]

    def take_back(self, step: int) -> Iterable[tuple[object, ...]]:
        """Yield the changes of all steps after this one, last first, and forget them."""
        while self._steps and self._steps[-1][0] > step:
            yield from reversed(self._steps.pop()[2])
        self.step = step
