"""The checks of a batch in columns, before anything is taken from it.

Whole-column operations only: a test per message would cost more than all of them. Bodies stay unread here. Parsing each would
cost 0.45 us a message, a tenth of the whole enqueue, and would tell the broker nothing that it needs: a malformed body is
cut off by its size, so in a Delivery only its own message fails to parse, at its consumer. Where a message is laid into a
frame with others or with the broker's fields (`frames.py`), it is parsed first.
"""

from dataclasses import dataclass

from fila import limits
from fila.errors import InvalidArgumentError
from fila.wire.v1.messages_pb2 import MessageColumns

# A character takes at most four bytes: a key of so many cannot be too long.
_KEY_CHARACTERS_SURE = limits.FAIRNESS_KEY_BYTES_MAX // 4


class MalformedColumnsError(InvalidArgumentError):
    """The columns contradict each other: the sender is broken, and nothing further of it can be trusted."""


@dataclass(frozen=True, slots=True)
class Columns:
    """A checked batch, as the core takes it. None: all of the first key, or all 1."""

    bodies: bytes
    sizes: list[int]
    keys: list[str]
    key_index: list[int] | None
    weights: list[int] | None
    costs: list[int] | None


def read_columns(message: MessageColumns) -> Columns:
    """Take the columns out of a batch.

    Raises MalformedColumnsError where they contradict each other, InvalidArgumentError where a value is out of bounds.
    """
    count = len(message.sizes)
    if not 1 <= count <= limits.BATCH_MESSAGES_MAX:
        raise InvalidArgumentError(f"a batch has 1 to {limits.BATCH_MESSAGES_MAX:,} messages, not {count:,}")
    sizes = message.sizes[:]
    bodies = message.bodies
    total = sum(sizes)
    if total != len(bodies):
        raise MalformedColumnsError(
            f"the sizes add up to {total:,} bytes, but the bodies have {len(bodies):,}"
        )
    if total > limits.BATCH_BYTES_MAX:
        raise InvalidArgumentError(f"a batch has at most {limits.BATCH_BYTES_MAX:,} bytes, not {total:,}")
    # The sum bounds every size already in a small batch.
    if total > limits.BODY_BYTES_MAX and max(sizes) > limits.BODY_BYTES_MAX:
        raise InvalidArgumentError(
            f"a message has at most {limits.BODY_BYTES_MAX:,} bytes, not {max(sizes):,}"
        )
    keys, key_index = _read_keys(message, count)
    weights = (
        _read_numbers("weight", message.weights[:], count, limits.WEIGHT_MAX) if message.weights else None
    )
    costs = _read_numbers("cost", message.costs[:], count, limits.COST_MAX) if message.costs else None
    return Columns(bodies, sizes, keys, key_index, weights, costs)


def _read_keys(message: MessageColumns, count: int) -> tuple[list[str], list[int] | None]:
    if not message.keys:
        if message.key_index:
            raise MalformedColumnsError("there is a key index, but there are no keys")
        return [limits.FAIRNESS_KEY_DEFAULT], None
    if len(message.keys) > count:
        raise MalformedColumnsError(f"there are {len(message.keys):,} keys for {count:,} messages")
    keys = message.keys[:]
    if "" in keys:
        keys = [key or limits.FAIRNESS_KEY_DEFAULT for key in keys]
    if len(keys) > 1 and len(set(keys)) != len(keys):
        raise MalformedColumnsError("the keys are not distinct")
    if max(map(len, keys)) > _KEY_CHARACTERS_SURE:
        for key in keys:
            check_key(key)
    if not message.key_index:
        return keys[:1], None
    key_index = message.key_index[:]
    if len(key_index) != count:
        raise MalformedColumnsError(f"there are {len(key_index):,} key indexes for {count:,} messages")
    if max(key_index) >= len(keys):
        raise MalformedColumnsError(f"key index {max(key_index)} is outside the {len(keys)} keys")
    return keys, key_index


def _read_numbers(name: str, numbers: list[int], count: int, maximum: int) -> list[int] | None:
    if len(numbers) != count:
        raise MalformedColumnsError(f"there are {len(numbers):,} {name}s for {count:,} messages")
    if check_number(name, max(numbers), maximum) == 1:
        return None
    return [number or 1 for number in numbers] if 0 in numbers else numbers


def check_key(key: str) -> None:
    """Refuse what is no text, or too long for a fairness key."""
    try:
        size = len(key.encode())
    except (AttributeError, UnicodeEncodeError) as error:
        raise InvalidArgumentError(f"fairness key {key!r} is no text") from error
    if size > limits.FAIRNESS_KEY_BYTES_MAX:
        raise InvalidArgumentError(
            f"a fairness key of {size:,} bytes is longer than {limits.FAIRNESS_KEY_BYTES_MAX}"
        )


def check_number(name: str, number: int, maximum: int) -> int:
    """Return a weight or cost, 1 for 0; refuse what is none, or too large."""
    if type(number) is not int or not 0 <= number <= maximum:
        raise InvalidArgumentError(f"{name} {number!r} is no whole number from 0 to {maximum:,}")
    return number or 1
