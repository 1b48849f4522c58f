"""A restart is a pause: what a client needs so that nothing that it acked comes back, and nothing that it sent is there twice."""

import asyncio

import pytest
from grpc import StatusCode, aio
from tests.integration.wire.calls import MUCH, Subscription, batch, payloads_of, runs

from fila.wire.ids import message_id
from fila.wire.status import NOT_DONE_KEY
from fila.wire.v1 import service_pb2 as service

NOT_FOUND = StatusCode.NOT_FOUND.value[0]
UNAVAILABLE = StatusCode.UNAVAILABLE.value[0]


def ids_of(subscription, delivery):
    """Return the ids of a delivery whose offsets run on."""
    times_ms = list(delivery.enqueued_at_ms) * (len(delivery.sizes) // len(delivery.enqueued_at_ms))
    return [
        message_id(subscription.subscribed.queue_number, delivery.first_offset + place, time_ms)
        for place, time_ms in enumerate(times_ms)
    ]


async def ack_batch(wire, ids, epoch=0, queue="q"):
    request = service.AckBatchRequest(queue=queue, message_ids=ids, lease_epochs=[epoch] * len(ids))
    return (await wire.service.AckBatch(request)).results


async def release_batch(wire, ids, epochs=(), queue="q"):
    request = service.ReleaseBatchRequest(queue=queue, message_ids=ids, lease_epochs=epochs)
    return (await wire.service.ReleaseBatch(request)).results


async def told_to_stop(subscription):
    """Read on to the word that the broker stops."""
    while not (response := await subscription.read()).stopping:
        assert response.HasField("settled"), response


# --- a stop ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [True, False])
async def test_begun_messages_are_acked_after_the_restart_and_the_rest_comes_back_at_once(start_server, ends):
    """Whether or not the client hears of the stop: what it is working on is its own, what it is not is everybody's."""
    wire = await start_server()
    await wire.create()
    await wire.fill(10)
    async with wire.subscribed(**MUCH) as subscription:
        delivery = await subscription.delivery()
        ids = ids_of(subscription, delivery)
        await subscription.settle(begun=runs(delivery.epoch, positions=[0], counts=[4]))
        assert await subscription.settled() == []
        stopping = asyncio.ensure_future(wire.stop())
        await told_to_stop(subscription)
        code = await (subscription.end() if ends else subscription.drain())
        await stopping
        assert code is StatusCode.UNAVAILABLE

    wire = await start_server()
    again = {message.id: message.metadata.attempt_count for message in await wire.lease(100)}
    results = await ack_batch(wire, ids[:4], delivery.epoch)

    assert again == dict.fromkeys(ids[4:], 0)
    assert [result.error_code for result in results] == [0] * 4
    await ack_batch(wire, ids[4:])
    stats = await wire.stats()
    assert (stats.depth, stats.in_flight, stats.delayed) == (0, 0, 0)


async def test_acks_sent_before_the_stop_was_seen_are_confirmed(start_server):
    """The broker reads on after its word: what the client had written until it ended its side is durable, and told to be."""
    wire = await start_server()
    await wire.create()
    await wire.fill(100)
    async with wire.subscribed(**MUCH) as subscription:
        delivery = await subscription.delivery()
        stopping = asyncio.ensure_future(wire.stop())
        await told_to_stop(subscription)
        for position in range(100):
            await subscription.settle(ack=runs(delivery.epoch, positions=[position]))
        await subscription.call.done_writing()
        confirmed, code = await subscription.confirmed_to_the_end()
        trailers = dict(await subscription.call.trailing_metadata())
        await stopping

    assert (confirmed, code) == (100, StatusCode.UNAVAILABLE)
    assert NOT_DONE_KEY not in trailers
    assert await (await start_server()).lease(200) == []


async def test_nothing_is_delivered_after_the_stop(start_server):
    """Neither for credit that was left nor for credit that comes with the acks; the client that grants it is not at fault."""
    wire = await start_server()
    await wire.create()
    await wire.fill(100)
    async with wire.subscribed(credit_messages=10, credit_bytes=1 << 20) as subscription:
        delivery = await subscription.delivery()
        stopping = asyncio.ensure_future(wire.stop())
        await told_to_stop(subscription)
        await subscription.settle(ack=runs(delivery.epoch), **MUCH)
        assert await subscription.settled() == []
        code = await subscription.end()
        await stopping
    assert code is StatusCode.UNAVAILABLE

    left = await (await start_server()).lease(200)

    assert [message.metadata.offset for message in left] == list(range(10, 100))
    assert {message.metadata.attempt_count for message in left} == {0}


async def test_client_that_reports_nothing_begun_gives_everything_back(start_server):
    """Nobody knows what it was working on: all is delivered again at once, and nothing counts."""
    wire = await start_server()
    await wire.create()
    await wire.fill(10)
    async with wire.subscribed(**MUCH) as subscription:
        await subscription.delivery()
        stopping = asyncio.ensure_future(wire.stop())
        await told_to_stop(subscription)
        await subscription.end()
        await stopping

    again = await (await start_server()).lease(100)

    assert [message.metadata.attempt_count for message in again] == [0] * 10


async def test_restarted_broker_has_another_incarnation(start_server):
    """A client that comes back can tell a broker that was away from one that lived on; epochs carry the number."""
    incarnations = []
    for _ in range(2):
        wire = await start_server()
        if not incarnations:
            await wire.create()
            await wire.fill(2)
        for _ in range(2):
            async with wire.subscribed(credit_messages=1, credit_bytes=100) as subscription:
                incarnations.append(subscription.subscribed.incarnation)
                assert (await subscription.delivery()).epoch >> 40 == incarnations[-1]
                assert await subscription.end() is StatusCode.OK
        await wire.stop()

    first, same, second, last = incarnations
    assert first == same < second == last


# --- a client that wants nothing more ---------------------------------------------------------------------


async def test_stop_of_a_client_voids_its_credit(wire):
    """What it gives back goes to others and not to itself, although it had credit left; acks go on."""
    await wire.create()
    await wire.fill(3)
    async with wire.subscribed(**MUCH) as subscription:
        delivery = await subscription.delivery()
        await subscription.settle(release=runs(delivery.epoch, positions=[1], counts=[2]), stop=True)
        assert await subscription.settled() == []
        await subscription.settle(ack=runs(delivery.epoch, positions=[0]), **MUCH)
        assert await subscription.settled() == []

        others = await wire.lease(10)

        assert [message.metadata.offset for message in others] == [1, 2]
        assert {message.metadata.attempt_count for message in others} == {0}
        assert await subscription.end() is StatusCode.OK


async def test_stop_of_a_client_gives_back_what_was_not_sent_yet(wire):
    """Deliveries that wait for a client that does not read go to others at once; what was sent is its own."""
    await wire.create()
    for _ in range(12):
        await wire.enqueue(bytes(1 << 20))
    async with wire.subscribed(credit_messages=12, credit_bytes=15 << 20) as subscription:
        await wire.until(in_flight=12)

        await subscription.send(stop=True)

        others = await wire.lease(12, wait_ms=5_000)
        while more := await wire.lease(12):
            others += more
        await subscription.settle()
        sent = 0
        while not (response := await subscription.read()).HasField("settled"):
            sent += len(response.delivery.sizes)
        assert sent + len(others) == 12
        assert [message.metadata.offset for message in others] == list(range(sent, 12))
        assert {message.metadata.attempt_count for message in others} == {0}


async def test_client_may_stop_in_its_first_frame(wire):
    """It gets nothing, and is nobody's fault."""
    await wire.create()
    await wire.fill(1)
    subscription = Subscription(wire.service.Subscribe())
    await subscription.send(queue="q", stop=True)
    assert (await subscription.read()).HasField("subscribed")
    await subscription.send(**MUCH)

    assert len(await wire.lease(10)) == 1
    assert await subscription.end() is StatusCode.OK


# --- settling again, and giving back by id -------------------------------------------------------------------


async def test_ack_again_is_not_found_and_finished(wire):
    """The first ack's answer was lost, the second says that it counts; in one call or in many."""
    await wire.create()
    await wire.fill(2)
    first, second = await wire.lease(2)
    assert [result.error_code for result in await ack_batch(wire, [first.id])] == [0]

    acked, leased, never = await ack_batch(
        wire, [first.id, second.id, second.id[:-1] + "9"], first.metadata.lease_epoch
    )

    assert (acked.error_code, acked.finished) == (NOT_FOUND, True)
    assert (leased.error_code, leased.finished) == (0, False)
    assert (never.error_code, never.finished) == (NOT_FOUND, False)


async def test_ack_of_what_is_leased_to_another_is_not_finished(wire):
    """The message is somebody else's now, so the work on it does not count."""
    await wire.create()
    await wire.fill(1)
    (first,) = await wire.lease()
    assert [result.error_code for result in await release_batch(wire, [first.id])] == [0]
    (second,) = await wire.lease()

    (result,) = await ack_batch(wire, [first.id], first.metadata.lease_epoch)

    assert (result.error_code, result.finished) == (NOT_FOUND, False)
    await wire.ack(second.id)


async def test_released_by_id_they_stand_in_their_old_order(wire):
    """Whatever the order in which they are named: in front of their keys, as they were, without an attempt."""
    await wire.create(discipline="fifo")
    await wire.fill(9, payload=b"x")
    taken = [message for _ in range(3) for message in await wire.lease(2)]
    shuffled = [taken[place] for place in (4, 0, 3, 1, 5)]

    results = await release_batch(
        wire, [message.id for message in shuffled], [message.metadata.lease_epoch for message in shuffled]
    )

    assert [result.error_code for result in results] == [0] * 5
    again = await wire.lease(100)
    assert [message.metadata.offset for message in again] == [0, 1, 3, 4, 5, 6, 7, 8]
    assert {message.metadata.attempt_count for message in again} == {0}


async def test_release_by_id_answers_for_each(wire):
    """Under another epoch, finished, or no id at all: each has its own result."""
    await wire.create()
    await wire.fill(2)
    kept, acked = await wire.lease(2)
    await wire.ack(acked.id)

    other, finished, malformed = await release_batch(wire, [kept.id, acked.id, "x"], [1, 0, 0])

    assert (other.error_code, other.finished) == (NOT_FOUND, False)
    assert (finished.error_code, finished.finished) == (NOT_FOUND, True)
    assert malformed.error_code == StatusCode.INVALID_ARGUMENT.value[0]
    assert (await wire.stats()).in_flight == 1


async def test_begun_messages_are_released_by_id_after_the_restart(start_server):
    """A client that gives up after the restart gives back what was kept for it, without an attempt."""
    wire = await start_server()
    await wire.create()
    await wire.fill(3)
    async with wire.subscribed(**MUCH) as subscription:
        delivery = await subscription.delivery()
        await subscription.settle(begun=runs(delivery.epoch))
        await subscription.settled()
        stopping = asyncio.ensure_future(wire.stop())
        await told_to_stop(subscription)
        await subscription.end()
        await stopping
    wire = await start_server()
    assert await wire.lease(10) == []

    results = await release_batch(wire, ids_of(subscription, delivery), [delivery.epoch] * 3)
    async with wire.subscribed(**MUCH) as again:
        delivery = await again.delivery()

    assert [result.error_code for result in results] == [0] * 3
    assert (list(delivery.attempts), len(payloads_of(delivery))) == ([], 3)


# --- what was not done --------------------------------------------------------------------------------------


async def test_refused_batch_says_that_it_was_not_taken(start_server):
    """A batch for no queue, one beyond a limit, one into a stop: each may be sent again. A receipt says nothing of it."""
    wire = await start_server()
    await wire.create()
    stream = wire.service.Produce()
    await stream.write(batch(1, [b"a"]))
    await stream.write(batch(2, [b"b"], queue="ghost"))
    await stream.write(batch(3, [b"c"], queue="q", weights=[2**32 - 1]))
    receipts = [await stream.read() for _ in range(3)]
    stopping = asyncio.ensure_future(wire.stop())
    assert (await stream.read()).sequence == 0
    await stream.write(batch(4, [b"d"]))
    receipts.append(await stream.read())
    await stream.done_writing()
    with pytest.raises(aio.AioRpcError) as ended:
        await stream.read()
    await stopping

    assert [receipt.not_taken for receipt in receipts] == [False, True, True, True]
    assert receipts[3].error_code == UNAVAILABLE
    assert (NOT_DONE_KEY, "1") in list(ended.value.trailing_metadata())
    assert len(await (await start_server()).lease(10)) == 1


async def test_call_into_a_stop_says_that_it_was_not_done(start_server):
    """A Lease that waits when the broker stops took nothing; a call with another failure says nothing of the kind."""
    wire = await start_server()
    await wire.create()
    waiting = asyncio.ensure_future(wire.lease(wait_ms=60_000))
    await wire.until(active_consumers=1)
    with pytest.raises(aio.AioRpcError) as missing:
        await wire.lease(queue="ghost")
    await wire.stop()
    with pytest.raises(aio.AioRpcError) as stopped:
        await waiting

    assert stopped.value.code() is StatusCode.UNAVAILABLE
    assert (NOT_DONE_KEY, "1") in list(stopped.value.trailing_metadata())
    assert NOT_DONE_KEY not in dict(missing.value.trailing_metadata())


async def test_each_refused_message_of_a_batch_says_so(wire):
    """What has a result with an error was not taken; what was taken has none."""
    await wire.create()
    answer = await wire.service.EnqueueBatch(
        service.EnqueueBatchRequest(
            queue="q", messages=[service.EnqueueRequest(payload=b"x"), service.EnqueueRequest(queue="ghost")]
        )
    )

    assert [result.not_taken for result in answer.results] == [False, True]
