"""The contract that existing clients rely on, walked through with the generated stubs."""

import asyncio
import uuid

import pytest
from grpc import StatusCode
from tests.integration.wire.calls import code_of, status_of

from fila.wire.v1 import admin_pb2 as admin
from fila.wire.v1 import service_pb2 as service

NO_MESSAGE = "018bcfe5-6800-7000-8000-100000000000"


async def test_a_message_goes_in_and_comes_out(wire):
    """Enqueue, Consume and Ack: the message arrives once, whole, with everything that is known of it."""
    created = await wire.create("orders")
    sent = await wire.enqueue(b"payload", queue="orders", headers={"trace": "1", "empty": ""})
    stream = wire.service.Consume(service.ConsumeRequest(queue="orders"))

    message = (await stream.read()).message

    assert created.queue_id == "orders"
    assert message.id == sent.message_id
    assert uuid.UUID(message.id).version == 7
    assert message.payload == b"payload"
    assert dict(message.headers) == {"trace": "1", "empty": ""}
    metadata = message.metadata
    assert (metadata.fairness_key, metadata.weight, metadata.attempt_count) == ("default", 1, 0)
    assert metadata.queue_id == "orders"
    assert metadata.offset == sent.offset == 0
    assert list(metadata.throttle_keys) == []
    timestamps = message.timestamps
    assert timestamps.enqueued_at.ToMilliseconds() == int(message.id.replace("-", "")[:12], 16)
    assert timestamps.enqueued_at.ToNanoseconds() <= timestamps.leased_at.ToNanoseconds()
    lease_ms = timestamps.lease_expires_at.ToMilliseconds() - timestamps.leased_at.ToMilliseconds()
    assert lease_ms == 30_000

    await wire.ack(message.id, "orders")

    stats = await wire.stats("orders")
    assert (stats.depth, stats.in_flight, stats.active_consumers) == (0, 0, 1)
    assert await code_of(wire.ack(message.id, "orders")) is StatusCode.NOT_FOUND
    stream.cancel()


async def test_nack_redelivers_at_once_with_a_count(wire):
    """The first retry comes at once; attempt_count grows by one with each nack."""
    await wire.create()
    await wire.enqueue()
    stream = wire.service.Consume(service.ConsumeRequest(queue="q"))
    attempts = []

    for _ in range(3):
        message = (await stream.read()).message
        attempts.append(message.metadata.attempt_count)
        await wire.service.Nack(service.NackRequest(queue="q", message_id=message.id, error="boom"))

    assert attempts == [0, 1, 2]
    stream.cancel()


async def test_expired_lease_is_delivered_again_with_a_count(wire):
    """A lease that nobody settles ends by its timeout, and counts as an attempt."""
    await wire.create(visibility_timeout_ms=1_000)
    await wire.enqueue()
    (first,) = await wire.lease()

    (second,) = await wire.lease(wait_ms=5_000)

    assert second.id == first.id
    assert second.metadata.attempt_count == 1
    assert second.metadata.lease_epoch > first.metadata.lease_epoch
    waited_ns = second.timestamps.leased_at.ToNanoseconds() - first.timestamps.leased_at.ToNanoseconds()
    assert 1_000_000_000 <= waited_ns < 2_000_000_000


async def test_additive_fields_of_enqueue_reach_the_consumer(wire):
    """Key and weight come with the message; 0 and absent mean the default."""
    await wire.create()
    await wire.enqueue(fairness_key="tenant", weight=3, cost=2)
    await wire.enqueue()

    by_offset = {message.metadata.offset: message.metadata for message in await wire.lease(2)}

    assert (by_offset[0].fairness_key, by_offset[0].weight) == ("tenant", 3)
    assert (by_offset[1].fairness_key, by_offset[1].weight) == ("default", 1)


async def test_weights_decide_who_is_served(wire):
    """A key of weight 3 gets three messages where one of weight 1 gets one."""
    await wire.create()
    await wire.fill(400, keys=["light", "heavy"], key_index=[0, 1] * 200, weights=[1, 3] * 200)

    served = [message.metadata.fairness_key for message in await wire.lease(80)]

    assert abs(served.count("heavy") - 60) <= 3


