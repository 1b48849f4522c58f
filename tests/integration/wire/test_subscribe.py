"""Subscribe: credit, deliveries in columns, settling, and how streams end."""

import asyncio

import grpc
import pytest
from grpc import StatusCode
from tests.integration.wire.calls import MUCH, batch, payloads_of, runs, status_of

from fila import limits
from fila.wire.v1 import messages_pb2 as messages
from fila.wire.v1 import service_pb2 as service


async def received(subscription, count):
    """Read deliveries until there are so many messages; return the deliveries."""
    deliveries, got = [], 0
    while got < count:
        delivery = await subscription.delivery()
        deliveries.append(delivery)
        got += len(delivery.sizes)
    assert got == count
    return deliveries


async def test_what_is_produced_is_delivered_in_columns(wire):
    """Every column of a delivery says what the producer said, and ids follow from it."""
    await wire.create(visibility_timeout_ms=5_000)
    payloads = [b"%d" % number for number in range(300)]
    (receipt,) = await wire.produce(
        batch(
            1,
            payloads,
            keys=["a", "b", "c"],
            key_index=[n % 3 for n in range(300)],
            weights=[n % 3 + 1 for n in range(300)],
        )
    )

    async with wire.subscribed(**MUCH) as subscription:
        deliveries = await received(subscription, 300)

    assert subscription.subscribed.queue_number == receipt.queue_number
    assert subscription.subscribed.visibility_timeout_ms == 5_000
    seen = {}
    for delivery in deliveries:
        count = len(delivery.sizes)
        offsets = list(delivery.offsets) or list(range(delivery.first_offset, delivery.first_offset + count))
        keys = [delivery.keys[index] for index in delivery.key_index] or [delivery.keys[0]] * count
        assert delivery.lease_expires_at_ms - delivery.leased_at_ms == 5_000
        assert list(delivery.attempts) == []
        assert set(delivery.enqueued_at_ms) == {receipt.enqueued_at_ms}
        rows = zip(offsets, payloads_of(delivery), keys, delivery.weights, strict=True)
        seen.update((offset, rest) for offset, *rest in rows)
    assert seen == {n: [b"%d" % n, "abc"[n % 3], n % 3 + 1] for n in range(300)}


async def test_no_more_is_sent_than_credit_allows(wire):
    """The broker sends what it has credit for, and goes on when there is more."""
    await wire.create()
    await wire.fill(20)

    async with wire.subscribed(credit_messages=3, credit_bytes=1000) as subscription:
        await received(subscription, 3)
        assert (await wire.stats()).in_flight == 3
        await subscription.send(credit_messages=2)
        await received(subscription, 2)
        assert (await wire.stats()).in_flight == 5


async def test_byte_credit_holds_back_what_is_too_large(wire):
    """A message larger than the bytes left waits, unless the stream holds nothing else."""
    await wire.create()
    await wire.fill(3, payload=bytes(1000))

    async with wire.subscribed(credit_messages=10, credit_bytes=100) as subscription:
        (first,) = await received(subscription, 1)
        assert (await wire.stats()).in_flight == 1
        await subscription.settle(ack=runs(first.epoch))
        assert await subscription.settled() == []
        await subscription.send(credit_bytes=10_000)
        await received(subscription, 2)


async def test_acked_messages_are_finished(wire):
    """An ack of a whole delivery, of runs and of single messages; what is confirmed does not come back."""
    await wire.create()
    await wire.fill(10)

    async with wire.subscribed(**MUCH) as subscription:
        (delivery,) = await received(subscription, 10)
        epoch = delivery.epoch
        await subscription.settle(ack=runs(epoch, positions=[0, 5], counts=[2, 3]))
        await subscription.settle(ack=runs(epoch, positions=[9]))
        assert await subscription.settled() == []
        assert (await wire.stats()).in_flight == 4
        await subscription.settle(ack=runs(epoch, positions=[2, 3, 4, 8]))
        assert await subscription.settled() == []

    stats = await wire.stats()
    assert (stats.depth, stats.in_flight) == (0, 0)


