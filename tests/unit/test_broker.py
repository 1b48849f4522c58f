"""The host over a store in memory: whom a fault reaches, what a commit may hold, and what is given back to the disk."""

import asyncio
import logging
from contextlib import asynccontextmanager
from threading import Event

import pytest

from fila import limits
from fila.broker import damage
from fila.broker.loop import Broker
from fila.core.commands import (
    Attach,
    CreateQueue,
    DeleteQueue,
    Enqueue,
    GetStats,
    ListQueues,
    PurgeQueue,
    SettleMessages,
)
from fila.core.model import Action, Address, QueueSpec
from fila.core.scheduler import Scheduler
from fila.errors import LimitError, QueueNotFoundError, StoreCorruptError, StoreError, UnavailableError
from fila.storage import keys
from fila.storage.memory import FREE_BYTES, MemoryStore
from fila.storage.store import Family
from fila.telemetry.metrics import NoTelemetry

BODY = b"x" * 100


class Disk(MemoryStore):
    """A store whose syncs can be held, whose reads can fail, and that notes what it is told to compact."""

    def __init__(self):
        super().__init__()
        self.held = Event()
        self.held.set()
        self.syncing = Event()
        self.unreadable = set()
        self.room = FREE_BYTES
        self.compacted = []
        self.fail_compact = 0
        self.compacting = Event()
        self.compacts = Event()
        self.compacts.set()
        self.reclaimed = 0

    def sync(self):
        self.syncing.set()
        assert self.held.wait(30)
        super().sync()

    def get(self, family, key):
        if family is Family.MESSAGES and key in self.unreadable:
            raise StoreCorruptError(f"record {key.hex()} is damaged: restore a backup")
        return super().get(family, key)

    def free_bytes(self):
        if self.room is None:
            raise StoreError("cannot see the free room: input/output error")
        return self.room

    def reclaim(self):
        self.reclaimed += 1

    def compact(self, family, first, end):
        self.compacting.set()
        assert self.compacts.wait(30)
        if self.fail_compact:
            self.fail_compact -= 1
            raise StoreError("the disk is full")
        self.compacted.append((family, first, end))


class Consumer:
    """A sink that keeps what comes."""

    def __init__(self, broker):
        self.number = broker.open_consumer(self)
        self.broker = broker
        self.deliveries = []
        self.error = None

    @property
    def offsets(self):
        return [offset for delivery in self.deliveries for offset in delivery.offsets]

    def deliver(self, delivery, bodies):
        assert b"".join(bodies) == BODY * len(delivery.offsets)
        self.deliveries.append(delivery)

    def close(self, error):
        self.error = error
        self.broker.close_consumer(self.number)


@pytest.fixture
def disk(monkeypatch):
    monkeypatch.setattr(limits, "RECLAIM_INTERVAL_MS", 1)
    # A read must meet the disk.
    monkeypatch.setattr("fila.broker.loop.Bodies.keep", lambda *_: None)
    made = Disk()
    yield made
    made.held.set()


@asynccontextmanager
async def running(disk, **options):
    broker = Broker(lambda: disk, **options)
    broker.open()
    try:
        async with asyncio.timeout(10):
            yield broker
    finally:
        disk.held.set()
        async with asyncio.timeout(10):
            await broker.stop()


def with_broker(test):
    """Run a coroutine test in a loop of its own, with a broker that has the queue q."""

    def run(disk, caplog):
        async def body():
            async with running(disk) as broker:
                await broker.ask(lambda request: CreateQueue(request, QueueSpec("q")))
                await test(broker, disk, caplog)

        asyncio.run(body())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def enqueue(broker, count=1, queue="q"):
    return broker.ask(lambda request: Enqueue(request, queue, [len(BODY)] * count, ["k"]), BODY * count)


def attach(broker, consumer, credit=100, *, refill=False):
    return broker.ask(
        lambda request: Attach(request, consumer.number, "q", credit, len(BODY) * credit, refill=refill)
    )


async def until(condition):
    while not condition():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.001)


async def delivered_late(broker, disk, ending):
    """Have a delivery wait for a sync, and a step written meanwhile that ends what it holds. Return its consumer."""
    await enqueue(broker, 10)
    await broker.ask(lambda request: CreateQueue(request, QueueSpec("other")))
    consumer = Consumer(broker)
    disk.held.clear()
    disk.syncing.clear()
    first = [
        asyncio.ensure_future(enqueue(broker, queue="other")),
        asyncio.ensure_future(attach(broker, consumer)),
    ]
    await asyncio.to_thread(disk.syncing.wait)
    second = asyncio.ensure_future(broker.ask(ending))
    await asyncio.sleep(0)
    disk.held.set()
    await asyncio.gather(*first, second)
    await broker.ask(ListQueues)
    return consumer


