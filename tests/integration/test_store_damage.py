"""A damaged RocksDB directory is refused by name or has every synced record: nothing is lost without a word.

Each case takes the directory as a killed process leaves it, changes something on disk, and opens it again.
"""

import os
import resource
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import pytest

from fila.errors import StoreCorruptError, StoreError
from fila.storage import rocksdb
from fila.storage.mark import LOG_DIRECTORY, MARK_FILE, MarkFile, last_boundary
from fila.storage.rocksdb import RocksStore
from fila.storage.store import Family

R, META = Family.INDEX, Family.META
SYNCED = 4
CHATTER = ("LOG", "LOG.old.*", "OPTIONS-*", "IDENTITY", "LOCK")
FLIPS = [0xFF, 0x01, 0x04]  # all bits; one; the one that turns a record's kind into one that RocksDB loops on


def put(store, number, state_bytes=20):
    """Write a record as a commit does: something new, and where the broker stands."""
    store.write(
        [(R, b"%04d" % number, b"value %d " % number * 3), (META, b"state", b"%d" % number * state_bytes)]
    )


def found(path):
    """Return the numbers of the records that an opening finds, checked to be whole."""
    store = RocksStore(path)
    try:
        records = dict(store.scan(R))
        state = store.get(META, b"state")
    finally:
        store.close()
    numbers = [int(key) for key in records]
    for number in numbers:
        assert records[b"%04d" % number] == b"value %d " % number * 3
    if numbers:
        assert state is not None
        assert set(state) == set(b"%d" % numbers[-1])
    return numbers


def wait_until(condition):
    """Poll for what another thread does; a machine that hangs ends the test."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end


@pytest.fixture(scope="module")
def memory_path(tmp_path_factory):
    """A directory in memory where the system has one: thousands of openings, and none depends on a disk."""
    memory = Path("/dev/shm")  # noqa: S108 - names within it are made up by tempfile
    if not os.access(memory, os.W_OK):
        yield tmp_path_factory.mktemp("store")
        return
    with TemporaryDirectory(dir=memory, prefix="fila-test-") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def killed(memory_path):
    """A store with records 0 and 1 in tables, 2 and 3 synced in the log, 4 and 5 written after the last sync."""
    base = memory_path
    store = RocksStore(base / "data")
    for number in range(SYNCED + 2):
        put(store, number)
        if number < SYNCED:
            store.sync()
        if number == 1:
            store.close()
            store = RocksStore(base / "data")
    shutil.copytree(base / "data", base / "killed")
    store.close()
    return base / "killed"


@pytest.fixture
def copy_of(memory_path):
    """Copies a directory, without the engine's own chatter and what it writes down for others."""

    def make(source):
        target = Path(mkdtemp(dir=memory_path)) / "data"
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(*CHATTER))
        return target

    return make


def files_of(path):
    """Return every file that matters, with what changes when it does."""
    stats = {file.relative_to(path): file.stat() for file in path.rglob("*") if file.is_file()}
    return {
        name: (stat.st_size, stat.st_mtime_ns)
        for name, stat in stats.items()
        if not any(name.match(pattern) for pattern in CHATTER)
    }


def restore(path, source, before):
    """Undo what an opening did."""
    after = files_of(path)
    for name in after.keys() - before.keys():
        (path / name).unlink()
    for name, stamp in before.items():
        if after.get(name) != stamp:
            shutil.copy2(source / name, path / name)


def log_of(path):
    (log,) = (path / LOG_DIRECTORY).glob("*.log")
    return log


def manifest_of(path):
    return path / (path / "CURRENT").read_text().strip()


def flips_of(path):
    """Return a change for every byte of a log or manifest of small records, and every change for those of a record's head."""
    data = path.read_bytes()
    flips = [(position, FLIPS[position % len(FLIPS)]) for position in range(len(data))]
    head = 0
    while head < len(data):
        flips += [(position, pattern) for position in range(head, head + 7) for pattern in FLIPS]
        head += 7 + int.from_bytes(data[head + 4 : head + 6], "little")
    assert head == len(data)
    return flips


