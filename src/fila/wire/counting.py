"""Counting what a frame holds without unpacking it."""

from fila.errors import InvalidArgumentError
from fila.wire.varint import read_varint


def count_entries(frame: bytes, field: int, maximum: int) -> int:
    """Return how often a length-delimited field stands in a frame, at most `maximum` + 1 times.

    Looks at the top level alone, and at no more fields than that. What is not well formed is left for the parser to refuse.
    """
    wanted = field << 3 | 2
    position = fields = entries = 0
    try:
        while position < len(frame) and entries <= maximum:
            fields += 1
            if fields > 2 * maximum:
                raise InvalidArgumentError(f"the frame has more than {2 * maximum:,} fields")
            tag, position = read_varint(frame, position)
            kind = tag & 7
            if kind == 2:
                length, position = read_varint(frame, position)
                position += length
                entries += tag == wanted
            elif kind == 0:
                _, position = read_varint(frame, position)
            elif kind in {1, 5}:
                position += 8 if kind == 1 else 4
            else:
                break
    except IndexError:
        return entries
    return entries
