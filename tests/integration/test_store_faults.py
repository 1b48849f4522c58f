"""A broker over the real store whose disk fails at chosen moments: what callers hear, and what is there afterwards.

The faults are injected between the broker and RocksDB, so that each moment can be met; `test_full_disk.py` has the real thing.
"""

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from threading import Event

import grpc
import pytest

from fila import limits
from fila.broker.loop import Broker
from fila.core.commands import Attach, CreateQueue, Detach, Enqueue, GetStats, SettleRuns
from fila.core.model import Action, QueueSpec, Runs
from fila.core.scheduler import Scheduler
from fila.errors import LimitError, StoreError, UnavailableError
from fila.server.grpc_server import GrpcServer
from fila.storage.rocksdb import RocksStore
from fila.wire.status import NOT_DONE_KEY, error_of_call
from fila.wire.v1 import messages_pb2 as messages
from fila.wire.v1 import service_pb2 as service
from fila.wire.v1.service_pb2_grpc import FilaServiceStub


class Disk:
    """Opens one directory, and fails on demand. `held` keeps syncs from ending while it is not set."""

    def __init__(self, path):
        self._path = path
        self.fail = {"open": 0, "write": 0, "sync": 0}
        self.free_bytes = None
        self.held = Event()
        self.held.set()
        self.syncing = Event()
        self.opened = 0
        self.reclaimed = 0

    def open(self):
        self.check("open")
        self.opened += 1
        return Store(self, RocksStore(self._path))

    def check(self, action):
        if self.fail[action]:
            self.fail[action] -= 1
            raise StoreError(f"cannot {action} the store: input/output error: check the disk")


class Store:
    """RocksDB behind a disk that may fail. After a failure it takes no further part, as the port says."""

    def __init__(self, disk, store):
        self._disk = disk
        self._store = store
        self._broken = False

    def __getattr__(self, name):
        return getattr(self._store, name)

    def write(self, *batch):
        self._check_whole()
        self._check("write")
        self._store.write(*batch)

    def sync(self):
        self._check_whole()
        self._disk.syncing.set()
        assert self._disk.held.wait(30)
        self._check("sync")
        self._store.sync()

    def reclaim(self):
        self._disk.reclaimed += 1
        self._store.reclaim()

    def free_bytes(self):
        return self._disk.free_bytes if self._disk.free_bytes is not None else self._store.free_bytes()

    def _check_whole(self):
        if self._broken:
            raise StoreError("the store failed before")

    def _check(self, action):
        try:
            self._disk.check(action)
        except StoreError:
            self._broken = True
            raise


class Consumer:
    """A sink that keeps what comes."""

    def __init__(self, broker):
        self._broker = broker
        self.number = broker.open_consumer(self)
        self.deliveries = []
        self.error = None
        self.changed = asyncio.Event()

    def deliver(self, delivery, bodies):
        self.deliveries.append((delivery, b"".join(bodies)))
        self.changed.set()

    def close(self, error):
        self.error = error
        self.changed.set()
        self._broker.close_consumer(self.number)


@pytest.fixture
def disk(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "REOPEN_INTERVAL_MS", 1)
    monkeypatch.setattr(limits, "RECLAIM_INTERVAL_MS", 1)
    return Disk(tmp_path / "data")


@asynccontextmanager
async def running(disk):
    """Run a broker with one queue, and stop it."""
    broker = Broker(disk.open)
    broker.open()
    try:
        await broker.ask(lambda request: CreateQueue(request, QueueSpec("q")))
        async with asyncio.timeout(10):
            yield broker
    finally:
        disk.held.set()
        await broker.stop()


def with_broker(test):
    """Run a coroutine test in a loop of its own, with a broker that has the queue q."""

    def run(disk):
        async def body():
            async with running(disk) as broker:
                await test(broker, disk)

        asyncio.run(body())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def enqueue(broker, body=b"body", count=1):
    return asyncio.ensure_future(
        broker.ask(lambda request: Enqueue(request, "q", [len(body)] * count, ["k"]), body * count)
    )


async def reopened(broker, disk, times=2):
    """Wait until the store is open again."""
    while disk.opened < times or broker._failure is not None:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.001)


async def consume(broker, count):
    """Attach, and return the consumer when it has so many messages."""
    consumer = Consumer(broker)
    await broker.ask(lambda request: Attach(request, consumer.number, "q", 1_000, 1 << 20))
    while sum(len(delivery.offsets) for delivery, _ in consumer.deliveries) < count:
        consumer.changed.clear()
        await consumer.changed.wait()
    return consumer


