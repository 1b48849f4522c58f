"""The columns of up to 1,024 messages of one queue, in memory, without their bodies.

Segments are aligned: segment s holds offsets s * 1,024 to (s + 1) * 1,024 - 1. Within a segment lie index rows (what one
commit added) and pages (bodies stored together); neither crosses its end. Sets of messages are integers used as
bitmaps, so that "is this page finished" is one comparison.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from fila import limits

FULL = (1 << limits.SEGMENT_MESSAGES) - 1


def lowest_bit(bits: int) -> int:
    """Return the place of the lowest bit that is set."""
    return (bits & -bits).bit_length() - 1


def places(bits: int) -> Iterator[int]:
    """Yield the places of the bits that are set, lowest first."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


class Segment:
    """Columns by place (offset modulo 1,024), and what is finished."""

    __slots__ = (
        "costs",
        "finished",
        "first",
        "gone",
        "keys",
        "pages",
        "progress_stored",
        "row_count",
        "rows",
        "sizes",
        "times_ms",
        "weights",
    )

    def __init__(self, first: int) -> None:
        self.first = first
        self.keys = array("I")
        self.sizes = array("I")
        self.times_ms = array("Q")
        # The place of the first message of the page, and of the index row, that holds this message. Both rise.
        self.pages = array("H")
        self.rows = array("H")
        # None while every weight, or every cost, is 1.
        self.weights: array[int] | None = None
        self.costs: array[int] | None = None
        # Finished messages, and those of them whose index row is deleted too.
        self.finished = 0
        self.gone = 0
        self.progress_stored = False
        self.row_count = 0

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def full(self) -> bool:
        """Whether no further message fits."""
        return len(self.sizes) == limits.SEGMENT_MESSAGES

    def fill_to(self, place: int) -> None:
        """Take the places up to here as long finished and gone: their records were deleted."""
        count = place - len(self.sizes)
        if count <= 0:
            return
        mask = ((1 << count) - 1) << len(self.sizes)
        self.finished |= mask
        self.gone |= mask
        zeros = [0] * count
        steps = range(len(self.sizes), place)
        self.pages.extend(steps)
        self.rows.extend(steps)
        self.keys.extend(zeros)
        self.sizes.extend(zeros)
        self.times_ms.extend(zeros)
        if self.weights is not None:
            self.weights.extend([1] * count)
        if self.costs is not None:
            self.costs.extend([1] * count)

    def extend(
        self,
        keys: Sequence[int],
        sizes: Sequence[int],
        times_ms: Sequence[int],
        weights: Sequence[int] | None,
        costs: Sequence[int] | None,
    ) -> None:
        """Append messages; their rows and pages follow with `close_row`."""
        before = len(self.sizes)
        self.keys.extend(keys)
        self.sizes.extend(sizes)
        self.times_ms.extend(times_ms)
        count = len(self.sizes) - before
        if weights is not None and self.weights is None:
            self.weights = array("I", [1]) * before
        if costs is not None and self.costs is None:
            self.costs = array("I", [1]) * before
        if self.weights is not None:
            self.weights.extend(weights if weights is not None else [1] * count)
        if self.costs is not None:
            self.costs.extend(costs if costs is not None else [1] * count)

    def open_place(self) -> int:
        """Return the first place whose message has no index row yet."""
        return len(self.rows)

    def close_row(self, pages: Sequence[int]) -> None:
        """Make one index row of the messages that have none, with the places of their pages' first messages."""
        start = len(self.rows)
        count = len(self.sizes) - start
        assert len(pages) == count > 0
        self.rows.extend([start] * count)
        self.pages.extend(pages)
        self.row_count += 1

    def finished_spans(self, spans: "array[int]", mask: int) -> Iterator[tuple[int, int]]:
        """Yield (first, end) of the spans (rows or pages) that touch `mask` and hold finished messages only."""
        finished = self.finished
        while mask:
            place = (mask & -mask).bit_length() - 1
            first = spans[place]
            end = bisect_right(spans, first, place)
            span = ((1 << (end - first)) - 1) << first
            if finished & span == span:
                yield first, end
            mask &= ~span

    def row_starts(self) -> list[int]:
        """Return the places where the stored index rows begin."""
        gone = self.gone
        return [place for place in dict.fromkeys(self.rows) if not gone >> place & 1]

    def join_rows(self) -> int:
        """Take all that is left as one index row, and return the place where it begins."""
        first = lowest_bit(~self.gone)
        self.rows = self.rows[:first] + array("H", [first]) * (len(self.sizes) - first)
        self.gone = (1 << first) - 1
        self.row_count = 1
        return first
