"""What every engine behind the Store port promises, for each of them."""

from collections.abc import Callable

import pytest

from fila.errors import StoreError
from fila.storage.memory import MemoryStore
from fila.storage.rocksdb import RocksStore
from fila.storage.store import Family, Store

Q, R, M = Family.QUEUES, Family.INDEX, Family.MESSAGES


class Engine:
    """Opens, closes and opens again the same data."""

    def __init__(self, open_first: Callable[[], Store], open_again: Callable[[Store], Store]) -> None:
        self._open_again = open_again
        self.store = open_first()

    def reopen(self) -> Store:
        self.store.close()
        self.store = self._open_again(self.store)
        return self.store


@pytest.fixture(params=["memory", "rocksdb", "rocksdb-os"])
def engine(request, tmp_path):
    if request.param == "memory":
        made = Engine(MemoryStore, lambda closed: closed.reopen())
    else:
        durability = "os" if request.param.endswith("os") else "fsync"

        def open_rocks() -> Store:
            return RocksStore(tmp_path / "data", durability=durability)

        made = Engine(open_rocks, lambda _: open_rocks())
    yield made
    made.store.close()


@pytest.fixture
def store(engine):
    return engine.store


def test_a_key_that_was_never_written_is_none(store):
    """What is not there is None, not an error."""
    assert store.get(Q, b"a") is None


def test_a_value_comes_back_as_it_was_written(store):
    """Values are bytes, empty and large ones and those with zeros included."""
    values = {b"a": b"", b"b": b"\x00" * 3, b"c": bytes(range(256)) * 5_000}

    store.write([(M, key, value) for key, value in values.items()])

    assert {key: store.get(M, key) for key in values} == values


def test_families_are_separate(store):
    """The same key in two families is two records."""
    store.write([(Q, b"k", b"1"), (R, b"k", b"2")])
    store.write([(Q, b"k", None)])

    assert store.get(Q, b"k") is None
    assert store.get(R, b"k") == b"2"


def test_changes_hold_in_their_order(store):
    """Of two changes of one key in a batch the later one counts."""
    store.write([(Q, b"a", b"1"), (Q, b"a", None), (Q, b"b", None), (Q, b"b", b"2")])

    assert list(store.scan(Q)) == [(b"b", b"2")]


def test_drops_come_before_the_changes_of_their_batch(store):
    """A range that is dropped keeps what the same batch puts there."""
    store.write([(Q, b"a", b"old"), (Q, b"b", b"old"), (Q, b"c", b"old")])

    store.write([(Q, b"b", b"new")], [(Q, b"a", b"c")])

    assert list(store.scan(Q)) == [(b"b", b"new"), (b"c", b"old")]


def test_a_drop_ends_before_its_end_and_in_its_family(store):
    """The first key of a drop goes, the second stays, and so do other families."""
    store.write([(family, key, b"v") for family in (Q, R) for key in (b"a", b"b", b"c", b"d")])

    store.write([], [(Q, b"b", b"d")])

    assert [key for key, _ in store.scan(Q)] == [b"a", b"d"]
    assert [key for key, _ in store.scan(R)] == [b"a", b"b", b"c", b"d"]


def test_a_scan_is_in_the_order_of_bytes(store):
    """Keys come by unsigned bytes, whatever order they were written in."""
    keys = [b"\x00", b"\x00\x00", b"\x7f", b"\x80", b"\xff", b"\xff\x00"]
    store.write([(R, key, b"v") for key in reversed(keys)])

    assert [key for key, _ in store.scan(R)] == keys


def test_a_scan_begins_at_its_first_and_ends_before_its_end(store):
    """The bounds of a scan need not be keys."""
    store.write([(R, b"%03d" % number, b"v") for number in range(10)])

    assert [key for key, _ in store.scan(R, b"003", b"006")] == [b"003", b"004", b"005"]
    assert [key for key, _ in store.scan(R, b"0075")] == [b"008", b"009"]
    assert list(store.scan(R, b"1")) == []
    assert list(store.scan(Q)) == []


def test_a_scan_sees_nothing_of_what_comes_later(store):
    """A scan is of one moment."""
    store.write([(R, b"a", b"1"), (R, b"c", b"1")])
    scan = store.scan(R)

    first = next(scan)
    store.write([(R, b"b", b"2"), (R, b"c", None)])

    assert [first, *scan] == [(b"a", b"1"), (b"c", b"1")]


def test_what_is_written_is_there_after_a_clean_close(engine):
    """Closing loses nothing, synced or not."""
    engine.store.write([(Q, b"a", b"1"), (Q, b"b", b"1")])
    engine.store.sync()
    engine.store.write([(Q, b"c", b"1")], [(Q, b"a", b"b")])

    again = engine.reopen()

    assert list(again.scan(Q)) == [(b"b", b"1"), (b"c", b"1")]


def test_a_store_opens_again_with_a_scan_unfinished(engine):
    """A reader that stopped in the middle does not keep the directory locked."""
    engine.store.write([(Q, b"a", b"1"), (Q, b"b", b"1")])
    scan = engine.store.scan(Q)
    next(scan)

    again = engine.reopen()

    assert list(again.scan(Q)) == [(b"a", b"1"), (b"b", b"1")]


def test_many_openings_lose_nothing(engine):
    """Each opening finds what all before it wrote."""
    for number in range(4):
        engine.store.write([(Q, b"%d" % number, b"v")])
        engine.store.sync()
        engine.reopen()

    assert [key for key, _ in engine.store.scan(Q)] == [b"0", b"1", b"2", b"3"]


def test_a_closed_store_refuses(engine):
    """After close every call is a StoreError, and closing again is nothing."""
    engine.store.close()
    engine.store.close()

    for call in (
        lambda: engine.store.get(Q, b"a"),
        lambda: engine.store.write([(Q, b"a", b"1")]),
        engine.store.sync,
        lambda: list(engine.store.scan(Q)),
        lambda: engine.store.compact(Q, b"a", b"b"),
    ):
        with pytest.raises(StoreError):
            call()


def test_compaction_changes_nothing_that_is_read(store):
    """Compaction gives back space, no more."""
    store.write([(M, b"%03d" % number, b"v" * 100) for number in range(100)])
    store.write([], [(M, b"000", b"050")])
    store.sync()

    store.compact(M, b"000", b"100")

    assert [key for key, _ in store.scan(M)] == [b"%03d" % number for number in range(50, 100)]


def test_free_bytes_is_room_on_the_disk(store):
    """There is room, in bytes."""
    assert store.free_bytes() > 1 << 20
