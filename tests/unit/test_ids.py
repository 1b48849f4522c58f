"""Message ids: the published formula, both ways."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fila.errors import InvalidArgumentError
from fila.wire.ids import message_id, parse_message_id

# Published with the formula: other clients test themselves against these.
VECTORS = [
    ((1, 0, 0), "00000000-0000-7000-8000-100000000000"),
    ((1, 0, 1_700_000_000_000), "018bcfe5-6800-7000-8000-100000000000"),
    ((2, 12_345, 1_700_000_000_123), "018bcfe5-687b-7000-8000-200000003039"),
    ((0x12345678, 0xABCDEF01234, 1_764_000_000_000), "019ab697-e800-748d-8567-8abcdef01234"),
    ((262_144, 1, 1), "00000000-0001-7001-8000-000000000001"),
    ((2**30 - 1, 2**44 - 1, 2**48 - 1), "ffffffff-ffff-7fff-bfff-ffffffffffff"),
]

NUMBERS = st.tuples(st.integers(0, 2**30 - 1), st.integers(0, 2**44 - 1), st.integers(0, 2**48 - 1))


@pytest.mark.parametrize(("numbers", "text"), VECTORS)
def test_published_vectors_hold(numbers, text):
    """The id of these numbers is this text, and back."""
    assert message_id(*numbers) == text
    assert parse_message_id(text) == numbers


@given(NUMBERS)
def test_formula_makes_the_uuid_that_the_proto_describes(numbers):
    """An id is the UUIDv7 of 48 bits of time and 74 bits of address, in the places that the contract names."""
    queue_number, offset, time_ms = numbers
    address = queue_number << 44 | offset
    expected = time_ms << 80 | 7 << 76 | (address >> 62) << 64 | 2 << 62 | address & (1 << 62) - 1

    text = message_id(*numbers)

    assert text == str(uuid.UUID(int=expected))
    assert uuid.UUID(text).version == 7
    assert parse_message_id(text) == numbers
    assert parse_message_id(text.upper()) == numbers


@given(st.lists(NUMBERS, min_size=2, max_size=2))
def test_ids_of_one_queue_sort_by_time_then_offset(pair):
    """Sorting ids of a queue as text gives the order of their messages."""
    (_, first, first_ms), (_, second, second_ms) = pair

    ordered = message_id(7, first, first_ms) <= message_id(7, second, second_ms)

    assert ordered == ((first_ms, first) <= (second_ms, second))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "018bcfe5-6800-7000-8000-10000000000",
        "018bcfe5-6800-7000-8000-1000000000000",
        "018bcfe568007000800010000000000000000",
        "018bcfe5-6800-4000-8000-100000000000",
        "018bcfe5-6800-7000-c000-100000000000",
        "018bcfe5-6800-7000-8000-10000000000g",
        "018bcfe5-6800-7000-8000-1000000000_0",
        "018bcfe5-6800-7000-8000- 10000000000",
        "018bcfe5-6800-7000-8000-1000 0000000",
        "018bcfe5-6800-7000-8000-1000000000  ",
        "018bcfe5-6800-7000-8000-10000000-000",
        "018bcfe5+6800-7000-8000-100000000000",
        "018bcfe5-6800-7000-8000-10000000000\u0661",
        "{18bcfe5-6800-7000-8000-10000000000}",
        "\0" * 36,
    ],
)
def test_anything_but_an_id_is_refused(text):
    """What Enqueue never returned is an invalid argument, not a message that is not there."""
    with pytest.raises(InvalidArgumentError, match="not a message id"):
        parse_message_id(text)


@given(st.text(max_size=40))
def test_no_text_does_anything_but_parse_or_be_refused(text):
    """A hostile id raises InvalidArgumentError and nothing else."""
    try:
        numbers = parse_message_id(text)
    except InvalidArgumentError:
        return
    assert message_id(*numbers) == text.lower()
