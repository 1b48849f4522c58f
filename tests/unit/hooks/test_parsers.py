"""fila.parse_json and fila.parse_protobuf agree with the libraries that everybody uses."""

import json
import math
import struct

import pytest
from google.protobuf import descriptor_pb2, unknown_fields
from google.protobuf.empty_pb2 import Empty
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.hooks.messages import batch, body, hooks, on_enqueue

from fila.hooks.policy import Fault

# Writes a value out so that Python can compare it: tables that are lists and tables that are not, with types.
WRITE = """
local function write(value)
  if value == fila.null then return "null" end
  local kind = type(value)
  if kind == "number" then return math.type(value) == "integer" and string.format("i%d", value) or string.format("f%a", value) end
  if kind ~= "table" then return kind:sub(1, 1) .. tostring(value):gsub("[^%w]", function(c) return string.format("%%%02x", c:byte()) end) end
  local parts, keys = {}, {}
  for key in pairs(value) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  for i, key in ipairs(keys) do parts[i] = write(key) .. "=" .. write(value[key]) end
  return "{" .. table.concat(parts, ",") .. "}"
end
"""


def run(expression, payload):
    """Return what an expression over `msg.payload` is, written out, or the error."""
    # Errors are cut, keys are bounded: the text comes in pieces.
    source = WRITE + on_enqueue(f"""
      local text = write({expression})
      local pieces = {{}}
      for i = 1, #text, 200 do pieces[#pieces + 1] = text:sub(i, i + 199) end
      if #pieces > 16 then error("long") end
      return {{throttle_keys = pieces, cost = #pieces}}""")
    # A piece that came before is one gate: numbers make them distinct.
    source = source.replace("pieces[#pieces + 1] = text", 'pieces[#pieces + 1] = #pieces .. ":" .. text')
    routings = hooks(source, timeout_ms=5_000).route(*batch(body(payload)))
    if routings.errors:
        return routings.errors[0]
    return "".join(piece.split(":", 1)[1] for piece in routings.of(0).throttle_keys)


def quoted(text):
    raw = text if isinstance(text, bytes) else text.encode("utf-8")
    return "s" + "".join(chr(b) if chr(b).isascii() and chr(b).isalnum() else f"%{b:02x}" for b in raw)


def written(value, *, in_list=False):
    """Write a Python value as the script writes Lua's."""
    if value is None:
        return "null" if in_list else "nnil"
    if isinstance(value, bool):
        return "btrue" if value else "bfalse"
    if isinstance(value, int):
        return f"i{value}"
    if isinstance(value, float):
        return "f" + lua_hexadecimal(value)
    if isinstance(value, str | bytes):
        return quoted(value)
    if isinstance(value, list):
        items = {index + 1: written(each, in_list=True) for index, each in enumerate(value)}
        parts = [f"i{key}={items[key]}" for key in sorted(items, key=lambda key: str(key).encode())]
        return "{" + ",".join(parts) + "}"
    items = {key: each for key, each in value.items() if each is not None}
    ordered = sorted(items, key=lambda key: str(key).encode())
    return "{" + ",".join(f"{written(key)}={written(items[key])}" for key in ordered) + "}"


def lua_hexadecimal(value):
    """Return a float as C's %a writes it: without trailing zeros."""
    mantissa, exponent = value.hex().split("p")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}p{exponent}"


NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda x: x == 0 or abs(x) > 1e-300
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=20),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=8), below, max_size=4),
    max_leaves=12,
)


