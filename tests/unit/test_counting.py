"""Counting entries without unpacking them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fila.errors import InvalidArgumentError
from fila.wire.counting import count_entries
from fila.wire.v1.service_pb2 import EnqueueBatchRequest, EnqueueRequest


@given(st.lists(st.binary(max_size=200), max_size=30), st.text(max_size=20))
def test_entries_are_counted_as_the_parser_would(payloads, queue):
    """The count is the number of messages that the parser finds."""
    batch = EnqueueBatchRequest(
        queue=queue, messages=[EnqueueRequest(payload=payload) for payload in payloads]
    )

    assert count_entries(batch.SerializeToString(), 2, 100) == len(payloads)


def test_counting_stops_beyond_the_maximum():
    """A frame of millions costs no more than one of a few too many."""
    assert count_entries(b"\x12\x00" * 1_000_000, 2, 10) == 11


def test_other_fields_do_not_make_it_longer():
    """A frame full of something else is refused as early."""
    with pytest.raises(InvalidArgumentError):
        count_entries(b"\x08\x00" * 1_000_000, 2, 10)


@given(st.binary(max_size=100))
def test_no_bytes_do_anything_but_count_or_be_refused(frame):
    """Garbage is left for the parser."""
    try:
        assert 0 <= count_entries(frame, 2, 10) <= 11
    except InvalidArgumentError:
        return