def ack_all(broker, consumer):
    epochs = tuple(delivery.epoch for delivery, _ in consumer.deliveries)
    zeros = (0,) * len(epochs)
    return broker.ask(
        lambda request: SettleRuns(request, consumer.number, Action.ACK, Runs(epochs, zeros, zeros))
    )


async def offsets_left(broker):
    """Return the offsets that are still delivered, once nothing more comes."""
    stats = await broker.ask(lambda request: GetStats(request, "q"))
    consumer = await consume(broker, stats.depth)
    return [offset for delivery, _ in consumer.deliveries for offset in delivery.offsets]


def has_nothing_pending(broker):
    return not (broker._waiting or broker._bodies_waiting or broker._commands or broker._commands_bytes)


@pytest.mark.parametrize("action", ["write", "sync"])
def test_failure_is_told_to_all_who_wait_and_the_broker_opens_again(disk, action):
    """Each hears UNAVAILABLE with the cause; what was acknowledged stays; nobody has to do anything."""

    async def body():
        async with running(disk) as broker:
            await enqueue(broker, b"before")
            disk.fail[action] = 1

            answers = await asyncio.gather(*[enqueue(broker) for _ in range(5)], return_exceptions=True)

            assert {type(answer) for answer in answers} == {UnavailableError}
            assert len({id(answer) for answer in answers}) == len(answers)
            assert "outcome is unknown" in str(answers[0])
            assert "input/output error: check the disk" in str(answers[0])
            await reopened(broker, disk)
            assert has_nothing_pending(broker)
            receipt = await enqueue(broker, b"after")
            left = await offsets_left(broker)
            assert left[0] == 0
            assert left[-1] == receipt.first_offset

    asyncio.run(body())


@with_broker
async def test_what_collected_during_a_failing_sync_fails_with_it(broker, disk):
    """The next window was decided on by nobody: its callers are told, and nothing of it is stored."""
    disk.held.clear()
    disk.syncing.clear()
    first = enqueue(broker, b"first")
    await asyncio.to_thread(disk.syncing.wait)
    second = enqueue(broker, b"second", count=50)
    await asyncio.sleep(0)
    disk.fail["sync"] = 1
    disk.held.set()

    answers = await asyncio.gather(first, second, return_exceptions=True)

    assert [type(answer) for answer in answers] == [UnavailableError] * 2
    await reopened(broker, disk)
    # The first was written: it may be there, as its caller was told. Of the second there is nothing.
    assert await offsets_left(broker) in ([], [0])


@with_broker
async def test_durable_step_is_answered_although_the_next_one_fails(broker, disk):
    """Who waited for the sync that succeeded hears so, although the write that followed at once did not."""
    disk.held.clear()
    disk.syncing.clear()
    first = enqueue(broker, b"first")
    await asyncio.to_thread(disk.syncing.wait)
    second = enqueue(broker, b"second")
    await asyncio.sleep(0)
    disk.fail["write"] = 1
    disk.held.set()

    answers = await asyncio.gather(first, second, return_exceptions=True)

    assert answers[0].first_offset == 0
    assert type(answers[1]) is UnavailableError
    await reopened(broker, disk)
    assert await offsets_left(broker) == [0]


@with_broker
async def test_write_that_fails_during_a_sync_takes_nothing_from_that_sync(broker, disk):
    """A window that is full is written while the sync before it runs: only those of the window hear of its failure."""
    disk.held.clear()
    disk.syncing.clear()
    first = enqueue(broker, b"first")
    await asyncio.to_thread(disk.syncing.wait)
    disk.fail["write"] = 1
    second = enqueue(broker, b"x" * 1_000, count=limits.COMMIT_WINDOW_BYTES // 1_000 + 1)
    while disk.fail["write"]:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.001)
    with pytest.raises(UnavailableError):
        await enqueue(broker, b"third")
    disk.held.set()

    answers = await asyncio.gather(first, second, return_exceptions=True)

    assert answers[0].first_offset == 0
    assert type(answers[1]) is UnavailableError
    await reopened(broker, disk)
    assert await offsets_left(broker) == [0]


