"""Outgoing frames, laid together as bytes: no body is encoded again on its way out.

A body is stored as the encoding of `headers` and `payload`, with the numbers that they have in Message. So a frame is the slices
of the bodies, joined once with the encoding of everything else: protobuf fields may come in any order.
"""

from collections.abc import Sequence

from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from fila import limits
from fila.core import outcome
from fila.wire.ids import message_id
from fila.wire.v1.messages_pb2 import Body, Message, MessageMetadata, MessageTimestamps
from fila.wire.v1.service_pb2 import Delivery, ProduceResponse, Subscribed, SubscribeResponse
from fila.wire.varint import varint

_MS_NS = limits.MS_NS
_SECOND_NS = limits.SECOND_NS
_LENGTH_DELIMITED = 2


def _tag(field: int) -> bytes:
    return varint(field << 3 | _LENGTH_DELIMITED)


_RESPONSE_DELIVERY = _tag(SubscribeResponse.DELIVERY_FIELD_NUMBER)
_DELIVERY_BODIES = _tag(Delivery.BODIES_FIELD_NUMBER)
# The same number in ConsumeResponse and LeaseResponse.
_RESPONSE_MESSAGE = _tag(1)


def produce_receipt(sequence: int, receipt: outcome.Enqueued) -> bytes:
    """Return a ProduceResponse for a batch that is durable."""
    return ProduceResponse(
        sequence=sequence,
        queue_number=receipt.queue_number,
        first_offset=receipt.first_offset,
        count=receipt.count,
        enqueued_at_ms=receipt.enqueued_at_ms,
    ).SerializeToString()


def produce_refusal(sequence: int, code: int, message: str, *, not_taken: bool) -> bytes:
    """Return a ProduceResponse with an error."""
    return ProduceResponse(
        sequence=sequence, error_code=code, error=message, not_taken=not_taken
    ).SerializeToString()


def subscribed_frame(attached: outcome.Attached, incarnation: int) -> bytes:
    """Return the first SubscribeResponse of a stream."""
    return SubscribeResponse(
        subscribed=Subscribed(
            queue_number=attached.queue_number,
            visibility_timeout_ms=attached.visibility_timeout_ms,
            incarnation=incarnation,
        )
    ).SerializeToString()


def stopping_frame() -> bytes:
    """Return a SubscribeResponse that says that the broker stops."""
    return SubscribeResponse(stopping=True).SerializeToString()


def delivery_frame(delivery: outcome.Delivery, bodies: Sequence[bytes], settled: bytes = b"") -> bytes:
    """Return a SubscribeResponse with a delivery. `bodies` are slices that make up all bodies in order.

    `settled` is a SubscribeResponse without a delivery, encoded: the frame says that too. (A frame of its own costs as much as
    everything else that is done for a delivery.)
    """
    total = sum(delivery.sizes)
    columns = _delivery_columns(delivery)
    bodies_length = varint(total)
    length = len(columns) + len(_DELIVERY_BODIES) + len(bodies_length) + total
    return b"".join(
        (settled, _RESPONSE_DELIVERY, varint(length), columns, _DELIVERY_BODIES, bodies_length, *bodies)
    )


def _delivery_columns(delivery: outcome.Delivery) -> bytes:
    offsets = delivery.offsets
    count = len(offsets)
    first = offsets[0]
    times_ms = delivery.times_ms
    keys = delivery.keys
    message = Delivery(
        epoch=delivery.epoch,
        leased_at_ms=delivery.leased_at_ns // _MS_NS,
        lease_expires_at_ms=delivery.deadline_ns // _MS_NS,
        sizes=delivery.sizes,
        first_offset=first,
        keys=keys,
        enqueued_at_ms=times_ms[:1] if times_ms.count(times_ms[0]) == count else times_ms,
    )
    if offsets[-1] - first != count - 1 or list(offsets) != list(range(first, first + count)):
        message.offsets.extend(offsets)
    if len(keys) > 1:
        message.key_index.extend(delivery.key_index)
    if delivery.weights is not None:
        message.weights.extend(delivery.weights)
    if delivery.attempts is not None:
        message.attempts.extend(delivery.attempts)
    return message.SerializeToString()


def message_bodies(sizes: Sequence[int], bodies: Sequence[bytes]) -> list[bytes]:
    """Return the body of each message."""
    blob = bodies[0] if len(bodies) == 1 else b"".join(bodies)
    begin = 0
    separate = []
    for size in sizes:
        end = begin + size
        separate.append(blob[begin:end])
        begin = end
    return separate


def message_frames(delivery: outcome.Delivery, bodies: Sequence[bytes]) -> list[bytes]:
    """Return a ConsumeResponse for each message; joined, they are a LeaseResponse."""
    leased_at = _timestamp(delivery.leased_at_ns)
    lease_expires_at = _timestamp(delivery.deadline_ns)
    weights, attempts = delivery.weights, delivery.attempts
    frames = []
    for place, body in enumerate(message_bodies(delivery.sizes, bodies)):
        offset, time_ms = delivery.offsets[place], delivery.times_ms[place]
        dynamic = Message(
            id=message_id(delivery.queue, offset, time_ms),
            metadata=MessageMetadata(
                fairness_key=delivery.keys[delivery.key_index[place]],
                throttle_keys=throttle_keys(delivery, place),
                weight=1 if weights is None else weights[place],
                attempt_count=0 if attempts is None else attempts[place],
                queue_id=delivery.queue_name,
                offset=offset,
                lease_epoch=delivery.epoch,
            ),
            timestamps=MessageTimestamps(
                enqueued_at=_timestamp(time_ms * _MS_NS),
                leased_at=leased_at,
                lease_expires_at=lease_expires_at,
            ),
        ).SerializeToString()
        sound = sound_body(body)
        frames.append(b"".join((_RESPONSE_MESSAGE, varint(len(sound) + len(dynamic)), sound, dynamic)))
    return frames


def throttle_keys(delivery: outcome.Delivery, place: int) -> tuple[str, ...]:
    """Return the throttle keys of a message."""
    if delivery.gates is None:
        return ()
    return delivery.gates[0 if delivery.gate_index is None else delivery.gate_index[place]].throttle


def sound_body(body: bytes) -> bytes:
    """Return a body that can stand in a Message beside the broker's fields.

    Bodies arrive unread in columns. Here a torn one would swallow the fields after it, break the whole frame at every consumer
    that gets it, and could then never be acked; one with the broker's fields in it could pretend to be another message. The
    first is handed over as the payload it was sent as, the second without those fields. (0.5 us a message, in calls that cost
    far more.)
    """
    try:
        message = Message.FromString(body)
    except DecodeError:
        return Body(payload=body).SerializeToString()
    if not message.id and not message.HasField("metadata") and not message.HasField("timestamps"):
        return body
    for field in ("id", "metadata", "timestamps"):
        message.ClearField(field)
    return message.SerializeToString()


def _timestamp(time_ns: int) -> Timestamp:
    return Timestamp(seconds=time_ns // _SECOND_NS, nanos=time_ns % _SECOND_NS)
