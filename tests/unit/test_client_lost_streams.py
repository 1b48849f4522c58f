"""The consumer without I/O when its stream is lost: what is adrift, and what is said by message id."""

import pytest

from fila.client.deliveries import DeliveriesCore
from fila.client.messages import DeliveredMessage, Settle
from fila.errors import MessageNotFoundError, UnavailableError
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
BODY = Body(payload=b"abc").SerializeToString()
PREFETCH = 100
CREDIT = {"credit_messages": PREFETCH, "credit_bytes": PREFETCH * len(BODY)}


class StreamModel:
    """A core with a clock, whose first frame is written."""

    def __init__(self):
        self.core = DeliveriesCore(
            "orders",
            holder=self,
            message_type=DeliveredMessage,
            prefetch=PREFETCH,
            prefetch_bytes=PREFETCH * len(BODY),
        )
        self.now = 1000.0
        self.core.on_response(SubscribeResponse(subscribed=Subscribed(queue_number=3)), self.now)
        self.core.next_frame()

    def settle(self, message, action, argument):
        return self.core.settle(message.held, message.position, action, argument, self.now)

    def respond(self, **fields):
        self.core.on_response(SubscribeResponse(**fields), self.now)

    def deliver(self, epoch, count, first_offset=0):
        self.respond(
            delivery=Delivery(
                epoch=epoch,
                leased_at_ms=5_000,
                lease_expires_at_ms=5_000 + LEASE_SECONDS * 1000,
                first_offset=first_offset,
                sizes=[len(BODY)] * count,
                bodies=BODY * count,
                keys=["default"],
                enqueued_at_ms=[4_000],
            )
        )

    def take(self, count):
        return [self.core.take(self.now) for _ in range(count)]

    def frames(self):
        return list(iter(self.core.next_frame, None))

    def said(self, frame):
        """What a frame says, with ids in place of deliveries."""
        return [
            (action, argument, [held.message_id(position + place) for place in range(count)])
            for action, argument, places in frame.settlements()
            for held, position, count in places
        ]


@pytest.fixture
def stream():
    """A stream whose first frame is written."""
    return StreamModel()


def test_next_stream_begins_anew(stream):
    """It names the queue, grants all credit and counts its frames from 1, whatever the lost one had."""
    stream.deliver(1, 2)
    stream.take(1)[0].ack()
    stream.frames()

    stream.core.lost()

    assert stream.core.next_frame() == SubscribeRequest(queue="orders", **CREDIT)
    assert stream.core.next_frame() is None
    stream.deliver(7, 1)
    stream.take(1)[0].ack()
    assert stream.frames()[0].sequence == 1


def test_what_was_settled_and_not_confirmed_is_said_by_id(stream):
    """Written or not, in the order in which it was said; what was confirmed is not said again."""
    stream.deliver(1, 5)
    confirmed, sent, unsent, released, extended = stream.take(5)
    confirmed.ack()
    stream.frames()
    sent.ack()
    stream.frames()
    unsent.nack("boom")
    released.release()
    extended.extend(9)
    stream.respond(settled=Settled(sequence=1))

    adrift = stream.core.lost()

    assert [said for frame in adrift.frames for said in stream.said(frame)] == [
        (Settle.ACK, "", [message_id(3, 1, 4_000)]),
        (Settle.EXTEND, 9_000, [message_id(3, 4, 4_000)]),
        (Settle.NACK, "boom", [message_id(3, 2, 4_000)]),
        (Settle.RELEASE, "", [message_id(3, 3, 4_000)]),
    ]
    assert adrift.waiting == []


def test_what_was_not_handed_out_is_given_back_by_id(stream):
    """And nobody gets it from this stream any more."""
    stream.deliver(1, 3)
    stream.deliver(2, 2)
    stream.take(1)

    adrift = stream.core.lost()

    assert [(held.epoch, first, count) for held, first, count in adrift.waiting] == [(1, 1, 2), (2, 0, 2)]
    assert stream.core.take(stream.now) is None
    assert stream.core.in_work == 1
    assert stream.core.lost().waiting == []