async def test_nacked_messages_come_back_with_an_attempt(wire):
    """A nack counts; the message is delivered again under another epoch."""
    await wire.create()
    await wire.fill(4)

    async with wire.subscribed(**MUCH) as subscription:
        (first,) = await received(subscription, 4)
        await subscription.settle(
            nack=[service.NackRuns(runs=runs(first.epoch, positions=[1, 3]), error="boom")]
        )
        responses = [await subscription.read(), await subscription.read()]

        (again,) = [response.delivery for response in responses if response.HasField("delivery")]
        assert list(again.attempts) == [1, 1]
        assert again.epoch != first.epoch
        assert len(again.sizes) == 2


async def test_released_messages_come_back_as_if_untouched(wire):
    """A release counts no attempt."""
    await wire.create()
    await wire.fill(2)

    async with wire.subscribed(**MUCH) as subscription:
        (first,) = await received(subscription, 2)
        await subscription.settle(release=runs(first.epoch))
        responses = [await subscription.read(), await subscription.read()]

    (again,) = [response.delivery for response in responses if response.HasField("delivery")]
    assert list(again.attempts) == []
    assert again.first_offset == first.first_offset


async def test_extended_lease_outlives_its_timeout(wire):
    """An extension counts from now; the other lease of the delivery ends on time."""
    await wire.create(visibility_timeout_ms=1_000)
    await wire.fill(2)

    async with wire.subscribed(credit_messages=2, credit_bytes=1000) as subscription:
        (first,) = await received(subscription, 2)
        extend = service.ExtendRuns(runs=runs(first.epoch, positions=[0]), timeout_ms=60_000)
        await subscription.settle(extend=[extend])
        assert await subscription.settled() == []
        (expired,) = await wire.lease(2, wait_ms=5_000)
        assert expired.metadata.offset == first.first_offset + 1
        await subscription.settle(ack=runs(first.epoch))
        refused = await subscription.settled()

    assert len(refused) == 1
    assert refused[0].sequence == subscription.sequence
    assert list(refused[0].runs.epochs) == [first.epoch]
    assert list(refused[0].runs.positions) == [1]
    assert refused[0].reason


async def test_what_had_ended_is_refused_and_the_rest_is_done(wire):
    """An ack of a settled, a foreign or an invented lease is listed as refused, with its frame's number."""
    await wire.create()
    await wire.fill(4)
    async with (
        wire.subscribed(credit_messages=1, credit_bytes=99) as other,
        wire.subscribed(**MUCH) as subscription,
    ):
        foreign = await other.delivery()
        (own,) = await received(subscription, 3)
        await subscription.settle(ack=runs(own.epoch, positions=[0]))
        await subscription.settle(ack=runs(own.epoch, foreign.epoch, 2**64 - 1, positions=[0, 0, 7]))
        await subscription.settle(ack=runs(own.epoch, positions=[1, 2]))

        refused = await subscription.settled()

    named = [
        (entry.sequence, epoch, position)
        for entry in refused
        for epoch, position in zip(entry.runs.epochs, entry.runs.positions, strict=True)
    ]
    assert named == [(2, own.epoch, 0), (2, foreign.epoch, 0), (2, 2**64 - 1, 7)]


async def test_confirmation_covers_all_frames_up_to_its_number(wire):
    """Many settling frames may be confirmed by one answer, in order, none left out."""
    await wire.create()
    await wire.fill(100)

    async with wire.subscribed(**MUCH) as subscription:
        (delivery,) = await received(subscription, 100)
        for position in range(100):
            await subscription.settle(ack=runs(delivery.epoch, positions=[position]))
        sequences = [0]
        while sequences[-1] < 100:
            settled = (await subscription.read()).settled
            assert not settled.refused
            sequences.append(settled.sequence)

    assert sequences == sorted(set(sequences))


