"""The producer without I/O: batches, bounds, receipts."""

import pytest

from fila import limits
from fila.client.batching import BatchingCore
from fila.errors import InvalidArgumentError, LimitError, QueueNotFoundError, RPCError, UnavailableError
from fila.wire.v1.messages_pb2 import Body
from fila.wire.v1.service_pb2 import ProduceResponse


def body_of(payload):
    return Body(payload=payload).SerializeToString()


def receipt(request, first_offset=0):
    return ProduceResponse(
        sequence=request.sequence,
        queue_number=1,
        first_offset=first_offset,
        count=len(request.messages.sizes),
        enqueued_at_ms=5,
    )


def test_lone_message_leaves_at_once():
    """Latency is never traded for a fuller batch while nothing is in flight."""
    core = BatchingCore("orders")
    core.add(b"x")

    request = core.next_request()

    assert (request.sequence, request.queue) == (1, "orders")
    assert request.messages.bodies == body_of(b"x")
    assert list(request.messages.sizes) == [len(body_of(b"x"))]


def test_what_arrives_while_a_batch_is_in_flight_forms_the_next():
    """The batch grows by itself under load."""
    core = BatchingCore("orders")
    core.add(b"0")
    first = core.next_request()
    for number in range(1, 10):
        core.add(str(number).encode())

    assert core.next_request() is None
    core.on_response(receipt(first))
    second = core.next_request()

    assert second.sequence == 2
    assert second.queue == ""
    assert second.messages.bodies == b"".join(body_of(str(number).encode()) for number in range(1, 10))


def test_full_batches_leave_while_others_are_in_flight():
    """A flood is pipelined, up to the number of batches that may be in flight."""
    core = BatchingCore("orders", batch_messages=2, batches_in_flight=2)
    for _ in range(7):
        core.add(b"x")

    requests = [core.next_request(), core.next_request()]

    assert [len(request.messages.sizes) for request in requests] == [2, 2]
    assert core.next_request() is None
    assert core.has_full_batch


def test_batch_ends_before_it_would_be_too_large():
    """A batch in bytes is bounded, and a message larger than that has one of its own."""
    core = BatchingCore("orders", batch_bytes=100)
    for size in (40, 40, 40, 300, 1):
        core.add(bytes(size))

    sizes = []
    while (request := core.next_request()) is not None or core.last is not None:
        if request is not None:
            sizes.append([size - 2 - (size > 130) for size in request.messages.sizes])
            core.on_response(receipt(request))

    assert sizes == [[40, 40], [40], [300], [1]]


def test_defaults_are_left_out_of_the_columns():
    """Nothing per message on the wire that a batch need not say."""
    core = BatchingCore("orders")
    core.add(b"x")
    core.add(b"y", weight=1, cost=1, fairness_key="default")

    columns = core.next_request().messages

    assert not columns.keys
    assert not columns.key_index
    assert not columns.weights
    assert not columns.costs


def test_keys_weights_and_costs_stand_beside_their_messages():
    """Columns that begin late are filled up with the default."""
    core = BatchingCore("orders")
    core.add(b"a", fairness_key="acme")
    core.add(b"b")
    core.add(b"c", fairness_key="acme", weight=3)
    core.add(b"d", cost=2)

    columns = core.next_request().messages

    assert list(columns.keys) == ["acme", "default"]
    assert list(columns.key_index) == [0, 1, 0, 1]
    assert list(columns.weights) == [1, 1, 3, 1]
    assert list(columns.costs) == [1, 1, 1, 2]


def test_receipt_tells_where_each_message_went():
    """A place in a batch plus the first offset is an address."""
    core = BatchingCore("orders")
    batch = core.add(b"a")

    core.on_response(receipt(core.next_request(), first_offset=40))

    assert batch.done
    assert batch.error is None
    assert (batch.queue_number, batch.first_offset, batch.enqueued_at_ms) == (1, 40, 5)


