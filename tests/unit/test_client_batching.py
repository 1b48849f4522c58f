"""The producer without I/O: batches, bounds, receipts."""

import pytest

from fila import limits
from fila.client.batching import BatchingCore
from fila.errors import (
    ClosedError,
    InvalidArgumentError,
    LimitError,
    OutcomeUnknownError,
    QueueNotFoundError,
    RPCError,
    UnavailableError,
)
from fila.wire.v1.messages_pb2 import Body
from fila.wire.v1.service_pb2 import ProduceRequest, ProduceResponse


def next_request(core):
    """Read the next frame as the broker does."""
    frame = core.next_frame()
    return None if frame is None else ProduceRequest.FromString(frame)


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


def refusal(request, *, not_taken=False):
    return ProduceResponse(
        sequence=request.sequence, error_code=14, error="the disk is ill", not_taken=not_taken
    )


STOPPING = ProduceResponse(sequence=0, error_code=14, error="the broker is shutting down")


def test_lone_message_leaves_at_once():
    """Latency is never traded for a fuller batch while nothing is in flight."""
    core = BatchingCore("orders")
    core.add(b"x")

    request = next_request(core)

    assert (request.sequence, request.queue) == (1, "orders")
    assert request.messages.bodies == body_of(b"x")
    assert list(request.messages.sizes) == [len(body_of(b"x"))]


def test_what_arrives_while_a_batch_is_in_flight_forms_the_next():
    """The batch grows by itself under load."""
    core = BatchingCore("orders")
    core.add(b"0")
    first = next_request(core)
    for number in range(1, 10):
        core.add(str(number).encode())

    assert next_request(core) is None
    core.on_response(receipt(first))
    second = next_request(core)

    assert second.sequence == 2
    assert second.queue == ""
    assert second.messages.bodies == b"".join(body_of(str(number).encode()) for number in range(1, 10))


def test_full_batches_leave_while_others_are_in_flight():
    """A flood is pipelined, up to the number of batches that may be in flight; only until then is the writer due."""
    core = BatchingCore("orders", batch_messages=2, batches_in_flight=2)
    for _ in range(7):
        core.add(b"x")
    assert core.is_writer_due

    requests = [next_request(core), next_request(core)]

    assert [len(request.messages.sizes) for request in requests] == [2, 2]
    assert next_request(core) is None
    assert not core.is_writer_due
    core.on_response(receipt(requests[0]))
    assert core.is_writer_due


def test_batch_ends_before_it_would_be_too_large():
    """A batch in bytes is bounded, and a message larger than that has one of its own."""
    core = BatchingCore("orders", batch_bytes=100)
    for size in (40, 40, 40, 300, 1):
        core.add(bytes(size))

    sizes = []
    while (request := next_request(core)) is not None or core.messages_held:
        if request is not None:
            sizes.append([size - 2 - (size > 130) for size in request.messages.sizes])
            core.on_response(receipt(request))

    assert sizes == [[40, 40], [40], [300], [1]]


def test_defaults_are_left_out_of_the_columns():
    """Nothing per message on the wire that a batch need not say."""
    core = BatchingCore("orders")
    core.add(b"x")
    core.add(b"y", weight=1, cost=1, fairness_key="default")

    columns = next_request(core).messages

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

    columns = next_request(core).messages

    assert list(columns.keys) == ["acme", "default"]
    assert list(columns.key_index) == [0, 1, 0, 1]
    assert list(columns.weights) == [1, 1, 3, 1]
    assert list(columns.costs) == [1, 1, 1, 2]


def test_receipt_tells_where_each_message_went():
    """A place in a batch plus the first offset is an address."""
    core = BatchingCore("orders")
    batch = core.add(b"a")

    core.on_response(receipt(next_request(core), first_offset=40))

    assert batch.done
    assert batch.error is None
    assert (batch.queue_number, batch.first_offset, batch.enqueued_at_ms) == (1, 40, 5)


