"""What a RocksDB directory is known to hold: a mark left by every sync, and the check of the directory against it.

RocksDB cannot tell a record whose length is damaged from one that a power loss cut short: in its log and in its manifest it
drops such a record and, in the manifest, all that follow it, without a word. What was synced cannot have been cut short. So the
mark says how far log and manifest were durable, and an opening that finds less there is refused.

The mark itself is synced only when log or manifest change file: between that, an older mark is a weaker one, never a wrong one.
"""

import fcntl
import mmap
import os
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from fila.errors import StoreCorruptError, StoreError

MARK_FILE = "SYNCED"
LOG_DIRECTORY = "log"

_REMEDY = "restore the data directory from a backup, or start with an empty one"
_MARK = Struct("<5Q")
_CRC = Struct("<I")
# The format of RocksDB's log and manifest: blocks, in them fragments of a crc, a length and a type; none crosses a block.
_BLOCK_BYTES = 32 * 1024
_FRAGMENT = Struct("<IHB")
_WHOLE, _LAST = 1, 4


class Mark(NamedTuple):
    """How far a sync reached: the last change, and lengths of the log and the manifest in use then."""

    sequence: int
    log: int
    log_bytes: int
    manifest: int
    manifest_bytes: int


class MarkFile:
    """The mark on disk, and the files that it speaks of."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._logs = path / LOG_DIRECTORY
        self._file = os.open(path / MARK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        # The engine locks its directory too, but only when the files were already looked at.
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise in_use(path) from error
        self._written = Mark(0, 0, 0, 0, 0)

    def read(self) -> Mark | None:
        """Return the mark; None in a directory where no opening ever succeeded."""
        data = os.pread(self._file, _MARK.size + _CRC.size + 1, 0)
        if not data:
            return None
        if len(data) != _MARK.size + _CRC.size or data != _sealed(data[: _MARK.size]):
            raise StoreCorruptError(
                f"the file {self._path / MARK_FILE}, which says how far the store was synced, is damaged: "
                "restore the data directory from a backup, or remove the file to start without this check"
            )
        return Mark(*_MARK.unpack_from(data))

    def write(self, mark: Mark) -> None:
        """Replace the mark: only once everything that it claims is durable."""
        before, self._written = self._written, mark
        if mark.manifest != before.manifest or mark.manifest_bytes != before.manifest_bytes:
            _sync_file(self._manifest(mark.manifest))
        os.pwrite(self._file, _sealed(_MARK.pack(*mark)), 0)
        if mark.manifest != before.manifest or mark.log != before.log:
            # Whatever is in a log newer than the mark's was then never acknowledged.
            os.fsync(self._file)

    def newest_log(self) -> tuple[int, int]:
        """Return number and length of the log that is written now; no write may run meanwhile."""
        number = max(_log_numbers(self._logs), default=0)
        return number, _length(_log(self._logs, number))

    def manifest(self) -> tuple[int, int]:
        """Return the manifest's number and its length up to its last whole record."""
        number, known = self._written.manifest, self._written.manifest_bytes
        length = _length(self._manifest(number)) if number else 0
        if number and length == known:
            return number, known
        number = _current_manifest(self._path)
        start = known if number == self._written.manifest else 0
        return number, last_boundary(self._manifest(number), start)

    def close(self) -> None:
        """Give the file back."""
        os.close(self._file)

    def check(self, mark: Mark) -> None:
        """Refuse a directory whose log or manifest lacks what the mark says was durable.

        Logs behind a torn one hold only what was never synced, and would leave a gap: they are removed.
        """
        if not (self._path / "CURRENT").exists():
            raise StoreCorruptError(f"the store in {self._path} has lost its file CURRENT: {_REMEDY}")
        number = _current_manifest(self._path)
        manifest = self._manifest(number)
        if number < mark.manifest or (
            number == mark.manifest and not is_boundary(manifest, mark.manifest_bytes)
        ):
            raise self._damaged(manifest)
        last_boundary(manifest, 0)
        torn = False
        for number in sorted(_log_numbers(self._logs)):
            log = _log(self._logs, number)
            if torn:
                log.unlink()
                continue
            length = _length(log)
            due = length if number < mark.log else mark.log_bytes if number == mark.log else 0
            if not is_boundary(log, due):
                raise self._damaged(log)
            torn = last_boundary(log, due) != length

    def _damaged(self, path: Path) -> StoreCorruptError:
        return StoreCorruptError(
            f"the file {path} is damaged: a record that was synced is not whole: {_REMEDY}"
        )

    def _manifest(self, number: int) -> Path:
        return self._path / f"MANIFEST-{number:06d}"


def in_use(path: Path) -> StoreError:
    """Build the error for a second opening of a directory."""
    return StoreError(
        f"the data directory {path} is in use by another fila server: stop it, or name another directory"
    )


def is_boundary(path: Path, position: int) -> bool:
    """Tell whether a record of a log or manifest ends at a position."""
    return position == 0 or last_boundary(path, 0, position) == position


def last_boundary(path: Path, start: int, end: int | None = None) -> int:
    """Return where the last whole record ends, from a position where one ended; `end` cuts the file there.

    Raises StoreCorruptError for a fragment of a kind that is never written: some make the engine loop for ever.
    """
    length = _length(path)
    end = length if end is None else min(end, length)
    boundary = position = start
    if position >= end:
        return boundary
    with path.open("rb") as file, mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ) as data:
        while True:
            room = _BLOCK_BYTES - position % _BLOCK_BYTES
            if room < _FRAGMENT.size:
                position += room  # a block ends in zeros where no fragment fits
                continue
            if position + _FRAGMENT.size > end:
                return boundary
            _, size, kind = _FRAGMENT.unpack_from(data, position)
            if kind > _LAST:
                raise StoreCorruptError(
                    f"the file {path} is damaged: at byte {position:,} is no record: {_REMEDY}"
                )
            position += _FRAGMENT.size + size
            if position > end or _FRAGMENT.size + size > room or kind == 0:
                return boundary  # cut short, or zeros of a page that a power loss left unwritten
            if kind in {_WHOLE, _LAST}:
                boundary = position


def _sealed(data: bytes) -> bytes:
    return data + _CRC.pack(crc32(data))


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _log(directory: Path, number: int) -> Path:
    return directory / f"{number:06d}.log"


def _log_numbers(directory: Path) -> list[int]:
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in entries]
    except FileNotFoundError:
        return []
    return [int(name[:-4]) for name in names if name.endswith(".log") and name[:-4].isdigit()]


def _current_manifest(path: Path) -> int:
    text = (path / "CURRENT").read_bytes()
    number = text.removeprefix(b"MANIFEST-").removesuffix(b"\n")
    if not number.isdigit() or text != b"MANIFEST-%s\n" % number:
        raise StoreCorruptError(f"the file {path / 'CURRENT'} is damaged: {_REMEDY}")
    return int(number)


def _sync_file(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