async def test_queue_is_listed_created_once_and_deleted(wire):
    """ListQueues names all queues in order; a name is taken until its queue is deleted."""
    for name in ("b", "a"):
        await wire.create(name)
    await wire.enqueue(queue="b")

    listed = await wire.admin.ListQueues(admin.ListQueuesRequest())

    assert [(info.name, info.depth, info.leader_node_id) for info in listed.queues] == [
        ("a", 0, 0),
        ("b", 1, 0),
    ]
    assert listed.cluster_node_count == 1
    assert await code_of(wire.create("a")) is StatusCode.ALREADY_EXISTS
    await wire.admin.DeleteQueue(admin.DeleteQueueRequest(queue="b"))
    assert await code_of(wire.stats("b")) is StatusCode.NOT_FOUND


async def test_stats_say_how_a_queue_is_made_and_what_it_holds(wire):
    """GetStats: depth, leases, consumers, keys and the queue's own settings."""
    await wire.create(discipline="fifo", quantum=500, visibility_timeout_ms=2_000)
    await wire.fill(5, keys=["a", "b"], key_index=[0, 0, 0, 1, 1])
    await wire.lease(1)

    stats = await wire.stats()

    assert (stats.depth, stats.in_flight, stats.active_fairness_keys) == (4, 1, 2)
    assert (stats.discipline, stats.quantum, stats.visibility_timeout_ms) == ("fifo", 500, 2_000)
    assert (stats.leader_node_id, stats.replication_count, stats.next_offset) == (0, 1, 5)
    assert {key.key: key.pending_count for key in stats.per_key_stats} == {"a": 2, "b": 2}
    assert stats.queue_number > 0


async def test_purge_takes_what_waits_and_leaves_what_is_leased(wire):
    """PurgeQueue answers how many went; leased messages stay with their consumers."""
    await wire.create()
    await wire.fill(10)
    (leased,) = await wire.lease()

    answer = await wire.admin.PurgeQueue(admin.PurgeQueueRequest(queue="q"))

    assert answer.purged == 9
    assert await wire.lease(10) == []
    await wire.ack(leased.id)


async def test_queue_created_again_is_another_queue(wire):
    """Deleted messages do not come back under the same name, and ids of the old queue mean nothing in the new one."""
    await wire.create()
    old = await wire.enqueue()
    await wire.lease()
    await wire.admin.DeleteQueue(admin.DeleteQueueRequest(queue="q"))

    await wire.create()

    assert await wire.lease(10) == []
    new = await wire.enqueue()
    await wire.lease()
    assert new.offset == 0
    assert new.message_id != old.message_id
    assert await code_of(wire.ack(old.message_id)) is StatusCode.NOT_FOUND
    await wire.ack(new.message_id)


async def test_deleting_a_queue_ends_its_streams(wire):
    """Whoever consumes from a queue that is deleted learns so at once."""
    await wire.create()
    consume = wire.service.Consume(service.ConsumeRequest(queue="q"))
    waiting = asyncio.ensure_future(wire.lease(wait_ms=60_000))
    async with wire.subscribed(credit_messages=1, credit_bytes=1) as subscription:
        await wire.until(active_consumers=3)

        await wire.admin.DeleteQueue(admin.DeleteQueueRequest(queue="q"))

        assert await code_of(consume.read()) is StatusCode.NOT_FOUND
        assert await subscription.drain() is StatusCode.NOT_FOUND
        assert await code_of(waiting) is StatusCode.NOT_FOUND


@pytest.mark.parametrize("name", ["", "a b", "a\n", "\u2028", "x" * 256, "\u00e9" * 128])
async def test_bad_names_are_invalid_arguments(wire, name):
    """A name that no queue may have is wrong wherever it is used."""
    for call in (
        wire.create(name),
        wire.enqueue(queue=name),
        wire.lease(queue=name),
        wire.ack(NO_MESSAGE, name),
        wire.stats(name),
        wire.service.Consume(service.ConsumeRequest(queue=name)).read(),
    ):
        assert await code_of(call) is StatusCode.INVALID_ARGUMENT