async def test_acks_and_credit_of_one_frame_are_answered_by_one_frame(wire):
    """A confirmation travels with a delivery that is ready when it is."""
    await wire.create()
    await wire.fill(100)
    async with wire.subscribed(credit_messages=1, credit_bytes=99) as subscription:
        together = 0
        response = await subscription.call.read()
        for sequence in range(1, 51):
            epoch = response.delivery.epoch
            await subscription.send(sequence=sequence, ack=runs(epoch), credit_messages=1, credit_bytes=99)
            seen = 0
            while seen < 2:
                response = await subscription.call.read()
                seen += response.HasField("settled") + response.HasField("delivery")
            together += response.HasField("settled") and response.HasField("delivery")

    assert together == 50


async def test_half_closed_stream_gives_its_leases_back_without_an_attempt(wire):
    """A client that ends its side is done: its acks are confirmed, the rest is released, the stream ends well."""
    await wire.create()
    await wire.fill(10)
    async with wire.subscribed(**MUCH) as subscription:
        (delivery,) = await received(subscription, 10)
        await subscription.settle(ack=runs(delivery.epoch, positions=[0]))

        assert await subscription.end() is StatusCode.OK

    again = await wire.lease(20)
    assert len(again) == 9
    assert {message.metadata.attempt_count for message in again} == {0}


async def test_client_that_ends_at_once_after_its_acks_gets_them_confirmed(wire):
    """The last answer on a half-closed stream confirms everything that came before the end."""
    await wire.create()
    await wire.fill(10)
    async with wire.subscribed(**MUCH) as subscription:
        (delivery,) = await received(subscription, 10)
        for position in range(10):
            await subscription.settle(ack=runs(delivery.epoch, positions=[position]))
        await subscription.call.done_writing()

        assert await subscription.settled() == []

    assert await wire.lease(20) == []


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_broken_stream_counts_as_an_attempt_of_all_it_held(wire, how):
    """A consumer that vanishes and never said what it had begun has failed all of it."""
    await wire.create()
    await wire.fill(5)
    channel = await wire.another_channel()
    async with wire.subscribed(channel=channel, **MUCH) as subscription:
        await received(subscription, 5)
        if how == "cancel":
            subscription.call.cancel()
        else:
            await channel.close()

        again = await wire.lease(10, wait_ms=10_000)

    assert len(again) == 5
    assert {message.metadata.attempt_count for message in again} == {1}


async def test_broken_stream_counts_only_what_was_begun(wire):
    """A consumer that says what it works on has failed that, and nothing else."""
    await wire.create()
    await wire.fill(5)
    async with wire.subscribed(**MUCH) as subscription:
        (delivery,) = await received(subscription, 5)
        await subscription.send(begun=runs(delivery.epoch, positions=[1, 2]))
        await subscription.settle(ack=runs(delivery.epoch, positions=[2]))
        assert await subscription.settled() == []

    await wire.until(depth=4)
    attempts = {message.metadata.offset: message.metadata.attempt_count for message in await wire.lease(10)}
    assert attempts == {0: 0, 1: 1, 3: 0, 4: 0}


async def test_breaking_off_is_never_taken_for_an_end(wire):
    """However often: a cancelled stream loses its leases, it does not release them."""
    await wire.create()
    for _ in range(30):
        await wire.enqueue()
        async with wire.subscribed(credit_messages=1, credit_bytes=99) as subscription:
            await subscription.delivery()

        (again,) = await wire.lease(wait_ms=10_000)

        assert again.metadata.attempt_count == 1
        await wire.ack(again.id)