def test_refused_batch_fails_alone():
    """An error in a receipt is about one batch, and a flush hears of it even if nobody else looks."""
    core = BatchingCore("orders")
    batch = core.add(b"a")
    request = next_request(core)

    core.on_response(ProduceResponse(sequence=request.sequence, error_code=5, error="no queue orders"))
    later = core.add(b"b")
    core.on_response(receipt(next_request(core)))

    assert isinstance(batch.error, QueueNotFoundError)
    assert isinstance(core.refused, QueueNotFoundError)
    assert later.error is None


def test_stopping_broker_still_answers_what_is_in_flight():
    """What was sent gets its receipt; what was not sent is kept for the next stream, and more goes in meanwhile."""
    core = BatchingCore("orders")
    sent = core.add(b"a")
    request = next_request(core)
    unsent = core.add(b"b")

    core.on_response(STOPPING)

    assert core.stopping
    assert next_request(core) is None
    core.add(b"c")
    core.on_response(receipt(request))
    assert (sent.done, sent.error, unsent.done) == (True, None, False)
    assert next_request(core) is None
    core.lost(UnavailableError("the broker is shutting down"))
    later = next_request(core)
    assert (later.sequence, later.queue, later.messages.bodies) == (
        1,
        "orders",
        body_of(b"b") + body_of(b"c"),
    )


@pytest.mark.parametrize("sequence", [2, 3])
def test_receipt_out_of_turn_is_refused(sequence):
    """Receipts come in order: anything else would resolve the wrong messages. None is resolved by it."""
    core = BatchingCore("orders")
    batch = core.add(b"a")
    next_request(core)

    with pytest.raises(RPCError, match=f"receipt for batch {sequence}"):
        core.on_response(ProduceResponse(sequence=sequence, count=1))
    assert not batch.done


def test_receipt_for_nothing_is_refused():
    """Also for a batch that has its receipt."""
    core = BatchingCore("orders")
    core.add(b"a")
    response = receipt(next_request(core))
    core.on_response(response)

    with pytest.raises(RPCError, match="not next"):
        core.on_response(response)


def test_lost_stream_is_followed_by_the_same_batches_in_their_order():
    """In flight first, then full, then open: numbered anew, and the queue is named again."""
    core = BatchingCore("orders", batch_messages=2, batches_in_flight=2)
    batches = [core.add(b"%d" % number, fairness_key="acme", weight=3, cost=2) for number in range(7)]
    before = [next_request(core).messages, next_request(core).messages]

    core.lost(UnavailableError("gone"))

    requests, bodies = [], b""
    while (request := next_request(core)) is not None:
        requests.append((request.sequence, request.queue))
        bodies += request.messages.bodies
        if len(requests) <= len(before):
            assert request.messages == before[len(requests) - 1]
        core.on_response(receipt(request, first_offset=2 * len(requests)))
    assert requests == [(1, "orders"), (2, ""), (3, ""), (4, "")]
    assert bodies == b"".join(body_of(b"%d" % number) for number in range(7))
    assert [batch.first_offset for batch in batches] == [2, 2, 4, 4, 6, 6, 8]
    assert core.messages_held == core.bytes_held == 0


def test_batch_that_was_not_taken_goes_out_again_before_those_behind_it():
    """Whether or not repeating is allowed: it certainly is in no queue. Those behind it must not overtake it."""
    core = BatchingCore("orders", batch_messages=1, batches_in_flight=2, repeat=False)
    first, _, third = core.add(b"0"), core.add(b"1"), core.add(b"2")
    requests = [next_request(core), next_request(core)]

    for request in requests:
        core.on_response(refusal(request, not_taken=True))

    assert core.stopping
    assert next_request(core) is None
    assert core.is_idle
    core.lost(UnavailableError("gone"))
    again = [next_request(core), next_request(core)]
    assert [request.messages.bodies for request in again] == [body_of(b"0"), body_of(b"1")]
    core.on_response(receipt(again[0]))
    assert (first.error, third.done) == (None, False)


def test_batch_whose_outcome_is_unknown_goes_out_again_if_that_is_allowed():
    """The broker failed in its midst: with `repeat` it may be in the queue twice, and is in it once at least."""
    core = BatchingCore("orders")
    batch = core.add(b"0")

    core.on_response(refusal(next_request(core)))

    assert core.stopping
    assert not batch.done
    core.lost(UnavailableError("gone"))
    core.on_response(receipt(next_request(core), first_offset=3))
    assert (batch.error, batch.first_offset) == (None, 3)