def test_message_of_a_lost_stream_is_settled_by_id_and_once(stream):
    """The next stream does not know its delivery: it must not be named there."""
    stream.deliver(1, 2)
    first, second = stream.take(2)
    stream.core.lost()
    stream.frames()
    generation = stream.core.generation

    assert stream.settle(first, Settle.ACK, "") is None
    assert stream.frames() == []
    assert (first.held.generation, generation) == (0, 1)
    with pytest.raises(MessageNotFoundError, match="before"):
        stream.settle(first, Settle.NACK, "boom")
    assert stream.core.in_work_adrift
    stream.settle(second, Settle.NACK, "boom")
    assert not stream.core.in_work_adrift
    assert stream.core.in_work == 0


def test_same_epoch_on_two_streams_is_two_leases(stream):
    """A broker that lost its disk counts anew: what is adrift is not mistaken for what is held."""
    stream.deliver(1, 1, first_offset=4)
    (old,) = stream.take(1)
    stream.core.lost()
    stream.frames()
    stream.deliver(1, 1, first_offset=9)
    (new,) = stream.take(1)

    assert stream.settle(old, Settle.ACK, "") is None
    frame = stream.settle(new, Settle.ACK, "")

    assert stream.frames()[0].ack == LeaseRuns(epochs=[1], positions=[0])
    assert stream.said(frame) == [(Settle.ACK, "", [new.id])]


def test_credit_of_what_is_adrift_belongs_to_no_stream(stream):
    """All was granted to the next stream: to grant it again would lease more than the prefetch."""
    stream.deliver(1, 4)
    messages = stream.take(4)
    stream.core.lost()
    stream.frames()

    for message in messages:
        stream.settle(message, Settle.ACK, "")
    stream.deliver(2, 1)
    stream.take(1)[0].ack()

    assert [(frame.credit_messages, frame.credit_bytes) for frame in stream.frames()] == [(1, len(BODY))]


def test_unconfirmed_counts_until_each_frame_is_resolved(stream):
    """It bounds what is in doubt, over lost streams as well."""
    stream.deliver(1, 3)
    messages = stream.take(3)
    for message in messages[:2]:
        message.ack()
        stream.frames()
    assert stream.core.unconfirmed == 2
    stream.respond(settled=Settled(sequence=1))
    assert stream.core.unconfirmed == 1

    (frame,) = stream.core.lost().frames

    assert stream.core.unconfirmed == 1
    stream.core.resolve(frame)
    assert (stream.core.unconfirmed, frame.done) == (0, True)


def test_refusals_by_id_are_found_like_those_of_a_stream(stream):
    """Whoever waits for durable does not see how it was said."""
    stream.deliver(1, 2)
    stream.take(1)[0].ack()
    frame = stream.take(1)[0].ack()
    (lost,) = stream.core.lost().frames

    lost.refused.append((1, 1, 1, "the lease had ended"))
    stream.core.resolve(lost)

    assert frame is lost
    assert frame.outcome(1, 0) is None
    assert type(frame.outcome(1, 1)) is MessageNotFoundError


def test_stopping_broker_takes_back_what_was_not_handed_out(stream):
    """It goes back by itself; what is in work stays, and its settlements still go out."""
    stream.deliver(1, 3)
    (message,) = stream.take(1)

    stream.respond(stopping=True)

    assert stream.core.stopping
    assert stream.core.take(stream.now) is None
    message.ack()
    (frame,) = stream.frames()
    assert (frame.ack, frame.HasField("release")) == (LeaseRuns(epochs=[1], positions=[0]), False)
    adrift = stream.core.lost()
    assert (len(adrift.frames), adrift.waiting, stream.core.stopping) == (1, [], False)


def test_stop_is_said_with_what_goes_back_and_once(stream):
    """Else what is given back would come again with the credit that is left."""
    stream.deliver(1, 3)
    stream.take(1)

    stream.core.stop()

    frames = stream.frames()
    assert [(frame.stop, frame.credit_messages) for frame in frames] == [(True, 0)]
    assert frames[0].release == LeaseRuns(epochs=[1], positions=[1], counts=[2])


def test_stop_is_said_with_nothing_to_give_back(stream):
    """A consumer that stays for what it works on is offered nothing more."""
    stream.core.stop()

    assert stream.frames() == [SubscribeRequest(stop=True)]


def test_failed_core_resolves_what_was_settled_and_refuses_what_comes(stream):
    """Nobody waits for ever."""
    stream.deliver(1, 3)
    sent, unsent, later = stream.take(3)
    frames = [sent.ack()]
    stream.frames()
    frames.append(unsent.ack())

    stream.core.fail(UnavailableError("gone"))

    assert [type(frame.error) for frame in frames] == [UnavailableError, UnavailableError]
    assert (stream.core.unconfirmed, stream.core.stopped) == (0, True)
    with pytest.raises(MessageNotFoundError, match="gone"):
        later.ack()


