"""The client against a real broker: one suite for both faces. The synchronous one is driven in threads."""

import asyncio
import functools
import gc
import inspect
from pathlib import Path

import pytest
from tests.integration.faces import FACES, client_of

import fila.testing
from fila import AsyncClient, limits
from fila.client.values import NewMessage
from fila.errors import (
    ClosedError,
    Code,
    InvalidArgumentError,
    LimitError,
    MessageNotFoundError,
    QueueExistsError,
    QueueNotFoundError,
    RPCError,
    UnavailableError,
)


def with_broker(body, faces=tuple(FACES)):
    """Run a test with each face in turn, as the name of the face and a broker of its own in another thread."""
    wants_log = "caplog" in inspect.signature(body).parameters

    @pytest.mark.parametrize("face", faces)
    def test(face, tmp_path: Path, caplog):
        log = {"caplog": caplog} if wants_log else {}

        async def run():
            with fila.testing.broker(data_dir=tmp_path / "data") as broker:
                async with asyncio.timeout(30):
                    await body(face, broker, **log)

        asyncio.run(run())

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    return test


def with_client(body, faces=tuple(FACES)):
    """Run a test with a client of a broker that has a queue, once with each face."""

    @functools.wraps(body)
    async def run(face, broker, **log):
        async with client_of(face, broker.address) as client:
            await client.create_queue("orders")
            # Its leases run out while one looks; for those tests alone that want it.
            await client.create_queue("hasty", visibility_timeout_ms=1000)
            await body(client, **log)

    return with_broker(run, faces)


def with_async_client(body):
    """Run a test of what only the asynchronous face has."""
    return with_client(body, ["async"])


async def until(condition):
    """Wait for something that the broker does in its own time."""
    while not await condition():  # noqa: ASYNC110 - nobody tells a client what the broker does
        await asyncio.sleep(0.001)


@with_client
async def test_message_goes_in_and_comes_out_as_it_was(client):
    """Every field that the producer gave, and every one that the broker adds."""
    message_id = await client.enqueue(
        "orders", {"tenant": "acme", "trace": "1f"}, b"\x00\xff", fairness_key="acme", weight=3
    )

    message = await anext(client.consume("orders"))

    assert message.id == message_id
    assert (dict(message.headers), message.payload) == ({"tenant": "acme", "trace": "1f"}, b"\x00\xff")
    assert (message.fairness_key, message.weight, message.throttle_keys) == ("acme", 3, ())
    assert (message.queue, message.offset, message.attempt_count) == ("orders", 0, 0)
    assert message.enqueued_at <= message.leased_at < message.lease_expires_at
    # On its way, which the next call may overtake, until it is durable.
    await message.ack().durable()
    assert (await client.stats("orders")).in_flight == 0


@with_client
async def test_producer_keeps_order_and_derives_the_ids(client):
    """A receipt is the id that the consumer sees."""
    async with client.producer("orders") as producer:
        receipts = [producer.send(str(number).encode()) for number in range(2_000)]
        ids = [await receipt for receipt in receipts]

    got = []
    async with client.consume("orders") as consumer:
        async for message in consumer:
            got.append((message.id, int(message.payload)))
            message.ack()
            if len(got) == len(ids):
                break

    assert got == [(message_id, number) for number, message_id in enumerate(ids)]


@with_client
async def test_leaving_the_producer_flushes(client):
    """What was sent is durable when the block is left."""
    async with client.producer("orders") as producer:
        for number in range(700):
            producer.send(b"x", {"number": str(number)})

    assert (await client.stats("orders")).depth == 700


@with_client
async def test_room_holds_back_a_loop_that_awaits_nothing_else(client):
    """A flood is bounded in memory without an error."""
    async with client.producer("orders") as producer:
        for _ in range(25_000):
            await producer.room()
            producer.send(b"x")

    assert (await client.stats("orders")).depth == 25_000


@with_async_client
async def test_flood_without_room_is_refused(client):
    """Bounded even if the caller does not look."""
    async with client.producer("orders") as producer:
        for _ in range(limits.PRODUCER_MESSAGES_HELD_MAX):
            producer.send(b"x")

        with pytest.raises(LimitError, match="room"):
            producer.send(b"x")