def test_batch_whose_outcome_is_unknown_fails_where_repeating_is_not_allowed():
    """It says that nobody knows; the stream goes on with the next."""
    core = BatchingCore("orders", repeat=False)
    batch = core.add(b"0")

    core.on_response(refusal(next_request(core)))

    assert type(batch.error) is OutcomeUnknownError
    assert not core.stopping
    core.add(b"1")
    assert next_request(core).sequence == 2


def test_lost_receipt_fails_where_repeating_is_not_allowed():
    """What was sent is in doubt; what was not sent goes out on the next stream."""
    core = BatchingCore("orders", batch_messages=1, batches_in_flight=1, repeat=False)
    sent, unsent = core.add(b"0"), core.add(b"1")
    next_request(core)

    core.lost(UnavailableError("gone"))

    assert type(sent.error) is OutcomeUnknownError
    assert type(core.refused) is OutcomeUnknownError
    request = next_request(core)
    assert (request.sequence, request.messages.bodies) == (1, body_of(b"1"))
    core.on_response(receipt(request))
    assert unsent.error is None


def test_flush_waits_for_what_goes_out_again():
    """A batch that waits for the next stream is not forgotten, although it is nowhere in flight."""
    core = BatchingCore("orders")
    batch = core.add(b"0")

    core.on_response(refusal(next_request(core), not_taken=True))

    assert core.is_idle
    assert core.unresolved(core.sent) is batch


def test_flush_waits_for_all_that_was_sent_before_it_and_for_nothing_else():
    """A batch may be resolved before one that was sent earlier: the earlier one had to go out again."""
    core = BatchingCore("orders", batch_messages=1, batches_in_flight=2)
    first, second, third = core.add(b"0"), core.add(b"1"), core.add(b"2")
    requests = [next_request(core), next_request(core)]
    core.on_response(refusal(requests[0], not_taken=True))

    core.on_response(receipt(requests[1]))

    assert second.done
    assert core.sent == 3
    assert core.unresolved(2) is first
    assert core.unresolved(3) is third
    core.lost(UnavailableError("gone"))
    core.on_response(receipt(next_request(core)))
    assert core.unresolved(2) is None
    assert core.unresolved(3) is third


def test_failed_message_names_itself():
    """By its number among all of its producer's messages, and by its key."""
    core = BatchingCore("orders", batch_messages=2)
    core.add(b"0")
    core.add(b"1")
    core.add(b"2", fairness_key="acme")
    batch = core.add(b"3", fairness_key="umbrella")
    core.on_response(receipt(next_request(core)))

    core.on_response(
        ProduceResponse(sequence=next_request(core).sequence, error_code=5, error="no queue 'orders'")
    )

    errors = [batch.error_of(0), batch.error_of(1)]
    assert [str(error) for error in errors] == [
        "message 3 of the producer (key 'acme'): no queue 'orders'",
        "message 4 of the producer (key 'umbrella'): no queue 'orders'",
    ]
    assert {type(error) for error in errors} == {QueueNotFoundError}
    assert str(core.refused) == str(errors[0])


@pytest.mark.parametrize("repeat", [True, False])
def test_stream_that_never_was_leaves_nothing_in_doubt(repeat):
    """No connection came about, or the broker says that it took nothing: what was given to the stream was not sent."""
    core = BatchingCore("orders", batch_messages=1, repeat=repeat)
    batch = core.add(b"0")
    next_request(core)
    core.lost(UnavailableError("nobody", not_done=True))
    assert not batch.done
    next_request(core)

    core.fail(UnavailableError("nobody", not_done=True))

    assert type(batch.error) is UnavailableError


def test_doubt_of_a_lost_stream_outlives_the_next_that_never_was():
    """The first may have been taken: that the second brought nothing there does not change it."""
    core = BatchingCore("orders", batch_messages=1)
    in_doubt = core.add(b"0")
    next_request(core)
    core.lost(UnavailableError("gone"))
    unsent = core.add(b"1")
    for _ in range(2):
        next_request(core)

    core.fail(UnavailableError("nobody", not_done=True))

    assert [type(batch.error) for batch in (in_doubt, unsent)] == [OutcomeUnknownError, UnavailableError]


