"""What a message is made of, checked before it is sent: an argument that is wrong is named, with what to write instead."""

from collections.abc import Mapping

from fila import limits
from fila.errors import InvalidArgumentError
from fila.wire.columns import check_key, check_number


def check_message(
    headers: object,
    payload: object,
    fairness_key: object = None,
    weight: int | None = None,
    cost: int | None = None,
) -> None:
    """Raise InvalidArgumentError unless these make a message; None stands for the default of all but the payload.

    The types are what users should pass, and not what a program without a type checker passes.
    """
    _check_headers(headers)
    _check_payload(payload)
    if fairness_key is not None:
        if not isinstance(fairness_key, str):
            raise InvalidArgumentError(f"fairness_key is a str, not {_kind(fairness_key)}")
        check_key(fairness_key)
    if weight is not None:
        check_number("weight", weight, limits.WEIGHT_MAX)
    if cost is not None:
        check_number("cost", cost, limits.COST_MAX)


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
