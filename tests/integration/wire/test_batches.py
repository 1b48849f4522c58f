"""The unary batches: each message has its own result."""

import pytest
from grpc import StatusCode
from tests.integration.wire.calls import code_of, status_of

from fila import limits
from fila.wire.v1 import service_pb2 as service

INVALID = StatusCode.INVALID_ARGUMENT.value[0]
NOT_FOUND = StatusCode.NOT_FOUND.value[0]


async def enqueue_batch(wire, *requests, queue="q"):
    request = service.EnqueueBatchRequest(queue=queue, messages=requests)
    return list((await wire.service.EnqueueBatch(request)).results)


async def test_each_message_of_a_batch_has_its_own_result(wire):
    """What cannot be taken is refused alone, in its place; the rest is durable."""
    for name in ("q", "r"):
        await wire.create(name)

    results = await enqueue_batch(
        wire,
        service.EnqueueRequest(payload=b"0", fairness_key="k", weight=2),
        service.EnqueueRequest(payload=b"1", queue="r"),
        service.EnqueueRequest(payload=b"2", queue="ghost"),
        service.EnqueueRequest(payload=b"3", weight=2**32 - 1),
        service.EnqueueRequest(payload=b"4", fairness_key="k" * 257),
        service.EnqueueRequest(payload=b"5", queue="no name"),
        service.EnqueueRequest(payload=bytes(limits.BODY_BYTES_MAX)),
        service.EnqueueRequest(payload=b"7", headers={"h": "v"}),
    )

    assert [result.error_code for result in results] == [
        0,
        0,
        NOT_FOUND,
        INVALID,
        INVALID,
        INVALID,
        INVALID,
        0,
    ]
    assert all(bool(result.error) == bool(result.error_code) for result in results)
    taken = {message.id: message for message in await wire.lease(9)}
    assert {message.payload for message in taken.values()} == {b"0", b"7"}
    assert taken[results[0].message_id].metadata.fairness_key == "k"
    assert taken[results[0].message_id].metadata.weight == 2
    assert dict(taken[results[7].message_id].headers) == {"h": "v"}
    assert [message.id for message in await wire.lease(9, queue="r")] == [results[1].message_id]


async def test_an_empty_batch_has_no_results(wire):
    """Nothing was asked, nothing is answered."""
    assert await enqueue_batch(wire) == []


async def test_batch_of_too_many_messages_is_refused_whole(wire):
    """Beyond the limit nothing is taken; millions of empty messages are refused before they are unpacked."""
    await wire.create()
    too_many = [service.EnqueueRequest(payload=b"x")] * (limits.BATCH_MESSAGES_MAX + 1)
    raw = wire.channel.unary_unary("/fila.v1.FilaService/EnqueueBatch")

    assert await code_of(enqueue_batch(wire, *too_many)) is StatusCode.INVALID_ARGUMENT
    assert await code_of(raw(b"\x12\x00" * 9_000_000)) is StatusCode.INVALID_ARGUMENT

    assert (await wire.stats()).depth == 0


async def test_batches_of_acks_and_nacks_answer_for_each_message(wire):
    """Settled, not leased, no id at all: each has its own result, in order."""
    await wire.create()
    await wire.fill(4)
    taken = await wire.lease(3)
    waiting = taken[0].id[:-1] + "3"
    ids = [taken[0].id, "not-an-id", waiting, taken[0].id, taken[1].id]

    acked = await wire.service.AckBatch(service.AckBatchRequest(queue="q", message_ids=ids))
    nacked = await wire.service.NackBatch(
        service.NackBatchRequest(queue="q", message_ids=[taken[1].id, taken[2].id], error="boom")
    )

    assert [result.error_code for result in acked.results] == [0, INVALID, NOT_FOUND, NOT_FOUND, 0]
    assert [result.error_code for result in nacked.results] == [NOT_FOUND, 0]
    again = {message.id: message.metadata.attempt_count for message in await wire.lease(9)}
    assert again == {waiting: 0, taken[2].id: 1}


