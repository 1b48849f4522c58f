"""The hand-written encoding of bodies against the generated code."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fila.client.bodies import decode_body, headers_part, payload_head
from fila.errors import InvalidArgumentError
from fila.wire.v1.messages_pb2 import Body

HEADERS = st.dictionaries(st.text(), st.text(), max_size=5)


@given(headers=HEADERS, payload=st.binary(max_size=300))
def test_encoded_body_is_what_protobuf_reads(headers, payload):
    """Other languages must read what this client writes."""
    parsed = Body.FromString(headers_part(headers) + payload_head(len(payload)) + payload)

    assert dict(parsed.headers) == headers
    assert parsed.payload == payload


@given(headers=HEADERS, payload=st.binary(max_size=300))
def test_body_of_another_client_is_read(headers, payload):
    """This client must read what protobuf writes, whatever the order of fields."""
    assert decode_body(Body(headers=headers, payload=payload).SerializeToString()) == (headers, payload)
    parts = [Body(payload=payload), Body(headers=headers)]
    assert decode_body(b"".join(part.SerializeToString() for part in parts)) == (headers, payload)


@pytest.mark.parametrize("size", [0, 1, 2, 126, 127, 128, 129, 16_383, 16_384, 2_097_151, 2_097_152])
def test_payload_of_any_length_survives(size):
    """The short way of reading ends at the right lengths of the length."""
    payload = bytes(size)

    assert decode_body(payload_head(size) + payload) == ({}, payload)


def test_payload_that_looks_like_a_shorter_one_is_read_whole():
    """Two payload fields in one body: the last one counts, as protobuf says."""
    bodies = [Body(payload=payload).SerializeToString() for payload in (b"first", b"last")]

    assert decode_body(b"".join(bodies)) == ({}, b"last")


@pytest.mark.parametrize("headers", [{"a": 1}, {1: "a"}, {"a": "\ud800"}])
def test_headers_that_are_no_text_are_refused(headers):
    """The caller hears of it, not the other messages of its batch."""
    with pytest.raises(InvalidArgumentError, match="header"):
        headers_part(headers)
