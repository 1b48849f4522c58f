"""A body is read in Lua as protobuf reads it in Python, whatever its encoder made of it."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.hooks.messages import batch, hooks, on_enqueue

from fila import limits
from fila.wire.v1.messages_pb2 import Body

# Tells all that was handed over: the headers by name, then the sizes.
SHOW = """
  local names = {}
  for name in pairs(msg.headers) do names[#names + 1] = name end
  table.sort(names)
  local shown = {}
  for i, name in ipairs(names) do shown[i] = string.format("%d:%s%d:%s", #name, name, #msg.headers[name], msg.headers[name]) end
  error(table.concat(shown) .. "|" .. msg.payload_size .. "|" .. #msg.payload, 0)"""

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
LONG = st.integers(120, 140).map(lambda size: "y" * size)


def shown(message):
    """Return what the script must show of a parsed body."""
    headers = sorted((key.encode(), value.encode()) for key, value in message.headers.items())
    text = b"".join(b"%d:%s%d:%s" % (len(key), key, len(value), value) for key, value in headers)
    return text + b"|%d|%d" % (len(message.payload), len(message.payload))


def seen(*bodies):
    """Return what the script shows of each body."""
    one = hooks(on_enqueue(SHOW), breaker_threshold=1_000_000)
    routings = one.route(*batch(*bodies))
    return [routings.errors[place].message.encode() for place in range(len(bodies))]


def varint(number):
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def field(number, kind, content):
    return varint(number << 3 | kind) + content


def delimited(number, content):
    return field(number, 2, varint(len(content)) + content)


UNKNOWN = st.one_of(
    st.tuples(st.integers(4, 3000), st.integers(0, 2**64 - 1)).map(
        lambda each: field(each[0], 0, varint(each[1]))
    ),
    st.integers(4, 3000).map(lambda number: field(number, 1, b"12345678")),
    st.integers(4, 3000).map(lambda number: field(number, 5, b"1234")),
    st.tuples(st.integers(4, 3000), st.binary(max_size=200)).map(lambda each: delimited(*each)),
)
# A map's entry in any order, with either part missing or twice. What a field of another number in it means, libraries disagree about.
PART = st.tuples(st.sampled_from([1, 2]), TEXT).map(lambda each: delimited(each[0], each[1].encode()))
ENTRY = st.lists(PART, max_size=4).map(lambda parts: delimited(2, b"".join(parts)))
FIELDS = st.lists(
    st.one_of(ENTRY, UNKNOWN, st.binary(max_size=300).map(lambda text: delimited(3, text))), max_size=6
)


@given(
    st.lists(
        st.builds(
            Body,
            headers=st.dictionaries(TEXT | LONG, TEXT | LONG, max_size=4),
            payload=st.binary(max_size=300),
        ),
        min_size=1,
        max_size=5,
    )
)
@settings(max_examples=60, deadline=None)
def test_bodies_as_our_clients_encode_them(messages):
    """Names and values of any length and script, payloads of any bytes."""
    messages = [each for each in messages if len(shown(each)) < limits.ERROR_BYTES_MAX // 2] or [Body()]

    assert seen(*(each.SerializeToString() for each in messages)) == [shown(each) for each in messages]


@given(FIELDS)
@settings(max_examples=150, deadline=None)
def test_bodies_as_anybody_may_encode_them(fields):
    """Fields in any order, repeated, unknown; entries with parts missing, repeated, in any order."""
    encoded = b"".join(fields)
    message = Body.FromString(encoded)

    if len(shown(message)) < limits.ERROR_BYTES_MAX // 2:
        assert seen(encoded) == [shown(message)]


@given(FIELDS, st.data())
@settings(max_examples=100, deadline=None)
def test_what_is_cut_off_never_reads_into_the_next_message(fields, data):
    """A body ends where its size says; its neighbour is read as if it were alone."""
    encoded = b"".join(fields)
    cut = encoded[: data.draw(st.integers(0, len(encoded)))]
    good = Body(headers={"a": "b"}).SerializeToString()

    assert seen(good, cut, good)[::2] == [shown(Body.FromString(good))] * 2
