"""Every value on disk: how its columns become bytes and back.

Each value begins with the version of its layout; the small ones carry a crc32 of what follows it. Pages carry none: the
engine's block checksums cover them, and they are large. Numbers are little-endian. Whatever does not fit its layout is
refused with a StoreCorruptError that names family, key and remedy; nothing is guessed. This module knows no queues' rules.
"""

import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from struct import Struct, pack
from typing import NamedTuple
from zlib import crc32

from fila import limits
from fila.errors import StoreCorruptError
from fila.storage.store import Family

# What the whole store is laid out by; a store of another format is refused at the start.
FORMAT = 1

_VERSION = 1
# Of an index row that has gates; one without stays as it was.
_VERSION_GATES = 2
_HEAD = Struct("<BI")
_VERSION_BYTE = bytes((_VERSION,))
_CRC = Struct("<I")

_NUMBER = Struct("<Q")
_STATE = Struct("<QQI")
_QUEUE = Struct("<QQIIBH")
_ATTEMPT = Struct("<IQ")
_LEASE = Struct("<QHBQQ")
# flags, count, keys, step, then of each column the value that all share, or the first: a row of one message ends here.
_ROW = Struct("<BHHQIQHII")
_PAGE = Struct("<BH")

_SIZES_VARY, _TIMES_VARY, _PAGES_VARY, _WEIGHTS_VARY, _COSTS_VARY, _HAS_WEIGHTS, _HAS_COSTS = (
    1 << i for i in range(7)
)
_OFFSETS_VARY, _DEADLINES_VARY = 1, 2

_BITMAP_BYTES = limits.SEGMENT_MESSAGES // 8
PAYLOAD = _HEAD.size

# Bytes in each unsigned number of a column, by its array type code.
_ITEM_BYTES = {"H": 2, "I": 4, "Q": 8}


class State(NamedTuple):
    """Where the broker stood after its last commit."""

    step: int
    now_ns: int
    next_queue: int


class Queue(NamedTuple):
    """A queue's settings and where its log ends."""

    name: str
    discipline: str
    quantum: int
    visibility_timeout_ms: int
    created_at_ms: int
    next_offset: int


# The gates that a message waits at, by name: rates, and limits of what is in flight.
Gates = tuple[tuple[str, ...], tuple[str, ...]]


class Row(NamedTuple):
    """The columns of an index row of `length` messages.

    `weights` and `costs` None: all 1. `gates` None: no message has any; `gate_index` None: all have the first of them.
    """

    length: int
    step: int
    keys: Sequence[str]
    key_index: Sequence[int]
    sizes: Sequence[int]
    times_ms: Sequence[int]
    pages: Sequence[int]
    weights: Sequence[int] | None
    costs: Sequence[int] | None
    gates: Sequence[Gates] | None = None
    gate_index: Sequence[int] | None = None


class Lease(NamedTuple):
    """The columns of one delivery; `deadlines_ns` has one entry where all are the same."""

    consumer: int
    offsets: Sequence[int]
    deadlines_ns: Sequence[int]


class Attempt(NamedTuple):
    """What a failed message carries."""

    attempts: int
    not_before_ns: int
    error: str


class Page(NamedTuple):
    """A stored page: body `i` is `value[bounds[i]:bounds[i + 1]]`, and neighbours lie back to back."""

    value: bytes
    bounds: Sequence[int]


# --- refusing -----------------------------------------------------------------------------------------


def corrupt(family: Family, key: bytes, problem: str) -> StoreCorruptError:
    """Build the error that names a bad record and what to do."""
    return StoreCorruptError(
        f"the stored {family} record {key.hex() or '(empty key)'} {problem}: "
        "restore the data directory from a backup, or start with an empty one"
    )


def _unknown_version(family: Family, key: bytes, version: int) -> StoreCorruptError:
    return StoreCorruptError(
        f"the stored {family} record {key.hex()} has the unknown version {version}: "
        "start the version of fila that wrote it, or restore the data directory from a backup"
    )


def seal(payload: bytes) -> bytes:
    """Put version and checksum before a value."""
    return _VERSION_BYTE + _CRC.pack(crc32(payload)) + payload


def check(family: Family, key: bytes, value: bytes, payload_bytes_min: int, version: int = _VERSION) -> None:
    """Refuse a value whose version, checksum or least length is wrong."""
    if not value:
        raise corrupt(family, key, "is empty")
    if value[0] != version:
        raise _unknown_version(family, key, value[0])
    if len(value) < PAYLOAD + payload_bytes_min:
        raise corrupt(family, key, f"is cut short at {len(value)} bytes")
    if _CRC.unpack_from(value, 1)[0] != crc32(memoryview(value)[PAYLOAD:]):
        raise corrupt(family, key, "fails its checksum")


