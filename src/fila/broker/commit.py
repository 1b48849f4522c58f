"""From what a step decided to one atomic batch of bytes.

The writes of an Outcome hold in their order. This module knows the records and the port, no engine and no rules of queues.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fila.core.outcome import (
    DeleteAttempt,
    DeleteLease,
    DeletePage,
    DeleteProgress,
    DeleteRow,
    DropBucket,
    DropConfig,
    DropQueue,
    DropRange,
    DropRest,
    Outcome,
    PutAttempt,
    PutBucket,
    PutConfig,
    PutLease,
    PutPage,
    PutProgress,
    PutQueue,
    PutRest,
    PutRow,
)
from fila.storage import keys, records, settings
from fila.storage.store import Change, Family, Store

Bytes = bytes | bytearray | memoryview
# (queue number, first offset, page)
KeepPage = Callable[[int, int, records.Page], None]


@dataclass(frozen=True, slots=True)
class Written:
    """What one commit took."""

    changes: int
    drops: int
    bytes: int


NOTHING = Written(0, 0, 0)


class Committer:
    """Writes outcomes to a store: `write` on the loop, `sync` in a worker thread.

    `next_queue` is the smallest queue number that was never given, as recovery found it. `keep` is given each new page:
    what was just written is what is most likely to be read next.
    """

    def __init__(
        self, store: Store, next_queue: int = 1, keep: KeepPage = lambda _queue, _first, _page: None
    ) -> None:
        self._store = store
        self._keep = keep
        self._next_queue = next_queue

    def write(self, outcome: Outcome, bodies: Mapping[int, Bytes | Sequence[Bytes]]) -> Written:
        """Write what a step decided, or nothing if it decided nothing.

        `bodies` has by queue number what this step appends there, whole or in pieces, in order.
        """
        if not outcome.writes:
            return NOTHING
        batch = _Batch(bodies, self._keep)
        for write in outcome.writes:
            _ADD[type(write)](batch, write)
        self._next_queue = max(self._next_queue, batch.next_queue)
        batch.changes.append(
            (Family.META, keys.STATE, records.encode_state(outcome.step, outcome.now_ns, self._next_queue))
        )
        self._store.write(batch.changes, batch.drops)
        size = sum([len(key) if value is None else len(key) + len(value) for _, key, value in batch.changes])
        return Written(len(batch.changes), len(batch.drops), size)

    def sync(self) -> None:
        """Make everything written so far durable."""
        self._store.sync()


class _Batch:
    """The changes and drops of one step so far."""

    __slots__ = ("_bodies", "_keep", "changes", "drops", "next_queue")

    def __init__(self, bodies: Mapping[int, Bytes | Sequence[Bytes]], keep: KeepPage) -> None:
        self._keep = keep
        self._bodies = {
            queue: _Pieces((pieces,) if isinstance(pieces, Bytes) else pieces)
            for queue, pieces in bodies.items()
        }
        self.changes: list[Change] = []
        self.drops: list[keys.Range] = []
        self.next_queue = 0

    def put_queue(self, write: PutQueue) -> None:
        spec = write.spec
        record = records.Queue(
            spec.name,
            spec.discipline.value,
            spec.quantum,
            spec.visibility_timeout_ms,
            write.created_at_ms,
            write.next_offset,
        )
        self.next_queue = max(self.next_queue, write.number + 1)
        self.changes.append((Family.QUEUES, keys.queue_key(write.number), records.encode_queue(record)))

    def drop_queue(self, write: DropQueue) -> None:
        self._drop(keys.queue_ranges(write.number))

    def drop_range(self, write: DropRange) -> None:
        self._drop(keys.offset_ranges(write.queue, write.first, write.end))

    def put_row(self, write: PutRow) -> None:
        row = records.Row(
            write.length,
            write.step,
            write.keys,
            write.key_index,
            write.sizes,
            write.times_ms,
            write.pages,
            write.weights,
            write.costs,
            write.gates,
            write.gate_index,
        )
        self.changes.append(
            (Family.INDEX, keys.offset_key(write.queue, write.first), records.encode_row(row))
        )

    def put_page(self, write: PutPage) -> None:
        parts = self._bodies[write.queue].take(write.begin, write.end)
        page = records.encode_page(write.sizes, parts)
        self._keep(write.queue, write.first, page)
        self.changes.append((Family.MESSAGES, keys.offset_key(write.queue, write.first), page.value))

    def delete_row(self, write: DeleteRow) -> None:
        self.changes.append((Family.INDEX, keys.offset_key(write.queue, write.first), None))

    def delete_page(self, write: DeletePage) -> None:
        self.changes.append((Family.MESSAGES, keys.offset_key(write.queue, write.first), None))

    def put_progress(self, write: PutProgress) -> None:
        value = records.encode_progress(write.finished)
        self.changes.append((Family.PROGRESS, keys.group_key(write.queue, write.first), value))

    def delete_progress(self, write: DeleteProgress) -> None:
        self.changes.append((Family.PROGRESS, keys.group_key(write.queue, write.first), None))

    def put_lease(self, write: PutLease) -> None:
        value = records.encode_lease(write.consumer, write.offsets, write.deadlines_ns)
        self.changes.append((Family.LEASES, keys.group_key(write.queue, write.epoch), value))

    def delete_lease(self, write: DeleteLease) -> None:
        self.changes.append((Family.LEASES, keys.group_key(write.queue, write.epoch), None))

    def put_attempt(self, write: PutAttempt) -> None:
        value = records.encode_attempt(write.attempts, write.not_before_ns, write.error)
        self.changes.append((Family.ATTEMPTS, keys.group_key(write.queue, write.offset), value))

    def delete_attempt(self, write: DeleteAttempt) -> None:
        self.changes.append((Family.ATTEMPTS, keys.group_key(write.queue, write.offset), None))

    def put_config(self, write: PutConfig) -> None:
        value = settings.encode_setting(write.key, write.value)
        self.changes.append((Family.CONFIG, keys.name_key(write.key), value))

    def drop_config(self, write: DropConfig) -> None:
        self.changes.append((Family.CONFIG, keys.name_key(write.key), None))

    def put_bucket(self, write: PutBucket) -> None:
        value = settings.encode_bucket(write.name, write.tokens, write.at_ns)
        self.changes.append((Family.GATES, keys.name_key(write.name), value))

    def drop_bucket(self, write: DropBucket) -> None:
        self.changes.append((Family.GATES, keys.name_key(write.name), None))

    def put_rest(self, _write: PutRest) -> None:
        self.changes.append((Family.META, keys.REST, records.encode_number(1)))

    def drop_rest(self, _write: DropRest) -> None:
        self.changes.append((Family.META, keys.REST, None))

    def _drop(self, ranges: list[keys.Range]) -> None:
        """Drop ranges here: the store applies drops first, so what this step put there before must not follow them."""
        self.drops.extend(ranges)
        if self.changes:
            spans = {family: (first, end) for family, first, end in ranges}
            self.changes = [change for change in self.changes if not _within(spans, change)]


def _within(spans: Mapping[Family, tuple[bytes, bytes]], change: Change) -> bool:
    span = spans.get(change[0])
    return span is not None and span[0] <= change[1] < span[1]


class _Pieces:
    """Pieces of bytes that stand for their concatenation, and are read from front to back."""

    __slots__ = ("_at", "_begin", "_pieces")

    def __init__(self, pieces: Sequence[Bytes]) -> None:
        self._pieces = [memoryview(piece) for piece in pieces]
        self._at = 0
        self._begin = 0

    def take(self, begin: int, end: int) -> list[memoryview]:
        """Return views of the bytes from `begin` to before `end`; each call begins at or after the one before it ended."""
        while self._at < len(self._pieces) and self._begin + len(self._pieces[self._at]) <= begin < end:
            self._begin += len(self._pieces[self._at])
            self._at += 1
        parts = []
        at, position = self._at, self._begin
        while position < end:
            if at == len(self._pieces):
                raise ValueError(f"a page ends at byte {end:,} of {position:,} bytes of bodies")
            piece = self._pieces[at]
            parts.append(piece[max(begin - position, 0) : end - position])
            position += len(piece)
            at += 1
        return parts


# Each kind of write and how it is added: dispatch by type is one lookup, and a new kind that is missing here is an error.
_ADD: dict[type[object], Callable[..., None]] = {
    PutQueue: _Batch.put_queue,
    DropQueue: _Batch.drop_queue,
    PutRow: _Batch.put_row,
    PutPage: _Batch.put_page,
    DeleteRow: _Batch.delete_row,
    DeletePage: _Batch.delete_page,
    DropRange: _Batch.drop_range,
    PutProgress: _Batch.put_progress,
    DeleteProgress: _Batch.delete_progress,
    PutLease: _Batch.put_lease,
    DeleteLease: _Batch.delete_lease,
    PutAttempt: _Batch.put_attempt,
    DeleteAttempt: _Batch.delete_attempt,
    PutConfig: _Batch.put_config,
    DropConfig: _Batch.drop_config,
    PutBucket: _Batch.put_bucket,
    DropBucket: _Batch.drop_bucket,
    PutRest: _Batch.put_rest,
    DropRest: _Batch.drop_rest,
}
