"""The store in RocksDB: one column family each, a write-ahead log, and a mark of what was synced.

This is the only module that knows RocksDB. It works with bytes as they come and knows no record.
"""

import os
import shutil
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from weakref import WeakSet

from rocksdict import (
    BlockBasedOptions,
    Cache,
    ChecksumType,
    ColumnFamily,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
)

from fila.errors import StoreCorruptError, StoreError
from fila.limits import KIB, MIB
from fila.storage.mark import LOG_DIRECTORY, Mark, MarkFile, in_use
from fila.storage.store import Change, Family

# The broker keeps the pages in use decoded; this serves index and filter blocks and short reads back.
BLOCK_CACHE_BYTES = 8 * MIB
BLOCK_BYTES = 16 * KIB
# Bodies come at up to 200 MB/s: three buffers take in what a slow flush leaves lying, the rest of the traffic is small.
MESSAGES_BUFFER_BYTES = 32 * MIB
MESSAGES_BUFFERS_MAX = 3
FAMILY_BUFFER_BYTES = 4 * MIB
FAMILY_BUFFERS_MAX = 4
# What an opening replays at most.
LOG_BYTES_MAX = 128 * MIB
# A stalled write would stop the loop: compaction may fall this far behind first.
LEVEL_ZERO_FILES_SLOW = 64
LEVEL_ZERO_FILES_STOP = 128
PENDING_COMPACTION_BYTES_MAX = 1 << 40
OPEN_FILES_MAX = 512
MANIFEST_BYTES_MAX = 4 * MIB
INFO_LOG_BYTES_MAX = 1 * MIB
INFO_LOGS_MAX = 2
# A finished queue leaves deletions; a file where they are this dense is compacted, so that no scan wades through them.
DELETIONS_WINDOW = 2_048
DELETIONS_TRIGGER = 1_024
# Deletions are small, and would wait long in memory for a buffer to fill, while the pages keep their place on disk: a queue
# that is only consumed would give nothing back.
DELETED_PAGES_MAX = 16_384
# When the disk is full, so many are worth a flush.
DELETED_PAGES_MIN = 256

_REMEDY = "restore the data directory from a backup, or start with an empty one"