@pytest.mark.parametrize("action", ["write", "sync"])
def test_nothing_acked_comes_back_and_consuming_goes_on(disk, action):
    """Consumers are ended with the cause; those that come back get what was not acked."""

    async def body():
        async with running(disk) as broker:
            await enqueue(broker, count=10)
            consumer = await consume(broker, 10)
            assert await ack_all(broker, consumer) == Runs((), (), ())
            await enqueue(broker, count=3)
            disk.fail[action] = 1
            with pytest.raises(UnavailableError):
                await enqueue(broker)
            while consumer.error is None:
                consumer.changed.clear()
                await consumer.changed.wait()
            assert "input/output error" in consumer.error.message
            await reopened(broker, disk)

            # What the ended consumer had leased ends by its deadline; what is new is delivered at once.
            receipt = await enqueue(broker)
            again = await consume(broker, 1)

            offsets = [offset for delivery, _ in again.deliveries for offset in delivery.offsets]
            assert receipt.first_offset in offsets
            assert min(offsets) >= 10

    asyncio.run(body())


@with_broker
async def test_unanswered_ack_leaves_the_message_acked_or_leased(broker, disk):
    """Never in between: after the failure the message is finished, or its lease is as it was."""
    await enqueue(broker, count=2)
    consumer = await consume(broker, 2)
    disk.fail["sync"] = 1

    with pytest.raises(UnavailableError):
        await ack_all(broker, consumer)

    await reopened(broker, disk)
    stats = await broker.ask(lambda request: GetStats(request, "q"))
    assert (stats.depth, stats.in_flight) in {(0, 0), (0, 2)}


@with_broker
async def test_broker_tries_until_the_store_opens(broker, disk):
    """Meanwhile every caller hears why."""
    disk.fail["write"] = 1
    disk.fail["open"] = 3
    with pytest.raises(UnavailableError):
        await enqueue(broker)

    causes = set()
    while disk.opened < 2:
        try:
            await enqueue(broker)
        except UnavailableError as error:
            causes.add(error.message)
        await asyncio.sleep(0)

    assert any("tries again: cannot open the store" in cause for cause in causes), causes
    assert (await enqueue(broker)).count == 1


@with_broker
async def test_refusals_of_a_failed_broker_do_not_pile_up(broker, disk):
    """Each caller has an error of its own: one for all would keep the frames of all."""
    disk.fail["write"] = 1
    disk.fail["open"] = 1_000_000
    with pytest.raises(UnavailableError):
        await enqueue(broker)
    errors = []

    for _ in range(3):
        with pytest.raises(UnavailableError) as refusal:
            broker.submit(GetStats(broker.expect(errors.append), "q"))
        errors.append(refusal.value)

    assert len({id(error) for error in errors}) == 3
    assert has_nothing_pending(broker)


@with_broker
async def test_fault_in_the_core_is_told_and_survived(broker, disk):
    """What a step cannot do takes nobody's answer with it, and the disk has the truth to begin again from."""
    await enqueue(broker)

    def fail_once(*_arguments):
        patch.undo()
        return {}["missing"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scheduler, "step", fail_once)
        with pytest.raises(UnavailableError, match="an error within the broker"):
            await enqueue(broker)

    await reopened(broker, disk)
    assert (await enqueue(broker)).first_offset == 1


@with_broker
async def test_caller_who_gave_up_leaves_nothing_behind(broker, disk):
    """A cancelled call is forgotten with its reply, whether that comes or fails."""
    for fails in (0, 1):
        disk.fail["sync"] = fails
        disk.held.clear()
        disk.syncing.clear()
        asking = enqueue(broker)
        await asyncio.to_thread(disk.syncing.wait)
        asking.cancel()
        disk.held.set()
        await reopened(broker, disk, 1 + fails)
        await broker.ask(lambda request: GetStats(request, "q"))

        assert has_nothing_pending(broker)


@pytest.mark.parametrize("action", ["write", "sync"])
def test_stop_during_a_failure_ends(disk, action):
    """The last commit fails: its callers are told, and the broker still stops and gives the directory back."""

    async def body():
        broker = Broker(disk.open)
        broker.open()
        await broker.ask(lambda request: CreateQueue(request, QueueSpec("q")))
        disk.fail[action] = 1
        asking = enqueue(broker)
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await broker.stop()
            with pytest.raises(UnavailableError):
                await asking

    asyncio.run(body())
    RocksStore(disk._path).close()