async def test_extension_moves_the_deadline_of_what_is_leased(wire):
    """An extended lease outlives the queue's timeout; each id has its own result."""
    await wire.create(visibility_timeout_ms=1_000)
    await wire.fill(2)
    kept, lost = await wire.lease(2)

    answer = await wire.service.ExtendLease(
        service.ExtendLeaseRequest(queue="q", message_ids=[kept.id, "x"], timeout_ms=60_000)
    )
    (expired,) = await wire.lease(2, wait_ms=5_000)

    assert [result.error_code for result in answer.results] == [0, INVALID]
    assert expired.id == lost.id
    await wire.ack(kept.id)


@pytest.mark.parametrize("epochs", [[2**64 - 1], [1]])
async def test_wrong_epoch_settles_nothing(wire, epochs):
    """An ack under an epoch that is not the present lease's is refused."""
    await wire.create()
    await wire.fill(1)
    (taken,) = await wire.lease()

    answer = await wire.service.AckBatch(
        service.AckBatchRequest(queue="q", message_ids=[taken.id], lease_epochs=epochs)
    )

    assert [result.error_code for result in answer.results] == [NOT_FOUND]
    assert (await wire.stats()).in_flight == 1


async def test_batches_that_contradict_themselves_are_refused_whole(wire):
    """Epochs that do not match the ids, too many ids, a timeout that is none."""
    await wire.create()
    many = ["x"] * (limits.BATCH_MESSAGES_MAX + 1)
    for call in (
        wire.service.AckBatch(service.AckBatchRequest(queue="q", message_ids=["x", "y"], lease_epochs=[1])),
        wire.service.AckBatch(service.AckBatchRequest(queue="q", lease_epochs=[1])),
        wire.service.AckBatch(service.AckBatchRequest(queue="q", message_ids=many)),
        wire.service.NackBatch(service.NackBatchRequest(queue="q", message_ids=many)),
        wire.service.ExtendLease(service.ExtendLeaseRequest(queue="q", message_ids=["x"])),
        wire.service.ExtendLease(
            service.ExtendLeaseRequest(queue="q", message_ids=["x"], timeout_ms=2**32 - 1)
        ),
    ):
        assert await code_of(call) is StatusCode.INVALID_ARGUMENT


async def test_single_enqueue_beyond_a_limit_is_refused_by_name(wire):
    """Weight, cost, key and size each have their bound."""
    await wire.create()
    for fields, named in (
        ({"weight": 2**32 - 1}, "weight"),
        ({"cost": 2**32 - 1}, "cost"),
        ({"fairness_key": "k" * 257}, "fairness key"),
        ({"payload": bytes(limits.BODY_BYTES_MAX)}, "bytes"),
    ):
        code, text = await status_of(wire.enqueue(**fields))
        assert code is StatusCode.INVALID_ARGUMENT
        assert named in text


async def test_largest_message_goes_in_and_comes_out(wire):
    """A client with gRPC's default receive limit gets any message that was taken."""
    await wire.create()
    payload = bytes(limits.BODY_BYTES_MAX - 1_000)

    await wire.enqueue(payload)

    (taken,) = await wire.lease()
    assert taken.payload == payload


@pytest.mark.parametrize("garbage", [b"\xff\xff", b"\x0a\x7f", b"\x0a\x02\xff\xfe"])
@pytest.mark.parametrize("method", ["Enqueue", "EnqueueBatch", "Ack", "Lease", "ExtendLease"])
async def test_request_that_is_no_protobuf_is_an_invalid_argument(wire, method, garbage):
    """Torn requests and text that is no UTF-8 get a status that says what is wrong."""
    code, text = await status_of(wire.channel.unary_unary(f"/fila.v1.FilaService/{method}")(garbage))

    assert code is StatusCode.INVALID_ARGUMENT
    assert f"{method}Request" in text


async def test_oversized_request_is_refused(wire):
    """A request larger than any that makes sense is refused before it is unpacked."""
    ack = wire.channel.unary_unary("/fila.v1.FilaService/AckBatch")
    enqueue = wire.channel.unary_unary("/fila.v1.FilaService/Enqueue")

    assert await code_of(ack(bytes(limits.REQUEST_BYTES_MAX + 1))) is StatusCode.INVALID_ARGUMENT
    assert await code_of(enqueue(bytes(limits.FRAME_BYTES_MAX + 1))) is StatusCode.RESOURCE_EXHAUSTED
