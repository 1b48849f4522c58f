"""The checks of a batch in columns, before anything is taken from it.

Whole-column operations only: a test per message would cost more than all of them. Bodies stay unread here. Parsing each would
cost 0.45 us a message, a tenth of the whole enqueue, and would tell the broker nothing that it needs: a malformed body is
cut off by its size, so in a Delivery only its own message fails to parse, at its consumer. Where a message is laid into a
frame with others or with the broker's fields (`frames.py`), it is parsed first.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from fila import limits
from fila.errors import InvalidArgumentError
from fila.wire.v1.messages_pb2 import MessageColumns

# A character takes at most four bytes: a key of so many cannot be too long.
_KEY_CHARACTERS_SURE = limits.FAIRNESS_KEY_BYTES_MAX // 4


# The gates of a message, by name: rates, and limits of what is in flight.
Gates = tuple[tuple[str, ...], tuple[str, ...]]


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
    gates: list[Gates] | None = None
    gate_index: list[int] | None = None


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
    if not message.gates:
        if message.gate_index:
            raise MalformedColumnsError("there is a gate index, but there are no gates")
        return Columns(bodies, sizes, keys, key_index, weights, costs)
    return Columns(bodies, sizes, keys, key_index, weights, costs, *_read_gates(message, count))


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


def _read_gates(message: MessageColumns, count: int) -> tuple[list[Gates], list[int] | None]:
    if len(message.gates) > count:
        raise MalformedColumnsError(f"there are {len(message.gates):,} sets of gates for {count:,} messages")
    gates = [read_gate_keys(each.throttle_keys, each.concurrency_keys) for each in message.gates]
    if not message.gate_index:
        return gates[:1], None
    gate_index = message.gate_index[:]
    if len(gate_index) != count:
        raise MalformedColumnsError(f"there are {len(gate_index):,} gate indexes for {count:,} messages")
    if max(gate_index) >= len(gates):
        raise MalformedColumnsError(f"gate index {max(gate_index)} is outside the {len(gates)} sets of gates")
    return gates, gate_index


def read_gate_keys(throttle: Iterable[str], concurrency: Iterable[str]) -> Gates:
    """Return a message's gates, each once. Raises InvalidArgumentError."""
    keys = (tuple(dict.fromkeys(throttle)), tuple(dict.fromkeys(concurrency)))
    for what, names in zip(("throttle", "concurrency"), keys, strict=True):
        if len(names) > limits.GATES_PER_MESSAGE_MAX:
            raise InvalidArgumentError(
                f"a message has at most {limits.GATES_PER_MESSAGE_MAX} {what} keys, not {len(names)}"
            )
        for name in names:
            size = len(name.encode())
            if not 1 <= size <= limits.GATE_KEY_BYTES_MAX:
                raise InvalidArgumentError(
                    f"a {what} key has 1 to {limits.GATE_KEY_BYTES_MAX} bytes, not {size:,}"
                )
    return keys


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
