"""Message ids: a UUIDv7 that says where a message lives and when it came.

The formula is published in `proto/fila/v1/messages.proto`; broker and clients derive ids on their own, so none
travels with a batch. Knows nothing of queues.
"""

from fila import limits
from fila.errors import InvalidArgumentError

_OFFSET_MAX = (1 << limits.OFFSET_BITS) - 1
_OFFSET_BITS = limits.OFFSET_BITS


def message_id(queue_number: int, offset: int, enqueued_at_ms: int) -> str:
    """Return the id of a message.

    An id is made for every message that leaves on a classic call: hence one format by hand, without a UUID object.
    """
    return (
        f"{enqueued_at_ms >> 16:08x}-{enqueued_at_ms & 0xFFFF:04x}-{0x7000 | queue_number >> 18:04x}"
        f"-{0x8000 | queue_number >> 4 & 0x3FFF:04x}-{(queue_number & 0xF) << 44 | offset:012x}"
    )


def parse_message_id(text: str) -> tuple[int, int, int]:
    """Return queue number, offset and time in ms of an id.

    Raises InvalidArgumentError for anything but a UUIDv7 in its usual form.
    """
    if len(text) != 36 or text[8] != "-" or text[13] != "-" or text[18] != "-" or text[23] != "-":
        raise _malformed(text)
    try:
        raw = bytes.fromhex(text[:8] + text[9:13] + text[14:18] + text[19:23] + text[24:])
    except ValueError:
        raise _malformed(text) from None
    # White space is skipped by fromhex, and leaves too few bytes.
    if len(raw) != 16 or raw[6] >> 4 != 7 or raw[8] >> 6 != 2:
        raise _malformed(text)
    number = int.from_bytes(raw, "big")
    address = (number >> 64 & 0xFFF) << 62 | number & ((1 << 62) - 1)
    return address >> _OFFSET_BITS, address & _OFFSET_MAX, number >> 80


def _malformed(text: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{text[:64]!r} is not a message id: a UUIDv7 such as Enqueue returns")
