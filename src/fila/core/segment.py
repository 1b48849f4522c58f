"""The columns of up to 1,024 messages of one queue, in memory, without their bodies.

Segments are aligned: segment s holds offsets s * 1,024 to (s + 1) * 1,024 - 1. Within a segment lie index rows (what one
commit added) and pages (bodies stored together); neither crosses its end. Sets of messages are integers used as
bitmaps, so that "is this page finished" is one comparison.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence

from fila import limits

BIT = [1 << place for place in range(limits.SEGMENT_MESSAGES)]
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
        "gates",
        "gone",
        "keys",
        "page_left",
        "pages",
        "progress_stored",
        "row_count",
        "row_left",
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
        # How many messages of the page, and of the row, that begins at this place are not finished.
        self.page_left = array("H")
        self.row_left = array("H")
        # None while every weight, or every cost, is 1.
        self.weights: array[int] | None = None
        self.costs: array[int] | None = None
        # The number of the set of gates that each waits at; None while none waits at any.
        self.gates: array[int] | None = None
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
        self.page_left.extend(zeros)
        self.row_left.extend(zeros)
        self.keys.extend(zeros)
        self.sizes.extend(zeros)
        self.times_ms.extend(zeros)
        if self.weights is not None:
            self.weights.extend([1] * count)
        if self.costs is not None:
            self.costs.extend([1] * count)
        if self.gates is not None:
            self.gates.extend(zeros)

    def extend(
        self,
        keys: Sequence[int],
        sizes: Sequence[int],
        times_ms: Sequence[int],
        weights: Sequence[int] | None,
        costs: Sequence[int] | None,
        gates: Sequence[int] | None = None,
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
        if gates is not None and self.gates is None:
            self.gates = array("I", bytes(4 * before))
        if self.gates is not None:
            self.gates.extend(gates if gates is not None else bytes(count))

    def open_place(self) -> int:
        """Return the first place whose message has no index row yet."""
        return len(self.rows)

    def close_row(self, page_counts: Sequence[int]) -> None:
        """Make one index row of the messages that have none, and pages of so many messages each."""
        start = len(self.rows)
        count = len(self.sizes) - start
        # Arrays of one number are copied as memory; lists would be taken apart.
        self.rows.extend(array("H", (start,)) * count)
        zeros = array("H", bytes(2 * count))
        self.page_left.extend(zeros)
        self.row_left.extend(zeros)
        self.row_left[start] = count
        for page_count in page_counts:
            self.pages.extend(array("H", (start,)) * page_count)
            self.page_left[start] = page_count
            start += page_count
        assert len(self.pages) == len(self.sizes), "pages and messages do not add up"
        self.row_count += 1

    def restore_row(self, pages: Sequence[int]) -> None:
        """Make one index row of the messages that have none; what is left of it is counted by `recount`."""
        self.rows.extend([len(self.rows)] * len(pages))
        self.pages.extend(pages)
        self.row_count += 1

    def finish_run(self, begin: int, end: int) -> tuple[list[int], list[int]]:
        """Finish the messages at these places; return the first places of the pages and rows that are finished now."""
        self.finished |= (1 << end) - (1 << begin)
        return finish_spans(self.pages, self.page_left, begin, end), finish_spans(
            self.rows, self.row_left, begin, end
        )

    def finish_places(self, places: Sequence[int]) -> tuple[list[int], list[int]]:
        """Do the same for single places, in order."""
        mask = 0
        for place in places:
            mask |= BIT[place]
        self.finished |= mask
        if places[-1] - places[0] < 2 * len(places):
            # Dense, with gaps here and there: by page and row, not by message.
            return finish_in_spans(self.pages, self.page_left, places), finish_in_spans(
                self.rows, self.row_left, places
            )
        return finish_each(self.pages, self.page_left, places), finish_each(self.rows, self.row_left, places)

    def bury_row(self, first: int) -> int:
        """Take note that a finished row's record is deleted, and return the place where it ended."""
        end = bisect_right(self.rows, first, first)
        self.gone |= (1 << end) - (1 << first)
        return end

    def recount(self) -> None:
        """Count anew what is left of each page and row, after recovery."""
        self.page_left = array("H", bytes(2 * len(self.sizes)))
        self.row_left = array("H", bytes(2 * len(self.sizes)))
        if not self.finished:
            for place, count in Counter(self.pages).items():
                self.page_left[place] = count
            for place, count in Counter(self.rows).items():
                self.row_left[place] = count
            return
        unfinished = ((1 << len(self.sizes)) - 1) & ~self.finished
        for place in places(unfinished):
            self.page_left[self.pages[place]] += 1
            self.row_left[self.rows[place]] += 1

    def row_starts(self) -> list[int]:
        """Return the places where the stored index rows begin."""
        gone = self.gone
        return [place for place in dict.fromkeys(self.rows) if not gone >> place & 1]

    def join_rows(self) -> int:
        """Take all that is left as one index row, and return the place where it begins."""
        first = lowest_bit(~self.gone)
        count = len(self.sizes)
        self.rows = self.rows[:first] + array("H", [first]) * (count - first)
        self.row_left = array("H", bytes(2 * count))
        self.row_left[first] = count - first - (self.finished >> first).bit_count()
        self.gone = (1 << first) - 1
        self.row_count = 1
        return first


def finish_spans(spans: "array[int]", left: "array[int]", begin: int, end: int) -> list[int]:
    """Lower what is left of the spans between two places, and return those of which nothing is."""
    ended = []
    while begin < end:
        first = spans[begin]
        stop = bisect_right(spans, first, begin, end)
        rest = left[first] - (stop - begin)
        left[first] = rest
        if not rest:
            ended.append(first)
        begin = stop
    return ended


def finish_in_spans(spans: "array[int]", left: "array[int]", places: Sequence[int]) -> list[int]:
    """Do the same for places that are dense."""
    ended = []
    at = 0
    while at < len(places):
        first = spans[places[at]]
        stop = bisect_left(places, bisect_right(spans, first, places[at]), at)
        rest = left[first] - (stop - at)
        left[first] = rest
        if not rest:
            ended.append(first)
        at = stop
    return ended


def finish_each(spans: "array[int]", left: "array[int]", places: Sequence[int]) -> list[int]:
    """Do the same for places that are far apart."""
    ended = []
    for place in places:
        first = spans[place]
        rest = left[first] - 1
        left[first] = rest
        if not rest:
            ended.append(first)
    return ended