async def test_unknown_queues_are_not_found(wire):
    """A queue that does not exist is NOT_FOUND for every call that needs one, and the text names it."""
    for call in (
        wire.enqueue(queue="ghost"),
        wire.lease(queue="ghost"),
        wire.ack(NO_MESSAGE, "ghost"),
        wire.service.Nack(service.NackRequest(queue="ghost", message_id=NO_MESSAGE)),
        wire.service.AckBatch(service.AckBatchRequest(queue="ghost", message_ids=[NO_MESSAGE])),
        wire.service.Consume(service.ConsumeRequest(queue="ghost")).read(),
        wire.stats("ghost"),
        wire.admin.PurgeQueue(admin.PurgeQueueRequest(queue="ghost")),
        wire.admin.DeleteQueue(admin.DeleteQueueRequest(queue="ghost")),
    ):
        code, text = await status_of(call)
        assert code is StatusCode.NOT_FOUND
        assert "ghost" in text


async def test_ids_that_are_none_and_leases_that_are_none(wire):
    """A malformed id is the caller's mistake; a message without a lease is gone."""
    await wire.create()
    sent = await wire.enqueue()

    assert await code_of(wire.ack("not-an-id")) is StatusCode.INVALID_ARGUMENT
    assert await code_of(wire.ack("")) is StatusCode.INVALID_ARGUMENT
    assert await code_of(wire.ack(NO_MESSAGE)) is StatusCode.NOT_FOUND
    assert await code_of(wire.ack(sent.message_id)) is StatusCode.NOT_FOUND
    assert await code_of(wire.ack("ffffffff-ffff-7fff-bfff-ffffffffffff")) is StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("config", "code", "named"),
    [
        ({"visibility_timeout_ms": 1}, StatusCode.INVALID_ARGUMENT, "visibility timeout 1 ms"),
        ({"visibility_timeout_ms": 999}, StatusCode.INVALID_ARGUMENT, "visibility timeout 999 ms"),
        ({"visibility_timeout_ms": 2**64 - 1}, StatusCode.INVALID_ARGUMENT, "visibility timeout"),
        ({"quantum": 2**32 - 1}, StatusCode.INVALID_ARGUMENT, "quantum 4294967295"),
        ({"discipline": "lottery"}, StatusCode.INVALID_ARGUMENT, "discipline 'lottery'"),
        ({"on_enqueue_script": "return 1"}, StatusCode.UNIMPLEMENTED, "on_enqueue_script"),
        ({"on_failure_script": "return 1"}, StatusCode.UNIMPLEMENTED, "on_failure_script"),
    ],
)
async def test_queue_settings_that_cannot_be_are_refused_by_name(wire, config, code, named):
    """A wrong setting, or one that this broker does not have, creates no queue and is named."""
    answered, text = await status_of(wire.create(**config))

    assert answered is code
    assert named in text
    assert await code_of(wire.stats()) is StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("method", "request_type"),
    [
        ("Redrive", admin.RedriveRequest),
        ("CreateApiKey", admin.CreateApiKeyRequest),
        ("RevokeApiKey", admin.RevokeApiKeyRequest),
        ("ListApiKeys", admin.ListApiKeysRequest),
        ("SetAcl", admin.SetAclRequest),
        ("GetAcl", admin.GetAclRequest),
    ],
)
async def test_what_this_broker_does_not_have_is_refused_by_name(wire, method, request_type):
    """An RPC of the contract without an answer is UNIMPLEMENTED, never ignored."""
    code, text = await status_of(getattr(wire.admin, method)(request_type()))

    assert code is StatusCode.UNIMPLEMENTED
    assert f"FilaAdmin.{method}" in text


async def test_every_rpc_of_the_contract_is_answered(wire):
    """Nothing in the descriptors is unknown to the server: what is missing is named by ours, not by gRPC."""
    for descriptor in (
        *service.DESCRIPTOR.services_by_name["FilaService"].methods,
        *admin.DESCRIPTOR.services_by_name["FilaAdmin"].methods,
    ):
        path = f"/{descriptor.containing_service.full_name}/{descriptor.name}"
        if descriptor.client_streaming:
            call = wire.channel.stream_stream(path)()
            await call.write(b"\xff")
            status = await status_of(call.read())
        elif descriptor.server_streaming:
            status = await status_of(wire.channel.unary_stream(path)(b"\xff").read())
        else:
            status = await status_of(wire.channel.unary_unary(path)(b"\xff"))
        assert status[0] in {StatusCode.INVALID_ARGUMENT, StatusCode.UNIMPLEMENTED}
        assert descriptor.name in status[1]