@with_broker
async def test_queue_deleted_under_a_delivery_is_no_loss(broker, disk, caplog):
    """A delivery whose pages the next step removes ends nobody with an error of the store, and is not logged."""
    consumer = await delivered_late(broker, disk, lambda request: DeleteQueue(request, "q"))

    assert isinstance(consumer.error, QueueNotFoundError)
    assert caplog.records == []


@with_broker
async def test_ack_by_address_under_a_delivery_spares_its_consumer(broker, disk, caplog):
    """What somebody else finished is not delivered, and the consumer gets what comes next, with all its credit."""

    def ack(request):
        addresses = [Address(1, offset, broker.acked_at_ms) for offset in range(10)]
        return SettleMessages(request, "q", Action.ACK, addresses)

    take = broker.ask

    async def ask(build, bodies=b""):
        reply = await take(build, bodies)
        broker.acked_at_ms = getattr(reply, "enqueued_at_ms", getattr(broker, "acked_at_ms", 0))
        return reply

    broker.ask = ask
    consumer = await delivered_late(broker, disk, ack)
    assert (consumer.error, consumer.deliveries, caplog.records) == (None, [], [])

    await enqueue(broker, 100)

    await until(lambda: len(consumer.offsets) == 100)
    assert consumer.offsets == list(range(10, 110))


@pytest.mark.parametrize("refill", [False, True], ids=["credit", "window"])
def test_unreadable_page_backs_off_and_the_rest_is_delivered(disk, caplog, refill):
    """One bad page neither ends a consumer nor keeps the others of its queue back; it is logged once."""

    async def body():
        async with running(disk) as broker:
            await broker.ask(lambda request: CreateQueue(request, QueueSpec("q")))
            for _ in range(3):
                await enqueue(broker, 10)
            disk.unreadable.add(keys.offset_key(1, 10))
            consumer = Consumer(broker)
            await attach(broker, consumer, credit=30, refill=refill)

            await until(lambda: len(consumer.offsets) == 20)
            stats = await broker.ask(lambda request: GetStats(request, "q"))

            assert sorted(consumer.offsets) == [*range(10), *range(20, 30)]
            assert consumer.error is None
            assert (stats.in_flight, stats.depth) == (20, 10)
            (line,) = [record.getMessage() for record in caplog.records]
            assert "queue q" in line
            assert "restore a backup" in line
            # Nothing was lost of the credit, and nothing of the messages.
            disk.unreadable.clear()
            await until(lambda: len(consumer.offsets) == 30)
            late = [delivery for delivery in consumer.deliveries if 10 in delivery.offsets]
            assert min(late[0].attempts) >= 1

    asyncio.run(body())


@with_broker
async def test_pages_of_one_delivery_fail_for_themselves(broker, disk, caplog):
    """Each unreadable page is named, and once it is known it is known: what remembers that is bounded."""
    for _ in range(3):
        await enqueue(broker, 10)
    disk.unreadable.update(keys.offset_key(1, first) for first in (0, 20))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(damage, "PAGES_REPORTED_MAX", 1)
        consumer = Consumer(broker)
        await attach(broker, consumer)
        await until(lambda: len(consumer.offsets) == 10)

    lines = [record.getMessage() for record in caplog.records]
    assert {key for key in disk.unreadable if any(key.hex() in line for line in lines)} == disk.unreadable
    assert len(broker._damage._reported) == 1


class BadTelemetry(NoTelemetry):
    """Fails at everything."""

    enabled = True

    def step(self, *_):
        raise RuntimeError("no step")

    def commit(self, *_):
        raise RuntimeError("no commit")