def test_refusal_does_not_end_the_doubt_of_a_stream_before():
    """Not taken this time; whether it was the time before, nobody knows."""
    core = BatchingCore("orders", batch_messages=1)
    batch = core.add(b"0")
    next_request(core)
    core.lost(UnavailableError("gone"))
    core.on_response(refusal(next_request(core), not_taken=True))

    core.fail(UnavailableError("gone"))

    assert type(batch.error) is OutcomeUnknownError


def test_closed_producer_says_what_is_in_doubt():
    """What was sent may have been taken; the rest was given up with it."""
    core = BatchingCore("orders", batch_messages=1, batches_in_flight=1)
    sent, unsent = core.add(b"0"), core.add(b"1")
    next_request(core)

    core.fail(ClosedError("closed"))

    assert [type(batch.error) for batch in (sent, unsent)] == [OutcomeUnknownError, ClosedError]


def test_message_that_waits_too_long_fails():
    """Unsent: certainly not taken. Once sent on a lost stream: nobody knows."""
    now = 0.0
    core = BatchingCore("orders", batch_messages=1, batches_in_flight=1, clock=lambda: now)
    sent = core.add(b"0")
    next_request(core)
    core.lost(UnavailableError("gone"))
    now = 5.0
    unsent = core.add(b"1")
    now = 6.0
    young = core.add(b"2")

    core.expire(10.0)
    assert not sent.done
    now = 15.0
    core.expire(10.0)

    assert type(sent.error) is OutcomeUnknownError
    assert type(unsent.error) is UnavailableError
    assert not young.done
    assert (core.messages_held, core.bytes_held) == (1, len(body_of(b"2")))
    assert next_request(core).messages.bodies == body_of(b"2")


def test_message_that_nobody_could_send_expires_although_its_batch_is_open():
    """While the broker is away a lone message is in no full batch."""
    now = 0.0
    core = BatchingCore("orders", clock=lambda: now)
    batch = core.add(b"0")
    now = 10.0

    core.expire(10.0)

    assert type(batch.error) is UnavailableError
    core.add(b"1")
    assert next_request(core).messages.bodies == body_of(b"1")


def test_batch_that_the_broker_does_not_answer_expires_with_its_stream():
    """It is in doubt, its receipt is for nobody, and those behind it go out again on the next stream."""
    now = 0.0
    core = BatchingCore("orders", batch_messages=1, clock=lambda: now)
    silent = core.add(b"0")
    request = next_request(core)
    now = 5.0
    behind = core.add(b"1")
    next_request(core)
    now = 10.0

    assert core.expire(10.0)

    assert type(silent.error) is OutcomeUnknownError
    assert not behind.done
    assert core.messages_held == 1
    core.add(b"2")
    assert core.next_frame() is None
    core.on_response(receipt(request))
    assert not behind.done

    core.lost(UnavailableError("cut"))

    again = next_request(core)
    assert (again.sequence, again.queue, again.messages.bodies) == (1, "orders", body_of(b"1"))
    assert not core.expire(10.0)
    core.on_response(receipt(again))
    assert behind.error is None


def test_receipt_for_fewer_messages_is_no_receipt():
    """A broker that took a part must not be believed to have taken all."""
    core = BatchingCore("orders")
    core.add(b"a")
    batch = core.add(b"b")
    request = next_request(core)

    core.on_response(ProduceResponse(sequence=request.sequence, count=1))

    assert isinstance(batch.error, RPCError)


def test_failed_producer_fails_all_that_has_no_receipt():
    """In flight, full or open: nobody waits for ever. What was in flight may have been taken."""
    core = BatchingCore("orders", batch_messages=2)
    batches = [core.add(b"x") for _ in range(5)]
    next_request(core)

    core.fail(UnavailableError("gone"))

    assert [type(batch.error) for batch in batches] == [OutcomeUnknownError] * 2 + [UnavailableError] * 3
    assert core.messages_held == core.bytes_held == 0
    assert next_request(core) is None
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
    core.on_response(receipt(next_request(core)))

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
    assert core.sent == 0