@pytest.mark.parametrize(
    "frame",
    [
        {"sequence": 2, "ack": runs(1)},
        {"sequence": 0, "ack": runs(1)},
        {"sequence": 2**64 - 1, "ack": runs(2**64 - 1, positions=[2**32 - 1], counts=[1])},
        {"sequence": 1, "ack": runs(1, 2, positions=[1])},
        {"sequence": 1, "ack": runs(positions=[1])},
        {"sequence": 1, "ack": runs(1, positions=[1], counts=[0])},
        {"sequence": 1, "ack": runs(1, positions=[0], counts=[2**32 - 1])},
        {"sequence": 1, "ack": runs(7, 7)},
        {"sequence": 1, "extend": [service.ExtendRuns(runs=runs(1), timeout_ms=0)]},
        {"sequence": 1, "extend": [service.ExtendRuns(runs=runs(1), timeout_ms=2**32 - 1)]},
        {"sequence": 1, "nack": [service.NackRuns(runs=runs(1)), service.NackRuns(runs=runs(1))]},
        {"credit_messages": limits.CREDIT_MESSAGES_MAX},
        {"credit_messages": 2**32 - 1},
        {"credit_bytes": 2**64 - 1},
        {"queue": "other"},
        {"begun": runs(1, 2, positions=[1])},
    ],
)
async def test_frame_against_the_protocol_ends_the_stream_and_its_leases(wire, frame):
    """A client that breaks the protocol is told so, and loses what it held; nobody else notices."""
    await wire.create()
    await wire.fill(3)
    async with wire.subscribed(**MUCH) as subscription:
        await received(subscription, 3)
        await subscription.send(**frame)

        code, text = await status_of(subscription.call.read())

        assert code is StatusCode.INVALID_ARGUMENT
        assert text
    assert len(await wire.lease(10, wait_ms=10_000)) == 3


@pytest.mark.parametrize(
    "garbage", [b"\xff", b"\x2a\x7f", bytes(100), bytes(limits.SETTLE_FRAME_BYTES_MAX + 1)]
)
async def test_frame_that_cannot_be_read_ends_the_stream(wire, garbage):
    """Garbage, and frames larger than any that makes sense."""
    await wire.create()
    raw = wire.channel.stream_stream("/fila.v1.FilaService/Subscribe")()
    await raw.write(service.SubscribeRequest(queue="q").SerializeToString())
    assert service.SubscribeResponse.FromString(await raw.read()).HasField("subscribed")
    await raw.write(garbage)

    code, text = await status_of(raw.read())

    assert code is StatusCode.INVALID_ARGUMENT
    assert "SubscribeRequest" in text


async def test_many_runs_over_the_same_lease_take_no_more_than_it_has(wire):
    """Settling one message ten thousand times in a frame: done once, refused otherwise, answered at once."""
    await wire.create()
    await wire.fill(2)
    async with wire.subscribed(**MUCH) as subscription:
        (delivery,) = await received(subscription, 2)
        await subscription.settle(ack=runs(delivery.epoch, positions=[0] * 10_000))

        refused = await subscription.settled()

    assert sum(len(entry.runs.positions) for entry in refused) <= 9_999
    assert {position for entry in refused for position in entry.runs.positions} == {0}


async def test_stream_without_a_frame_is_an_invalid_argument(wire):
    """A stream that names no queue asks for nothing."""
    call = wire.service.Subscribe()
    await call.done_writing()

    assert (await status_of(call.read()))[0] is StatusCode.INVALID_ARGUMENT


async def test_unknown_queue_is_not_found(wire):
    """A stream on a queue that does not exist ends at once."""
    call = wire.service.Subscribe()
    await call.write(service.SubscribeRequest(queue="ghost"))

    assert (await status_of(call.read()))[0] is StatusCode.NOT_FOUND