def check_exact(family: Family, key: bytes, value: bytes, payload_bytes: int) -> None:
    """Refuse as `check` does, and any other length."""
    check(family, key, value, payload_bytes)
    if len(value) != PAYLOAD + payload_bytes:
        raise corrupt(family, key, f"has {len(value)} bytes instead of {PAYLOAD + payload_bytes}")


# --- columns ------------------------------------------------------------------------------------------


def _pack_column(code: str, column: Sequence[int]) -> bytes:
    packed = array(code, column)
    if sys.byteorder != "little":
        packed.byteswap()
    return packed.tobytes()


def _unpack_column(code: str, data: bytes | memoryview) -> list[int]:
    packed = array(code)
    packed.frombytes(data)
    if sys.byteorder != "little":
        packed.byteswap()
    return packed.tolist()


def _varies(column: Sequence[int]) -> bool:
    first = column[0]
    return column[-1] != first or (len(column) > 2 and column.count(first) != len(column))


class Reader:
    """Takes columns off a value one after another; past the end is a damaged record."""

    __slots__ = ("_family", "_key", "_position", "_value")

    def __init__(self, family: Family, key: bytes, value: bytes, position: int) -> None:
        self._family = family
        self._key = key
        self._value = value
        self._position = position

    def bytes(self, length: int) -> bytes:
        begin = self._position
        self._position = end = begin + length
        if end > len(self._value):
            raise corrupt(self._family, self._key, "has columns that are longer than the record")
        return self._value[begin:end]

    def column(self, code: str, count: int) -> list[int]:
        return _unpack_column(code, self.bytes(count * _ITEM_BYTES[code]))

    def text(self, length: int) -> str:
        return text_of(self._family, self._key, self.bytes(length))

    def finish(self) -> None:
        if self._position != len(self._value):
            raise corrupt(self._family, self._key, "is longer than its columns")


def text_of(family: Family, key: bytes, data: bytes) -> str:
    """Read a text."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise corrupt(family, key, "has a text that is not UTF-8") from error


def text_bytes(text: str) -> bytes:
    """Write a text, also one that is no Unicode."""
    return text.encode("utf-8", "surrogatepass")


# --- meta ---------------------------------------------------------------------------------------------


def encode_number(number: int) -> bytes:
    """Encode a lone number: the store's format, its incarnation."""
    return seal(_NUMBER.pack(number))


def decode_number(key: bytes, value: bytes) -> int:
    """Decode a lone number."""
    check_exact(Family.META, key, value, _NUMBER.size)
    return int(_NUMBER.unpack_from(value, PAYLOAD)[0])


def encode_state(step: int, now_ns: int, next_queue: int) -> bytes:
    """Encode where the broker stands."""
    return seal(_STATE.pack(step, now_ns, next_queue))


def decode_state(key: bytes, value: bytes) -> State:
    """Decode where the broker stood."""
    check_exact(Family.META, key, value, _STATE.size)
    return State(*_STATE.unpack_from(value, PAYLOAD))


# --- queues -------------------------------------------------------------------------------------------


def encode_queue(queue: Queue) -> bytes:
    """Encode a queue's record."""
    name, discipline = text_bytes(queue.name), text_bytes(queue.discipline)
    head = _QUEUE.pack(
        queue.created_at_ms,
        queue.next_offset,
        queue.quantum,
        queue.visibility_timeout_ms,
        len(discipline),
        len(name),
    )
    return seal(head + discipline + name)


def decode_queue(key: bytes, value: bytes) -> Queue:
    """Decode a queue's record."""
    check(Family.QUEUES, key, value, _QUEUE.size)
    created_at_ms, next_offset, quantum, timeout_ms, discipline_bytes, name_bytes = _QUEUE.unpack_from(
        value, PAYLOAD
    )
    reader = Reader(Family.QUEUES, key, value, PAYLOAD + _QUEUE.size)
    discipline, name = reader.text(discipline_bytes), reader.text(name_bytes)
    reader.finish()
    return Queue(name, discipline, quantum, timeout_ms, created_at_ms, next_offset)


# --- index rows ---------------------------------------------------------------------------------------


