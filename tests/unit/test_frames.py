"""Outgoing frames: laid together as bytes, read by the generated classes."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from fila.core import outcome
from fila.wire.frames import delivery_frame, message_frames, sound_body
from fila.wire.ids import message_id
from fila.wire.v1.messages_pb2 import Body, Message, MessageMetadata
from fila.wire.v1.service_pb2 import ConsumeResponse, LeaseResponse, Settled, SubscribeResponse
from fila.wire.varint import varint

EPOCH = 3 << 40 | 5


def delivery_of(
    bodies, *, offsets=None, keys=("k",), key_index=None, times_ms=None, weights=None, attempts=None
):
    count = len(bodies)
    offsets = list(range(7, 7 + count)) if offsets is None else offsets
    return outcome.Delivery(
        consumer=1,
        queue=2,
        queue_name="orders",
        epoch=EPOCH,
        leased_at_ns=1_700_000_000_123_456_789,
        deadline_ns=1_700_000_030_123_456_789,
        offsets=offsets,
        pages=offsets,
        sizes=[len(body) for body in bodies],
        times_ms=[1_700_000_000_000] * count if times_ms is None else times_ms,
        keys=list(keys),
        key_index=[0] * count if key_index is None else key_index,
        weights=weights,
        attempts=attempts,
    )


def body_of(payload, **headers):
    return Body(payload=payload, headers=headers).SerializeToString()


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")]
)
def test_varint_vectors(value, encoded):
    """The examples of protobuf's own description."""
    assert varint(value) == encoded


@given(st.integers(0, 2**64 - 1))
def test_varint_is_what_protobuf_reads(number):
    """A length written by hand is read as the same number."""
    field = MessageMetadata.OFFSET_FIELD_NUMBER

    assert MessageMetadata.FromString(varint(field << 3) + varint(number)).offset == number


@given(st.data(), st.lists(st.binary(max_size=300), min_size=1, max_size=40))
def test_delivery_frame_reads_back_as_its_columns(data, payloads):
    """Whatever is in a delivery, the frame says the same, with every body where its size says."""
    bodies = [body_of(payload) for payload in payloads]
    count = len(bodies)

    def column(low, high):
        return data.draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    offsets = data.draw(
        st.one_of(st.none(), st.lists(st.integers(0, 2**44 - 1), min_size=count, max_size=count))
    )
    keys = ["a", "b", "c"]
    delivery = delivery_of(
        bodies,
        offsets=offsets,
        keys=keys,
        key_index=column(0, 2),
        times_ms=column(1, 2**41),
        weights=data.draw(st.one_of(st.none(), st.just(column(1, 9)))),
        attempts=data.draw(st.one_of(st.none(), st.just(column(0, 9)))),
    )
    cut = data.draw(st.integers(0, count))
    pieces = [b"".join(bodies[:cut]), *bodies[cut:]]

    read = SubscribeResponse.FromString(delivery_frame(delivery, pieces)).delivery

    assert read.epoch == EPOCH
    assert read.leased_at_ms == 1_700_000_000_123
    assert read.lease_expires_at_ms == 1_700_000_030_123
    assert list(read.sizes) == delivery.sizes
    assert (
        list(read.offsets) or list(range(read.first_offset, read.first_offset + count))
    ) == delivery.offsets
    assert [keys[i] for i in read.key_index] == [keys[i] for i in delivery.key_index]
    times_ms = list(read.enqueued_at_ms)
    assert (times_ms * count if len(times_ms) == 1 else times_ms) == delivery.times_ms
    assert list(read.weights) == (delivery.weights or [])
    assert list(read.attempts) == (delivery.attempts or [])
    assert read.bodies == b"".join(bodies)


def test_a_delivery_can_travel_with_a_confirmation():
    """Two frames' worth in one: both are read."""
    settled = SubscribeResponse(settled=Settled(sequence=9)).SerializeToString()

    read = SubscribeResponse.FromString(delivery_frame(delivery_of([b"ab"]), [b"ab"], settled))

    assert read.settled.sequence == 9
    assert read.delivery.bodies == b"ab"