@with_client
async def test_producer_of_an_unknown_queue_says_so(client):
    """To whoever awaits a receipt, and to a flush."""
    producer = client.producer("missing")
    receipt = producer.send(b"x")

    with pytest.raises(QueueNotFoundError, match="missing"):
        await receipt
    with pytest.raises(QueueNotFoundError, match="missing"):
        await producer.close()
    with pytest.raises(ClosedError, match="closed"):
        producer.send(b"x")


@with_client
async def test_consumer_of_an_unknown_queue_says_so(client):
    """The loop ends with the error."""
    with pytest.raises(QueueNotFoundError, match="missing"):
        await anext(client.consume("missing"))


@with_client
async def test_ack_is_durable_when_awaited(client):
    """Acks awaited together are confirmed together."""
    async with client.producer("orders") as producer:
        for _ in range(300):
            producer.send(b"x")
    async with client.consume("orders") as consumer:
        messages = [await anext(consumer) for _ in range(300)]

        await asyncio.gather(*(message.ack().durable() for message in reversed(messages)))

        stats = await client.stats("orders")
        assert (stats.depth, stats.in_flight) == (0, 0)


@with_async_client
async def test_giving_up_on_one_ack_leaves_the_others_alone(client):
    """They share a confirmation, not a fate."""
    async with client.producer("orders") as producer:
        producer.send(b"x")
        producer.send(b"y")
    async with client.consume("orders") as consumer:
        first, second = await anext(consumer), await anext(consumer)
        given_up = asyncio.ensure_future(first.ack().durable())
        waiting = asyncio.ensure_future(second.ack().durable())
        await asyncio.sleep(0)
        given_up.cancel()

        await waiting

        with pytest.raises(asyncio.CancelledError):
            await given_up


@with_client
async def test_nacked_message_comes_again_with_an_attempt(client):
    """The first retry is at once."""
    await client.enqueue("orders", None, b"x")
    async with client.consume("orders") as consumer:
        first = await anext(consumer)
        await first.nack("boom " * 1000)
        second = await anext(consumer)

        assert (second.id, second.attempt_count) == (first.id, 1)
        assert second.epoch != first.epoch
        await second.ack()


@with_client
async def test_released_message_comes_again_without_an_attempt(client):
    """Nobody worked on it."""
    await client.enqueue("orders", None, b"x")
    async with client.consume("orders") as consumer:
        await (await anext(consumer)).release()

        assert (await anext(consumer)).attempt_count == 0


@with_client
async def test_extended_lease_outlives_its_timeout(client):
    """While that of its neighbour runs out."""
    async with client.producer("hasty") as producer:
        producer.send(b"kept")
        producer.send(b"lost")
    async with client.consume("hasty") as consumer:
        kept, lost = await anext(consumer), await anext(consumer)
        await kept.extend(60)

        again = await anext(consumer)

        assert again.id == lost.id
        await kept.ack()
        assert (await client.stats("hasty")).depth == 0


@with_client
async def test_ack_of_an_expired_lease_is_refused(client):
    """The message is someone else's: its new lease is not touched."""
    await client.enqueue("hasty", None, b"x")
    async with client.consume("hasty") as consumer:
        lost = await anext(consumer)
        again = await anext(consumer)

        with pytest.raises(MessageNotFoundError):
            await lost.ack().durable()
        assert (again.id, again.attempt_count) == (lost.id, 1)
        await again.ack()


@with_client
async def test_break_gives_back_what_was_not_handed_out(client):
    """And keeps what was: it can still be acked."""
    async with client.producer("orders") as producer:
        for _ in range(50):
            producer.send(b"x")

    async for message in client.consume("orders"):
        kept = message
        break
    gc.collect()

    async def given_back():
        stats = await client.stats("orders")
        return (stats.depth, stats.in_flight) == (49, 1)

    # Until its credit is used up, a stream that is stopped is still offered messages, and declines.
    await until(given_back)
    await kept.ack()

    async def stream_has_ended():
        return (await client.stats("orders")).active_consumers == 0

    await until(stream_has_ended)
    assert (await client.stats("orders")).depth == 49