def encode_row(row: Row) -> bytes:
    """Encode the columns of at least one message. A column whose values are all the same is stored as one of them."""
    count, step, keys, key_index, sizes, times_ms, pages, weights, costs, gates, gate_index = row
    flags = 0
    columns = []
    if count > 1:
        if _varies(sizes):
            flags |= _SIZES_VARY
            columns.append(_pack_column("I", sizes))
        if _varies(times_ms):
            flags |= _TIMES_VARY
            columns.append(_pack_column("Q", times_ms))
        if _varies(pages):
            flags |= _PAGES_VARY
            columns.append(_pack_column("H", pages))
        if weights is not None and _varies(weights):
            flags |= _WEIGHTS_VARY
            columns.append(_pack_column("I", weights))
        if costs is not None and _varies(costs):
            flags |= _COSTS_VARY
            columns.append(_pack_column("I", costs))
    if weights is not None:
        flags |= _HAS_WEIGHTS
    if costs is not None:
        flags |= _HAS_COSTS
    names = [text_bytes(name) for name in keys]
    columns.append(_pack_column("H", [len(name) for name in names]))
    columns.extend(names)
    if len(names) > 1:
        columns.append(_pack_column("H", key_index))
    head = _ROW.pack(
        flags,
        count,
        len(names),
        step,
        sizes[0],
        times_ms[0],
        pages[0],
        0 if weights is None else weights[0],
        0 if costs is None else costs[0],
    )
    if gates is None:
        return seal(head + b"".join(columns))
    payload = _gates_block(gates, gate_index) + head + b"".join(columns)
    return bytes((_VERSION_GATES,)) + _CRC.pack(crc32(payload)) + payload


def decode_row(key: bytes, value: bytes) -> Row:
    """Decode the columns of an index row."""
    if value and value[0] == _VERSION_GATES:
        return _decode_row_with_gates(key, value)
    check(Family.INDEX, key, value, _ROW.size)
    flags, count, key_count, step, size, time_ms, page, weight, cost = _ROW.unpack_from(value, PAYLOAD)
    if not 1 <= count <= limits.SEGMENT_MESSAGES or not 1 <= key_count <= count:
        raise corrupt(Family.INDEX, key, f"has {count} messages of {key_count} keys")
    if count == 1:
        return _decode_row_of_one(key, value, flags, step, (size, time_ms, page, weight, cost))
    reader = Reader(Family.INDEX, key, value, PAYLOAD + _ROW.size)
    sizes = reader.column("I", count) if flags & _SIZES_VARY else [size] * count
    times_ms = reader.column("Q", count) if flags & _TIMES_VARY else [time_ms] * count
    pages = reader.column("H", count) if flags & _PAGES_VARY else [page] * count
    weights = reader.column("I", count) if flags & _WEIGHTS_VARY else [weight] * count
    costs = reader.column("I", count) if flags & _COSTS_VARY else [cost] * count
    keys = [reader.text(length) for length in reader.column("H", key_count)]
    key_index = reader.column("H", count) if key_count > 1 else [0] * count
    reader.finish()
    if max(key_index) >= key_count:
        raise corrupt(Family.INDEX, key, "has a key index outside its dictionary")
    if max(pages) >= limits.SEGMENT_MESSAGES:
        raise corrupt(Family.INDEX, key, "has a page outside its segment")
    return Row(
        count,
        step,
        keys,
        key_index,
        sizes,
        times_ms,
        pages,
        weights if flags & _HAS_WEIGHTS else None,
        costs if flags & _HAS_COSTS else None,
    )


def _decode_row_of_one(key: bytes, value: bytes, flags: int, step: int, columns: tuple[int, ...]) -> Row:
    """Decode what a queue filled one by one has a million of."""
    size, time_ms, page, weight, cost = columns
    names = PAYLOAD + _ROW.size + 2
    if flags & ~(_HAS_WEIGHTS | _HAS_COSTS) or page >= limits.SEGMENT_MESSAGES:
        raise corrupt(Family.INDEX, key, "has columns that one message cannot have")
    if len(value) < names or len(value) != names + int.from_bytes(value[names - 2 : names], "little"):
        raise corrupt(Family.INDEX, key, "has a key that is not as long as it says")
    return Row(
        1,
        step,
        [text_of(Family.INDEX, key, value[names:])],
        [0],
        [size],
        [time_ms],
        [page],
        [weight] if flags & _HAS_WEIGHTS else None,
        [cost] if flags & _HAS_COSTS else None,
    )


def _gates_block(gates: Sequence[Gates], gate_index: Sequence[int] | None) -> bytes:
    """Lay out the distinct sets of gates and the index of each message, behind the length of it all."""
    names = [text_bytes(name) for throttle, concurrency in gates for name in (*throttle, *concurrency)]
    counts = [count for throttle, concurrency in gates for count in (len(throttle), len(concurrency))]
    block = b"".join(
        (
            _pack_column("H", [len(gates), *counts]),
            _pack_column("H", [len(name) for name in names]),
            *names,
            b"" if gate_index is None else _pack_column("H", gate_index),
        )
    )
    return pack("<I", len(block)) + block


