"""Wrong arguments of enqueue: each is named, and the sentence has the remedy."""

from types import MappingProxyType

import pytest

from fila import limits
from fila.client.arguments import check_message
from fila.errors import InvalidArgumentError


@pytest.mark.parametrize(
    "arguments",
    [
        (None, b""),
        ({}, b"x"),
        ({"tenant": "acme", "": "", "näme": "wért"}, b"x"),
        (MappingProxyType({"tenant": "acme"}), b"x"),
        (None, b"x", "key", 1, 1),
        (None, b"x", "", 0, 0),
        (None, b"x", None, limits.WEIGHT_MAX, limits.COST_MAX),
        (None, bytes(limits.BODY_BYTES_MAX)),
    ],
)
def test_what_the_types_allow_is_taken(arguments):
    """No check refuses what the broker would take."""
    check_message(*arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((None, "text"), ["payload is bytes, not str", "encode"]),
        ((None, bytearray(b"x")), ["payload is bytes, not bytearray", "bytes(payload)"]),
        ((None, memoryview(b"x")), ["payload is bytes, not memoryview", "bytes(payload)"]),
        ((None, None), ["payload is bytes, not None", "b''"]),
        ((None, 5), ["payload is bytes, not int"]),
        ((None, {"order": 1}), ["payload is bytes, not dict", "enqueue(queue, headers, payload)", "json"]),
        ((None, bytes(limits.BODY_BYTES_MAX + 1)), ["payload", "4,128,769", "4,128,768"]),
        ((b"payload", {"tenant": "acme"}), ["headers", "not bytes", "enqueue(queue, headers, payload)"]),
        (("payload", b""), ["headers", "not str", "payload=b"]),
        (([("tenant", "acme")], b""), ["headers is a mapping of str to str, not list"]),
        (({1: "x"}, b""), ["name of a header", "not int", "1"]),
        (({"attempt": 1}, b""), ["'attempt'", "not int", "str("]),
        (({"tenant": b"acme"}, b""), ["'tenant'", "not bytes"]),
        (({"tenant": "\ud800"}, b""), ["'tenant'", "UTF-8"]),
        ((None, b"", 7), ["fairness_key is a str, not int"]),
        ((None, b"", b"acme"), ["fairness_key is a str, not bytes"]),
        ((None, b"", "k" * 257), ["fairness key", "257"]),
        ((None, b"", "\ud800"), ["fairness key"]),
        ((None, b"", None, -1), ["weight -1", "1,000,000"]),
        ((None, b"", None, 1.5), ["weight 1.5"]),
        ((None, b"", None, "3"), ["weight '3'"]),
        ((None, b"", None, True), ["weight True"]),
        ((None, b"", None, limits.WEIGHT_MAX + 1), ["weight 1000001"]),
        ((None, b"", None, None, -1), ["cost -1", "1,000,000,000"]),
    ],
)
def test_wrong_argument_is_named_with_a_remedy(arguments, words):
    """The sentence names the argument and what it was, and says what to write."""
    with pytest.raises(InvalidArgumentError) as raised:
        check_message(*arguments)

    assert [word for word in words if word not in raised.value.message] == []


def test_long_values_are_not_repeated():
    """A payload in an error message would fill the log, and may be a secret."""
    with pytest.raises(InvalidArgumentError) as raised:
        check_message(None, "secret" * 1000)

    assert "secret" not in raised.value.message
