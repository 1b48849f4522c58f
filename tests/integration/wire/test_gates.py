"""Gates on the wire: the runtime configuration, and messages that wait at gates."""

import grpc
import pytest
from tests.integration.wire.calls import batch

from fila.wire.v1 import admin_pb2 as admin
from fila.wire.v1 import messages_pb2 as messages
from fila.wire.v1 import service_pb2 as service


async def set_config(wire, key, value):
    await wire.admin.SetConfig(admin.SetConfigRequest(key=key, value=value))


async def test_the_configuration_is_set_read_and_listed(wire):
    """What was set is there; what was not is NOT_FOUND."""
    await set_config(wire, "color", "blue")
    await set_config(wire, "throttle.x", "10,20")

    found = await wire.admin.GetConfig(admin.GetConfigRequest(key="color"))
    listed = await wire.admin.ListConfig(admin.ListConfigRequest(prefix="thr"))
    with pytest.raises(grpc.aio.AioRpcError) as missing:
        await wire.admin.GetConfig(admin.GetConfigRequest(key="shape"))

    assert found.value == "blue"
    assert [(entry.key, entry.value) for entry in listed.entries] == [("throttle.x", "10,20")]
    assert listed.total_count == 1
    assert missing.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("key", "value"),
    [("", "x"), ("k" * 257, "x"), ("k", "x" * 1_025), ("throttle.x", "1"), ("throttle.x", "nan,1")],
)
async def test_a_bad_setting_is_refused(wire, key, value):
    """With INVALID_ARGUMENT."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await set_config(wire, key, value)

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_rate_holds_messages_back(wire):
    """Of five messages the burst goes, the others wait; the stats show the gate, and the messages their keys."""
    await wire.create()
    await set_config(wire, "throttle.provider", "0,2")
    for _ in range(3):
        await wire.enqueue(throttle_keys=["provider", "other"])
    await wire.service.EnqueueBatch(
        service.EnqueueBatchRequest(
            queue="q",
            messages=[service.EnqueueRequest(throttle_keys=["provider"]), service.EnqueueRequest()],
        )
    )

    leased = await wire.lease(10)
    stats = await wire.admin.GetStats(admin.GetStatsRequest(queue="q"))

    assert [list(message.metadata.throttle_keys) for message in leased] == [["provider", "other"]] * 2 + [[]]
    assert (stats.depth, stats.in_flight) == (2, 3)
    assert [(each.key, each.tokens, each.burst) for each in stats.per_throttle_stats] == [("provider", 0, 2)]


async def test_columns_carry_gates(wire):
    """A batch names sets of gates and which message has which."""
    await wire.create()
    await set_config(wire, "concurrency.api", "1")
    await wire.fill(
        4, gates=[messages.GateSet(concurrency_keys=["api"]), messages.GateSet()], gate_index=[0, 0, 1, 1]
    )

    leased = await wire.lease(10)

    assert [message.metadata.offset for message in leased] == [0, 2, 3]
    await wire.service.Ack(service.AckRequest(queue="q", message_id=leased[0].id))
    assert [message.metadata.offset for message in await wire.lease(10, wait_ms=1_000)] == [1]


@pytest.mark.parametrize(
    "columns",
    [
        {"gate_index": [0, 0]},
        {"gates": [messages.GateSet()], "gate_index": [0]},
        {"gates": [messages.GateSet()], "gate_index": [0, 1]},
        {"gates": [messages.GateSet()] * 3},
    ],
)
async def test_columns_of_gates_that_contradict_each_other_end_the_stream(wire, columns):
    """As with every other column."""
    await wire.create()

    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await wire.produce(batch(1, [b"x", b"y"], **columns))

    assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_gates_that_are_too_many_or_too_long_are_refused(wire):
    """In the receipt, for that batch alone."""
    await wire.create()
    many = [messages.GateSet(throttle_keys=[f"k{number}" for number in range(17)])]
    long = [messages.GateSet(throttle_keys=["k" * 257])]

    receipts = await wire.produce(
        batch(1, [b"x"], gates=many), batch(2, [b"x"], gates=long), batch(3, [b"x"])
    )

    assert [bool(receipt.error) for receipt in receipts] == [True, True, False]