# --- keeping leases alive ---


def test_lease_is_kept_alive_from_half_of_its_time_on(stream):
    """Each place once, also what was not handed out: it waits for whoever is at work."""
    stream.deliver(1, 4)
    first, _ = stream.take(2)
    first.ack()
    stream.frames()
    stream.now += LEASE_SECONDS / 2 - 1
    assert stream.core.keep_alive(stream.now) == (None, {})
    stream.now += 1

    frame, adrift = stream.core.keep_alive(stream.now)

    assert stream.said(frame) == [
        (Settle.EXTEND, LEASE_SECONDS * 1000, [message_id(3, offset, 4_000) for offset in (1, 2, 3)])
    ]
    assert adrift == {}
    assert stream.core.next_expiry == stream.now + LEASE_SECONDS
    assert stream.core.keep_alive(stream.now) == (None, {})


def test_what_was_kept_alive_is_still_handed_out(stream):
    """After the first deadline, and before the new one: whoever keeps leases does not give back what waits."""
    stream.deliver(1, 2)
    stream.now += LEASE_SECONDS - 1
    stream.core.keep_alive(stream.now)
    stream.now += LEASE_SECONDS - 1
    stream.core.expire(stream.now)

    assert stream.take(1)[0].offset == 0
    stream.now += 1
    stream.core.expire(stream.now)
    assert stream.core.take(stream.now) is None


def test_extension_of_one_message_does_not_keep_its_neighbours(stream):
    """Those are no safer for it: their leases are extended when it is time."""
    stream.deliver(1, 2)
    first, second = stream.take(2)
    first.extend(10 * LEASE_SECONDS)
    stream.frames()
    stream.now += LEASE_SECONDS / 2

    frame, _ = stream.core.keep_alive(stream.now)

    assert frame is not None
    assert second.id in stream.said(frame)[0][2]


def test_what_is_adrift_is_kept_alive_by_id(stream):
    """Whoever works on it does not know that a stream was lost."""
    stream.deliver(1, 3)
    first, _, third = stream.take(3)
    first.ack()
    stream.core.lost()
    stream.frames()
    stream.settle(third, Settle.ACK, "")
    stream.now += LEASE_SECONDS / 2

    frame, adrift = stream.core.keep_alive(stream.now)

    assert frame is None
    assert [
        ((held.epoch, first, count), timeout)
        for timeout, places in adrift.items()
        for held, first, count in places
    ] == [((1, 1, 1), LEASE_SECONDS * 1000)]
    assert stream.core.keep_alive(stream.now) == (None, {})


def test_what_is_adrift_expires(stream):
    """Nobody holds it any more: a consumer that is to end does not wait for it."""
    stream.deliver(1, 1)
    (message,) = stream.take(1)
    stream.core.lost()
    assert stream.core.next_expiry == 1000 + LEASE_SECONDS
    stream.now += LEASE_SECONDS

    stream.core.expire(stream.now)

    assert not stream.core.in_work_adrift
    assert stream.core.in_work == 0
    # A late ack is said: the broker's clock decides.
    assert stream.settle(message, Settle.ACK, "") is None


def test_giving_up_what_is_adrift_names_it_once(stream):
    """Whoever settles it afterwards is told that it went back."""
    stream.deliver(1, 3)
    _, second, third = stream.take(3)
    stream.core.lost()
    stream.settle(second, Settle.ACK, "")

    places = stream.core.give_up_adrift()

    assert [(held.epoch, first, count) for held, first, count in places] == [(1, 0, 1), (1, 2, 1)]
    assert stream.core.give_up_adrift() == []
    with pytest.raises(MessageNotFoundError):
        stream.settle(third, Settle.ACK, "")


def test_refused_settlement_of_another_frame_is_not_mistaken(stream):
    """A refusal names the frame that it answers."""
    stream.deliver(1, 2)
    frames = []
    for message in stream.take(2):
        frames.append(message.ack())
        stream.frames()
    refused = RefusedRuns(sequence=2, runs=LeaseRuns(epochs=[1], positions=[1]), reason="ended")

    stream.respond(settled=Settled(sequence=2, refused=[refused]))

    assert [frames[0].outcome(1, 0), type(frames[1].outcome(1, 1))] == [None, MessageNotFoundError]
