"""The core against the simulator's own account of it, one command at a time, so that a failure shrinks to a few lines."""

from contextlib import ExitStack
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fila import limits
from fila.core.commands import (
    Attach,
    Begin,
    CreateQueue,
    Credit,
    DeleteQueue,
    Detach,
    Enqueue,
    GetStats,
    PurgeQueue,
    Sent,
    SettleMessages,
    SettleRuns,
    Stop,
)
from fila.core.model import Action, Address, Discipline, QueueSpec, Runs
from fila.core.outcome import (
    DeleteAttempt,
    DeleteLease,
    DeletePage,
    DeleteProgress,
    DeleteRow,
    DropQueue,
    DropRange,
    PutAttempt,
    PutLease,
    PutPage,
    PutProgress,
    PutRow,
)
from fila.core.scheduler import Scheduler
from fila.sim.checker import Checker
from fila.sim.model import State

QUEUES = ("one", "two")
KEYS = ("a", "b", "c")
SEGMENT = limits.SEGMENT_MESSAGES


class Tables:
    """What the writes leave in a store, without bytes: rows and pages by first offset, with their ends."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], int] = {}
        self.pages: dict[tuple[int, int], int] = {}
        self.progress: dict[tuple[int, int], int] = {}
        self.attempts: dict[tuple[int, int], int] = {}
        self.leases: dict[tuple[int, int], tuple[int, ...]] = {}

    def apply(self, writes) -> None:
        """Do what the writes say, in their order."""
        for write in writes:
            kind = type(write)
            if kind is PutRow:
                self.rows[write.queue, write.first] = write.first + len(write.sizes)
            elif kind is PutPage:
                self.pages[write.queue, write.first] = write.first + len(write.sizes)
            elif kind is DeleteRow:
                del self.rows[write.queue, write.first]
            elif kind is DeletePage:
                del self.pages[write.queue, write.first]
            elif kind is PutProgress:
                self.progress[write.queue, write.first] = write.finished
            elif kind is DeleteProgress:
                del self.progress[write.queue, write.first]
            elif kind is PutAttempt:
                self.attempts[write.queue, write.offset] = write.attempts
            elif kind is DeleteAttempt:
                del self.attempts[write.queue, write.offset]
            elif kind is PutLease:
                self.leases[write.queue, write.epoch] = tuple(write.offsets)
            elif kind is DeleteLease:
                self.leases.pop((write.queue, write.epoch), None)
            elif kind is DropRange:
                self._drop(write.queue, write.first, write.end)
            elif kind is DropQueue:
                self._drop(write.number, 0, 1 << limits.OFFSET_BITS)
                self.leases = {key: held for key, held in self.leases.items() if key[0] != write.number}

    def _drop(self, queue: int, first: int, end: int) -> None:
        for table in (self.rows, self.pages, self.progress, self.attempts):
            for key in [key for key in table if key[0] == queue and first <= key[1] < end]:
                del table[key]

    def unfinished(self, queue: int) -> set[int]:
        """Return the offsets that a recovery would find."""
        return {
            offset
            for (number, first), end in self.rows.items()
            if number == queue
            for offset in range(first, end)
            if not self.progress.get((queue, offset - offset % SEGMENT), 0) >> offset % SEGMENT & 1
        }


class CoreMachine(RuleBasedStateMachine):
    """Every rule is one step, judged by the checker; the invariants look at what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.small_limits = ExitStack()
        for name, value in (("SEGMENT_ROWS_MAX", 2), ("PAGE_BYTES", 300), ("DELIVERY_MESSAGES_MAX", 50)):
            self.small_limits.enter_context(patch.object(limits, name, value))
        self.now_ns = 10**18
        self.scheduler = Scheduler(now_ns=self.now_ns, incarnation=1)
        self.checker = Checker()
        self.tables = Tables()
        self.requests = 0
        self.consumers = []
        self.deliveries = []
        self.sent = []
        for queue, discipline in zip(QUEUES, (Discipline.DRR, Discipline.WFQ), strict=True):
            self.step(CreateQueue(self.request(), QueueSpec(queue, discipline, 1_000, 1_000)))

    def request(self) -> int:
        self.requests += 1
        return self.requests

    def teardown(self) -> None:
        self.small_limits.close()

    def step(self, *commands) -> None:
        """Take commands, and look at every queue behind them."""
        looks = [GetStats(self.request(), queue) for queue in self.checker.queues]
        self.decide(*commands, *looks)

    def decide(self, *commands) -> None:
        """Step both, and let the checker compare."""
        commands = (*self.sent, *commands)
        asks = [(command, b"x" * sum(getattr(command, "sizes", ()))) for command in commands]
        outcome = self.scheduler.step(self.now_ns, list(commands))
        self.checker.stepped(asks, outcome)
        self.checker.sleeps_until(self.scheduler.next_wake_ns())
        self.tables.apply(outcome.writes)
        self.deliveries += outcome.deliveries
        self.sent = [Sent(delivery.consumer, delivery.epoch) for delivery in outcome.deliveries]
        for consumer, _ in outcome.closings:
            self.consumers.remove(consumer)

    # --- what can happen --------------------------------------------------------------------------------

    @rule(
        queue=st.sampled_from(QUEUES),
        key=st.sampled_from(KEYS),
        count=st.integers(1, 40),
        weight=st.integers(1, 4),
    )
    def enqueue(self, queue, key, count, weight):
        self.step(Enqueue(self.request(), queue, [1] * count, [key], None, [weight] * count))

    @rule(queue=st.sampled_from(QUEUES))
    def enqueue_beyond_a_segment(self, queue):
        count = 600
        self.step(Enqueue(self.request(), queue, [30] * count, list(KEYS), [n % 3 for n in range(count)]))

    @rule(queue=st.sampled_from(QUEUES), credit=st.integers(0, 700), refill=st.booleans(), once=st.booleans())
    def attach(self, queue, credit, refill, once):
        consumer = self.request()
        self.step(Attach(self.request(), consumer, queue, credit, 1 << 40, refill=refill, once=once))
        if consumer in self.checker.consumers:
            self.consumers.append(consumer)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), messages=st.integers(0, 20))
    def credit(self, data, messages):
        self.step(Credit(data.draw(st.sampled_from(self.consumers)), messages, 0))

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), lost=st.booleans(), keep=st.booleans(), keep_begun=st.booleans())
    def detach(self, data, lost, keep, keep_begun):
        consumer = data.draw(st.sampled_from(self.consumers))
        self.consumers.remove(consumer)
        self.step(Detach(self.request(), consumer, lost=lost, keep=keep, keep_begun=keep_begun))

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def stop(self, data):
        consumer = data.draw(st.sampled_from(self.consumers))
        seen = data.draw(st.sampled_from([0, *[delivery.epoch for delivery in self.deliveries]]))
        self.step(Stop(consumer, seen))

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data(), action=st.sampled_from(Action))
    def settle(self, data, action):
        delivery = data.draw(st.sampled_from(self.deliveries))
        size = len(delivery.offsets)
        position = data.draw(st.integers(0, size))
        runs = Runs((delivery.epoch,), (position,), (data.draw(st.integers(0, size)),))
        self.step(SettleRuns(self.request(), delivery.consumer, action, runs, "", 2_000))

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data(), action=st.sampled_from(Action), present=st.booleans())
    def settle_by_address(self, data, action, present):
        delivery = data.draw(st.sampled_from(self.deliveries))
        place = data.draw(st.integers(0, len(delivery.offsets) - 1))
        address = Address(delivery.queue, delivery.offsets[place], delivery.times_ms[place])
        epochs = None if present else [delivery.epoch]
        self.step(SettleMessages(self.request(), delivery.queue_name, action, [address], epochs, "", 2_000))

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data())
    def begin(self, data):
        delivery = data.draw(st.sampled_from(self.deliveries))
        self.step(Begin(delivery.consumer, Runs((delivery.epoch,), (0,), (1,))))

    @rule(queue=st.sampled_from(QUEUES))
    def purge(self, queue):
        self.step(PurgeQueue(self.request(), queue))

    @rule(queue=st.sampled_from(QUEUES), discipline=st.sampled_from(Discipline))
    def delete_and_create(self, queue, discipline):
        self.decide(
            DeleteQueue(self.request(), queue), CreateQueue(self.request(), QueueSpec(queue, discipline))
        )

    @rule(span_ms=st.sampled_from((0, 1, 99, 100, 999, 1_000, 40_000)))
    def advance(self, span_ms):
        self.now_ns += span_ms * limits.MS_NS
        self.step()

    # --- what must hold of the store --------------------------------------------------------------------

    @invariant()
    def a_recovery_would_find_what_is_unfinished(self):
        """Rows and progress together name exactly the unfinished messages."""
        for number, queue in self.checker.numbers.items():
            assert self.tables.unfinished(number) == set(queue.messages)

    @invariant()
    def a_page_lives_as_long_as_its_messages(self):
        """No page without an unfinished message, no unfinished message without its page."""
        for number, queue in self.checker.numbers.items():
            covered = set()
            for (owner, first), end in self.tables.pages.items():
                if owner == number:
                    assert not queue.messages.keys().isdisjoint(range(first, end)), "a page has nothing left"
                    covered.update(range(first, end))
            assert set(queue.messages) <= covered

    @invariant()
    def leases_and_attempts_are_stored(self):
        """What is leased stands in a lease record of its epoch; what has failed in an attempt record."""
        for number, queue in self.checker.numbers.items():
            for offset, message in queue.messages.items():
                if message.state is State.LEASED:
                    assert offset in self.tables.leases[number, message.epoch]
                assert self.tables.attempts.get((number, offset), 0) == message.attempts
        assert {key[0] for key in self.tables.rows} <= set(self.checker.numbers)


CoreMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestCore = CoreMachine.TestCase