@with_client
async def test_closing_gives_back_everything_unsettled(client):
    """Without an attempt, and at once."""
    async with client.producer("orders") as producer:
        for _ in range(50):
            producer.send(b"x")
    consumer = client.consume("orders")
    message = await anext(consumer)

    await consumer.aclose()

    stats = await client.stats("orders")
    assert (stats.depth, stats.in_flight, stats.active_consumers) == (50, 0, 0)
    with pytest.raises(StopAsyncIteration):
        await anext(consumer)
    with pytest.raises(MessageNotFoundError):
        message.ack()
    (again,) = await client.lease("orders")
    assert again.attempt_count == 0


@with_client
async def test_deleted_queue_ends_its_consumers(client):
    """With the reason."""
    consumer = client.consume("orders")
    waiting = asyncio.ensure_future(anext(consumer))

    async def attached():
        return (await client.stats("orders")).active_consumers == 1

    await until(attached)
    await client.delete_queue("orders")

    with pytest.raises(QueueNotFoundError):
        await waiting


@with_client
async def test_prefetch_bounds_what_is_leased_ahead(client):
    """Others get the rest."""
    async with client.producer("orders") as producer:
        for _ in range(50):
            producer.send(b"x")
    async with client.consume("orders", prefetch=5) as consumer:
        await anext(consumer)

        assert (await client.stats("orders")).in_flight == 5


@with_client
async def test_stream_goes_on_after_forgotten_messages_expire(client):
    """A handler that loses messages slows a consumer down and does not stop it."""
    async with client.producer("hasty") as producer:
        for _ in range(4):
            producer.send(b"x")
    async with client.consume("hasty", prefetch=2) as consumer:
        forgotten = [await anext(consumer) for _ in range(2)]

        later = [await anext(consumer) for _ in range(2)]

        assert not {message.epoch for message in forgotten} & {message.epoch for message in later}


@with_client
async def test_lease_takes_what_is_there(client):
    """Up to as many as asked, and their acks need no stream."""
    for number in range(3):
        await client.enqueue("orders", {"n": str(number)}, b"x", fairness_key="acme")

    messages = await client.lease("orders", 2)

    assert [dict(message.headers)["n"] for message in messages] == ["0", "1"]
    assert [(message.offset, message.fairness_key) for message in messages] == [(0, "acme"), (1, "acme")]
    assert messages[0].epoch
    await asyncio.gather(*(message.ack() for message in messages))
    assert (await client.stats("orders")).in_flight == 0
    # To say it again is no error: its first answer might have been lost.
    await messages[0].ack()
    with pytest.raises(MessageNotFoundError):
        await messages[0].nack()


@with_client
async def test_lease_waits_for_the_first_message(client):
    """And returns nothing when none comes."""
    assert await client.lease("orders", wait_seconds=0.01) == []
    waiting = asyncio.ensure_future(client.lease("orders", wait_seconds=20))
    await asyncio.sleep(0)
    await client.enqueue("orders", None, b"x")

    (message,) = await waiting

    await message.extend(30)
    await message.nack("boom")
    (again,) = await client.lease("orders", wait_seconds=20)
    assert again.attempt_count == 1


@with_client
async def test_settling_by_id(client):
    """For whoever kept nothing but the id."""
    message_id = await client.enqueue("orders", None, b"x")

    with pytest.raises(MessageNotFoundError):
        await client.ack("orders", message_id)
    await client.lease("orders")
    await client.extend("orders", message_id, 5)
    await client.nack("orders", message_id, "boom")
    with pytest.raises(MessageNotFoundError):
        await client.extend("orders", message_id, 5)
    await client.lease("orders")
    await client.ack("orders", message_id)

    assert (await client.stats("orders")).depth == 0
    with pytest.raises(InvalidArgumentError):
        await client.ack("orders", "no id")


@with_client
async def test_batch_has_a_result_for_each_message(client):
    """One that is refused does not spoil the others."""
    results = await client.enqueue_batch(
        "orders", [NewMessage(b"a"), NewMessage(b"b", fairness_key="k" * 1000), NewMessage(b"c", {"x": "y"})]
    )

    assert [type(result.error) for result in results] == [type(None), InvalidArgumentError, type(None)]
    assert [result.offset for result in (results[0], results[2])] == [0, 1]
    messages = await client.lease("orders", 10)
    assert [message.id for message in messages] == [results[0].id, results[2].id]


