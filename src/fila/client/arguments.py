"""The client's arguments, checked before anything is sent: one that is wrong is named, with what to write instead.

The types are what users should pass, and not what a program without a type checker passes. To the checks `True` is no number.
"""

import math
from collections.abc import Iterable, Mapping
from typing import get_args

from fila import limits
from fila.client.values import Discipline, NewMessage
from fila.errors import InvalidArgumentError
from fila.wire.columns import check_key

_DISCIPLINES: tuple[str, ...] = get_args(Discipline)


def check_text(name: str, value: object, example: str) -> None:
    """Raise InvalidArgumentError unless it is text that can be sent."""
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{name} is a str, not {_kind(value)}: write it as in {example}")
    if not _is_text(value):
        raise InvalidArgumentError(f"{name} {value!r} is no text that UTF-8 can hold")


def check_queue(value: object) -> None:
    """Raise InvalidArgumentError unless it may be a queue's name; the broker knows the rest."""
    check_text("queue", value, "'orders'")


def check_message_id(value: object) -> None:
    """Raise InvalidArgumentError unless it may be an id; the broker knows the rest."""
    check_text("message_id", value, "message.id")


def check_whole(name: str, value: object, least: int, most: int) -> None:
    """Raise InvalidArgumentError unless it is a whole number between the two, both included."""
    if type(value) is not int:
        raise InvalidArgumentError(
            f"{name} is a whole number from {least:,} to {most:,}, not {_kind(value)}{_shown(value)}"
        )
    if not least <= value <= most:
        raise InvalidArgumentError(f"{name} {_short(value)} is not in {least:,} to {most:,}")


def check_seconds(
    name: str, value: object, *, most: float = limits.WAIT_SECONDS_MAX, may_be_zero: bool = True
) -> None:
    """Raise InvalidArgumentError unless it is a time in seconds."""
    allowed = f"from 0 to {most:,.0f}" if may_be_zero else f"above 0, up to {most:,.0f}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgumentError(f"{name} is a number {allowed}, not {_kind(value)}{_shown(value)}")
    # Also where it is not a number at all.
    if not (0 <= value <= most) or (value == 0 and not may_be_zero):
        raise InvalidArgumentError(f"{name} {_short(value)} is not a number {allowed}")


def check_times(timeout_seconds: object, reconnect_seconds: object) -> None:
    """Raise InvalidArgumentError for what is no patience of a client."""
    check_seconds("timeout_seconds", timeout_seconds, may_be_zero=False)
    if reconnect_seconds is not None and reconnect_seconds != math.inf:
        check_seconds("reconnect_seconds", reconnect_seconds)


def check_config(visibility_timeout_ms: object, discipline: object, quantum: object) -> None:
    """Raise InvalidArgumentError for what is no setting of a queue; None stands for the broker's default."""
    if visibility_timeout_ms is not None:
        check_whole(
            "visibility_timeout_ms",
            visibility_timeout_ms,
            limits.VISIBILITY_TIMEOUT_MS_MIN,
            limits.VISIBILITY_TIMEOUT_MS_MAX,
        )
    if discipline is not None and discipline not in _DISCIPLINES:
        known = ", ".join(map(repr, _DISCIPLINES))
        raise InvalidArgumentError(f"discipline {_short(discipline)} is none of {known}")
    if quantum is not None:
        check_whole("quantum", quantum, 1, limits.QUANTUM_MAX)


def check_lease(queue: object, max_messages: object, wait_seconds: object) -> None:
    """Raise InvalidArgumentError for what cannot be leased."""
    check_queue(queue)
    check_whole("max_messages", max_messages, 1, limits.LEASE_MESSAGES_MAX)
    check_seconds("wait_seconds", wait_seconds, most=limits.LEASE_WAIT_MS_MAX / 1000)


def check_consume(queue: object, prefetch: object, prefetch_bytes: object) -> None:
    """Raise InvalidArgumentError for what no stream may hold; without a `prefetch` it finds its own."""
    check_queue(queue)
    if prefetch is not None:
        check_whole("prefetch", prefetch, 1, limits.CREDIT_MESSAGES_MAX)
    check_whole("prefetch_bytes", prefetch_bytes, 1, limits.CREDIT_BYTES_MAX)


def check_worker_options(queue: object, concurrency: object, drain_seconds: object) -> None:
    """Raise InvalidArgumentError for what no worker can keep to."""
    check_queue(queue)
    check_whole("concurrency", concurrency, 1, limits.WORKER_CONCURRENCY_MAX)
    check_seconds("drain_seconds", drain_seconds)