def test_stop_while_the_store_cannot_be_opened_ends(disk):
    """Nobody has to wait for a disk in order to stop."""

    async def body():
        broker = Broker(disk.open)
        broker.open()
        disk.fail["write"] = 1
        disk.fail["open"] = 1_000_000
        with pytest.raises(UnavailableError):
            await broker.ask(lambda request: CreateQueue(request, QueueSpec("q")))
        async with asyncio.timeout(10):
            await broker.stop()
        with pytest.raises(UnavailableError, match="stopping"):
            await broker.ask(lambda request: GetStats(request, "q"))

    asyncio.run(body())
    RocksStore(disk._path).close()


@with_broker
async def test_stopping_broker_answers_what_was_taken(broker, disk):
    """What was submitted before the end is durable and answered; what comes after is refused, never left to hang."""
    disk.held.clear()
    disk.syncing.clear()
    first = enqueue(broker)
    await asyncio.to_thread(disk.syncing.wait)
    second = enqueue(broker)
    await asyncio.sleep(0)
    stopping = asyncio.ensure_future(broker.stop())
    await asyncio.sleep(0)
    with pytest.raises(UnavailableError, match="stopping"):
        await enqueue(broker)
    asking = asyncio.ensure_future(broker.ask(lambda request: GetStats(request, "q")))
    disk.held.set()

    await stopping

    assert [receipt.first_offset for receipt in await asyncio.gather(first, second)] == [0, 1]
    assert (await asking).depth == 2
    disk.held.set()


@with_broker
async def test_nearly_full_disk_refuses_messages_and_nothing_else(broker, disk):
    """What is stored can be consumed and acked; when there is room messages are taken, with nobody's help."""
    await enqueue(broker, count=2)
    disk.free_bytes = limits.DISK_FREE_BYTES_MIN - 1
    # The disk is looked at with each sync.
    await enqueue(broker)

    with pytest.raises(LimitError, match="disk of the broker"):
        await enqueue(broker)
    consumer = await consume(broker, 3)
    assert await ack_all(broker, consumer) == Runs((), (), ())
    await broker.ask(lambda request: Detach(request, consumer.number))
    while not disk.reclaimed:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.001)
    disk.free_bytes = limits.DISK_FREE_BYTES_MIN

    assert (await enqueue(broker)).first_offset == 3