def flip(source, copy_of, name, flips):
    """Open the store with each of these bytes changed; return how many openings were refused, and how many whole."""
    original = (source / name).read_bytes()
    refused = whole = 0
    path = copy_of(source)
    before = files_of(path)
    for position, pattern in flips:
        damaged = bytearray(original)
        damaged[position] ^= pattern
        (path / name).write_bytes(damaged)
        try:
            numbers = found(path)
        except StoreCorruptError as error:
            refused += "restore the data directory from a backup" in error.message
        else:
            assert numbers[:SYNCED] == list(range(SYNCED)), f"byte {position} of {name}: only {numbers} left"
            assert numbers == list(range(len(numbers))), f"byte {position} of {name}: a gap in {numbers}"
            whole += 1
        restore(path, source, before)
    return refused, whole


def test_every_flipped_byte_of_the_log_is_refused_or_harmless(killed, copy_of):
    """Every byte of what was synced is guarded; in what follows it only what was never synced may be missing."""
    log = log_of(killed)
    flips = flips_of(log)
    assert found(copy_of(killed)) == list(range(SYNCED + 2))

    refused, whole = flip(killed, copy_of, log.relative_to(killed), flips)

    assert refused + whole == len(flips)
    assert refused > whole * 10


def test_every_flipped_byte_of_the_manifest_is_refused(killed, copy_of):
    """RocksDB drops what follows a damaged length in its manifest, families and tables included: the mark guards it."""
    manifest = manifest_of(killed)
    flips = flips_of(manifest)

    refused, whole = flip(killed, copy_of, manifest.name, flips)

    assert (refused, whole) == (len(flips), 0)


def test_flipped_bytes_of_tables_are_refused_or_harmless(killed, copy_of):
    """A table is checked block by block: what an opening does not meet, a read does."""
    tables = sorted(killed.glob("*.sst"))
    assert tables
    refused = 0
    for table in tables:
        refused += flip(
            killed, copy_of, table.name, [(position, 0xFF) for position in range(0, table.stat().st_size, 13)]
        )[0]

    assert refused > 50


@pytest.mark.parametrize("name", ["CURRENT", MARK_FILE])
def test_every_flipped_byte_of_the_small_files_is_refused(killed, copy_of, name):
    """The pointer to the manifest and the mark itself are guarded too."""
    size = (killed / name).stat().st_size

    refused, whole = flip(killed, copy_of, name, [(position, 0xFF) for position in range(size)])

    assert (refused, whole) == (size, 0)


def test_a_torn_tail_opens_with_everything_synced(killed, copy_of):
    """Wherever a power loss cuts what was not synced, the rest opens and is a prefix."""
    log = log_of(killed)
    size = log.stat().st_size
    seen = set()
    for length in range(last_boundary(log, 0, size), 0, -1):
        path = copy_of(killed)
        with log_of(path).open("r+b") as file:
            file.truncate(length)
        try:
            numbers = found(path)
        except StoreCorruptError:
            break
        assert numbers == list(range(len(numbers)))
        seen.add(len(numbers))

    assert seen == {SYNCED, SYNCED + 1, SYNCED + 2}


def test_a_log_cut_into_what_was_synced_is_refused(killed, copy_of):
    """A power loss cannot take what was synced: this is damage."""
    path = copy_of(killed)
    log = log_of(path)
    synced_at = [end for end in range(log.stat().st_size) if last_boundary(log, 0, end) == end][2]
    with log.open("r+b") as file:
        file.truncate(synced_at - 1)

    with pytest.raises(StoreCorruptError, match=r"\.log is damaged"):
        found(path)


