"""The body of a message as bytes: headers and payload in protobuf's encoding, without a protobuf object.

Field 2 is a map<string, string>, field 3 is bytes, as in messages.proto. The common shapes, a payload alone or with
a few headers, are read and written here; whatever else a client may have sent is left to the generated code.
"""

from collections.abc import Mapping
from functools import lru_cache

from google.protobuf.message import DecodeError

from fila.errors import Code, InvalidArgumentError, RPCError
from fila.wire.v1.messages_pb2 import Body
from fila.wire.varint import varint

_HEADERS_TAG = b"\x12"
_PAYLOAD_TAG = b"\x1a"


@lru_cache(maxsize=4096)
def payload_head(payload_bytes: int) -> bytes:
    """Return what stands before a payload of this length; an empty payload is left out."""
    return _PAYLOAD_TAG + varint(payload_bytes) if payload_bytes else b""


def headers_part(headers: Mapping[str, str]) -> bytes:
    """Encode headers, in their order."""
    out: list[bytes] = []
    for name, value in headers.items():
        try:
            key_bytes, value_bytes = name.encode(), value.encode()
        except (AttributeError, UnicodeEncodeError) as error:
            raise InvalidArgumentError(f"header {name!r}: {value!r} is not a pair of texts") from error
        key_size, value_size = varint(len(key_bytes)), varint(len(value_bytes))
        entry_bytes = 2 + len(key_size) + len(key_bytes) + len(value_size) + len(value_bytes)
        out += (
            _HEADERS_TAG,
            varint(entry_bytes),
            b"\x0a",
            key_size,
            key_bytes,
            b"\x12",
            value_size,
            value_bytes,
        )
    return b"".join(out)


@lru_cache(maxsize=4096)
def _lone_head(body_bytes: int) -> bytes:
    """Return what stands before a payload that fills a body of this length with it; empty if none does."""
    for head_bytes in range(2, 6):
        head = payload_head(body_bytes - head_bytes) if body_bytes > head_bytes else b""
        if len(head) == head_bytes:
            return head
    return b""


def lone_payload(bodies: bytes, start: int, size: int) -> bytes | None:
    """Return the payload of a body that is nothing else, as most are; None if there is more to it."""
    head = _lone_head(size)
    # The length that the head says is that of the rest: so there is nothing behind it.
    if head and bodies.startswith(head, start):
        return bodies[start + len(head) : start + size]
    return None


def decode_body(body: bytes) -> tuple[dict[str, str], bytes]:
    """Return headers and payload. Raises RPCError for what no producer should have sent."""
    payload = lone_payload(body, 0, len(body))
    if payload is not None:
        return {}, payload
    try:
        parsed = Body.FromString(body)
    except DecodeError as error:
        raise RPCError(f"the body of a message is damaged: {error}", Code.DATA_LOSS) from error
    return dict(parsed.headers), parsed.payload