@with_broker
async def test_failure_is_logged_once_with_its_cause(broker, disk):
    """An operator reads what failed, and that it is over."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append((record.levelname, record.getMessage()))
    logger = logging.getLogger("fila.broker.loop")
    logger.addHandler(handler)
    try:
        disk.fail["write"] = 1
        with pytest.raises(UnavailableError):
            await enqueue(broker)
        await reopened(broker, disk)
        await enqueue(broker)
    finally:
        logger.removeHandler(handler)

    (line,) = [line for level, line in lines if level == "ERROR"]
    assert "input/output error" in line


@asynccontextmanager
async def stub_of(broker):
    """Serve a broker, and talk to it."""
    server = GrpcServer(broker)
    address = server.bind("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            yield FilaServiceStub(channel)
    finally:
        await server.stop()


@with_broker
async def test_callers_hear_of_a_failure_with_its_status(broker, disk):
    """Unary calls and streams alike: UNAVAILABLE, in a sentence that names the cause; a batch hears so in its receipt."""
    async with stub_of(broker) as stub:
        produce = stub.Produce()
        body = messages.Body(payload=b"x").SerializeToString()
        subscribe, consume = stub.Subscribe(), stub.Consume(service.ConsumeRequest(queue="q"))
        await subscribe.write(service.SubscribeRequest(queue="q", credit_messages=0))
        await subscribe.read()
        lease = asyncio.ensure_future(stub.Lease(service.LeaseRequest(queue="q", wait_ms=20_000)))
        while (await broker.ask(lambda request: GetStats(request, "q"))).consumers < 3:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
        disk.fail["write"] = 1

        await produce.write(
            service.ProduceRequest(
                sequence=1, queue="q", messages=messages.MessageColumns(bodies=body, sizes=[len(body)])
            )
        )

        receipt = await produce.read()
        assert receipt.error_code == grpc.StatusCode.UNAVAILABLE.value[0]
        assert not receipt.not_taken
        texts = [receipt.error]
        for call in (lease, subscribe.read(), consume.read()):
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await call
            assert failure.value.code() is grpc.StatusCode.UNAVAILABLE
            assert NOT_DONE_KEY not in dict(failure.value.trailing_metadata())
            texts.append(failure.value.details())
        assert all("input/output error: check the disk" in text for text in texts), texts
        await produce.done_writing()


@with_broker
async def test_broker_without_its_store_says_that_nothing_was_done(broker, disk):
    """A call or batch that comes between the failure and the opening was never taken, and whoever made it hears so."""
    async with stub_of(broker) as stub:
        body = messages.Body(payload=b"x").SerializeToString()
        columns = messages.MessageColumns(bodies=body, sizes=[len(body)])
        disk.fail["open"] = 1_000_000
        disk.fail["write"] = 1
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await stub.Enqueue(service.EnqueueRequest(queue="q"))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Enqueue(service.EnqueueRequest(queue="q"))
        produce = stub.Produce()
        await produce.write(service.ProduceRequest(sequence=1, queue="q", messages=columns))
        receipt = await produce.read()
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await produce.read()
        batch = await stub.EnqueueBatch(
            service.EnqueueBatchRequest(queue="q", messages=[service.EnqueueRequest()])
        )
        disk.fail["open"] = 0

    assert NOT_DONE_KEY not in dict(failed.value.trailing_metadata())
    for failure in (refused, ended):
        assert failure.value.code() is grpc.StatusCode.UNAVAILABLE
        assert dict(failure.value.trailing_metadata())[NOT_DONE_KEY] == "1"
        assert error_of_call(failure.value).not_done
    assert not error_of_call(failed.value).not_done
    code = grpc.StatusCode.UNAVAILABLE.value[0]
    assert (receipt.sequence, receipt.error_code, receipt.not_taken) == (1, code, True)
    assert [(result.error_code, result.not_taken) for result in batch.results] == [(code, True)]


@with_broker
async def test_batch_does_not_overtake_one_that_failed(broker, disk):
    """On its stream nothing is taken after it, although the store is soon open again: the producer sends both anew."""
    async with stub_of(broker) as stub:
        body = messages.Body(payload=b"x").SerializeToString()
        columns = messages.MessageColumns(bodies=body, sizes=[len(body)])
        disk.fail["write"] = 1
        produce = stub.Produce()
        await produce.write(service.ProduceRequest(sequence=1, queue="q", messages=columns))
        receipt = await produce.read()
        assert receipt.error_code == grpc.StatusCode.UNAVAILABLE.value[0]

        async def is_open():
            with suppress(UnavailableError):
                await broker.ask(lambda request: GetStats(request, "q"))
                return True
            return False

        while not await is_open():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        await produce.write(service.ProduceRequest(sequence=2, messages=columns))
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await produce.read()
        waiting = (await broker.ask(lambda request: GetStats(request, "q"))).depth

    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
    # The first may have been stored, or not.
    assert waiting <= 1


@with_broker
async def test_full_disk_says_that_nothing_was_done(broker, disk):
    """RESOURCE_EXHAUSTED of the broker's own making is a refusal: the message is not there, and may be sent again."""
    async with stub_of(broker) as stub:
        disk.free_bytes = 1_000
        broker._space.note(1_000)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Enqueue(service.EnqueueRequest(queue="q"))

        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert dict(refused.value.trailing_metadata())[NOT_DONE_KEY] == "1"
        assert (await broker.ask(lambda request: GetStats(request, "q"))).depth == 0


@with_broker
async def test_stream_that_ends_in_a_failure_refuses_nothing_that_is_leased(broker, disk):
    """The opened broker does not know its consumers: what they still say is left without an answer, and settled by id."""
    await enqueue(broker, count=400)
    async with stub_of(broker) as stub:
        stream = stub.Subscribe()
        await stream.write(service.SubscribeRequest(queue="q", credit_messages=400, credit_bytes=1 << 20))
        frames = [await stream.read(), await stream.read()]
        epoch = frames[1].delivery.epoch
        disk.fail["sync"] = 1

        async def settle():
            with suppress(grpc.RpcError, asyncio.InvalidStateError):
                for sequence in range(1, 400):
                    runs = messages.LeaseRuns(epochs=[epoch], positions=[sequence])
                    await stream.write(service.SubscribeRequest(sequence=sequence, ack=runs))

        settling = asyncio.ensure_future(settle())
        with suppress(grpc.aio.AioRpcError):
            while (answer := await stream.read()) is not grpc.aio.EOF:
                assert not answer.settled.refused, answer
        await settling

        # gRPC calls it an internal error when its client writes to a call that has just ended.
        assert await stream.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL}
        assert disk.fail["sync"] == 0