@with_client
async def test_queues_are_administered(client):
    """Create, list, look, purge, delete; each error has its type."""
    await client.create_queue("letters", discipline="wfq", quantum=5, visibility_timeout_ms=2000)
    with pytest.raises(QueueExistsError):
        await client.create_queue("letters")
    with pytest.raises(InvalidArgumentError):
        await client.create_queue("short", visibility_timeout_ms=999)
    for key in ("acme", "acme", "umbrella"):
        await client.enqueue("letters", None, b"x", fairness_key=key)

    stats = await client.stats("letters")
    assert (stats.discipline, stats.quantum, stats.visibility_timeout_ms) == ("wfq", 5, 2000)
    assert [(key.key, key.pending_count) for key in stats.keys] == [("acme", 2), ("umbrella", 1)]
    assert {info.name: info.depth for info in await client.list_queues()} == {
        "orders": 0,
        "hasty": 0,
        "letters": 3,
    }
    assert await client.purge_queue("letters") == 3
    await client.delete_queue("letters")
    with pytest.raises(QueueNotFoundError):
        await client.stats("letters")


@with_client
async def test_closed_client_says_so(client):
    """And closing ends the streams, with nothing left leased."""
    other = type(client)(f"http://{client.addr}/")
    await other.enqueue("orders", None, b"x")
    consumer = other.consume("orders")
    await anext(consumer)

    await other.close()

    with pytest.raises(ClosedError, match="closed"):
        await other.list_queues()
    with pytest.raises(StopAsyncIteration):
        await anext(consumer)
    stats = await client.stats("orders")
    assert (stats.depth, stats.in_flight, stats.active_consumers) == (1, 0, 0)


@with_client
async def test_closing_the_client_ends_the_loops_that_wait(client):
    """Without an error: there will be no more messages."""
    other = type(client)(client.addr)
    waiting = asyncio.ensure_future(anext(other.consume("orders")))

    async def attached():
        return (await client.stats("orders")).active_consumers == 1

    await until(attached)
    await other.close()

    with pytest.raises(StopAsyncIteration):
        await waiting


@with_client
async def test_closing_the_client_flushes_its_producers(client):
    """What was sent before it is durable after it, also where nobody closed the producer."""
    other = type(client)(client.addr)
    producer = other.producer("orders")
    receipts = [producer.send(b"x") for _ in range(700)]

    await other.close()

    assert (await client.stats("orders")).depth == len(receipts)
    with pytest.raises(ClosedError, match="closed"):
        producer.send(b"y")


@with_broker
async def test_client_that_does_not_reconnect_is_told_when_the_broker_stops(face, broker):
    """What was taken is confirmed; what comes later hears why it is not."""
    async with client_of(face, broker.address, reconnect_seconds=0) as client:
        await client.create_queue("orders")
        producer = client.producer("orders")
        await producer.send(b"x")
        consumer = client.consume("orders")
        await (await anext(consumer)).ack()
        waiting = asyncio.ensure_future(anext(consumer))
        await asyncio.sleep(0)

        await asyncio.to_thread(broker.stop)

        with pytest.raises(UnavailableError):
            await waiting
        with pytest.raises(UnavailableError):
            producer.send(b"y")
        with pytest.raises(UnavailableError):
            await client.list_queues()


@with_broker
async def test_restart_is_a_pause(face, broker):
    """No exception reaches the caller: streams wait, calls wait, and what was sent meanwhile is taken afterwards."""
    async with client_of(face, broker.address) as client:
        await client.create_queue("orders")
        producer, consumer = client.producer("orders"), client.consume("orders")
        await producer.send(b"0")
        assert (await anext(consumer)).payload == b"0"
        held = await client.enqueue("orders", None, b"1")
        message = await anext(consumer)
        waiting = asyncio.ensure_future(anext(consumer))

        await asyncio.to_thread(broker.stop)
        receipt = producer.send(b"2")
        call = asyncio.ensure_future(client.stats("orders"))
        await asyncio.to_thread(broker.start)

        assert await receipt
        assert (await waiting).payload == b"2"
        assert (await call).depth >= 0
        # It stayed leased over the restart, and is settled by its id.
        assert message.id == held
        await message.ack().durable()
        await producer.close()


