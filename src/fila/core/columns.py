"""The columns of a delivery: what its messages have in their segments, in the order of service."""

from array import array
from collections.abc import Mapping, Sequence
from operator import add, itemgetter

from fila import limits
from fila.core.segment import Segment

BITS = limits.SEGMENT_BITS
MASK = limits.SEGMENT_MESSAGES - 1
# So many neighbouring segments are looked at as one.
NEAR = 4
ONES = array("I", [1]) * limits.SEGMENT_MESSAGES

# Pages (the first offset of each message's page), sizes, times and weights; weights None: all 1.
Columns = tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int] | None]


def pick_columns(segments: Mapping[int, Segment], offsets: Sequence[int]) -> Columns:
    """Return the columns of these messages."""
    first, last = min(offsets) >> BITS, max(offsets) >> BITS
    numbers = range(first, min(last, first + NEAR) + 1)
    near = [segment for number in numbers if (segment := segments.get(number))]
    if len(offsets) > 1 and len(near) == last - first + 1 <= NEAR:
        return _pick_near(near, offsets)
    holders = [segments[offset >> BITS] for offset in offsets]
    spots = list(zip(holders, [offset & MASK for offset in offsets], strict=True))
    weights = None
    if any(segment.weights is not None for segment in dict.fromkeys(holders)):
        weights = [1 if segment.weights is None else segment.weights[place] for segment, place in spots]
    return (
        [segment.first + segment.pages[place] for segment, place in spots],
        [segment.sizes[place] for segment, place in spots],
        [segment.times_ms[place] for segment, place in spots],
        weights,
    )


def _pick_near(near: Sequence[Segment], offsets: Sequence[int]) -> Columns:
    """Do so where they lie in a few neighbouring segments, as in most deliveries: columns are joined, and picked at once."""
    base = near[0].first
    pick = itemgetter(*[offset - base for offset in offsets])
    starts = [offset & ~MASK for offset in offsets]
    weights = None
    if any(segment.weights is not None for segment in near):
        weights = pick(_joined([segment.weights or ONES[: len(segment)] for segment in near]))
    return (
        list(map(add, starts, pick(_joined([segment.pages for segment in near])))),
        pick(_joined([segment.sizes for segment in near])),
        pick(_joined([segment.times_ms for segment in near])),
        weights,
    )


def _joined(columns: "Sequence[array[int]]") -> "array[int]":
    """Return the columns of neighbouring segments as one."""
    whole = columns[0]
    for column in columns[1:]:
        whole = whole + column
    return whole
