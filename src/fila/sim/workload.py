"""Clients and operators, from a seed: a stream of commands and of what happens between them.

Each seed draws its own plan (how many queues, how heavy a backlog, which commands are frequent or missing at all), so that a
thousand seeds are a thousand kinds of days and not one day a thousand times. The clients know what real ones know: what was
answered and delivered to them, also by a broker that has crashed since.
"""

from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from fila import limits
from fila.core.commands import (
    Attach,
    Begin,
    Command,
    CreateQueue,
    Credit,
    DeleteQueue,
    Detach,
    Enqueue,
    GetStats,
    ListQueues,
    PurgeQueue,
    SettleMessages,
    SettleRuns,
    Stop,
)
from fila.core.model import Action, Address, Discipline, QueueSpec, Runs
from fila.core.outcome import Delivery
from fila.sim.gating import Gating

KEYS = 20
CONSUMERS_MIN = 3
HELD_MAX = 300
WEIGHTS = (1, 1, 1, 2, 3, 5, 8, 50)
ACTIONS = (Action.ACK, Action.NACK, Action.RELEASE, Action.EXTEND)

Ask = tuple[Command, bytes]


@dataclass(frozen=True, slots=True)
class Submit:
    """Commands that reach the broker together, each with the bodies it brings."""

    commands: tuple[Ask, ...]


@dataclass(frozen=True, slots=True)
class Advance:
    """Time goes by."""

    span_ns: int


@dataclass(frozen=True, slots=True)
class Wake:
    """Time goes by until the core wants to be woken, or to `early_ns` before."""

    early_ns: int = 0


Event = Submit | Advance | Wake


@dataclass(frozen=True, slots=True)
class Held:
    """A delivery that a client has received."""

    consumer: int
    queue: str
    delivery: Delivery