def test_what_a_delivery_can_say_once_it_says_once():
    """Offsets that run on, one key and one time take no column."""
    read = SubscribeResponse.FromString(delivery_frame(delivery_of([b"", b""]), [])).delivery

    assert not read.offsets
    assert not read.key_index
    assert len(read.enqueued_at_ms) == 1


def test_offsets_with_the_right_ends_but_out_of_order_are_all_written():
    """A permutation that begins and ends as a range does is not taken for one."""
    delivery = delivery_of([b""] * 4, offsets=[7, 9, 8, 10])

    read = SubscribeResponse.FromString(delivery_frame(delivery, [])).delivery

    assert list(read.offsets) == [7, 9, 8, 10]


def test_classic_message_has_body_and_dynamic_fields():
    """Headers and payload as they came, and everything that the broker knows beside them."""
    body = body_of(b"payload", trace="1")
    delivery = delivery_of([body], keys=["tenant"], weights=[3], attempts=[2])

    (frame,) = message_frames(delivery, [body])

    message = ConsumeResponse.FromString(frame).message
    assert message.id == message_id(2, 7, 1_700_000_000_000)
    assert dict(message.headers) == {"trace": "1"}
    assert message.payload == b"payload"
    assert message.metadata == MessageMetadata(
        fairness_key="tenant", weight=3, attempt_count=2, queue_id="orders", offset=7, lease_epoch=EPOCH
    )
    timestamps = message.timestamps
    assert timestamps.enqueued_at.ToMilliseconds() == 1_700_000_000_000
    assert timestamps.leased_at.ToNanoseconds() == delivery.leased_at_ns
    assert timestamps.lease_expires_at.ToNanoseconds() == delivery.deadline_ns


def test_joined_message_frames_are_a_lease_response():
    """Lease answers with the same bytes, one after the other."""
    bodies = [body_of(b"%d" % number) for number in range(3)]

    frames = message_frames(delivery_of(bodies), [b"".join(bodies)])

    response = LeaseResponse.FromString(b"".join(frames))
    assert [message.payload for message in response.messages] == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    "torn",
    [
        b"\x1a\x7fshort",
        b"\xff",
        b"\x12\x05\x0a\x03abc"[:4],
        b"\x12\x04\x0a\x02\xff\xfe",
        b"\x0b",
        b"\x0c",
        b"\x00\x00",
        b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    ],
)
def test_torn_body_harms_neither_its_fields_nor_its_neighbours(torn):
    """A body that is no protobuf arrives as the payload it was sent as, with an id that can be acked."""
    with pytest.raises(DecodeError):
        Message.FromString(torn)
    bodies = [body_of(b"before"), torn, body_of(b"after")]

    response = LeaseResponse.FromString(b"".join(message_frames(delivery_of(bodies), bodies)))

    assert [message.payload for message in response.messages] == [b"before", torn, b"after"]
    assert [message.metadata.offset for message in response.messages] == [7, 8, 9]


def test_body_cannot_pretend_to_be_another_message():
    """The broker's fields in a body are left out, whatever they say."""
    forged = Message(
        id=message_id(1, 1, 1),
        payload=b"x",
        metadata=MessageMetadata(attempt_count=9, throttle_keys=["t"]),
    )
    forged.timestamps.leased_at.FromSeconds(1)
    body = forged.SerializeToString()

    (frame,) = message_frames(delivery_of([body]), [body])

    message = ConsumeResponse.FromString(frame).message
    assert message.payload == b"x"
    assert message.id == message_id(2, 7, 1_700_000_000_000)
    assert message.metadata.attempt_count == 0
    assert not message.metadata.throttle_keys


@given(st.binary(max_size=60))
def test_no_body_breaks_a_frame(body):
    """Any bytes at all as a body: the frame parses, and its id is its own."""
    (frame,) = message_frames(delivery_of([body]), [body])

    message = ConsumeResponse.FromString(frame).message
    assert message.id == message_id(2, 7, 1_700_000_000_000)
    assert message.metadata.queue_id == "orders"
    assert Body.FromString(sound_body(body)) is not None