@given(JSON, st.booleans(), st.sampled_from([None, 1]))
@settings(max_examples=150, deadline=None)
def test_json_is_read_as_pythons_json_reads_it(value, ascii_only, indent):
    """Strings, numbers, nesting; escaped or not, with spaces or without."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)

    found = run("fila.parse_json(msg.payload)", text.encode())

    if getattr(found, "message", "") != "long":
        assert found == written(json.loads(text))


@given(st.text(st.sampled_from('{}[]",:0123.eE+-truefalsn\\u \n'), max_size=12))
@settings(max_examples=300, deadline=None)
def test_what_is_no_json_is_an_error_and_only_that(text):
    """Accepted is what Python accepts, NaN and its like apart."""
    try:
        expected = json.loads(text, parse_constant=lambda _: pytest.fail("not generated"))
    except (ValueError, RecursionError):
        expected = None
        valid = False
    else:
        valid = not has_infinity(expected)

    found = run("fila.parse_json(msg.payload)", text.encode())

    if valid:
        assert found == written(expected)
    else:
        assert found.fault is Fault.SCRIPT
        assert found.message.startswith("parse_json: ")


def has_infinity(value):
    if isinstance(value, float):
        return math.isinf(value)
    if isinstance(value, list):
        return any(map(has_infinity, value))
    return isinstance(value, dict) and any(map(has_infinity, value.values()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (rb'"\ud83d\ude00"', quoted("😀")),
        (rb'"\ud83d"', quoted("\ufffd")),
        (rb'"\ude00x"', quoted("\ufffdx")),
        (rb'"\ud83dA"', quoted("\ufffdA")),
        (b"18446744073709551616", "f0x1p+64"),
        (b"-0", "i0"),
        (b"[null, 1]", "{i1=null,i2=i1}"),
        (b'{"a": null, "b": 1}', "{sb=i1}"),
        (b'{"a": 1, "a": 2}', "{sa=i2}"),
        (b"null", "nnil"),
    ],
)
def test_json_where_languages_differ(text, expected):
    """Halves of a pair, numbers beyond 64 bits, nulls, keys that come twice."""
    assert run("fila.parse_json(msg.payload)", text) == expected


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b'"\x01"',
        b"01",
        b"1.",
        b".5",
        b"+1",
        b"1e999",
        b"NaN",
        b"[1,]",
        b'{"a"}',
        b"[" * 101 + b"]" * 101,
        b"{a:1}",
        b"'a'",
        b"1 2",
        b'"\\x41"',
        b'"\\u12"',
    ],
)
def test_json_is_strict(text):
    """The error names the byte."""
    found = run("fila.parse_json(msg.payload)", text)

    assert found.message.startswith("parse_json: ")
    assert " at byte " in found.message


def test_json_of_a_megabyte_is_refused():
    """What it would take is more than a script has."""
    assert "at most 262144 bytes" in run("fila.parse_json(msg.payload)", b'"' + b"x" * 300_000 + b'"').message


FIELD = st.integers(1, 2**29 - 1)


def varint(number):
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


PROTOBUF_FIELD = st.one_of(
    st.tuples(FIELD | st.integers(1, 5), st.just(0), st.integers(0, 2**64 - 1)),
    st.tuples(FIELD | st.integers(1, 5), st.just(1), st.integers(0, 2**64 - 1)),
    st.tuples(FIELD | st.integers(1, 5), st.just(2), st.binary(max_size=30)),
    st.tuples(FIELD | st.integers(1, 5), st.just(5), st.integers(0, 2**32 - 1)),
)


def encoded(fields):
    parts = []
    for number, kind, value in fields:
        content = {
            0: varint,
            1: lambda value: struct.pack("<Q", value),
            2: lambda value: varint(len(value)) + value,
            5: lambda value: struct.pack("<I", value),
        }[kind](value)
        parts.append(varint(number << 3 | kind) + content)
    return b"".join(parts)


def signed(value):
    return value - 2**64 if isinstance(value, int) and value >= 2**63 else value


@given(st.lists(PROTOBUF_FIELD, max_size=8))
@settings(max_examples=150, deadline=None)
def test_protobuf_is_read_as_the_protobuf_library_reads_it(fields):
    """Every field of a message without a schema: the last value, and all of them in order."""
    data = encoded(fields)
    expected = {}
    for each in unknown_fields.UnknownFieldSet(Empty.FromString(data)):
        expected.setdefault(each.field_number, []).append(signed(each.data))

    last = run("fila.parse_protobuf(msg.payload)", data)
    values = run("select(2, fila.parse_protobuf(msg.payload))", data)

    if getattr(last, "message", "") != "long":
        assert last == written({number: values[-1] for number, values in expected.items()})
    if getattr(values, "message", "") != "long":
        assert values == written(expected)


@given(st.binary(max_size=40))
@settings(max_examples=200, deadline=None)
def test_what_is_no_protobuf_is_an_error(data):
    """Accepted is what the library accepts, groups apart."""
    try:
        Empty.FromString(data)
    except Exception:  # noqa: BLE001 - whatever the library says
        found = run("fila.parse_protobuf(msg.payload)", data)
        assert found.message.startswith("parse_protobuf: malformed at byte ")


def test_nested_messages_are_parsed_again():
    """What has a length is a string until somebody says that it is a message."""
    nested = descriptor_pb2.FileDescriptorProto(
        name="a.proto", message_type=[{"name": "Outer", "nested_type": [{"name": "Inner"}]}]
    )

    found = run(
        "fila.parse_protobuf(fila.parse_protobuf(fila.parse_protobuf(msg.payload)[4])[3])[1]",
        nested.SerializeToString(),
    )

    assert found == quoted("Inner")