@pytest.mark.parametrize("tail", [b"\x00", b"\x00" * 100, b"\x00" * 5_000, b"\x00" * 5_000 + b"\xee" * 500])
def test_zeros_after_a_torn_tail_open(killed, copy_of, tail):
    """A file system may give back pages that were never written as zeros, before others that were."""
    path = copy_of(killed)
    with log_of(path).open("ab") as file:
        file.write(tail)

    assert found(path) == list(range(SYNCED + 2))


@pytest.mark.parametrize("victim", ["log", "manifest", "CURRENT", "table"])
def test_a_lost_file_is_refused(killed, copy_of, victim):
    """A store that lost a file does not pass for a smaller or a new one."""
    path = copy_of(killed)
    files = {
        "log": log_of(path),
        "manifest": manifest_of(path),
        "CURRENT": path / "CURRENT",
        "table": min(path.glob("*.sst")),
    }
    files[victim].unlink()

    with pytest.raises(StoreCorruptError, match="restore the data directory from a backup"):
        found(path)


def test_a_refused_store_stays_refused(killed, copy_of):
    """A failed opening does not tidy the evidence away so that the next one succeeds with less."""
    path = copy_of(killed)
    log_of(path).unlink()

    for _ in range(3):
        with pytest.raises(StoreCorruptError):
            found(path)


def test_without_the_mark_a_store_opens_with_what_is_left(killed, copy_of):
    """The remedy that the message names works: the mark can be taken away by hand."""
    path = copy_of(killed)
    log_of(path).unlink()
    (path / MARK_FILE).unlink()

    assert found(path) == [0, 1]


@pytest.fixture
def two_logs(tmp_path, monkeypatch):
    """Makes a store whose small buffer overflowed, so that two logs are in use: the newer one begins with record 2."""
    monkeypatch.setattr(rocksdb, "FAMILY_BUFFER_BYTES", 64 * 1024)

    def make(*, synced):
        store = RocksStore(tmp_path / "data")
        put(store, 0)
        store.sync()
        shutil.copytree(tmp_path / "data", tmp_path / "before")
        put(store, 1, state_bytes=90_000)
        for number in (2, 3):
            put(store, number)
            if synced:
                store.sync()
        logs = tmp_path / "data" / LOG_DIRECTORY
        wait_until(lambda: len(list(logs.glob("*.log"))) == 2)
        wait_until(lambda: list((tmp_path / "data").glob("*.sst")))
        if synced:
            manifest = manifest_of(tmp_path / "data")
            wait_until(lambda: manifest.stat().st_size > manifest_of(tmp_path / "before").stat().st_size)
            shutil.copytree(tmp_path / "data", tmp_path / "killed")
        else:
            # A power loss before the full buffer became a table: both logs, and the manifest as it was before.
            shutil.copytree(tmp_path / "before", tmp_path / "killed")
            shutil.copytree(logs, tmp_path / "killed" / LOG_DIRECTORY, dirs_exist_ok=True)
        store.close()
        return tmp_path / "killed"

    return make


def test_a_damaged_end_of_an_older_log_is_refused(two_logs, copy_of):
    """RocksDB takes the end of each log for a torn tail; the mark knows that only the newest can have one."""
    source = two_logs(synced=True)
    log = min((source / LOG_DIRECTORY).glob("*.log"))
    last_fragment = 65_536  # of the large record, which begins in the first block

    refused, whole = flip(
        source, copy_of, log.relative_to(source), [(last_fragment + byte, 0xFF) for byte in range(12)]
    )

    assert (refused, whole) == (12, 0)


def test_a_refusal_removes_no_log(two_logs, copy_of):
    """What is refused is left as it was found, for whoever can mend it."""
    path = copy_of(two_logs(synced=True))
    logs = sorted((path / LOG_DIRECTORY).glob("*.log"))
    with logs[0].open("r+b") as file:
        file.truncate(logs[0].stat().st_size - 1)

    with pytest.raises(StoreCorruptError, match="a record that was synced is not whole"):
        found(path)

    assert sorted((path / LOG_DIRECTORY).glob("*.log")) == logs