class RocksStore:
    """A directory that holds a store; `durability` is `fsync`, or `os` to leave syncing to the page cache."""

    def __init__(self, path: Path, *, durability: str = "fsync") -> None:
        self._path = path
        self._syncs = durability == "fsync"
        # The broker keeps pages itself: in the engine's cache they would push out what scans and indexes need.
        self._reading = ReadOptions()
        self._reading.fill_cache(False)  # type: ignore[call-arg]  # its stub lacks the argument
        self._scans: WeakSet[Generator[tuple[bytes, bytes], None, None]] = WeakSet()
        self._database: Rdict | None = None
        self._families: dict[Family, Rdict] = {}
        self._handles: dict[Family, ColumnFamily] = {}
        # Held by each write, so that a sync sees the log between two batches; and by each sync, so that none outlives us.
        self._writing = Lock()
        self._syncing = Lock()
        self._synced = -1
        self._deleted_pages = 0
        self._compacting = 0
        self._closed = False
        self._failure = ""
        _prepare_directory(path)
        self._mark = MarkFile(path)
        try:
            self._open()
        except Exception as error:
            self.close()
            if isinstance(error, StoreError):
                raise
            raise self._failed("open", error) from error

    def _open(self) -> None:
        """Open what the mark vouches for, and mark what was found."""
        mark = self._mark.read()
        if mark is not None:
            self._mark.check(mark)
        self._database = database = _open_database(self._path, create=mark is None)
        self._families = {family: database.get_column_family(family) for family in Family}
        self._handles = {family: database.get_column_family_handle(family) for family in Family}
        found = database.latest_sequence_number()
        if mark is not None and found < mark.sequence:
            raise StoreCorruptError(
                f"the log of the store in {self._path} ends at change {found:,} although {mark.sequence:,} were synced, "
                f"so its end is damaged: {_REMEDY}"
            )
        # What an opening replays it also writes to tables, durably: so this holds whatever `durability` is.
        self._mark.write(Mark(found, *self._mark.newest_log(), *self._mark.manifest()))

    def write(self, changes: Sequence[Change], drops: Sequence[tuple[Family, bytes, bytes]] = ()) -> None:
        """Apply the drops, then the changes; the batch is in the page cache when this returns."""
        database = self._intact()
        handles = self._handles
        batch = WriteBatch(raw_mode=True)
        for family, first, end in drops:
            batch.delete_range(first, end, handles[family])
        for family, key, value in changes:
            if value is None:
                batch.delete(key, handles[family])
                self._deleted_pages += family is Family.MESSAGES
            else:
                batch.put(key, value, handles[family])
        try:
            with self._writing:
                database.write(batch)
        except Exception as error:
            raise self._break("write to", error) from error
        if self._deleted_pages >= DELETED_PAGES_MAX:
            self._flush_deletions()

    def sync(self) -> None:
        """Make everything written so far durable; other threads run meanwhile."""
        with self._syncing:
            database = self._intact()
            if not self._syncs:
                return
            try:
                with self._writing:
                    sequence = database.latest_sequence_number()
                    log = self._mark.newest_log()
                if sequence == self._synced:
                    return
                database.flush_wal(True)
                self._mark.write(Mark(sequence, *log, *self._mark.manifest()))
                self._synced = sequence
            except Exception as error:
                raise self._break("sync", error) from error

    def get(self, family: Family, key: bytes) -> bytes | None:
        """Return the value of a key."""
        self._opened()
        try:
            value: bytes | None = self._families[family].get(key, None, self._reading)
        except Exception as error:
            raise self._failed(f"read {family} record {key.hex()} from", error) from error
        return value

    def scan(
        self, family: Family, first: bytes = b"", end: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in order; damage ends the scan with StoreCorruptError, never early."""
        self._opened()
        scan = self._records(family, first, end)
        self._scans.add(scan)
        return scan

    def _records(
        self, family: Family, first: bytes, end: bytes | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        options = ReadOptions()
        if end is not None:
            options.set_iterate_upper_bound(end)
        records = self._families[family].iter(options)
        key, value, advance, valid = records.key, records.value, records.next, records.valid
        records.seek(first)
        while valid():
            yield key(), value()
            advance()
        try:
            # The engine's iterators stop at a damaged block as they do at the end, and say so only here.
            records.status()
        except Exception as error:
            failed = self._failed(f"read the {family} records of", error)
            # The error's traceback keeps this frame, and the iterator would keep the directory locked.
            del records, key, value, advance, valid
            raise failed from error

    def compact(self, family: Family, first: bytes, end: bytes) -> None:
        """Rewrite the files of a range without what was dropped from them."""
        self._opened()
        self._compacting += 1
        try:
            self._families[family].compact_range(first, end)
        except Exception as error:
            raise self._failed("compact", error) from error
        finally:
            self._compacting -= 1

    def reclaim(self) -> None:
        """Have the files rewritten that hold many deleted pages; the engine does so in its own threads."""
        if self._deleted_pages >= DELETED_PAGES_MIN:
            self._flush_deletions()

    def _flush_deletions(self) -> None:
        self._deleted_pages = 0
        try:
            self._families[Family.MESSAGES].flush(wait=False)
        except Exception as error:
            raise self._break("flush", error) from error

    def free_bytes(self) -> int:
        """Return how much room the file system has left for us."""
        try:
            return shutil.disk_usage(self._path).free
        except OSError as error:
            raise self._failed("see the free room of", error) from error

    def close(self) -> None:
        """Close the directory; a sync under way is waited for, unfinished scans end."""
        with self._syncing:
            if self._closed:
                return
            self._closed = True
            database, self._database = self._database, None
            if database is not None and self._compacting:
                # It may take minutes, and would hold the directory for so long.
                database.cancel_all_background(wait=False)
            # The lock on the directory lives as long as anything that refers to the database.
            for scan in list(self._scans):
                scan.close()
            self._handles.clear()
            parts = [*self._families.values(), *([database] if database is not None else [])]
            self._families.clear()
            for part in parts:
                with suppress(Exception):  # what a flush fails to write here, the log has
                    part.close()
            self._mark.close()

    def _opened(self) -> Rdict:
        if self._database is None:
            raise StoreError(f"the store in {self._path} is closed")
        return self._database

    def _intact(self) -> Rdict:
        database = self._opened()
        if self._failure:
            raise StoreError(self._failure)
        return database

    def _break(self, action: str, error: Exception) -> StoreError:
        """Take no further part: what the engine holds and what is on disk may differ."""
        failed = self._failed(action, error)
        self._failure = failed.message
        return failed

    def _failed(self, action: str, error: Exception) -> StoreError:
        return _translate(error, self._path, f"cannot {action} the store in {self._path}")


def _prepare_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot make the data directory {path} ({error.strerror}): name another one, or make it yourself"
        ) from error
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise StoreError(
            f"cannot write to the data directory {path}: give this user the right to, or name another one"
        )


# Families that stores from before them lack.
_ADDED = {Family.CONFIG.value, Family.GATES.value}


def _open_database(path: Path, *, create: bool) -> Rdict:
    cache = Cache(BLOCK_CACHE_BYTES)
    columns = {"default": _family_options(None, cache)}
    columns.update({family.value: _family_options(family, cache) for family in Family})
    try:
        options = _common_options(path, create=create)
        missing = set() if create else {family.value for family in Family} - set(Rdict.list_cf(str(path)))
        if missing and missing <= _ADDED:
            options.create_missing_column_families(True)
        return Rdict(str(path), options, columns)
    except Exception as error:
        raise _translate(error, path, f"cannot open the store in {path}") from error


def _translate(error: Exception, path: Path, action: str) -> StoreError:
    """Say what failed and what to do; the engine tells kinds apart by the text of its errors only."""
    text = str(error)
    if "lock hold by current process" in text or "While lock file" in text:
        return in_use(path)
    if text.startswith("Corruption") or "checksum" in text or "Column famil" in text:
        return StoreCorruptError(f"{action}: {text}: {_REMEDY}")
    if "No space left" in text:
        return StoreError(
            f"{action}: the disk is full: make room, or move the data directory to a larger disk"
        )
    return StoreError(
        f"{action}: {text}: check the disk and the rights of the data directory, then start again"
    )


def _common_options(path: Path, *, create: bool) -> Options:
    options = Options(raw_mode=True)
    # A store that lost its files or families must not pass for a new one.
    options.create_if_missing(create)
    options.create_missing_column_families(create)
    options.set_wal_dir(str(path / LOG_DIRECTORY))
    # The default drops everything after a flipped byte without a word; this refuses, and still opens after a torn tail.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_paranoid_checks(True)
    options.set_max_background_jobs(2)
    options.set_max_total_wal_size(LOG_BYTES_MAX)
    options.set_max_open_files(OPEN_FILES_MAX)
    options.set_max_manifest_file_size(MANIFEST_BYTES_MAX)
    options.set_keep_log_file_num(INFO_LOGS_MAX)
    options.set_max_log_file_size(INFO_LOG_BYTES_MAX)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def _family_options(family: Family | None, cache: Cache) -> Options:
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_block_size(BLOCK_BYTES)
    table.set_format_version(5)
    table.set_checksum_type(ChecksumType.xxh3())
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    bodies = family is Family.MESSAGES
    options.set_write_buffer_size(MESSAGES_BUFFER_BYTES if bodies else FAMILY_BUFFER_BYTES)
    options.set_max_write_buffer_number(MESSAGES_BUFFERS_MAX if bodies else FAMILY_BUFFERS_MAX)
    # Bodies are the sender's to compress.
    options.set_compression_type(DBCompressionType.none() if bodies else DBCompressionType.lz4())
    options.set_level_zero_slowdown_writes_trigger(LEVEL_ZERO_FILES_SLOW)
    options.set_level_zero_stop_writes_trigger(LEVEL_ZERO_FILES_STOP)
    options.set_soft_pending_compaction_bytes_limit(PENDING_COMPACTION_BYTES_MAX)
    options.set_hard_pending_compaction_bytes_limit(PENDING_COMPACTION_BYTES_MAX)
    options.add_compact_on_deletion_collector_factory(DELETIONS_WINDOW, DELETIONS_TRIGGER, 0.5)
    return options
