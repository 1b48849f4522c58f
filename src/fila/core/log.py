"""The log of one queue: what was appended, what is finished, and the records that follow from it.

It knows offsets, sizes and columns, not who is served next. Every change that the store must see is left in `writes`
of the step.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from fila import limits
from fila.core.model import GateKeys, QueueSpec
from fila.core.outcome import (
    DeletePage,
    DeleteProgress,
    DeleteRow,
    DropRange,
    PutPage,
    PutProgress,
    PutQueue,
    PutRow,
    Write,
)
from fila.core.segment import FULL, Segment, places
from fila.core.usage import Usage

BITS = limits.SEGMENT_BITS
MASK = limits.SEGMENT_MESSAGES - 1


class QueueLog:
    """Segments by number, and the next offset."""

    def __init__(
        self, number: int, spec: QueueSpec, created_at_ms: int, usage: Usage, next_offset: int = 0
    ) -> None:
        self._usage = usage
        self.number = number
        self.spec = spec
        self.created_at_ms = created_at_ms
        self.next_offset = next_offset
        self.segments: dict[int, Segment] = {}
        # Whether any message ever had a cost: if not, disciplines need not look.
        self.has_costs = False
        # Whether any message ever had gates.
        self.has_gates = False
        # The largest body that was ever appended: a batch that has room for so many of these need not count bytes.
        self.size_max = 0
        # Segments whose progress record is behind, and whether the queue's own record is.
        self._dirty: dict[int, Segment] = {}
        self._tail_dropped = False
        # Where the bodies of the messages without a page begin, in what this step appends.
        self._step_bytes = 0
        self._open_first = next_offset

    # --- appending --------------------------------------------------------------------------------------

    def append(
        self,
        keys: Sequence[int],
        sizes: Sequence[int],
        time_ms: int,
        weights: Sequence[int] | None,
        costs: Sequence[int] | None,
        gates: Sequence[int] | None = None,
    ) -> int:
        """Append messages and return the first offset. Their rows and pages are made at `close_rows`."""
        first = self.next_offset
        if costs is not None:
            self.has_costs = True
        if gates is not None:
            self.has_gates = True
        largest = max(sizes)
        self.size_max = max(self.size_max, largest)
        begin, count = 0, len(sizes)
        while begin < count:
            segment = self.tail_segment()
            room = min(limits.SEGMENT_MESSAGES - len(segment), count - begin)
            end = begin + room
            if room == count:
                segment.extend(keys, sizes, array("Q", (time_ms,)) * room, weights, costs, gates)
            else:
                segment.extend(
                    keys[begin:end],
                    sizes[begin:end],
                    array("Q", (time_ms,)) * room,
                    None if weights is None else weights[begin:end],
                    None if costs is None else costs[begin:end],
                    None if gates is None else gates[begin:end],
                )
            self.next_offset += room
            begin = end
        return first

    def tail_segment(self) -> Segment:
        """Return the segment that takes the next message."""
        number = self.next_offset >> BITS
        segment = self.segments.get(number)
        if segment is None:
            segment = self._add_segment(number)
            segment.fill_to(self.next_offset & MASK)
        return segment

    def _add_segment(self, number: int) -> Segment:
        self._usage.segments += 1
        segment = self.segments[number] = Segment(number << BITS)
        return segment

    def _remove_segment(self, number: int) -> None:
        self._usage.segments -= 1
        del self.segments[number]

    def remove(self) -> None:
        """Give up all segments: the queue is deleted."""
        self._usage.segments -= len(self.segments)
        self.segments.clear()

    @property
    def open(self) -> bool:
        """Whether messages were appended that have no index row yet."""
        return self._open_first < self.next_offset

    def close_rows(
        self,
        step: int,
        name_of: Callable[[int], str],
        gates_of: Callable[[int], GateKeys],
        writes: list[Write],
    ) -> None:
        """Write index rows and pages for what was appended since the last time.

        `name_of` gives the key of each number in the columns, `gates_of` the gates, and anything for one that is no longer in
        use.
        """
        while self._open_first < self.next_offset:
            segment = self.segments[self._open_first >> BITS]
            start = segment.open_place()
            self._close_pages(segment, start, writes)
            first = start
            if segment.full and segment.row_count > limits.SEGMENT_ROWS_MAX:
                olds = [place for place in segment.row_starts() if place != start]
                writes.extend(DeleteRow(self.number, segment.first + place) for place in olds)
                first = segment.join_rows()
                self._dirty[segment.first >> BITS] = segment
            row = self._row(segment, first, step, name_of)
            if segment.gates is not None:
                row = _with_gates(row, segment.gates[first:], gates_of)
            writes.append(row)
            self._open_first = segment.first + len(segment)

    def _close_pages(self, segment: Segment, start: int, writes: list[Write]) -> None:
        sizes = segment.sizes[start:]
        ends = list(accumulate(sizes))
        counts: list[int] = []
        base, first = self._step_bytes, segment.first + start
        begin_bytes = place = 0
        while place < len(ends):
            end = max(bisect_right(ends, begin_bytes + limits.PAGE_BYTES, place), place + 1)
            end_bytes = ends[end - 1]
            writes.append(
                PutPage(self.number, first + place, base + begin_bytes, base + end_bytes, sizes[place:end])
            )
            counts.append(end - place)
            begin_bytes, place = end_bytes, end
        self._step_bytes += begin_bytes
        segment.close_row(counts)

    def _row(self, segment: Segment, first: int, step: int, name_of: Callable[[int], str]) -> PutRow:
        numbers = segment.keys[first:]
        dictionary = {number: index for index, number in enumerate(dict.fromkeys(numbers))}
        weights, costs = segment.weights, segment.costs
        return PutRow(
            queue=self.number,
            first=segment.first + first,
            length=len(numbers),
            step=step,
            keys=[name_of(number) for number in dictionary],
            key_index=[dictionary[number] for number in numbers],
            sizes=segment.sizes[first:],
            times_ms=segment.times_ms[first:],
            pages=segment.pages[first:],
            weights=None if weights is None else weights[first:],
            costs=None if costs is None else costs[first:],
        )

    # --- finishing --------------------------------------------------------------------------------------

    def finish(self, offsets: Sequence[int], writes: list[Write]) -> None:
        """Take these messages as finished; delete the pages and rows that have nothing else."""
        low, high = min(offsets), max(offsets)
        if high - low == len(offsets) - 1:
            # Distinct offsets without a gap: the usual case costs no loop over messages.
            while low <= high:
                number = low >> BITS
                end = min(high + 1, (number + 1) << BITS)
                segment = self.segments[number]
                ended = segment.finish_run(low & MASK, end - segment.first)
                self._finished(number, segment, ended, writes)
                low = end
            return
        at, offsets = 0, sorted(offsets)
        while at < len(offsets):
            number = offsets[at] >> BITS
            end = bisect_left(offsets, (number + 1) << BITS, at)
            segment = self.segments[number]
            ended = segment.finish_places([offset & MASK for offset in offsets[at:end]])
            self._finished(number, segment, ended, writes)
            at = end

    def _finished(
        self, number: int, segment: Segment, ended: tuple[list[int], list[int]], writes: list[Write]
    ) -> None:
        """Delete the pages and rows that are finished now, and the segment if it is."""
        base = segment.first
        pages, rows = ended
        writes.extend([DeletePage(self.number, base + first) for first in pages])
        for first in rows:
            writes.append(DeleteRow(self.number, base + first))
            if base + segment.bury_row(first) == self.next_offset:
                self._tail_dropped = True
        if segment.finished == FULL:
            # All rows are deleted with it, so nothing of it is left in the store but its progress.
            self._remove_segment(number)
        self._dirty[number] = segment

    def close_progress(self, writes: list[Write]) -> None:
        """Write what the finished messages of this step mean for progress records and the queue's own record."""
        for segment in self._dirty.values():
            if segment.finished & ~segment.gone:
                writes.append(PutProgress(self.number, segment.first, segment.finished))
                segment.progress_stored = True
            elif segment.progress_stored:
                writes.append(DeleteProgress(self.number, segment.first))
                segment.progress_stored = False
        self._dirty.clear()
        if self._tail_dropped:
            writes.append(self.record())
            self._tail_dropped = False
        self._step_bytes = 0

    def purge(self, kept: Iterable[int], writes: list[Write]) -> int:
        """Finish every message but these, and return how many that were."""
        assert not self.open
        keep_by_segment: dict[int, int] = {}
        for offset in kept:
            number = offset >> BITS
            keep_by_segment[number] = keep_by_segment.get(number, 0) | 1 << (offset & MASK)
        purged = 0
        dropped: list[Segment] = []
        for number, segment in list(self.segments.items()):
            mask = ((1 << len(segment)) - 1) & ~segment.finished & ~keep_by_segment.get(number, 0)
            purged += mask.bit_count()
            if number in keep_by_segment:
                if mask:
                    self._finished(number, segment, segment.finish_places(list(places(mask))), writes)
            else:
                dropped.append(segment)
        for segment in dropped:
            self._remove_segment(segment.first >> BITS)
            self._dirty.pop(segment.first >> BITS, None)
        self._drop(dropped, writes)
        return purged

    def _drop(self, dropped: Sequence[Segment], writes: list[Write]) -> None:
        """Drop whole segments from the store, neighbours together."""
        ranges: list[list[int]] = []
        for first in sorted(segment.first for segment in dropped):
            if ranges and ranges[-1][1] == first:
                ranges[-1][1] = first + limits.SEGMENT_MESSAGES
            else:
                ranges.append([first, first + limits.SEGMENT_MESSAGES])
        writes.extend(DropRange(self.number, first, end) for first, end in ranges)
        if ranges:
            self._tail_dropped = True

    # --- reading ----------------------------------------------------------------------------------------

    def record(self) -> PutQueue:
        """Return the queue's own record as it should be stored now."""
        return PutQueue(self.number, self.spec, self.created_at_ms, self.next_offset)

    def time_ms(self, offset: int) -> int | None:
        """Return when a message came, or None if it is not here."""
        segment = self.segments.get(offset >> BITS)
        place = offset & MASK
        if segment is None or place >= len(segment) or segment.finished >> place & 1:
            return None
        return segment.times_ms[place]

    def key_number(self, offset: int) -> int:
        """Return the number of a message's key."""
        return self.segments[offset >> BITS].keys[offset & MASK]

    def size(self, offset: int) -> int:
        """Return the size of a message's body."""
        return self.segments[offset >> BITS].sizes[offset & MASK]

    def cost(self, offset: int) -> int:
        """Return a message's cost."""
        costs = self.segments[offset >> BITS].costs
        return 1 if costs is None else costs[offset & MASK]

    def gates(self, offset: int) -> int:
        """Return the number of the set of gates that a message waits at, or 0."""
        gates = self.segments[offset >> BITS].gates
        return 0 if gates is None else gates[offset & MASK]

    # --- recovery ---------------------------------------------------------------------------------------

    def restore_progress(self, record: PutProgress) -> None:
        """Take back which messages of a segment are finished; its rows follow."""
        segment = self._restored_segment(record.first)
        segment.finished = record.finished
        segment.progress_stored = True

    def restore_row(self, row: PutRow, keys: Sequence[int], gates: Sequence[int] | None = None) -> None:
        """Take back an index row, after the rows before it. `keys` are the numbers of the row's keys, `gates` one for each message."""
        segment = self._restored_segment(row.first >> BITS << BITS)
        start = row.first & MASK
        assert start >= len(segment), "index rows overlap"
        segment.fill_to(start)
        segment.extend(
            [keys[index] for index in row.key_index], row.sizes, row.times_ms, row.weights, row.costs, gates
        )
        segment.restore_row(row.pages)
        if row.costs is not None:
            self.has_costs = True
        if gates is not None:
            self.has_gates = True
        self.size_max = max(self.size_max, *row.sizes)
        self.next_offset = max(self.next_offset, row.first + row.length)

    def _restored_segment(self, first: int) -> Segment:
        number = first >> BITS
        segment = self.segments.get(number)
        if segment is None:
            segment = self._add_segment(number)
        return segment

    def restored(self) -> None:
        """End recovery: what no row covers is finished and gone."""
        # Progress came back before the rows, and not every segment has it.
        self.segments = dict(sorted(self.segments.items()))
        for number, segment in list(self.segments.items()):
            segment.fill_to(min(limits.SEGMENT_MESSAGES, self.next_offset - segment.first))
            segment.finished |= segment.gone
            segment.recount()
            if segment.finished == FULL or not len(segment):
                self._remove_segment(number)
        self._open_first = self.next_offset


def _with_gates(row: PutRow, numbers: Sequence[int], gates_of: Callable[[int], GateKeys]) -> PutRow:
    """Return a row with the gates of its messages, if any has some."""
    dictionary: dict[GateKeys, int] = {}
    known = {number: gates_of(number) for number in dict.fromkeys(numbers)}
    gate_index = [dictionary.setdefault(known[number], len(dictionary)) for number in numbers]
    gates = list(dictionary)
    if not any(map(any, gates)):
        return row
    return row._replace(gates=gates, gate_index=gate_index if len(gates) > 1 else None)