async def test_consumer_that_stops_reading_holds_up_nobody(wire):
    """Messages pile up for one stream within its credit; others are served meanwhile, and it gets its own when it reads."""
    await wire.create()
    size, count = 100_000, 400
    channel = await wire.another_channel(**{"grpc.http2.lookahead_bytes": 65_536, "grpc.http2.bdp_probe": 0})
    raw = channel.stream_stream("/fila.v1.FilaService/Subscribe")()
    first = service.SubscribeRequest(
        queue="q", credit_messages=count, credit_bytes=4 * limits.STREAM_BYTES_MAX
    )
    await raw.write(first.SerializeToString())
    for number in range(0, count, 40):
        await wire.fill(40, payload=bytes([number % 256]) * size)

    # The core has heard of no more credit than may wait for one stream, and the socket takes a little of it.
    stats = await wire.stats()
    assert 0 < stats.in_flight < count
    async with wire.subscribed(**MUCH) as other:
        delivery = await other.delivery()
        await other.settle(ack=runs(delivery.epoch))
        while not (await other.read()).HasField("settled"):
            pass

    got = 0
    await raw.read()
    while got < limits.STREAM_BYTES_MAX * 3 // 2:
        got += len(service.SubscribeResponse.FromString(await raw.read()).delivery.bodies)
    raw.cancel()


async def test_what_a_broken_stream_was_never_sent_counts_no_attempt(wire):
    """Only what was on its way to a consumer that vanished has failed; what still waited for it has not."""
    await wire.create()
    channel = await wire.another_channel(**{"grpc.http2.lookahead_bytes": 65_536, "grpc.http2.bdp_probe": 0})
    raw = channel.stream_stream("/fila.v1.FilaService/Subscribe")()
    first = service.SubscribeRequest(queue="q", credit_messages=100, credit_bytes=limits.STREAM_BYTES_MAX)
    await raw.write(first.SerializeToString())
    await wire.until(active_consumers=1)
    for _ in range(10):
        await wire.fill(10, payload=bytes(100_000))
    await wire.until(in_flight=100)

    raw.cancel()
    await wire.until(active_consumers=0, in_flight=0, delayed=0)

    attempts = []
    while taken := await wire.lease(100):
        attempts += [message.metadata.attempt_count for message in taken]
    assert sorted(set(attempts)) == [0, 1]
    assert len(attempts) == 100


async def test_client_that_settles_and_never_reads_is_not_read_further(wire):
    """Answers that nobody reads are bounded: the stream's own frames wait, everybody else is served."""
    await wire.create()
    await wire.fill(10)
    channel = await wire.another_channel(**{"grpc.http2.lookahead_bytes": 65_536, "grpc.http2.bdp_probe": 0})
    call = channel.stream_stream("/fila.v1.FilaService/Subscribe")()
    await call.write(service.SubscribeRequest(queue="q", **MUCH).SerializeToString())
    frames = 0

    async def flood():
        nonlocal frames
        invented = list(range(2**63, 2**63 + 3_000))
        while True:
            frames += 1
            frame = service.SubscribeRequest(sequence=frames, ack=messages.LeaseRuns(epochs=invented))
            await call.write(frame.SerializeToString())

    flooding = asyncio.ensure_future(flood())
    reached = -1
    while frames != reached or frames < 3:
        reached = frames
        await asyncio.gather(*[wire.stats() for _ in range(100)])

    assert not flooding.done()
    assert frames < 1_000
    await wire.enqueue()
    flooding.cancel()
    call.cancel()


async def test_credit_is_shared_among_consumers_in_turn(wire):
    """Consumers with credit of one queue each get something."""
    await wire.create()
    async with (
        wire.subscribed(credit_messages=50, credit_bytes=1 << 20) as one,
        wire.subscribed(credit_messages=50, credit_bytes=1 << 20) as two,
    ):
        await wire.fill(100)

        assert len(await received(one, 50)) >= 1
        assert len(await received(two, 50)) >= 1


async def test_reading_a_cancelled_stream_is_an_end_for_the_client(wire):
    """The client's own cancel is what it sees."""
    await wire.create()
    async with wire.subscribed(**MUCH) as subscription:
        subscription.call.cancel()
        with pytest.raises((asyncio.CancelledError, grpc.aio.AioRpcError)):
            await subscription.call.read()
