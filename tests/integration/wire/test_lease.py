"""Lease, and what consumers hold across their calls."""

import asyncio

import pytest
from grpc import StatusCode
from tests.integration.wire.calls import batch, code_of

from fila import limits
from fila.wire.v1 import messages_pb2 as messages
from fila.wire.v1 import service_pb2 as service


async def test_lease_takes_what_is_there_and_no_more(wire):
    """Up to `max_messages`, 0 meaning 1, without waiting."""
    await wire.create()
    await wire.fill(5)

    assert len(await wire.lease(0)) == 1
    assert len(await wire.lease(3)) == 3
    assert len(await wire.lease(3)) == 1
    assert await wire.lease(3) == []
    assert (await wire.stats()).active_consumers == 0


async def test_lease_waits_for_the_first_message(wire):
    """A message that comes while somebody waits goes to them at once."""
    await wire.create()
    waiting = asyncio.ensure_future(wire.lease(10, wait_ms=60_000))
    await wire.until(active_consumers=1)

    sent = await wire.enqueue(b"late")

    assert [message.id for message in await waiting] == [sent.message_id]
    assert (await wire.stats()).active_consumers == 0


async def test_lease_that_waits_in_vain_returns_nothing(wire):
    """When the time is over the answer is empty, and nothing stays attached."""
    await wire.create()

    assert await wire.lease(wait_ms=50) == []
    assert (await wire.stats()).active_consumers == 0


async def test_leases_outlive_their_call_and_carry_epochs(wire):
    """What Lease took belongs to the caller until its deadline; the epoch names this lease and no later one."""
    await wire.create()
    await wire.enqueue()
    (first,) = await wire.lease()
    await wire.service.Nack(service.NackRequest(queue="q", message_id=first.id))
    (second,) = await wire.lease()
    assert second.metadata.lease_epoch > first.metadata.lease_epoch

    async def ack(epoch):
        request = service.AckBatchRequest(queue="q", message_ids=[first.id], lease_epochs=[epoch])
        return (await wire.service.AckBatch(request)).results[0].error_code

    assert await ack(first.metadata.lease_epoch) == StatusCode.NOT_FOUND.value[0]
    assert await ack(second.metadata.lease_epoch) == 0


async def test_caller_that_goes_away_while_it_waits_takes_nothing(wire):
    """A Lease that was cancelled leaves every message for the others, untouched."""
    await wire.create()
    for _ in range(20):
        waiting = wire.service.Lease(service.LeaseRequest(queue="q", wait_ms=60_000))
        await wire.until(active_consumers=1)
        enqueued = asyncio.ensure_future(wire.enqueue())
        waiting.cancel()
        sent = await enqueued

        (message,) = await wire.lease(wait_ms=10_000)

        assert message.id == sent.message_id
        assert message.metadata.attempt_count == 0
        await wire.ack(message.id)


async def test_many_leases_at_once_share_what_there_is(wire):
    """No message goes to two callers, none is lost between them."""
    await wire.create()
    calls = [asyncio.ensure_future(wire.lease(7, wait_ms=10_000)) for _ in range(20)]
    await wire.until(active_consumers=20)
    await wire.fill(200)

    taken = [message.id for messages in await asyncio.gather(*calls) for message in messages]
    while rest := await wire.lease(100):
        taken += [message.id for message in rest]

    assert len(taken) == len(set(taken)) == 200


async def test_answer_stays_within_what_clients_receive_by_default(wire):
    """However large the messages: the answer fits gRPC's default limit of 4 MiB, and the largest message too."""
    await wire.create()
    await wire.fill(10, payload=bytes(800 * 1024))
    await wire.fill(1, payload=bytes(limits.BODY_BYTES_MAX - 8))
    counts = []

    while taken := await wire.lease(100):
        counts.append(len(taken))

    assert sum(counts) == 11
    assert len(counts) >= 4


