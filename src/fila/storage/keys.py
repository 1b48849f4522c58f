"""Every key on disk: big-endian numbers of fixed width, so that the order of a scan is the order of use.

Keys hold numbers only (of names a hash); names are in values. This module knows the layout of keys and nothing of values.
"""

from hashlib import blake2b
from struct import Struct

from fila.storage.store import Family

FORMAT = b"format"
STATE = b"state"
INCARNATION = b"incarnation"
REST = b"rest"

GROUP_DEFAULT = 0

# One range of keys of a family: from the first to before the second.
Range = tuple[Family, bytes, bytes]

_NAME_BYTES = 16
_QUEUE = Struct(">I")
_OFFSET = Struct(">IQ")
_GROUP = Struct(">IHQ")

# Which families hold what a queue has by offset alone, and which by group too.
_BY_OFFSET = (Family.MESSAGES, Family.INDEX)
_BY_GROUP_OFFSET = (Family.PROGRESS, Family.ATTEMPTS)
_BY_GROUP = (*_BY_GROUP_OFFSET, Family.LEASES)


def queue_key(queue: int) -> bytes:
    """Return the key of a queue's own record."""
    return _QUEUE.pack(queue)


def offset_key(queue: int, offset: int) -> bytes:
    """Return the key of the page or index row that begins at an offset."""
    return _OFFSET.pack(queue, offset)


def group_key(queue: int, number: int, group: int = GROUP_DEFAULT) -> bytes:
    """Return the key of what a group has at a number: an offset, a segment's first offset, or a delivery's epoch."""
    return _GROUP.pack(queue, group, number)


def name_key(name: str) -> bytes:
    """Return the key of what has a name and no number: a hash of it, so that it has a fixed width too."""
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_NAME_BYTES, key=b"fila.name").digest()


def split_queue_key(key: bytes) -> int:
    """Return the queue number; ValueError if the key is of another shape."""
    if len(key) != _QUEUE.size:
        raise ValueError("the key's length is wrong")
    (queue,) = _QUEUE.unpack(key)
    return int(queue)


def split_offset_key(key: bytes) -> tuple[int, int]:
    """Return queue number and offset; ValueError if the key is of another shape."""
    if len(key) != _OFFSET.size:
        raise ValueError("the key's length is wrong")
    queue, offset = _OFFSET.unpack(key)
    return queue, offset


def split_group_key(key: bytes) -> tuple[int, int, int]:
    """Return queue number, group number and the number within; ValueError if the key is of another shape."""
    if len(key) != _GROUP.size:
        raise ValueError("the key's length is wrong")
    queue, group, number = _GROUP.unpack(key)
    return queue, group, number


def queue_ranges(queue: int) -> list[Range]:
    """Return the ranges that hold everything of a queue, its own record included."""
    first, end = _QUEUE.pack(queue), _QUEUE.pack(queue + 1)
    return [(family, first, end) for family in (Family.QUEUES, *_BY_OFFSET, *_BY_GROUP)]


def offset_ranges(queue: int, first: int, end: int) -> list[Range]:
    """Return the ranges that hold rows, pages, progress and attempts of the offsets from `first` to before `end`."""
    by_offset = (_OFFSET.pack(queue, first), _OFFSET.pack(queue, end))
    by_group = (_GROUP.pack(queue, GROUP_DEFAULT, first), _GROUP.pack(queue, GROUP_DEFAULT, end))
    return [(family, *by_offset) for family in _BY_OFFSET] + [
        (family, *by_group) for family in _BY_GROUP_OFFSET
    ]
