"""Wrong arguments: each is named, and the sentence has the remedy."""

import asyncio
import math
from types import MappingProxyType

import pytest

from fila import AsyncClient, Client, NewMessage, limits
from fila.client.arguments import check_message, checked_error
from fila.errors import InvalidArgumentError


@pytest.mark.parametrize(
    "arguments",
    [
        (None, b""),
        ({}, b"x"),
        ({"tenant": "acme", "": "", "näme": "wért"}, b"x"),
        (MappingProxyType({"tenant": "acme"}), b"x"),
        (None, b"x", "key", 1, 1),
        (None, b"x", "", None, None),
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
        ((None, b"", None, 0), ["weight 0", "1 to 1,000,000"]),
        ((None, b"", None, 1.5), ["weight", "not float: 1.5"]),
        ((None, b"", None, "3"), ["weight", "not str: '3'"]),
        ((None, b"", None, True), ["weight", "not bool: True"]),
        ((None, b"", None, limits.WEIGHT_MAX + 1), ["weight 1000001"]),
        ((None, b"", None, None, -1), ["cost -1", "1,000,000,000"]),
        ((None, b"", None, None, 0), ["cost 0", "1 to 1,000,000,000"]),
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


async def _nothing(_message):
    """Handle nothing."""


# What is called, and what its sentence has in it. Nobody listens: who gets as far as the network gets another error.
WRONG_CALLS = [
    (lambda client: client.stats(3), ["queue is a str, not int", "'orders'"]),
    (lambda client: client.stats(None), ["queue is a str, not None"]),
    (lambda client: client.stats("\ud800"), ["queue", "UTF-8"]),
    (lambda client: client.delete_queue(b"orders"), ["queue is a str, not bytes"]),
    (lambda client: client.purge_queue(3), ["queue is a str, not int"]),
    (lambda client: client.create_queue(3), ["name is a str, not int"]),
    (lambda client: client.create_queue("q", discipline=3), ["discipline 3", "'drr', 'wfq', 'fifo'"]),
    (lambda client: client.create_queue("q", discipline="lifo"), ["discipline 'lifo'", "'fifo'"]),
    (
        lambda client: client.create_queue("q", visibility_timeout_ms=-5),
        ["visibility_timeout_ms -5", "1,000"],
    ),
    (lambda client: client.create_queue("q", visibility_timeout_ms=0), ["visibility_timeout_ms 0", "1,000"]),
    (
        lambda client: client.create_queue("q", visibility_timeout_ms=30.5),
        ["visibility_timeout_ms", "float: 30.5"],
    ),
    (
        lambda client: client.create_queue("q", visibility_timeout_ms="30"),
        ["visibility_timeout_ms", "str: '30'"],
    ),
    (
        lambda client: client.create_queue("q", visibility_timeout_ms=2**70),
        ["visibility_timeout_ms 118", "43,200,000"],
    ),
    (
        lambda client: client.create_queue("q", visibility_timeout_ms=10**400),
        ["visibility_timeout_ms 1000", "..."],
    ),
    (lambda client: client.create_queue("q", quantum=-1), ["quantum -1 is not in 1 to"]),
    (lambda client: client.create_queue("q", quantum=True), ["quantum", "not bool"]),
    (lambda client: client.enqueue(None, None, b"x"), ["queue is a str, not None"]),
    (lambda client: client.enqueue("q", None, b"x", weight=0), ["weight 0"]),
    (lambda client: client.enqueue_batch("q", [b"x"]), ["messages[0] is a NewMessage, not bytes"]),
    (
        lambda client: client.enqueue_batch("q", [NewMessage(b"x"), None]),
        ["messages[1] is a NewMessage, not None"],
    ),
    (lambda client: client.enqueue_batch("q", NewMessage(b"x")), ["messages", "write [message]"]),
    (lambda client: client.enqueue_batch("q", b"x"), ["messages is a list of NewMessage, not bytes"]),
    (lambda client: client.enqueue_batch("q", None), ["messages is a list of NewMessage, not None"]),
    (lambda client: client.enqueue_batch(3, [NewMessage(b"x")]), ["queue is a str, not int"]),
    (lambda client: client.lease(3), ["queue is a str, not int"]),
    (lambda client: client.lease("q", -1), ["max_messages -1 is not in 1 to 1,000"]),
    (lambda client: client.lease("q", 0), ["max_messages 0 is not in 1 to 1,000"]),
    (lambda client: client.lease("q", 1.0), ["max_messages", "float: 1.0"]),
    (lambda client: client.lease("q", "x"), ["max_messages", "str: 'x'"]),
    (lambda client: client.lease("q", 1, -1), ["wait_seconds -1 is not a number from 0 to 60"]),
    (lambda client: client.lease("q", 1, math.nan), ["wait_seconds nan"]),
    (lambda client: client.lease("q", 1, math.inf), ["wait_seconds inf"]),
    (lambda client: client.lease("q", 1, 10**9), ["wait_seconds 1000000000", "60"]),
    (lambda client: client.lease("q", 1, "x"), ["wait_seconds", "str: 'x'"]),
    (lambda client: client.lease("q", 1, True), ["wait_seconds", "not bool"]),
    (lambda client: client.ack("q", None), ["message_id is a str, not None", "message.id"]),
    (lambda client: client.ack(None, "id"), ["queue is a str, not None"]),
    (lambda client: client.nack("q", None), ["message_id is a str, not None"]),
    (lambda client: client.nack("q", "id", {"why": "?"}), ["error is a str or an exception, not dict"]),
    (lambda client: client.extend("q", "id", "x"), ["seconds", "str: 'x'"]),
    (lambda client: client.extend("q", "id", 0), ["seconds 0 is not a number above 0"]),
    (lambda client: client.extend("q", "id", math.nan), ["seconds nan"]),
    (lambda client: client.extend("q", 3, 1), ["message_id is a str, not int"]),
    (lambda client: client.consume(3), ["queue is a str, not int"]),
    (lambda client: client.consume("q", prefetch=1.5), ["prefetch", "float: 1.5"]),
    (lambda client: client.consume("q", prefetch="a"), ["prefetch", "str: 'a'"]),
    (lambda client: client.consume("q", prefetch=0), ["prefetch 0 is not in 1 to"]),
    (lambda client: client.consume("q", prefetch_bytes=None), ["prefetch_bytes", "not None"]),
    (lambda client: client.worker(3, _nothing), ["queue is a str, not int"]),
    (lambda client: client.worker("q", _nothing, concurrency="a"), ["concurrency", "str: 'a'"]),
    (lambda client: client.worker("q", _nothing, concurrency=0), ["concurrency 0"]),
    (lambda client: client.worker("q", _nothing, drain_seconds=-1), ["drain_seconds -1"]),
    (lambda client: client.worker("q", _nothing, drain_seconds="a"), ["drain_seconds", "str: 'a'"]),
    (lambda client: client.producer(3), ["queue is a str, not int"]),
    (lambda client: client.producer("q", delivery_seconds=0), ["delivery_seconds 0"]),
]


@pytest.mark.parametrize("face", [AsyncClient, Client])
@pytest.mark.parametrize(("call", "words"), WRONG_CALLS)
def test_wrong_argument_of_a_call_is_named_before_anything_is_sent(face, call, words):
    """By both clients alike, and not by what happens to stumble over it."""

    async def run_async():
        async with AsyncClient("127.0.0.1:1") as client:
            await call(client)

    def run():
        if face is AsyncClient:
            asyncio.run(run_async())
        else:
            with Client("127.0.0.1:1") as client:
                call(client)

    with pytest.raises(InvalidArgumentError) as raised:
        run()

    assert [word for word in words if word not in raised.value.message] == []


@pytest.mark.parametrize("face", [AsyncClient, Client])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout_seconds": "a"}, ["timeout_seconds", "str: 'a'"]),
        ({"timeout_seconds": None}, ["timeout_seconds", "not None"]),
        ({"timeout_seconds": -1}, ["timeout_seconds -1", "above 0"]),
        ({"timeout_seconds": 0}, ["timeout_seconds 0", "above 0"]),
        ({"timeout_seconds": math.nan}, ["timeout_seconds nan"]),
        ({"timeout_seconds": math.inf}, ["timeout_seconds inf"]),
        ({"timeout_seconds": True}, ["timeout_seconds", "not bool"]),
        ({"reconnect_seconds": -1}, ["reconnect_seconds -1"]),
        ({"reconnect_seconds": "a"}, ["reconnect_seconds", "str: 'a'"]),
    ],
)
def test_wrong_patience_of_a_client_is_named(face, options, words):
    """When it is made, and not at its first call."""
    with pytest.raises(InvalidArgumentError) as raised:
        face("127.0.0.1:1", **options)

    assert [word for word in words if word not in raised.value.message] == []


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("why", "why"),
        ("", ""),
        (ValueError("no such customer"), "ValueError: no such customer"),
        (KeyError("x"), "KeyError: 'x'"),
        (TimeoutError(), "TimeoutError"),
        ("x" * 5000 + "end", "x" * (limits.ERROR_BYTES_MAX - 3) + "end"),
    ],
)
def test_error_of_a_nack_is_text_or_an_exception(error, text):
    """What is caught may be passed on as it is; of a long text the end is kept."""
    assert checked_error(error) == text


@pytest.mark.parametrize(("name", "value"), [("weight", 0), ("cost", 0), ("weight", True), ("cost", 1.5)])
def test_producer_refuses_the_same_weights_and_costs(name, value):
    """And holds nothing of the message."""

    async def run():
        async with AsyncClient("127.0.0.1:1") as client:
            producer = client.producer("orders")
            with pytest.raises(InvalidArgumentError, match=name):
                producer.send(b"x", **{name: value})
            await producer.flush()

    asyncio.run(run())
