"""The consumer without I/O: hand-out, settlement in runs, credit, expiry."""

import pytest

from fila import limits
from fila.client.deliveries import DeliveriesCore
from fila.client.messages import DeliveredMessage, Settle
from fila.errors import MessageNotFoundError, RPCError, UnavailableError
from fila.wire.ids import message_id
from fila.wire.v1.messages_pb2 import Body, LeaseRuns
from fila.wire.v1.service_pb2 import (
    Delivery,
    RefusedRuns,
    Settled,
    Subscribed,
    SubscribeRequest,
    SubscribeResponse,
)

LEASE_SECONDS = 30


def body_of(payload):
    return Body(payload=payload).SerializeToString()


class StreamModel:
    """A core with a clock, and what a test says to it."""

    def __init__(self, *, prefetch=100, prefetch_bytes=10_000):
        self.core = DeliveriesCore(
            "orders",
            holder=self,
            message_type=DeliveredMessage,
            prefetch=prefetch,
            prefetch_bytes=prefetch_bytes,
        )
        self.now = 1000.0
        self.core.on_response(SubscribeResponse(subscribed=Subscribed(queue_number=3)), self.now)

    def settle(self, message, action, argument):
        return self.core.settle(message.held, message.position, action, argument, self.now)

    def deliver(self, epoch, count, **columns):
        bodies = [body_of(b"%d/%d" % (epoch, place)) for place in range(count)]
        delivery = Delivery(
            epoch=epoch,
            leased_at_ms=5_000,
            lease_expires_at_ms=5_000 + LEASE_SECONDS * 1000,
            sizes=[len(body) for body in bodies],
            bodies=b"".join(bodies),
            **{"keys": ["default"], "enqueued_at_ms": [4_000], **columns},
        )
        self.core.on_response(SubscribeResponse(delivery=delivery), self.now)

    def take_all(self):
        return list(iter(lambda: self.core.take(self.now), None))

    def confirm(self, sequence, *refused):
        self.core.on_response(
            SubscribeResponse(settled=Settled(sequence=sequence, refused=refused)), self.now
        )


@pytest.fixture
def stream():
    """A stream whose first frame is written."""
    model = StreamModel()
    model.core.next_frame()
    return model


def test_first_frame_names_the_queue_and_grants_all_credit():
    """Nothing flows before it, and it is said once."""
    stream = StreamModel(prefetch=7, prefetch_bytes=99)

    assert stream.core.next_frame() == SubscribeRequest(queue="orders", credit_messages=7, credit_bytes=99)
    assert stream.core.next_frame() is None


def test_messages_come_in_order_with_their_columns(stream):
    """Each message is its own place in every column."""
    stream.deliver(
        1, 2, first_offset=40, keys=["acme", "umbrella"], key_index=[1, 0], weights=[3, 1], attempts=[0, 2]
    )
    stream.deliver(2, 2, offsets=[9, 4], enqueued_at_ms=[4_000, 4_001])

    first, second, third, fourth = stream.take_all()

    assert [message.payload for message in (first, second, third, fourth)] == [b"1/0", b"1/1", b"2/0", b"2/1"]
    assert (first.fairness_key, first.weight, first.attempt_count, first.offset) == ("umbrella", 3, 0, 40)
    assert (second.fairness_key, second.weight, second.attempt_count, second.offset) == ("acme", 1, 2, 41)
    assert (fourth.fairness_key, fourth.weight, fourth.attempt_count, fourth.offset) == ("default", 1, 0, 4)
    assert fourth.id == message_id(3, 4, 4_001)
    assert (fourth.queue, fourth.epoch, fourth.headers) == ("orders", 2, {})
    assert fourth.leased_at.timestamp() == 5
    assert fourth.enqueued_at.timestamp() == 4.001


def test_what_is_handed_out_is_reported_begun_once(stream):
    """If this process dies, these count as an attempt and the others do not."""
    stream.deliver(1, 3)
    stream.core.take(stream.now)
    stream.core.take(stream.now)

    assert stream.core.next_frame() == SubscribeRequest(
        begun=LeaseRuns(epochs=[1], positions=[0], counts=[2])
    )
    assert stream.core.next_frame() is None


def test_message_settled_at_once_is_not_reported_begun(stream):
    """A quick handler costs one frame, not two."""
    stream.deliver(1, 2)
    message = stream.core.take(stream.now)
    message.ack()

    frame = stream.core.next_frame()

    assert not frame.HasField("begun")
    assert frame.sequence == 1
    assert frame.ack == LeaseRuns(epochs=[1], positions=[0])