@with_broker
async def test_work_of_two_streams_is_settled_after_the_end_of_both(face, broker):
    """Nobody waits for ever for an ack that no stream can carry any more."""
    async with client_of(face, broker.address) as client:
        await client.create_queue("orders")
        consumer = client.consume("orders", prefetch=1)
        await client.enqueue("orders", None, b"0")
        first = await anext(consumer)
        await asyncio.to_thread(broker.restart)
        await client.enqueue("orders", None, b"1")
        second = await anext(consumer)
        consumer.stop()

        await client.delete_queue("orders")

        async def stream_has_ended():
            return await anext(consumer, None) is None

        await until(stream_has_ended)
        for message in (first, second):
            with pytest.raises((MessageNotFoundError, QueueNotFoundError)):
                await message.ack().durable()


@with_client
async def test_closing_is_no_reason_for_a_warning(client, caplog):
    """A message that was on its way to a consumer that closes goes back, and nothing is lost by that."""
    for number in range(30):
        other = type(client)(client.addr)
        consumer = other.consume("orders")
        await client.enqueue("orders", None, b"x")
        await (await anext(consumer)).ack().durable()
        # Leased at once, and perhaps still on its way when the stream ends.
        await client.enqueue("orders", None, b"%d" % number)
        await other.close()
        (message,) = await client.lease("orders", wait_seconds=10)
        assert message.attempt_count == 0
        await message.ack()

    assert [record.getMessage() for record in caplog.records if record.name == "fila.client"] == []


@with_broker
async def test_closing_does_not_wait_for_a_broker_that_is_away(face, broker):
    """There is nobody to take leave of, and nothing in doubt."""
    async with client_of(face, broker.address) as client:
        await client.create_queue("orders")
        consumer = client.consume("orders")
        await client.enqueue("orders", None, b"x")
        await (await anext(consumer)).ack().durable()
        waiting = asyncio.ensure_future(anext(consumer, None))
        await asyncio.to_thread(broker.stop)

        async with asyncio.timeout(limits.STREAM_CLOSE_TIMEOUT_SECONDS / 2):
            await consumer.aclose()
            await client.close()

        assert await waiting is None


@with_broker
async def test_nobody_listens(face, broker):
    """Connecting says so, at once."""
    connected = await FACES[face].connect(broker.address)
    await connected.close()
    await asyncio.to_thread(broker.stop)

    with pytest.raises(UnavailableError):
        await FACES[face].connect(broker.address)


@with_async_client
async def test_call_that_takes_too_long_ends(client):
    """Every call has a deadline."""
    hurried = AsyncClient(client.addr, timeout_seconds=0.05)
    await hurried.list_queues()
    service = hurried._connection.service

    class Slow:
        @staticmethod
        def list_queues(_request, /, *, timeout):
            from fila.wire.v1.service_pb2 import LeaseRequest

            return service.Lease(LeaseRequest(queue="orders", wait_ms=20_000), timeout=timeout)

    with pytest.raises(RPCError) as caught:
        await hurried._connection.call(Slow.list_queues, None, repeat=True)
    assert caught.value.code is Code.DEADLINE_EXCEEDED
    await hurried.close()


@pytest.mark.parametrize("addr", ["", "a b:1", "host:0", "host:70000", "ftp://host"])
@pytest.mark.parametrize("face", FACES)
def test_address_that_is_none_is_refused(face, addr):
    """Before gRPC takes it for a name and waits."""
    with pytest.raises(InvalidArgumentError, match=r"is no address|port"):
        FACES[face](addr)


@with_broker
async def test_stopping_broker_owes_no_receipt(face, broker):
    """Every message that a stopping broker has stored has its receipt, and no other has one."""
    receipts = []

    async def produce(client):
        async with client.producer("orders") as producer:
            await producer.send(b"first")
            while True:
                await producer.room()
                receipts.append(producer.send(bytes(1_000)))
                if face == "sync" and not len(receipts) % 500:
                    await asyncio.sleep(0)

    async with client_of(face, broker.address, reconnect_seconds=0) as client:
        await client.create_queue("orders")
        producing = asyncio.create_task(produce(client))
        while len(receipts) < 5_000:  # noqa: ASYNC110 - it is another task that sends
            await asyncio.sleep(0)
        await asyncio.to_thread(broker.stop)
        with pytest.raises(UnavailableError):
            await producing
        results = await asyncio.gather(*receipts, return_exceptions=True)
    await asyncio.to_thread(broker.start)
    async with AsyncClient(broker.address) as client:
        stored = (await client.stats("orders")).depth
    assert stored == 1 + sum(isinstance(result, str) for result in results)