def test_fault_in_telemetry_decides_nothing(disk, caplog):
    """Replies are given, the broker stops, and the fault is logged once."""

    async def body():
        async with running(disk, telemetry=BadTelemetry()) as broker:
            await broker.ask(lambda request: CreateQueue(request, QueueSpec("q")))
            assert (await enqueue(broker)).count == 1

    asyncio.run(body())
    (line,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "telemetry" in line.getMessage()


class Retries(NoTelemetry):
    """Keeps what it hears of deliveries."""

    enabled = True

    def __init__(self):
        self.figures = []

    def delivered(self, *figures):
        self.figures.append(figures)


def test_retried_messages_are_counted_by_queue(disk):
    """A fact of deliveries has the retries of its own queue, of all its consumers together, whatever else was delivered."""
    telemetry = Retries()

    async def body():
        async with running(disk, telemetry=telemetry) as broker:
            for queue in ("q", "other"):
                await broker.ask(lambda request, name=queue: CreateQueue(request, QueueSpec(name)))
            receipt = await enqueue(broker, 4)
            await enqueue(broker, 3, queue="other")
            first = Consumer(broker)
            await attach(broker, first, 2)
            addresses = [Address(1, offset, receipt.enqueued_at_ms) for offset in (0, 1)]
            nack = asyncio.ensure_future(
                broker.ask(lambda request: SettleMessages(request, "q", Action.NACK, addresses))
            )
            others = [Consumer(broker) for _ in range(3)]
            attaching = [attach(broker, consumer, 2) for consumer in others[:2]]
            attaching.append(broker.ask(lambda request: Attach(request, others[2].number, "other", 3, 1_000)))
            await asyncio.gather(nack, *attaching)
            await until(lambda: all(consumer.deliveries for consumer in others))

    asyncio.run(body())
    assert sorted(telemetry.figures) == [("other", 3, 0), ("q", 2, 0), ("q", 4, 2)]


@with_broker
async def test_answer_that_cannot_be_taken_takes_no_other_with_it(broker, disk, caplog):
    """A fault of one who is answered is shown; those after it are answered, and the broker goes on."""

    def fail(_reply):
        raise RuntimeError("not mine")

    broker.submit(ListQueues(broker.expect(fail)))

    assert (await enqueue(broker)).count == 1
    assert [record.exc_info[1].args for record in caplog.records] == [("not mine",)]


@with_broker
async def test_consumer_that_fails_at_a_delivery_is_ended_alone(broker, disk, caplog):
    """The others of the step get theirs, and so does whoever waits for a reply."""
    bad, good = Consumer(broker), Consumer(broker)

    def fail(_delivery, _bodies):
        raise RuntimeError("no room")

    bad.deliver = fail
    await asyncio.gather(attach(broker, bad), attach(broker, good))

    await enqueue(broker, 10)

    await until(lambda: good.deliveries)
    assert isinstance(bad.error, UnavailableError)
    assert good.error is None
    assert len(caplog.records) == 1


def test_faults_of_the_told_do_not_keep_a_stop_from_ending(disk, caplog):
    """Whoever fails at hearing of the end is the only one who suffers."""

    async def body():
        async with running(disk) as broker:
            await broker.ask(lambda request: CreateQueue(request, QueueSpec("q")))
            bad, good = Consumer(broker), Consumer(broker)
            bad.close = lambda _error: {}["missing"]
            disk.fail_write = "input/output error"
            with pytest.raises(UnavailableError):
                await enqueue(broker)
            await until(lambda: good.error is not None)

    asyncio.run(body())


@with_broker
async def test_room_that_cannot_be_seen_is_as_it_was(broker, disk, caplog):
    """A failed look neither lets messages in nor leaves callers waiting, and room is looked for again."""
    disk.room = limits.DISK_FREE_BYTES_MIN - 1
    await enqueue(broker)
    disk.room = None

    with pytest.raises(LimitError, match="disk of the broker"):
        await enqueue(broker)
    # A sync that succeeded is none that failed.
    await broker.ask(lambda request: PurgeQueue(request, "q"))

    assert not broker._waiting
    before = disk.reclaimed
    await until(lambda: disk.reclaimed > before + 1)
    disk.room = FREE_BYTES
    assert (await enqueue(broker)).first_offset == 1


def empty(broker, count=limits.BATCH_MESSAGES_MAX):
    return asyncio.ensure_future(
        broker.ask(lambda request: Enqueue(request, "q", [0] * count, ["k" * 10]), b"")
    )


@with_broker
async def test_empty_bodies_count_with_their_columns(broker, disk, caplog):
    """A commit holds a bounded number of messages, however small: the next ones wait for the next commit."""
    taken = []
    step = Scheduler.step

    def stepping(self, now_ns, commands):
        taken.append(len(commands))
        return step(self, now_ns, commands)

    batch_bytes = limits.BATCH_MESSAGES_MAX * limits.MESSAGE_MEMORY_BYTES + 10
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scheduler, "step", stepping)
        answers = [empty(broker) for _ in range(25)]
        await asyncio.sleep(0)
        assert broker._commands_bytes == 25 * batch_bytes
        await asyncio.gather(*answers)

    assert max(taken) == -(-limits.COMMIT_BYTES_MAX // batch_bytes)
    assert broker._commands_bytes == 0


@with_broker
async def test_columns_that_wait_are_bounded(broker, disk, caplog):
    """Empty bodies make streams wait for room, and are refused beyond it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "PENDING_BYTES_MAX", 1 << 20)
        answers = [empty(broker) for _ in range(4)]
        await asyncio.sleep(0)
        assert not broker._room.is_set()
        replies = await asyncio.gather(*answers, return_exceptions=True)

    assert [type(reply).__name__ for reply in replies] == ["Enqueued"] * 3 + ["LimitError"]
    assert broker._room.is_set()


def spans(disk, queue):
    """Return the offsets that the pages of a queue were compacted in."""
    whole = {family: (first, end) for family, first, end in keys.queue_ranges(queue)}
    return [
        (int.from_bytes(first[4:]), int.from_bytes(end[4:]))
        for family, first, end in disk.compacted
        if family is Family.MESSAGES and whole[family][0] <= first < whole[family][1]
    ]


@with_broker
async def test_purge_gives_its_space_back(broker, disk, caplog):
    """What a purge dropped is compacted in one go, also around what is leased; so is a deleted queue, whole."""
    for _ in range(5):
        await enqueue(broker, limits.SEGMENT_MESSAGES)
    consumer = Consumer(broker)
    await attach(broker, consumer, 1)
    await until(lambda: consumer.deliveries)
    await broker.ask(lambda request: PurgeQueue(request, "q"))

    await until(lambda: spans(disk, 1))
    assert spans(disk, 1) == [(limits.SEGMENT_MESSAGES, 5 * limits.SEGMENT_MESSAGES)]
    await broker.ask(lambda request: DeleteQueue(request, "q"))
    await until(lambda: set(keys.queue_ranges(1)) <= set(disk.compacted))


@with_broker
async def test_space_that_could_not_be_given_back_is_tried_again(broker, disk, caplog):
    """A compaction that fails for want of room is begun again while room is short."""
    disk.fail_compact = 1
    await enqueue(broker, limits.SEGMENT_MESSAGES)
    await broker.ask(lambda request: PurgeQueue(request, "q"))
    await until(lambda: not disk.fail_compact)
    assert spans(disk, 1) == []
    disk.room = 0

    # With its sync the disk is looked at; there is nothing left to drop.
    await broker.ask(lambda request: PurgeQueue(request, "q"))

    await until(lambda: spans(disk, 1))


def test_a_stop_during_a_compaction_is_no_trouble(disk, caplog):
    """The store is closed under it, as a stop has it: nobody is warned of that."""

    async def body():
        broker = Broker(lambda: disk)
        broker.open()
        await broker.ask(lambda request: CreateQueue(request, QueueSpec("q")))
        disk.compacts.clear()
        disk.fail_compact = 1
        await broker.ask(lambda request: DeleteQueue(request, "q"))
        await asyncio.to_thread(disk.compacting.wait)
        stopping = asyncio.create_task(broker.stop())
        await until(lambda: broker._space._store is None)
        disk.compacts.set()
        await stopping

    asyncio.run(body())
    assert disk.fail_compact == 0
    assert caplog.messages == []


def test_space_of_a_store_that_failed_is_given_back_by_the_next_opening(disk, monkeypatch):
    """A compaction that outlives its opening and fails is begun again, whichever ends first."""
    monkeypatch.setattr(limits, "REOPEN_INTERVAL_MS", 1)
    again = Disk()
    stores = [disk, again]

    async def body():
        broker = Broker(lambda: stores.pop(0))
        broker.open()
        await broker.ask(lambda request: CreateQueue(request, QueueSpec("q")))
        disk.compacts.clear()
        await broker.ask(lambda request: DeleteQueue(request, "q"))
        await asyncio.to_thread(disk.compacting.wait)
        disk.fail_write = "input/output error"
        with pytest.raises(UnavailableError):
            await broker.ask(lambda request: CreateQueue(request, QueueSpec("q")))
        await until(lambda: broker._failure is None)
        disk.fail_compact = 1
        disk.compacts.set()

        async with asyncio.timeout(10):
            await until(lambda: set(keys.queue_ranges(1)) <= set(again.compacted))
            await broker.stop()

    asyncio.run(body())