class Workload:
    """The next event, and what clients see of the answers."""

    def __init__(self, seed: int) -> None:
        self._random = random = Random(seed)
        self.commands = 0
        self.consumers: dict[int, str] = {}
        self._request = 0
        self._consumer = 0
        self._body = 0
        self._held: list[Held] = []
        self._plan = Plan(random)
        self._gating = Gating(seed)
        self._names = [f"queue-{number}" for number in range(self._plan.queues)]
        self._keys = [f"key-{number}" for number in range(KEYS)]
        self._weights = {key: random.choice(WEIGHTS) for key in self._keys}
        self._made: list[Callable[[], Command | None]] = [
            self._enqueue,
            self._settle_runs,
            self._settle_messages,
            self._credit,
            self._attach,
            self._detach,
            self._begin,
            self._stats,
            self._purge,
            self._delete,
            self._create,
            self._stop,
        ]
        self._opening = [self._create_named(name) for name in self._names]
        self._opening += self._gating.opening(self._next_request)
        self._brought = b""

    # --- what clients see -------------------------------------------------------------------------------

    def delivered(self, delivery: Delivery) -> None:
        """A delivery has reached its consumer."""
        self._held.append(Held(delivery.consumer, delivery.queue_name, delivery))
        if len(self._held) > HELD_MAX:
            del self._held[: HELD_MAX // 3]

    def closed(self, consumer: int) -> None:
        """The broker has ended a consumer."""
        self.consumers.pop(consumer, None)

    def crashed(self) -> None:
        """Every connection is gone; what was received is not forgotten."""
        self.consumers.clear()

    # --- the stream -------------------------------------------------------------------------------------

    def next_event(self) -> Event:
        """Return what happens next."""
        random, plan = self._random, self._plan
        if self._opening:
            commands = [(command, b"") for command in self._opening]
            self._opening = []
            self.commands += len(commands)
            return Submit(tuple(commands))
        if random.random() < plan.quiet:
            return self._pause()
        count = 1
        while count < 12 and random.random() < plan.together:
            count += 1
        asks = [self._ask() for _ in range(count)]
        self.commands += count
        return Submit(tuple(asks))

    def _pause(self) -> Event:
        random = self._random
        draw = random.random()
        if draw < 0.35:
            return Advance(random.randrange(2 * limits.MS_NS))
        if draw < 0.6:
            return Advance(random.randrange(200) * limits.MS_NS)
        if draw < 0.7:
            return Advance(random.randrange(self._plan.jump_ms_max) * limits.MS_NS)
        if draw < 0.9:
            return Wake()
        return Wake(early_ns=random.choice((1, 1, limits.MS_NS)))

    def _ask(self) -> Ask:
        random, plan = self._random, self._plan
        if len(self.consumers) < CONSUMERS_MIN and random.random() < 0.5:
            return self._attach(), b""
        change = self._gating.change(self._next_request)
        if change is not None:
            return change, b""
        while True:
            self._brought = b""
            command = self._made[bisect(plan.frequencies, random.random() * plan.frequencies[-1])]()
            if command is not None:
                return command, self._brought

    def _next_request(self) -> int:
        self._request += 1
        return self._request

    def _name(self) -> str:
        """Return a queue: the first are busier than the last; now and then one that nobody has made."""
        random = self._random
        if random.random() < 0.004:
            return "nobody"
        return self._names[int(len(self._names) * random.random() ** self._plan.skew)]

    # --- commands ---------------------------------------------------------------------------------------

    def _create_named(self, name: str) -> Command:
        random, plan = self._random, self._plan
        spec = QueueSpec(
            name,
            random.choices(tuple(Discipline), plan.disciplines)[0],
            random.choice((1, 300, 1_000, 1_000, 1_000, 2_500, 10_000)),
            random.choice((1_000, 1_500, 5_000, 30_000)),
        )
        return CreateQueue(self._next_request(), spec)

    def _create(self) -> Command:
        return self._create_named(self._name())

    def _delete(self) -> Command:
        return DeleteQueue(self._next_request(), self._name())

    def _purge(self) -> Command:
        return PurgeQueue(self._next_request(), self._name())

    def _stats(self) -> Command:
        if self._random.random() < 0.2:
            return ListQueues(self._next_request())
        return GetStats(self._next_request(), self._name())

    def _enqueue(self) -> Command:
        random, plan = self._random, self._plan
        # One message of a key that drains and comes back, again and again; or a batch.
        keys: list[str] = [self._keys[-1]]
        key_index: list[int] | None = None
        count = 1
        if random.random() >= plan.restless:
            count = self._batch_size()
            keys, key_index = self._batch_keys(count)
        weights = costs = None
        if random.random() < plan.weighted:
            if random.random() < plan.reweighing:
                self._weights[random.choice(keys)] = random.choice(WEIGHTS)
            of_key = [self._weights[key] for key in keys]
            weights = [of_key[0]] * count if key_index is None else [of_key[place] for place in key_index]
        if random.random() < plan.costly:
            costs = [random.choice((1, 1, 2, 5, plan.cost_max)) for _ in range(count)]
        bodies = [self._new_body() for _ in range(count)]
        self._brought = b"".join(bodies)
        sizes = [len(body) for body in bodies]
        gates, gate_index = self._gating.gates_of(keys, key_index, count)
        return Enqueue(
            self._next_request(), self._name(), sizes, keys, key_index, weights, costs, gates, gate_index
        )

    def _batch_size(self) -> int:
        random = self._random
        draw = random.random()
        if draw < self._plan.alone:
            return 1
        if draw < 0.995 - self._plan.bulk:
            return random.randint(2, 8)
        if draw < 0.995:
            return random.randint(9, 60)
        return random.randint(100, 700)

    def _batch_keys(self, count: int) -> tuple[list[str], list[int] | None]:
        random = self._random
        if count == 1 or random.random() < 0.3:
            return [self._key()], None if random.random() < 0.7 else [0] * count
        keys = list(dict.fromkeys(self._key() for _ in range(min(count, 8))))
        return keys, [random.randrange(len(keys)) for _ in range(count)]

    def _key(self) -> str:
        keys = KEYS - 1 if self._plan.restless else KEYS
        return self._keys[int(keys * self._random.random() ** self._plan.key_skew)]

    def _new_body(self) -> bytes:
        """Return bytes that no other message has: a number, padded."""
        random, plan = self._random, self._plan
        self._body += 1
        tag = b"%d." % self._body
        draw = random.random()
        if draw < plan.large:
            return tag * (random.randint(limits.PAGE_BYTES // 2, 3 * limits.PAGE_BYTES) // len(tag))
        if draw < plan.middling:
            return tag * random.randint(1, 100)
        return tag

    def _attach(self) -> Command:
        random, plan = self._random, self._plan
        self._consumer += 1
        name = self._name()
        mode = random.random()
        once = mode < plan.once
        refill = plan.once <= mode < plan.once + plan.refill
        if name in self._names:
            self.consumers[self._consumer] = name
        messages = random.randint(1, plan.credit_max)
        byte_count = self._byte_credit()
        return Attach(
            self._next_request(), self._consumer, name, messages, byte_count, refill=refill, once=once
        )

    def _byte_credit(self) -> int:
        random = self._random
        if random.random() < self._plan.byte_bound:
            return random.choice((1, 100, 3_000, 40_000))
        return limits.CREDIT_BYTES_MAX

    def _credit(self) -> Command | None:
        consumer = self._pick_consumer()
        if consumer is None:
            return None
        random = self._random
        return Credit(
            consumer, random.randint(0, self._plan.credit_max), random.choice((0, 100, 5_000, 200_000))
        )

    def _stop(self) -> Command | None:
        consumer = self._pick_consumer()
        return None if consumer is None else Stop(consumer, self._pick_seen(consumer))

    def _pick_seen(self, consumer: int) -> int:
        """Return the last delivery that a consumer may have been sent: 0 is none."""
        epochs = [held.delivery.epoch for held in self._held if held.consumer == consumer]
        return self._random.choice([0, *epochs])

    def _detach(self) -> Command | None:
        consumer = self._pick_consumer()
        if consumer is None:
            return None
        random = self._random
        self.consumers.pop(consumer, None)
        ending = random.random()
        request = self._next_request() if random.random() < 0.5 else 0
        seen = self._pick_seen(consumer)
        return Detach(
            request,
            consumer,
            lost=ending < 0.4,
            keep=ending > 0.8,
            keep_begun=0.3 < ending < 0.7,
            seen=seen if random.random() < 0.3 else None,
        )

    def _pick_consumer(self) -> int | None:
        return self._random.choice(list(self.consumers)) if self.consumers else None

    def _begin(self) -> Command | None:
        held = self._pick_held()
        if held is None:
            return None
        return Begin(held.consumer, self._runs(held))

    def _settle_runs(self) -> Command | None:
        held = self._pick_held()
        if held is None:
            return None
        action = self._action()
        runs = self._runs(held)
        if action is not Action.EXTEND and self._random.random() < 0.85:
            # Most clients settle once; some say it again.
            self._forget(held, runs)
        return SettleRuns(
            self._next_request(), held.consumer, action, runs, self._reason(action), self._timeout_ms(action)
        )

    def _settle_messages(self) -> Command | None:
        held = self._pick_held()
        if held is None:
            return None
        random = self._random
        delivery = held.delivery
        count = min(len(delivery.offsets), random.randint(1, 20))
        places = random.sample(range(len(delivery.offsets)), count)
        addresses = [Address(delivery.queue, delivery.offsets[p], delivery.times_ms[p]) for p in places]
        epochs = None if random.random() < 0.4 else [random.choice((0, delivery.epoch)) for _ in places]
        if random.random() < 0.1:
            addresses[0] = self._wrong(addresses[0])
        if random.random() < 0.05:
            addresses.append(addresses[0])
            if epochs is not None:
                epochs.append(0)
        action = self._action()
        return SettleMessages(
            self._next_request(),
            held.queue,
            action,
            addresses,
            epochs,
            self._reason(action),
            self._timeout_ms(action),
        )

    def _wrong(self, address: Address) -> Address:
        number, offset, time_ms = address.queue_number, address.offset, address.enqueued_at_ms
        return self._random.choice(
            (
                Address(number + 1, offset, time_ms),
                Address(number, offset, time_ms + 1),
                Address(number, offset + 100_000, time_ms),
                Address((1 << limits.QUEUE_NUMBER_BITS) - 1, (1 << limits.OFFSET_BITS) - 1, (1 << 48) - 1),
            )
        )

    def _pick_held(self) -> Held | None:
        """Return something received: mostly of a consumer that is still there, mostly old before new."""
        held = self._held
        if not held:
            return None
        random = self._random
        for _ in range(3):
            found = held[int(len(held) * random.random() ** 1.5)]
            if found.consumer in self.consumers:
                return found
        return random.choice(held)

    def _runs(self, held: Held) -> Runs:
        random = self._random
        epoch, size = held.delivery.epoch, len(held.delivery.offsets)
        draw = random.random()
        if draw < 0.5:
            return Runs((epoch,), (0,), (0,))
        if draw < 0.8:
            position = random.randrange(size)
            return Runs((epoch,), (position,), (random.randint(0, size),))
        if draw < 0.95:
            other = random.choice(self._held).delivery
            return Runs((epoch, other.epoch), (0, 0), (random.randint(1, size), 0))
        return Runs(
            (epoch + random.choice((0, 1, 1 << 41)), epoch), (size - 1, random.randrange(size)), (3, 1)
        )

    def _forget(self, held: Held, runs: Runs) -> None:
        whole = {
            epoch for epoch, position, count in zip(*_columns(runs), strict=True) if position == count == 0
        }
        self._held = [other for other in self._held if other.delivery.epoch not in whole]
        del held

    def _action(self) -> Action:
        return self._random.choices(ACTIONS, self._plan.actions)[0]

    def _reason(self, action: Action) -> str:
        return "it broke" if action is Action.NACK else ""

    def _timeout_ms(self, action: Action) -> int:
        return self._random.choice((1_000, 2_000, 20_000, 60_000)) if action is Action.EXTEND else 0


def _columns(runs: Runs) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return runs.epochs, runs.positions, runs.counts


class Plan:
    """How one seed differs from another."""

    # Enqueue, settle by run, by address, credit, attach, detach, begin, look, purge, delete, create, stop.
    BASE = (30.0, 24.0, 6.0, 12.0, 1.5, 1.0, 1.5, 3.0, 0.4, 0.2, 0.5, 0.3)
    ALWAYS = 5

    def __init__(self, random: Random) -> None:
        self.queues = random.choice((1, 1, 2, 3, 5))
        self.skew = random.choice((1.0, 2.0))
        self.key_skew = random.choice((1.0, 1.0, 2.0, 4.0))
        self.disciplines = random.choice(((1, 0, 0), (1, 0, 0), (0, 1, 0), (6, 3, 1)))
        self.together = random.choice((0.0, 0.2, 0.5, 0.8))
        self.quiet = random.choice((0.05, 0.2, 0.4))
        self.jump_ms_max = random.choice((3_000, 20_000, 60_000))
        # How often a message is the lone one of a key that comes and goes.
        self.restless = random.choice((0.0, 0.0, 0.0, 0.5))
        self.alone = random.choice((0.2, 0.5, 0.9))
        self.bulk = random.choice((0.04, 0.04, 0.04, 0.04, 0.04, 0.4))
        self.weighted = random.choice((0.0, 0.5, 1.0, 1.0))
        self.reweighing = random.choice((0.0, 0.02, 0.3))
        self.costly = random.choice((0.0, 0.0, 0.2, 1.0))
        self.cost_max = random.choice((3, 10, 100))
        self.large = random.choice((0.0, 0.0, 0.002, 0.02))
        self.middling = self.large + random.choice((0.0, 0.05, 0.5))
        self.credit_max = random.choice((3, 20, 20, 200))
        self.byte_bound = random.choice((0.0, 0.0, 0.5))
        self.once = random.choice((0.0, 0.1, 0.3))
        self.refill = random.choice((0.0, 0.2, 0.6))
        self.actions = random.choice(
            ((20, 2, 2, 1), (10, 1, 1, 1), (5, 5, 3, 1), (3, 10, 1, 1), (5, 1, 10, 3))
        )
        factors = [
            0.0 if place >= self.ALWAYS and random.random() < 0.15 else 2.0 ** random.uniform(-1.5, 1.5)
            for place in range(len(self.BASE))
        ]
        self.frequencies = list(
            accumulate(base * factor for base, factor in zip(self.BASE, factors, strict=True))
        )
