"""The store in memory, for tests and simulation: the same promises as the engine's, and crashes and faults on demand.

A store here is one opening of the data. `crash` and `reopen` give the next opening, over what survived.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from threading import Lock

from fila.errors import StoreError
from fila.storage.store import Change, Family

_Drop = tuple[Family, bytes, bytes]
_Batch = tuple[tuple[Change, ...], tuple[_Drop, ...]]
_Tables = dict[Family, dict[bytes, bytes]]

FREE_BYTES = 1 << 40


def _apply(tables: _Tables, batch: _Batch) -> None:
    changes, drops = batch
    for family, first, end in drops:
        table = tables[family]
        for key in [key for key in table if first <= key < end]:
            del table[key]
    for family, key, value in changes:
        if value is None:
            tables[family].pop(key, None)
        else:
            tables[family][key] = value


class MemoryStore:
    """Holds everything in dicts: what is synced, and beside it what is written.

    Faults: set `fail_write` or `fail_sync` to a reason and the next call fails with it and the store takes no
    further part, as an engine whose disk failed. `write_survives` says whether the batch whose write failed is there
    after a crash that keeps it: nothing may be relied on either way. `full` refuses every write until it is False and the
    store was opened again.
    """

    def __init__(self, tables: _Tables | None = None) -> None:
        self._synced: _Tables = {family: dict((tables or {}).get(family, ())) for family in Family}
        self._written: _Tables = {family: dict(table) for family, table in self._synced.items()}
        self._unsynced: list[_Batch] = []
        self._lock = Lock()
        self._ended = ""
        self.fail_write = ""
        self.fail_sync = ""
        self.write_survives = False
        self.full = False

    @property
    def unsynced(self) -> int:
        """How many batches a crash may take."""
        return len(self._unsynced)

    def write(self, changes: Sequence[Change], drops: Sequence[tuple[Family, bytes, bytes]] = ()) -> None:
        """Apply the drops, then the changes."""
        self._check_open()
        batch = (tuple((family, bytes(key), _copied(value)) for family, key, value in changes), tuple(drops))
        reason = self.fail_write or ("no space left on device" if self.full else "")
        if reason:
            if self.write_survives:
                self._unsynced.append(batch)
            self._end(reason)
        with self._lock:
            _apply(self._written, batch)
            self._unsynced.append(batch)

    def sync(self) -> None:
        """Make everything written so far survive a crash."""
        self._check_open()
        if self.fail_sync:
            self._end(self.fail_sync)
        with self._lock:
            for batch in self._unsynced:
                _apply(self._synced, batch)
            self._unsynced.clear()

    def get(self, family: Family, key: bytes) -> bytes | None:
        """Return the value of a key."""
        self._check_readable()
        return self._written[family].get(key)

    def scan(
        self, family: Family, first: bytes = b"", end: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in order, as they were when the scan began."""
        self._check_readable()
        table = self._written[family]
        keys = sorted(table)
        begin = bisect_left(keys, first)
        stop = len(keys) if end is None else bisect_left(keys, end)
        return iter([(key, table[key]) for key in keys[begin:stop]])

    def compact(self, family: Family, first: bytes, end: bytes) -> None:
        """Do nothing: dropped keys take no space."""
        del family, first, end
        self._check_readable()

    def reclaim(self) -> None:
        """Do nothing: deleted keys take no space."""
        self._check_open()

    def free_bytes(self) -> int:
        """Return how much room is left."""
        return 0 if self.full else FREE_BYTES

    def close(self) -> None:
        """End this opening; what is written stays, as in the page cache of a process that ended."""
        self._ended = "the store is closed"

    def reopen(self) -> "MemoryStore":
        """Open again after the process ended: everything written is there."""
        return self.crash(keep=self.unsynced)

    def crash(self, keep: int = 0) -> "MemoryStore":
        """Lose power and open again: what was synced is there, and the first `keep` of the later batches."""
        if not 0 <= keep <= self.unsynced:
            raise ValueError(f"keep {keep} is not in 0 to {self.unsynced}")
        for batch in self._unsynced[:keep]:
            _apply(self._synced, batch)
        self._unsynced.clear()
        self.close()
        return MemoryStore(self._synced)

    def damage(self, family: Family, key: bytes, value: bytes | None) -> None:
        """Replace a stored value behind the broker's back, or remove it."""
        for tables in (self._synced, self._written):
            _apply(tables, (((family, key, value),), ()))

    def _check_readable(self) -> None:
        if self._ended == "the store is closed":
            raise StoreError(self._ended)

    def _check_open(self) -> None:
        if self._ended:
            raise StoreError(self._ended)

    def _end(self, reason: str) -> None:
        self._ended = f"the store failed: {reason}"
        raise StoreError(self._ended)


def _copied(value: bytes | None) -> bytes | None:
    return None if value is None else bytes(value)
