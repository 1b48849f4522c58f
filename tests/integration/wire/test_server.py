"""The server as a whole: health, reflection, many streams, stopping."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest
from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from tests.integration.wire.calls import MUCH, batch, code_of, runs

from fila import assembly
from fila.config import ServerSettings, Settings, StorageSettings
from fila.errors import ConfigError
from fila.wire.v1 import service_pb2 as service

SERVICES = {"fila.v1.FilaService", "fila.v1.FilaAdmin"}
GRPCURL = shutil.which(
    "grpcurl", path=os.pathsep.join([os.environ.get("PATH", ""), str(Path.home() / "go/bin")])
)


@pytest.mark.parametrize("name", ["", *sorted(SERVICES)])
async def test_health_says_serving(wire, name):
    """The standard health check answers for the server and for each service."""
    answer = await health_pb2_grpc.HealthStub(wire.channel).Check(health_pb2.HealthCheckRequest(service=name))

    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_health_of_a_service_that_is_not_there(wire):
    """A name that this server does not serve is said to be unknown."""
    stub = health_pb2_grpc.HealthStub(wire.channel)
    request = health_pb2.HealthCheckRequest(service="ghost")
    watch = stub.Watch(request)

    assert await code_of(stub.Check(request)) is StatusCode.NOT_FOUND
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    watch.cancel()


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_reflection_lists_and_describes_the_services(wire, version):
    """Tools need no proto files, whichever version of reflection they speak."""
    call = wire.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )()

    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    listed = {entry.name for entry in (await call.read()).list_services_response.service}
    await call.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol="fila.v1.FilaService"))
    described = (await call.read()).file_descriptor_response.file_descriptor_proto
    await call.done_writing()

    assert listed >= SERVICES
    assert any(b"EnqueueRequest" in file for file in described)


async def grpcurl(wire, *arguments):
    process = await asyncio.create_subprocess_exec(
        GRPCURL, "-plaintext", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode()


@pytest.mark.skipif(GRPCURL is None, reason="grpcurl is not installed")
async def test_grpcurl_walks_through_without_proto_files(wire):
    """A person with grpcurl alone: list, create, enqueue, lease, ack."""

    async def call(method, **request):
        return json.loads(await grpcurl(wire, "-d", json.dumps(request), wire.address, f"fila.v1.{method}"))

    assert set((await grpcurl(wire, wire.address, "list")).split()) >= SERVICES
    assert await call("FilaAdmin/CreateQueue", name="orders") == {"queue_id": "orders"}
    sent = await call("FilaService/Enqueue", queue="orders", payload="aGVsbG8=", headers={"a": "b"})
    leased = await call("FilaService/Lease", queue="orders", max_messages=10)
    (message,) = leased["messages"]
    assert message["id"] == sent["message_id"]
    assert message["payload"] == "aGVsbG8="
    assert message["headers"] == {"a": "b"}
    assert await call("FilaService/Ack", queue="orders", message_id=message["id"]) == {}
    assert "depth" not in await call("FilaAdmin/GetStats", queue="orders")


async def test_a_thousand_idle_streams_disturb_nobody(wire):
    """Consumers that wait cost nothing: a message passes them by, and they end when they are asked to."""
    await wire.create("idle")
    await wire.create()
    streams = [wire.service.Subscribe() for _ in range(500)]
    streams += [wire.service.Produce() for _ in range(250)]
    for stream in streams[:500]:
        await stream.write(service.SubscribeRequest(queue="idle", **MUCH))
    consumers = [wire.service.Consume(service.ConsumeRequest(queue="idle")) for _ in range(250)]
    await wire.until(queue="idle", active_consumers=750)

    await wire.enqueue(b"through")
    (message,) = await wire.lease()
    await wire.ack(message.id)

    for stream in (*streams, *consumers):
        stream.cancel()
    await wire.until(queue="idle", active_consumers=0)


async def test_port_that_is_taken_is_refused_with_a_sentence(shared_server, tmp_path):
    """A second server on the same port does not start, and says why and what to do."""
    settings = Settings(
        server=ServerSettings(listen_addr=shared_server.address),
        storage=StorageSettings(data_dir=tmp_path / "data"),
    )

    with pytest.raises(ConfigError, match=f"cannot listen on {shared_server.address}.*listen_addr"):
        async with assembly.running(settings):
            pass


async def test_stopping_gives_leases_back_and_says_unavailable(start_server):
    """A stop ends every stream with UNAVAILABLE, and no message has lost an attempt by it."""
    wire = await start_server()
    await wire.create()
    await wire.create("empty")
    await wire.fill(10)
    async with wire.subscribed(credit_messages=4, credit_bytes=1_000) as subscription:
        await subscription.delivery()
        consume = wire.service.Consume(service.ConsumeRequest(queue="q", window=3))
        held = [(await consume.read()).message for _ in range(3)]
        produce = wire.service.Produce()
        await produce.write(batch(1, [b"y"]))
        assert (await produce.read()).count == 1
        waiting = asyncio.ensure_future(code_of(wire.lease(queue="empty", wait_ms=60_000)))
        await wire.until(queue="empty", active_consumers=1)

        await wire.stop()

        assert await subscription.drain() is StatusCode.UNAVAILABLE
        assert await code_of(consume.read()) is StatusCode.UNAVAILABLE
        notice = await produce.read()
        assert (notice.sequence, notice.error_code) == (0, StatusCode.UNAVAILABLE.value[0])
        assert await code_of(produce.read()) is StatusCode.UNAVAILABLE
        assert await waiting is StatusCode.UNAVAILABLE
    again = await (await start_server()).lease(100)
    assert len(again) == 11
    assert {message.id for message in held} <= {message.id for message in again}
    assert {message.metadata.attempt_count for message in again} == {0}


async def test_stopping_confirms_what_was_settled(start_server):
    """Acks that arrived before the stop are durable, and the client hears so before its stream ends."""
    wire = await start_server()
    await wire.create()
    await wire.fill(100)
    async with wire.subscribed(**MUCH) as subscription:
        delivery = await subscription.delivery()
        for position in range(100):
            await subscription.settle(ack=runs(delivery.epoch, positions=[position]))
        stopping = asyncio.ensure_future(wire.stop())
        confirmed, code = await subscription.confirmed_to_the_end()
        await stopping
        assert code is StatusCode.UNAVAILABLE

    left = await (await start_server()).lease(200)

    assert len(left) <= 100 - confirmed
    assert all(message.metadata.attempt_count == 0 for message in left)


async def test_stop_is_announced_by_the_health_check(start_server):
    """Who watches the server's health learns of the stop before the port is gone."""
    wire = await start_server()
    watch = health_pb2_grpc.HealthStub(wire.channel).Watch(health_pb2.HealthCheckRequest())
    before = await watch.read()

    await wire.stop()

    after = await watch.read()
    assert before.status == health_pb2.HealthCheckResponse.SERVING
    assert after.status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_everything_taken_is_there_after_a_restart(start_server):
    """Messages, leases with their epochs and offsets survive a stop and a start."""
    wire = await start_server()
    await wire.create()
    await wire.fill(3)
    (leased,) = await wire.lease()
    await wire.stop()

    wire = await start_server()

    assert len(await wire.lease(10)) == 2
    await wire.ack(leased.id)
    await wire.fill(1)
    (last,) = await wire.lease()
    assert last.metadata.offset == 3
    assert last.metadata.lease_epoch > leased.metadata.lease_epoch