def checked_batch(messages: Iterable[NewMessage]) -> list[NewMessage]:
    """Return the messages of a batch; raises InvalidArgumentError where there are no messages. They are not looked into."""
    wanted = "messages is a list of NewMessage"
    if isinstance(messages, NewMessage):
        raise InvalidArgumentError(f"{wanted}, not one NewMessage: write [message]")
    if isinstance(messages, str | bytes | bytearray | Mapping) or not isinstance(messages, Iterable):
        raise InvalidArgumentError(f"{wanted}, not {_kind(messages)}: write [NewMessage(payload), ...]")
    batch = list(messages)
    for position, message in enumerate(batch):
        if not isinstance(message, NewMessage):
            raise InvalidArgumentError(
                f"messages[{position}] is a NewMessage, not {_kind(message)}: write NewMessage(payload)"
            )
    return batch


def checked_error(error: object) -> str:
    """Return what the broker is told of a failure, cut to what it keeps: of a long one the end, which names the error."""
    if isinstance(error, BaseException):
        text = str(error)
        error = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if not isinstance(error, str):
        raise InvalidArgumentError(
            f"error is a str or an exception, not {_kind(error)}: write what went wrong, as in 'no such customer'"
        )
    return error.encode("utf-8", "replace")[-limits.ERROR_BYTES_MAX :].decode("utf-8", "ignore")


def checked_timeout_ms(seconds: float) -> int:
    """Return a lease time as it goes on the wire."""
    check_seconds("seconds", seconds, most=limits.VISIBILITY_TIMEOUT_MS_MAX / 1000, may_be_zero=False)
    return max(1, round(seconds * 1000))


def check_message(
    headers: object,
    payload: object,
    fairness_key: object = None,
    weight: object = None,
    cost: object = None,
) -> None:
    """Raise InvalidArgumentError unless these make a message; None stands for the default of all but the payload."""
    _check_headers(headers)
    _check_payload(payload)
    if fairness_key is not None:
        if not isinstance(fairness_key, str):
            raise InvalidArgumentError(f"fairness_key is a str, not {_kind(fairness_key)}")
        check_key(fairness_key)
    if weight is not None:
        check_whole("weight", weight, 1, limits.WEIGHT_MAX)
    if cost is not None:
        check_whole("cost", cost, 1, limits.COST_MAX)


def _check_headers(headers: object) -> None:
    if headers is None:
        return
    if not isinstance(headers, Mapping):
        raise InvalidArgumentError(
            f"headers is a mapping of str to str, not {_kind(headers)}: "
            + (
                "the payload comes after it, as in enqueue(queue, headers, payload), or by name, as in payload=b'...'"
                if isinstance(headers, bytes | bytearray | memoryview | str)
                else "write them as in headers={'tenant': 'acme'}"
            )
        )
    for name, value in headers.items():
        if not isinstance(name, str):
            raise InvalidArgumentError(f"the name of a header is a str, not {_kind(name)}: {name!r}")
        if not isinstance(value, str):
            raise InvalidArgumentError(f"header {name!r} is a str, not {_kind(value)}: write str(...)")
        if not (_is_text(name) and _is_text(value)):
            raise InvalidArgumentError(f"header {name!r}: {value!r} is no text that UTF-8 can hold")


def _check_payload(payload: object) -> None:
    if not isinstance(payload, bytes):
        raise InvalidArgumentError(f"payload is bytes, not {_kind(payload)}: {_way_to_bytes(payload)}")
    if len(payload) > limits.BODY_BYTES_MAX:
        raise InvalidArgumentError(
            f"payload has {len(payload):,} bytes, and a message at most {limits.BODY_BYTES_MAX:,}: "
            "store it elsewhere and send where it is"
        )


def _way_to_bytes(payload: object) -> str:
    if isinstance(payload, str):
        return "encode it first, as in payload.encode()"
    if isinstance(payload, bytearray | memoryview):
        return "write bytes(payload)"
    if isinstance(payload, Mapping):
        return "headers come before it, as in enqueue(queue, headers, payload); other data is encoded first, as with json.dumps(...).encode()"
    if payload is None:
        return "an empty one is b''"
    return "encode it first, as with json.dumps(...).encode()"


def _is_text(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__


def _shown(value: object) -> str:
    """Return what was given where that tells more than its type."""
    return f": {_short(value)}" if isinstance(value, str | int | float) else ""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
