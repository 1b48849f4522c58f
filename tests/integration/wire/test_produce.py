"""Produce: pipelined batches, one receipt each."""

import asyncio

import grpc
import pytest
from grpc import StatusCode
from tests.integration.wire.calls import batch, code_of, status_of

from fila import limits
from fila.wire.ids import message_id
from fila.wire.v1 import messages_pb2 as messages
from fila.wire.v1 import service_pb2 as service
from fila.wire.v1.service_pb2_grpc import FilaServiceStub


async def receipts_and_status(stream):
    """Read a stream to its end."""
    receipts = []
    try:
        async for receipt in stream:
            receipts.append(receipt)  # noqa: PERF401 - those before the error count
    except grpc.aio.AioRpcError as error:
        return receipts, error.code(), error.details()
    return receipts, await stream.code(), ""


async def test_receipts_come_in_order_and_say_where_the_batch_went(wire):
    """Each receipt: sequence, queue number, first offset, count and the commit's time; ids follow by the formula."""
    await wire.create()

    receipts = await wire.produce(*[batch(number, [b"x"] * number) for number in range(1, 201)])

    assert [receipt.sequence for receipt in receipts] == list(range(1, 201))
    assert [receipt.count for receipt in receipts] == list(range(1, 201))
    assert [receipt.first_offset for receipt in receipts] == [n * (n - 1) // 2 for n in range(1, 201)]
    assert not any(receipt.error_code or receipt.error for receipt in receipts)
    first = receipts[0]
    (leased,) = await wire.lease()
    assert leased.id == message_id(first.queue_number, first.first_offset, first.enqueued_at_ms)


async def test_later_batches_need_not_name_the_queue(wire):
    """A batch without a queue goes where the one before went; naming another changes that from there on."""
    for name in ("a", "b"):
        await wire.create(name)

    receipts = await wire.produce(
        batch(1, [b"1"], queue="a"),
        batch(2, [b"2"], queue=""),
        batch(3, [b"3"], queue="b"),
        batch(4, [b"4"], queue=""),
    )

    assert not any(receipt.error for receipt in receipts)
    assert [message.payload for message in await wire.lease(9, queue="a")] == [b"1", b"2"]
    assert [message.payload for message in await wire.lease(9, queue="b")] == [b"3", b"4"]


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (batch(2, [b"x"], queue="ghost"), StatusCode.NOT_FOUND),
        (batch(2, []), StatusCode.INVALID_ARGUMENT),
        (batch(2, [b"x"], weights=[limits.WEIGHT_MAX + 1]), StatusCode.INVALID_ARGUMENT),
        (batch(2, [b"x"], keys=["k" * 257]), StatusCode.INVALID_ARGUMENT),
        (batch(2, [bytes(limits.BODY_BYTES_MAX)]), StatusCode.INVALID_ARGUMENT),
        (batch(2, [b""] * (limits.BATCH_MESSAGES_MAX + 1)), StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_refused_batch_has_its_receipt_and_the_stream_goes_on(wire, refused, code):
    """A batch beyond a limit or to an unknown queue is refused whole, in turn, and harms no other batch."""
    await wire.create()

    receipts = await wire.produce(batch(1, [b"before"]), refused, batch(3, [b"after"], queue="q"))

    assert [receipt.sequence for receipt in receipts] == [1, 2, 3]
    assert [receipt.error_code for receipt in receipts] == [0, code.value[0], 0]
    assert receipts[1].error
    assert [message.payload for message in await wire.lease(9)] == [b"before", b"after"]


@pytest.mark.parametrize(
    "malformed",
    [
        batch(1, [b"again"]),
        batch(3, [b"gap"]),
        batch(0, [b"none"]),
        batch(2**64 - 1, [b"far"]),
        service.ProduceRequest(sequence=2, messages=messages.MessageColumns(bodies=b"abc", sizes=[2])),
        service.ProduceRequest(sequence=2, messages=messages.MessageColumns(sizes=[2**32 - 1] * 100)),
        batch(2, [b"x"], keys=["k"], key_index=[1]),
        batch(2, [b"x"], keys=["k"], key_index=[2**32 - 1]),
        batch(2, [b"x", b"y"], keys=["k"], key_index=[0]),
        batch(2, [b"x", b"y"], weights=[1]),
        batch(2, [b"x", b"y"], costs=[1, 1, 1]),
        batch(2, [b"x"], queue="no name"),
    ],
)
async def test_malformed_batch_ends_the_stream_after_the_receipts_before_it(wire, malformed):
    """What came before is answered and kept; what is malformed is not taken, and nothing after it."""
    await wire.create()
    stream = wire.service.Produce()
    for request in (batch(1, [b"before"]), malformed, batch(3, [b"after"])):
        await stream.write(request)

    receipts, code, text = await receipts_and_status(stream)

    assert [receipt.sequence for receipt in receipts] == [1]
    assert not receipts[0].error
    assert code is StatusCode.INVALID_ARGUMENT
    assert text
    assert [message.payload for message in await wire.lease(9)] == [b"before"]


async def test_first_batch_must_name_its_queue(wire):
    """Without a queue there is nowhere to go."""
    with pytest.raises(grpc.aio.AioRpcError, match="names no queue"):
        await wire.produce(batch(1, [b"x"], queue=""))


@pytest.mark.parametrize("garbage", [b"\xff\xff\xff", b"\x1a\x7f", b"\x12\x02\xff\xfe", b"\x08", bytes(1000)])
async def test_frame_that_is_no_protobuf_ends_its_own_stream(wire, garbage):
    """Garbage, torn frames and names that are no UTF-8 are invalid arguments; the server goes on."""
    await wire.create()
    raw = wire.channel.stream_stream("/fila.v1.FilaService/Produce")()
    await raw.write(garbage)

    code, text = await status_of(raw.read())

    assert code is StatusCode.INVALID_ARGUMENT
    assert "ProduceRequest" in text
    await wire.enqueue()


async def test_oversized_frame_is_refused_and_harms_nobody(wire):
    """A frame beyond what one batch may be is refused by gRPC itself, on its own stream."""
    await wire.create()
    raw = wire.channel.stream_stream("/fila.v1.FilaService/Produce")()
    other = wire.service.Produce()
    await other.write(batch(1, [b"x"]))
    await raw.write(bytes(limits.FRAME_BYTES_MAX + 1))

    assert await code_of(raw.read()) is StatusCode.RESOURCE_EXHAUSTED

    assert (await other.read()).count == 1
    other.cancel()


async def test_largest_batch_is_taken(wire):
    """As many messages as a batch may have, and as many bytes."""
    await wire.create()
    body = bytes(limits.BATCH_BYTES_MAX // 5 - 100)

    receipts = await wire.produce(batch(1, [b""] * limits.BATCH_MESSAGES_MAX), batch(2, [body] * 5))

    assert [receipt.count for receipt in receipts] == [limits.BATCH_MESSAGES_MAX, 5]


async def test_producer_that_breaks_off_leaves_whole_batches_only(wire):
    """A producer that vanishes in mid-batch: what arrived whole is in the queue or not, what did not arrive is not."""
    await wire.create()
    channel = await wire.another_channel()
    stream = FilaServiceStub(channel).Produce()
    for number in range(1, 6):
        await stream.write(batch(number, [b"%d" % number] * 10))
    assert (await stream.read()).count == 10
    # Too large for the flow control windows: nearly always it is cut off on its way.
    torn = asyncio.ensure_future(stream.write(batch(6, [bytes(limits.BODY_BYTES_MAX - 100)] * 4)))
    await asyncio.sleep(0)

    await channel.close()
    await asyncio.gather(torn, return_exceptions=True)

    stats = await wire.stats()
    assert stats.depth in {10, 20, 30, 40, 50, 54}
    assert stats.next_offset == stats.depth
    receipts = await wire.produce(batch(1, [b"next"]))
    assert receipts[0].count == 1


async def test_producer_that_does_not_read_its_receipts_holds_up_nobody(wire):
    """Receipts that nobody reads stop their own producer alone."""
    await wire.create()
    stream = wire.service.Produce()
    for number in range(1, 300):
        await stream.write(batch(number, [b"x"]))

    receipts = await wire.produce(*[batch(number, [b"y"]) for number in range(1, 50)])

    assert len(receipts) == 49
    assert [(await stream.read()).sequence for _ in range(299)] == list(range(1, 300))
    stream.cancel()


async def test_stopping_broker_answers_what_it_took_and_refuses_what_follows(start_server):
    """A producer that goes on writing into the stop loses no receipt: each batch is answered, stored or refused."""
    wire = await start_server()
    await wire.create()
    stream = wire.service.Produce()
    await stream.write(batch(1, [b"a"] * 10))
    assert (await stream.read()).count == 10

    stopping = asyncio.ensure_future(wire.stop())
    assert (await stream.read()).sequence == 0
    await stream.write(batch(2, [b"b"] * 10))
    refused = await stream.read()
    await stream.done_writing()
    await stopping

    assert (refused.sequence, refused.error_code) == (2, StatusCode.UNAVAILABLE.value[0])
    assert len(await (await start_server()).lease(100)) == 10