def test_refused_batch_fails_alone():
    """An error in a receipt is about one batch, and a flush hears of it even if nobody else looks."""
    core = BatchingCore("orders")
    batch = core.add(b"a")
    request = core.next_request()

    core.on_response(ProduceResponse(sequence=request.sequence, error_code=5, error="no queue orders"))
    later = core.add(b"b")
    core.on_response(receipt(core.next_request()))

    assert isinstance(batch.error, QueueNotFoundError)
    assert isinstance(core.refused, QueueNotFoundError)
    assert later.error is None


def test_stopping_broker_still_answers_what_is_in_flight():
    """What was sent gets its receipt; what was not sent fails at once, and nothing more goes in."""
    core = BatchingCore("orders")
    sent = core.add(b"a")
    request = core.next_request()
    unsent = core.add(b"b")

    core.on_response(ProduceResponse(sequence=0, error_code=14, error="the broker is shutting down"))

    assert core.next_request() is None
    assert isinstance(unsent.error, UnavailableError)
    with pytest.raises(UnavailableError):
        core.add(b"c")
    core.on_response(receipt(request))
    assert sent.error is None


@pytest.mark.parametrize("sequence", [2, 3])
def test_receipt_out_of_turn_ends_the_producer(sequence):
    """Receipts come in order: anything else would resolve the wrong messages."""
    core = BatchingCore("orders")
    batch = core.add(b"a")
    core.next_request()

    core.on_response(ProduceResponse(sequence=sequence, count=1))

    assert isinstance(batch.error, RPCError)
    with pytest.raises(RPCError):
        core.add(b"b")


def test_receipt_for_fewer_messages_is_no_receipt():
    """A broker that took a part must not be believed to have taken all."""
    core = BatchingCore("orders")
    core.add(b"a")
    batch = core.add(b"b")
    request = core.next_request()

    core.on_response(ProduceResponse(sequence=request.sequence, count=1))

    assert isinstance(batch.error, RPCError)


def test_lost_stream_fails_all_that_has_no_receipt():
    """In flight, full or open: nobody waits for ever."""
    core = BatchingCore("orders", batch_messages=2)
    batches = [core.add(b"x") for _ in range(5)]
    core.next_request()

    core.fail(UnavailableError("gone"))

    assert all(isinstance(batch.error, UnavailableError) for batch in batches)
    assert core.messages_held == core.bytes_held == 0
    assert core.next_request() is None
    with pytest.raises(UnavailableError):
        core.add(b"x")


def test_full_producer_refuses_and_says_what_to_do():
    """Memory is bounded by count, and has room again with each receipt."""
    core = BatchingCore("orders", messages_held_max=3)
    for _ in range(3):
        core.add(b"x")

    with pytest.raises(LimitError, match="room"):
        core.add(b"x")
    assert not core.has_room
    core.on_response(receipt(core.next_request()))

    assert core.has_room
    core.add(b"x")


def test_full_producer_counts_bytes():
    """Memory is bounded by bytes, but one message always fits."""
    core = BatchingCore("orders", bytes_held_max=100)
    core.add(bytes(500))

    with pytest.raises(LimitError, match="503 bytes"):
        core.add(b"x")


@pytest.mark.parametrize(
    "message",
    [
        {"payload": bytes(limits.BODY_BYTES_MAX)},
        {"payload": b"", "fairness_key": "k" * 257},
        {"payload": b"", "fairness_key": "ä" * 129},
        {"payload": b"", "weight": -1},
        {"payload": b"", "weight": limits.WEIGHT_MAX + 1},
        {"payload": b"", "cost": limits.COST_MAX + 1},
    ],
)
def test_message_that_would_spoil_its_batch_is_refused_alone(message):
    """The broker refuses whole batches: what it would refuse does not go into one."""
    core = BatchingCore("orders")

    with pytest.raises(InvalidArgumentError):
        core.add(**message)
    assert core.last is None
