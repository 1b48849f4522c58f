"""Every stored record comes back as it was, and a damaged one is refused by name."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fila import limits
from fila.errors import StoreCorruptError
from fila.storage import keys, records
from fila.storage.store import Family

U16, U32, U64 = 2**16 - 1, 2**32 - 1, 2**64 - 1
KEY = keys.offset_key(7, 1_024)
NAMED = KEY.hex()

# A shared machine has pauses; a record that is slow to decode shows in the benchmark.
unhurried = settings(deadline=None, max_examples=60)

u32 = st.integers(0, U32)
u64 = st.integers(0, U64)
texts = st.text(max_size=80)


def columns(numbers, length):
    """All the same, or each its own."""
    return numbers.map(lambda number: [number] * length) | st.lists(numbers, min_size=length, max_size=length)


@st.composite
def rows(draw):
    length = draw(st.integers(1, 12) | st.just(limits.SEGMENT_MESSAGES))
    names = draw(st.lists(st.text(max_size=20), min_size=1, max_size=min(length, 6)))
    return records.Row(
        length=length,
        step=draw(u64),
        keys=names,
        key_index=draw(columns(st.integers(0, len(names) - 1), length)) if len(names) > 1 else [0] * length,
        sizes=draw(columns(u32, length)),
        times_ms=draw(columns(u64, length)),
        pages=draw(columns(st.integers(0, limits.SEGMENT_MESSAGES - 1), length)),
        weights=draw(st.none() | columns(u32, length)),
        costs=draw(st.none() | columns(u32, length)),
        **draw(gates_of(length)),
    )


@st.composite
def gates_of(draw, length):
    """No gates, the same for all, or some from a dictionary."""
    names = st.lists(st.text(max_size=12), max_size=3).map(tuple)
    gates = draw(st.none() | st.lists(st.tuples(names, names), min_size=1, max_size=min(length, 5)))
    if gates is None or len(gates) == 1:
        return {"gates": gates}
    return {"gates": gates, "gate_index": draw(columns(st.integers(0, len(gates) - 1), length))}


queues = st.builds(
    records.Queue,
    name=texts,
    discipline=st.sampled_from(["drr", "fifo", "wfq", ""]),
    quantum=u32,
    visibility_timeout_ms=u32,
    created_at_ms=u64,
    next_offset=u64,
)


@st.composite
def leases(draw):
    count = draw(st.integers(1, 20))
    first = draw(st.integers(0, 2**44))
    offsets = draw(st.just(list(range(first, first + count))) | st.lists(u64, min_size=count, max_size=count))
    deadlines = draw(u64.map(lambda at: [at]) | st.lists(u64, min_size=count, max_size=count))
    return records.Lease(draw(u64), offsets, deadlines)


# Zeros after four bytes of ones are nothing to a crc32, so the largest count of attempts, at time 0, could not be told from a longer
# record: nothing is ever tried so often.
attempts = st.builds(records.Attempt, attempts=st.integers(0, 2**32 - 2), not_before_ns=u64, error=texts)
states = st.builds(records.State, step=u64, now_ns=u64, next_queue=u32)
bitmaps = st.integers(0, 2**limits.SEGMENT_MESSAGES - 1)


def decoded_or_refused_by_name(decode, value):
    try:
        return decode(KEY, value)
    except StoreCorruptError as error:
        if NAMED not in error.message:
            raise
        return None


def page_of(bodies):
    return records.encode_page([len(body) for body in bodies], bodies).value


# Each kind: how to draw one, its value on disk, and how that is read.
KINDS = {
    "row": (rows(), records.encode_row, records.decode_row, Family.INDEX),
    "queue": (queues, records.encode_queue, records.decode_queue, Family.QUEUES),
    "lease": (leases(), lambda lease: records.encode_lease(*lease), records.decode_lease, Family.LEASES),
    "attempt": (
        attempts,
        lambda attempt: records.encode_attempt(*attempt),
        records.decode_attempt,
        Family.ATTEMPTS,
    ),
    "state": (states, lambda state: records.encode_state(*state), records.decode_state, Family.META),
    "progress": (bitmaps, records.encode_progress, records.decode_progress, Family.PROGRESS),
    "number": (u64, records.encode_number, records.decode_number, Family.META),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def same(kind, before, after):
    """A column of equal deadlines may come back as one of them; all else is as it was."""
    if kind != "lease":
        return before == after
    spread = [
        list(lease.deadlines_ns) * (1 if len(lease.deadlines_ns) > 1 else len(lease.offsets))
        for lease in (before, after)
    ]
    return before[:2] == after[:2] and spread[0] == spread[1]


@every_kind
@unhurried
@given(data=st.data())
def test_a_record_comes_back_as_it_was(kind, data):
    """Decoding undoes encoding, at every width of every column."""
    values, encode, decode, _ = KINDS[kind]
    before = data.draw(values)

    after = decode(KEY, encode(before))

    assert same(kind, before, after)


@every_kind
@unhurried
@given(data=st.data())
def test_a_record_with_one_changed_byte_is_refused_by_name(kind, data):
    """Whatever byte is damaged, the error names family and key, and what to do."""
    values, encode, decode, family = KINDS[kind]
    value = bytearray(encode(data.draw(values)))
    value[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))

    with pytest.raises(StoreCorruptError, match=f"{family} record {NAMED} .*: (restore|start)"):
        decode(KEY, bytes(value))


@every_kind
@unhurried
@given(data=st.data())
def test_a_record_of_another_length_is_refused_by_name(kind, data):
    """Cut short or followed by more, a record is not guessed at."""
    values, encode, decode, family = KINDS[kind]
    value = encode(data.draw(values))
    length = data.draw(st.integers(0, len(value) - 1))

    for wrong in (value[:length], value + b"\x00"):
        with pytest.raises(StoreCorruptError, match=f"{family} record {NAMED}"):
            decode(KEY, wrong)


@every_kind
@unhurried
@given(data=st.data())
def test_bytes_that_pass_the_checksum_and_mean_nothing_are_refused_or_whole(kind, data):
    """A value with a right checksum over wrong content ends in an error of ours or in columns that agree."""
    values, encode, decode, _ = KINDS[kind]
    payload = bytearray(encode(data.draw(values))[5:])
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(payload)) | st.just(len(payload)))

    found = decoded_or_refused_by_name(decode, records.seal(bytes(payload[:cut])))

    if found is None:
        return
    if kind == "row":
        lengths = {len(found.key_index), len(found.sizes), len(found.times_ms), len(found.pages)}
        lengths |= {len(column) for column in (found.weights, found.costs) if column is not None}
        assert lengths == {found.length}
        assert max(found.key_index) < len(found.keys)
        assert max(found.pages) < limits.SEGMENT_MESSAGES
    if kind == "lease":
        assert len(found.deadlines_ns) in {1, len(found.offsets)}


@every_kind
def test_an_unknown_version_names_itself_and_the_remedy(kind):
    """A record of a later version is refused as such, not as damage."""
    _, _, decode, family = KINDS[kind]

    with pytest.raises(StoreCorruptError, match=f"{family} record {NAMED} has the unknown version 9: start"):
        decode(KEY, b"\x09" + b"\x00" * 200)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"key_index": [0, 2]}, "key index outside its dictionary"),
        ({"pages": [0, limits.SEGMENT_MESSAGES]}, "page outside its segment"),
        ({"pages": [limits.SEGMENT_MESSAGES] * 2}, "page outside its segment"),
        ({"length": 0}, "has 0 messages"),
        ({"length": limits.SEGMENT_MESSAGES + 1}, "has 1025 messages"),
        ({"length": 3}, "longer than the record"),
        ({"keys": ["a", "b", "c"]}, "of 3 keys"),
        ({"sizes": [1, 2, 3]}, "longer than its columns"),
    ],
)
def test_columns_of_a_row_that_do_not_fit_each_other_are_refused(column, message):
    """A right checksum does not make a row: its columns must agree before anything is taken from them."""
    row = records.Row(2, 1, ["a", "b"], [0, 1], [5, 6], [7, 8], [0, 1], None, None)

    with pytest.raises(StoreCorruptError, match=message):
        records.decode_row(KEY, records.encode_row(row._replace(**column)))


bodies = st.lists(st.binary(max_size=60), min_size=1, max_size=20)


@unhurried
@given(bodies)
def test_a_page_gives_its_bodies_back(before):
    """Each body is one slice of the stored value."""
    page = records.decode_page(KEY, page_of(before))

    after = [page.value[begin:end] for begin, end in zip(page.bounds, page.bounds[1:], strict=False)]
    assert after == before


@unhurried
@given(bodies, st.data())
def test_a_page_with_a_damaged_table_is_refused_or_has_the_same_number_of_bodies_within_it(before, data):
    """Block checksums guard the bodies; the table is checked so that no slice can leave the page."""
    value = bytearray(page_of(before))
    table = 3 + 4 * (len(before) + 1)
    value[data.draw(st.integers(0, table - 1))] ^= data.draw(st.integers(1, 255))

    page = decoded_or_refused_by_name(records.decode_page, bytes(value))

    if page is None:
        return
    assert page.bounds[0] == table
    assert page.bounds[-1] == len(value)
    assert list(page.bounds) == sorted(page.bounds)


@unhurried
@given(bodies, st.data())
def test_a_page_of_another_length_is_refused(before, data):
    """A page that was cut, or that something follows, is no page."""
    value = page_of(before)
    length = data.draw(st.integers(0, len(value) - 1))

    for wrong in (value[:length], value + b"\x00"):
        with pytest.raises(StoreCorruptError, match=f"messages record {NAMED}"):
            records.decode_page(KEY, wrong)


@unhurried
@given(st.lists(st.tuples(st.integers(0, 2**30), st.integers(0, 2**44)), min_size=2, max_size=20))
def test_the_order_of_keys_is_the_order_of_numbers(places):
    """A scan sees queues in order of number, and offsets in order within."""
    assert sorted(keys.offset_key(*place) for place in places) == [
        keys.offset_key(*place) for place in sorted(places)
    ]
    assert sorted(keys.group_key(*place) for place in places) == [
        keys.group_key(*place) for place in sorted(places)
    ]


@unhurried
@given(st.integers(0, 2**30), u64, st.integers(0, U16))
def test_a_key_comes_apart_as_it_was_put_together(queue, number, group):
    """Splitting undoes building, and a key of another length is refused."""
    assert keys.split_queue_key(keys.queue_key(queue)) == queue
    assert keys.split_offset_key(keys.offset_key(queue, number)) == (queue, number)
    assert keys.split_group_key(keys.group_key(queue, number, group)) == (queue, group, number)
    for split, key in (
        (keys.split_queue_key, keys.offset_key(queue, number)),
        (keys.split_offset_key, keys.group_key(queue, number)),
        (keys.split_group_key, keys.queue_key(queue)),
    ):
        with pytest.raises(ValueError, match="length"):
            split(key)


@unhurried
@given(st.integers(0, 2**30 - 1), st.integers(0, 2**44), st.integers(1, 2**20))
def test_ranges_hold_their_queue_and_no_other(queue, first, length):
    """A range of a queue has all its keys, and none of its neighbours'."""
    within = {(family, at): (begin, end) for at, (family, begin, end) in enumerate(keys.queue_ranges(queue))}
    assert {family for family, _ in within} == set(Family) - {Family.META, Family.CONFIG, Family.GATES}
    for (family, _), (begin, end) in within.items():
        key = keys.queue_key if family is Family.QUEUES else lambda number: keys.offset_key(number, 0)
        assert begin <= key(queue) < end <= key(queue + 1)

    for family, begin, end in keys.offset_ranges(queue, first, first + length):
        key = keys.offset_key if family in {Family.MESSAGES, Family.INDEX} else keys.group_key
        assert begin == key(queue, first)
        assert begin <= key(queue, first + length - 1) < end == key(queue, first + length)