def _decode_row_with_gates(key: bytes, value: bytes) -> Row:
    """Decode the sets of gates, and then the row as one that has none."""
    check(Family.INDEX, key, value, 4, _VERSION_GATES)
    plain = PAYLOAD + 4 + int.from_bytes(value[PAYLOAD : PAYLOAD + 4], "little")
    row = decode_row(key, seal(value[plain:]))
    reader = Reader(Family.INDEX, key, value[:plain], PAYLOAD + 4)
    (set_count,) = reader.column("H", 1)
    counts = reader.column("H", 2 * set_count)
    lengths = iter(reader.column("H", sum(counts)))
    sets = [tuple(reader.text(next(lengths)) for _ in range(count)) for count in counts]
    gates = list(zip(sets[::2], sets[1::2], strict=True))
    gate_index = None
    if set_count != 1:
        gate_index = reader.column("H", row.length)
        if max(gate_index) >= set_count:
            raise corrupt(Family.INDEX, key, "has a gate index outside its dictionary")
    reader.finish()
    return row._replace(gates=gates, gate_index=gate_index)


# --- pages --------------------------------------------------------------------------------------------


def encode_page(sizes: Sequence[int], bodies: Iterable[bytes | memoryview]) -> Page:
    """Lay out a page of bodies that come in pieces. The table has positions in the value, so a body is one slice."""
    count = len(sizes)
    bounds = list(accumulate(sizes, initial=_PAGE.size + 4 * (count + 1)))
    head = _PAGE.pack(_VERSION, count) + pack(f"<{count + 1}I", *bounds)
    return Page(b"".join((head, *bodies)), bounds)


def decode_page(key: bytes, value: bytes) -> Page:
    """Decode where the bodies of a page lie; they are not copied."""
    if len(value) < _PAGE.size:
        raise corrupt(Family.MESSAGES, key, f"is cut short at {len(value)} bytes")
    version, count = _PAGE.unpack_from(value)
    if version != _VERSION:
        raise _unknown_version(Family.MESSAGES, key, version)
    bodies = _PAGE.size + 4 * (count + 1)
    if not 1 <= count <= limits.SEGMENT_MESSAGES or len(value) < bodies:
        raise corrupt(Family.MESSAGES, key, f"has no room for its {count} bodies")
    bounds = _unpack_column("I", value[_PAGE.size : bodies])
    if bounds[0] != bodies or bounds[-1] != len(value) or sorted(bounds) != bounds:
        raise corrupt(Family.MESSAGES, key, "has a table that does not fit its bodies")
    return Page(value, bounds)


# --- progress, leases, attempts -------------------------------------------------------------------------


def encode_progress(finished: int) -> bytes:
    """Encode which messages of a segment are finished."""
    return seal(finished.to_bytes(_BITMAP_BYTES, "little"))


def decode_progress(key: bytes, value: bytes) -> int:
    """Decode which messages of a segment are finished."""
    check_exact(Family.PROGRESS, key, value, _BITMAP_BYTES)
    return int.from_bytes(value[PAYLOAD:], "little")


def encode_lease(consumer: int, offsets: Sequence[int], deadlines_ns: Sequence[int]) -> bytes:
    """Encode the leases of one delivery: at least one; offsets that run on are stored as the first of them."""
    count, first = len(offsets), offsets[0]
    flags = 0
    columns = b""
    if offsets[-1] - first != count - 1 or list(offsets) != list(range(first, first + count)):
        flags |= _OFFSETS_VARY
        columns = _pack_column("Q", offsets)
    if len(deadlines_ns) > 1 and _varies(deadlines_ns):
        flags |= _DEADLINES_VARY
        columns += _pack_column("Q", deadlines_ns)
    return seal(_LEASE.pack(consumer, count, flags, first, deadlines_ns[0]) + columns)


def decode_lease(key: bytes, value: bytes) -> Lease:
    """Decode the leases of one delivery."""
    check(Family.LEASES, key, value, _LEASE.size)
    consumer, count, flags, first, deadline_ns = _LEASE.unpack_from(value, PAYLOAD)
    if not count:
        raise corrupt(Family.LEASES, key, "has no leases")
    reader = Reader(Family.LEASES, key, value, PAYLOAD + _LEASE.size)
    offsets = reader.column("Q", count) if flags & _OFFSETS_VARY else list(range(first, first + count))
    deadlines_ns = reader.column("Q", count) if flags & _DEADLINES_VARY else [deadline_ns]
    reader.finish()
    return Lease(consumer, offsets, deadlines_ns)


def encode_attempt(attempts: int, not_before_ns: int, error: str) -> bytes:
    """Encode what a failed message carries."""
    return seal(_ATTEMPT.pack(attempts, not_before_ns) + text_bytes(error))


def decode_attempt(key: bytes, value: bytes) -> Attempt:
    """Decode what a failed message carries."""
    check(Family.ATTEMPTS, key, value, _ATTEMPT.size)
    attempts, not_before_ns = _ATTEMPT.unpack_from(value, PAYLOAD)
    return Attempt(attempts, not_before_ns, text_of(Family.ATTEMPTS, key, value[PAYLOAD + _ATTEMPT.size :]))