def test_acks_of_a_turn_are_one_frame_with_runs_and_credit(stream):
    """What one turn settles costs one frame, whatever its order, and frees what it held."""
    stream.deliver(1, 4)
    messages = stream.take_all()
    for place in (2, 0, 1):
        messages[place].ack()

    frame = stream.core.next_frame()

    assert frame.ack == LeaseRuns(epochs=[1], positions=[0], counts=[3])
    assert frame.credit_messages == 3
    assert frame.credit_bytes == 3 * len(body_of(b"1/0"))


def test_each_way_of_settling_has_its_place_in_the_frame(stream):
    """Nacks are grouped by their error, extensions by their time."""
    stream.deliver(1, 6)
    messages = stream.take_all()
    messages[0].ack()
    messages[1].nack("boom")
    messages[2].nack("boom")
    messages[3].nack("other")
    messages[4].release()
    messages[5].extend(2.5)

    frame = stream.core.next_frame()

    assert [(nack.error, list(nack.runs.positions)) for nack in frame.nack] == [("boom", [1]), ("other", [3])]
    assert list(frame.nack[0].runs.counts) == [2]
    assert frame.release == LeaseRuns(epochs=[1], positions=[4])
    assert [(extend.timeout_ms, list(extend.runs.positions)) for extend in frame.extend] == [(2500, [5])]
    assert frame.credit_messages == 5


def test_extension_and_end_of_a_lease_never_share_a_frame(stream):
    """A frame has no order: the extension would be refused, and the ack with it."""
    stream.deliver(1, 1)
    message = stream.core.take(stream.now)
    extension, ack = message.extend(10), message.ack()

    frames = [stream.core.next_frame(), stream.core.next_frame()]

    assert extension is not ack
    assert [frame.sequence for frame in frames] == [1, 2]
    assert [bool(frame.extend) for frame in frames] == [True, False]
    assert [frame.HasField("ack") for frame in frames] == [False, True]


def test_frame_with_many_errors_stays_within_what_the_broker_reads(stream):
    """Long errors, all different, are spread over frames."""
    stream.deliver(1, 1000)
    for message in stream.take_all():
        message.nack(f"{'x' * 2000} {message.position}")

    frames = list(iter(stream.core.next_frame, None))

    assert len(frames) > 1
    assert max(frame.ByteSize() for frame in frames) < 256 * 1024
    assert sum(len(frame.nack) for frame in frames) == 1000
    assert [frame.sequence for frame in frames] == list(range(1, len(frames) + 1))


@pytest.mark.parametrize("action", [Settle.NACK, Settle.EXTEND])
def test_frame_has_no_more_actions_than_the_broker_takes(stream, action):
    """A worker with an error or a timeout of its own for each message must not lose its stream for it."""
    count = limits.SETTLE_ACTIONS_MAX + 1
    stream.deliver(1, count)
    for number, message in enumerate(stream.take_all()):
        stream.settle(message, action, str(number) if action is Settle.NACK else 1_000 + number)

    frames = list(iter(stream.core.next_frame, None))

    actions = [len(frame.nack) + len(frame.extend) for frame in frames]
    assert actions == [limits.SETTLE_ACTIONS_MAX, 1]


def test_message_extended_twice_alike_is_extended_once(stream):
    """One turn that says the same twice says it once: the broker would take the second for a lost lease."""
    stream.deliver(1, 2)
    first, second = stream.take_all()
    frames = [stream.settle(message, Settle.EXTEND, 5_000) for message in (first, second, first)]

    (extend,) = stream.core.next_frame().extend

    assert extend.runs == LeaseRuns(epochs=[1], positions=[0], counts=[2])
    assert frames[0] is frames[2]


def test_later_extension_of_a_message_comes_in_a_later_frame(stream):
    """A frame says nothing of order, and what was asked for last counts."""
    stream.deliver(1, 1)
    (message,) = stream.take_all()
    for timeout_ms in (5_000, 9_000, 5_000):
        stream.settle(message, Settle.EXTEND, timeout_ms)

    frames = list(iter(stream.core.next_frame, None))

    assert [[extend.timeout_ms for extend in frame.extend] for frame in frames] == [[5_000], [9_000], [5_000]]


def test_confirmation_resolves_all_frames_up_to_its_number(stream):
    """The broker confirms in order."""
    stream.deliver(1, 3)
    frames = []
    for message in stream.take_all():
        frames.append(message.ack())
        stream.core.next_frame()

    stream.confirm(2)

    assert [frame.done for frame in frames] == [True, True, False]
    assert frames[0].outcome(1, 0) is None


