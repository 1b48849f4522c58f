"""The store in RocksDB: one column family each, a write-ahead log, and a mark of what was synced.

This is the only module that knows RocksDB. It works with bytes as they come and knows no record.

RocksDB cannot tell the last record of its log, damaged in its length, from a write that a power loss cut short: it drops it.
So each sync leaves, after it, the sequence number that it covered in the file `SYNCED`; an opening that finds less is refused.
"""

import os
import shutil
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from weakref import WeakSet
from zlib import crc32

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

_MARK_FILE = "SYNCED"
_MARK = Struct("<QI")
_REMEDY = "restore the data directory from a backup, or start with an empty one"


class RocksStore:
    """A directory that holds a store; `durability` is `fsync`, or `os` to leave syncing to the page cache."""

    def __init__(self, path: Path, *, durability: str = "fsync") -> None:
        self._path = path
        self._syncs = durability == "fsync"
        self._scans: WeakSet[Generator[tuple[bytes, bytes], None, None]] = WeakSet()
        _prepare_directory(path)
        self._database: Rdict | None = _open(path)
        self._families = {family: self._database.get_column_family(family) for family in Family}
        self._handles: dict[Family, ColumnFamily] = {
            family: self._database.get_column_family_handle(family) for family in Family
        }
        self._mark_file = -1
        self._synced = -1
        try:
            self._check_mark()
        except StoreError:
            self.close()
            raise

    def write(self, changes: Sequence[Change], drops: Sequence[tuple[Family, bytes, bytes]] = ()) -> None:
        """Apply the drops, then the changes; the batch is in the page cache when this returns."""
        handles = self._handles
        batch = WriteBatch(raw_mode=True)
        for family, first, end in drops:
            batch.delete_range(first, end, handles[family])
        for family, key, value in changes:
            if value is None:
                batch.delete(key, handles[family])
            else:
                batch.put(key, value, handles[family])
        try:
            self._opened().write(batch)
        except StoreError:
            raise
        except Exception as error:
            raise self._failed("write to", error) from error

    def sync(self) -> None:
        """Make everything written so far durable; other threads run meanwhile."""
        database = self._opened()
        if not self._syncs:
            return
        try:
            sequence = database.latest_sequence_number()
            if sequence == self._synced:
                return
            database.flush_wal(True)
            self._synced = sequence
            os.pwrite(self._mark_file, _mark(sequence), 0)
        except Exception as error:
            raise self._failed("sync", error) from error

    def get(self, family: Family, key: bytes) -> bytes | None:
        """Return the value of a key."""
        self._opened()
        try:
            value: bytes | None = self._families[family].get(key)
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
            raise self._failed(f"read the {family} records of", error) from error

    def compact(self, family: Family, first: bytes, end: bytes) -> None:
        """Rewrite the files of a range without what was dropped from them."""
        self._opened()
        try:
            self._families[family].compact_range(first, end)
        except Exception as error:
            raise self._failed("compact", error) from error

    def free_bytes(self) -> int:
        """Return how much room the file system has left for us."""
        return shutil.disk_usage(self._path).free

    def close(self) -> None:
        """Close the directory; unfinished scans end."""
        database, self._database = self._database, None
        if database is None:
            return
        # The lock on the directory lives as long as anything that refers to the database.
        for scan in list(self._scans):
            scan.close()
        families, self._families = self._families, {}
        self._handles = {}
        for opened in families.values():
            opened.close()
        families.clear()
        if self._mark_file >= 0:
            os.close(self._mark_file)
            self._mark_file = -1
        with suppress(Exception):  # a flush that failed before fails here again, and the log has everything
            database.close()

    def _opened(self) -> Rdict:
        if self._database is None:
            raise StoreError(f"the store in {self._path} is closed")
        return self._database

    def _failed(self, action: str, error: Exception) -> StoreError:
        return _translate(error, self._path, f"cannot {action} the store in {self._path}")

    def _check_mark(self) -> None:
        """Refuse a store that holds less than what was synced, and keep the mark open."""
        try:
            self._mark_file = os.open(self._path / _MARK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            data = os.pread(self._mark_file, _MARK.size + 1, 0)
        except OSError as error:
            raise self._failed("open", error) from error
        if not data:
            # A new store; or a power loss right after its making, before anything was acknowledged.
            return
        if len(data) != _MARK.size or data != _mark(_MARK.unpack(data)[0]):
            raise StoreCorruptError(
                f"the file {self._path / _MARK_FILE}, which says how far the store was synced, is damaged: "
                "restore the data directory from a backup, or remove the file to start without this check"
            )
        synced = _MARK.unpack(data)[0]
        found = self._opened().latest_sequence_number()
        if found < synced:
            raise StoreCorruptError(
                f"the log of the store in {self._path} ends at change {found:,} although {synced:,} were synced, "
                f"so its end is damaged: {_REMEDY}"
            )


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


def _open(path: Path) -> Rdict:
    cache = Cache(BLOCK_CACHE_BYTES)
    columns = {"default": _family_options(None, cache)}
    columns.update({family.value: _family_options(family, cache) for family in Family})
    try:
        return Rdict(str(path), _common_options(), columns)
    except Exception as error:
        raise _translate(error, path, f"cannot open the store in {path}") from error


def _translate(error: Exception, path: Path, action: str) -> StoreError:
    """Say what failed and what to do; the engine tells kinds apart by the text of its errors only."""
    text = str(error)
    if "lock hold by current process" in text or "While lock file" in text:
        return StoreError(
            f"the data directory {path} is in use by another fila server: stop it, or name another directory"
        )
    if text.startswith("Corruption") or "checksum" in text or "Column families not opened" in text:
        return StoreCorruptError(f"{action}: {text}: {_REMEDY}")
    if "No space left" in text:
        return StoreError(
            f"{action}: the disk is full: make room, or move the data directory to a larger disk"
        )
    return StoreError(
        f"{action}: {text}: check the disk and the rights of the data directory, then start again"
    )


def _common_options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
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


def _mark(sequence: int) -> bytes:
    data = sequence.to_bytes(8, "little")
    return data + crc32(data).to_bytes(4, "little")