def test_a_torn_older_log_that_was_not_synced_takes_the_newer_one_with_it(two_logs, copy_of):
    """What is left after a power loss is a prefix: never a batch without the one before it."""
    source = two_logs(synced=False)
    untorn = copy_of(source)
    torn = copy_of(source)
    log = min((torn / LOG_DIRECTORY).glob("*.log"))
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 10)

    assert found(untorn) == [0, 1, 2, 3]
    assert found(torn) == [0]


def test_a_directory_in_use_is_refused_and_left_alone(tmp_path):
    """A second server says so in one sentence, and does not touch what the first one writes."""
    store = RocksStore(tmp_path / "data")
    put(store, 0)

    with pytest.raises(StoreError, match="in use by another fila server: stop it, or name another directory"):
        RocksStore(tmp_path / "data")

    put(store, 1)
    store.sync()
    store.close()
    assert found(tmp_path / "data") == [0, 1]


def test_the_files_of_a_directory_in_use_are_not_looked_at(tmp_path, monkeypatch):
    """What another server is writing looks torn; the check, which removes logs, comes after the lock."""
    store = RocksStore(tmp_path / "data")
    monkeypatch.setattr(MarkFile, "check", lambda *_: pytest.fail("the check ran"))

    with pytest.raises(StoreError, match="in use"):
        RocksStore(tmp_path / "data")

    store.close()


def test_a_store_that_lacks_a_family_is_refused(tmp_path):
    """An absent family is not made anew: it would be an empty one."""
    store = RocksStore(tmp_path / "data")
    put(store, 0)
    store.sync()
    store._opened().drop_column_family("leases")
    store.close()

    with pytest.raises(StoreCorruptError, match="leases"):
        found(tmp_path / "data")


def test_a_failed_write_ends_the_store_until_it_is_opened_again(tmp_path):
    """After an error of the disk reads go on, nothing is written, and an opening finds a prefix with all that was synced."""
    store = RocksStore(tmp_path / "data")
    for number in range(3):
        put(store, number)
        store.sync()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log_of(tmp_path / "data").stat().st_size + 50, hard))
    try:
        with pytest.raises(StoreError, match="cannot write to the store"):
            put(store, 3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    with pytest.raises(StoreError, match="cannot write to the store"):
        put(store, 4)
    with pytest.raises(StoreError, match="cannot write to the store"):
        store.sync()
    assert len(list(store.scan(R))) >= 3
    store.close()
    again = found(tmp_path / "data")
    assert again[:3] == [0, 1, 2]
    assert len(again) <= 4


def test_a_path_that_is_no_directory_is_refused(tmp_path: Path):
    """The message names the path and what to do."""
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match=r"data directory .*file .*name another one"):
        RocksStore(tmp_path / "file")


def test_a_failed_store_gives_its_directory_back(tmp_path):
    """Whoever keeps the error of a damaged scan does not keep the directory locked."""
    store = RocksStore(tmp_path / "data")
    store.write([(R, b"%04d" % number, b"v" * 100) for number in range(1_000)])
    store.compact(R, b"", b"\xff")
    (table,) = (tmp_path / "data").glob("*.sst")
    data = bytearray(table.read_bytes())
    data[100] ^= 0xFF
    table.write_bytes(data)
    store.close()
    store = RocksStore(tmp_path / "data")

    with pytest.raises(StoreCorruptError, match="index records") as kept:
        list(store.scan(R))
    store.close()

    RocksStore(tmp_path / "data").close()
    assert "restore the data directory" in kept.value.message


def test_free_room_that_cannot_be_seen_is_said_and_breaks_nothing(tmp_path, monkeypatch):
    """An error of the system is one of the port, and the store takes part all the same."""
    store = RocksStore(tmp_path / "data")

    def fail(_path):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(shutil, "disk_usage", fail)
    with pytest.raises(StoreError, match=r"free room .* Input/output error: check the disk"):
        store.free_bytes()

    put(store, 0)
    store.sync()
    store.close()
    assert found(tmp_path / "data") == [0]