def test_refused_lease_is_refused_to_its_message_alone(stream):
    """The others of the frame are durable."""
    stream.deliver(1, 5)
    frame = next(iter([message.ack() for message in stream.take_all()]))
    stream.core.next_frame()

    stream.confirm(
        1,
        RefusedRuns(sequence=1, runs=LeaseRuns(epochs=[1], positions=[1], counts=[2]), reason="ended"),
        RefusedRuns(sequence=1, runs=LeaseRuns(epochs=[1], positions=[4], counts=[0]), reason="to the end"),
        RefusedRuns(sequence=1, runs=LeaseRuns(epochs=[9]), reason="another"),
    )

    outcomes = [frame.outcome(1, place) for place in range(5)]
    assert [type(outcome) for outcome in outcomes] == [
        type(None),
        MessageNotFoundError,
        MessageNotFoundError,
        type(None),
        MessageNotFoundError,
    ]
    assert outcomes[4].message == "to the end"


def test_message_is_settled_once(stream):
    """A second ack is the caller's mistake and says so."""
    stream.deliver(1, 1)
    message = stream.core.take(stream.now)
    message.ack()

    with pytest.raises(MessageNotFoundError, match="before"):
        message.nack("no")


def test_expired_message_is_not_handed_out(stream):
    """It is someone else's by now: what waited too long here is dropped, and its credit is granted again."""
    stream = StreamModel(prefetch=4)
    stream.core.next_frame()
    stream.deliver(1, 3)
    stream.core.take(stream.now)
    stream.now += LEASE_SECONDS
    stream.deliver(2, 1)

    message = stream.core.take(stream.now)

    assert message.epoch == 2
    assert stream.core.next_frame().credit_messages == 2


def test_expired_lease_of_a_forgotten_message_frees_its_credit():
    """A handler that never settles must not dry up the stream."""
    stream = StreamModel(prefetch=2)
    stream.core.next_frame()
    stream.deliver(1, 2)
    forgotten = stream.take_all()
    stream.core.next_frame()
    stream.now = stream.core.next_expiry
    stream.core.expire(stream.now)

    assert stream.core.next_frame() == SubscribeRequest(credit_messages=2, credit_bytes=10)
    assert stream.core.in_work == 0
    assert stream.core.next_expiry is None
    # A late ack goes out, for the broker's clock decides, and frees nothing twice.
    forgotten[0].ack()
    assert stream.core.next_frame() == SubscribeRequest(sequence=1, ack=LeaseRuns(epochs=[1], positions=[0]))


def test_extension_keeps_the_credit_of_a_message_in_work(stream):
    """The lease did not run out."""
    stream.deliver(1, 1)
    message = stream.core.take(stream.now)
    message.extend(LEASE_SECONDS * 2)
    stream.now += LEASE_SECONDS
    stream.core.expire(stream.now)

    assert stream.core.in_work == 1
    assert stream.core.next_expiry == 1000 + LEASE_SECONDS * 2


def test_stopped_stream_gives_back_what_was_not_handed_out(stream):
    """Also what arrives later; it asks for no more; what is in work stays."""
    stream.deliver(1, 4)
    stream.core.take(stream.now)
    stream.core.stop()
    stream.deliver(2, 2)

    frame = stream.core.next_frame()

    assert frame.release == LeaseRuns(epochs=[1, 2], positions=[1, 0], counts=[3, 2])
    assert frame.begun == LeaseRuns(epochs=[1], positions=[0])
    assert frame.credit_messages == 0
    assert stream.core.take(stream.now) is None
    assert stream.core.in_work == 1


def test_lost_stream_fails_what_was_not_confirmed(stream):
    """Nobody waits for ever, and nothing more is handed out or taken."""
    stream.deliver(1, 3)
    sent, unsent, later = (stream.core.take(stream.now) for _ in range(3))
    sent_frame = sent.ack()
    stream.core.next_frame()
    unsent_frame = unsent.ack()

    stream.core.fail(UnavailableError("gone"))

    assert isinstance(sent_frame.outcome(1, 0), UnavailableError)
    assert isinstance(unsent_frame.outcome(1, 1), UnavailableError)
    assert stream.core.next_frame() is None
    assert stream.core.take(stream.now) is None
    with pytest.raises(MessageNotFoundError, match="gone"):
        later.ack()


@pytest.mark.parametrize(
    "columns",
    [
        {"keys": []},
        {"key_index": [0]},
        {"key_index": [0, 1]},
        {"weights": [1, 2, 3]},
        {"attempts": [1]},
        {"offsets": [1]},
        {"enqueued_at_ms": []},
        {"enqueued_at_ms": [1, 2, 3]},
    ],
)
def test_delivery_that_contradicts_itself_is_refused(stream, columns):
    """Nothing of it is handed out under a wrong name."""
    with pytest.raises(RPCError, match="contradict"):
        stream.deliver(1, 2, **columns)
    assert stream.core.take(stream.now) is None


def test_settle_is_what_the_messages_of_the_stream_call(stream):
    """The holder decides what an ack does."""
    stream.deliver(1, 1)
    message = stream.core.take(stream.now)

    frame = stream.settle(message, Settle.ACK, "")

    assert frame.ack.runs() == [(1, 0, 1)]