@pytest.mark.parametrize(
    "request_fields",
    [
        {"max_messages": limits.LEASE_MESSAGES_MAX + 1},
        {"max_messages": 2**32 - 1},
        {"wait_ms": limits.LEASE_WAIT_MS_MAX + 1},
        {"wait_ms": 2**32 - 1},
    ],
)
async def test_lease_beyond_its_bounds_is_refused(wire, request_fields):
    """Nobody waits for a month or takes everything."""
    await wire.create()

    code = await code_of(wire.service.Lease(service.LeaseRequest(queue="q", **request_fields)))

    assert code is StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("torn", [b"\x1a\x7fshort", b"\xff", b"\x12\x04\x0a\x02\xff\xfe"])
async def test_body_that_is_no_body_harms_no_other_message(wire, torn):
    """Bodies in columns are not unpacked on their way in; one that is torn arrives as it was sent, and can be acked."""
    await wire.create()
    bodies = [
        messages.Body(payload=b"before").SerializeToString(),
        torn,
        messages.Body(payload=b"after").SerializeToString(),
    ]
    (receipt,) = await wire.produce(
        service.ProduceRequest(
            sequence=1,
            queue="q",
            messages=messages.MessageColumns(bodies=b"".join(bodies), sizes=[len(body) for body in bodies]),
        )
    )
    assert not receipt.error

    taken = await wire.lease(3)

    assert [message.payload for message in taken] == [b"before", torn, b"after"]
    for message in taken:
        await wire.ack(message.id)


async def test_consume_never_holds_more_than_its_window(wire):
    """The classic stream is sent as much as it may hold, and more as acks come in from anywhere."""
    await wire.create()
    await wire.fill(10)
    stream = wire.service.Consume(service.ConsumeRequest(queue="q", window=3))
    held = [(await stream.read()).message for _ in range(3)]
    assert (await wire.stats()).in_flight == 3

    await wire.ack(held.pop(0).id)
    held.append((await stream.read()).message)
    await wire.service.AckBatch(
        service.AckBatchRequest(queue="q", message_ids=[message.id for message in held[:2]])
    )
    held = held[2:] + [(await stream.read()).message for _ in range(2)]

    assert [message.metadata.offset for message in held] == [3, 4, 5]
    assert (await wire.stats()).in_flight == 3
    stream.cancel()


async def test_default_window_is_the_servers(wire):
    """A consumer that says nothing holds at most `consumer_window`."""
    await wire.create()
    await wire.fill(limits.CONSUMER_WINDOW_DEFAULT + 50)
    stream = wire.service.Consume(service.ConsumeRequest(queue="q"))
    for _ in range(limits.CONSUMER_WINDOW_DEFAULT):
        await stream.read()

    stats = await wire.stats()

    assert (stats.depth, stats.in_flight) == (50, limits.CONSUMER_WINDOW_DEFAULT)
    stream.cancel()


async def test_window_beyond_its_bound_is_refused(wire):
    """A stream may not hold everything."""
    await wire.create()

    code = await code_of(wire.service.Consume(service.ConsumeRequest(queue="q", window=2**32 - 1)).read())

    assert code is StatusCode.INVALID_ARGUMENT


async def test_leases_of_a_consume_stream_outlive_it(wire):
    """A classic consumer may ack what it got after its stream has ended."""
    await wire.create()
    await wire.fill(1)
    stream = wire.service.Consume(service.ConsumeRequest(queue="q"))
    message = (await stream.read()).message

    stream.cancel()
    await wire.until(active_consumers=0)

    assert (await wire.stats()).in_flight == 1
    await wire.ack(message.id)


async def test_what_a_consume_stream_was_never_sent_goes_back(wire):
    """A classic consumer that does not read and goes away keeps only what was on its way to it."""
    await wire.create()
    channel = await wire.another_channel(**{"grpc.http2.lookahead_bytes": 65_536, "grpc.http2.bdp_probe": 0})
    call = channel.unary_stream("/fila.v1.FilaService/Consume")(
        service.ConsumeRequest(queue="q", window=50).SerializeToString()
    )
    await wire.until(active_consumers=1)
    for sequence in range(5):
        await wire.produce(batch(1, [bytes([sequence]) * 100_000] * 20))
    await wire.until(in_flight=50)

    call.cancel()

    await wire.until(active_consumers=0)
    back = [message for _ in range(4) for message in await wire.lease(100)]
    assert {message.metadata.attempt_count for message in back} == {0}
    assert len(back) > 50
