"""What the memory store adds to the port: crashes and faults on demand."""

import pytest

from fila.errors import StoreError
from fila.storage.memory import MemoryStore
from fila.storage.store import Family

Q = Family.QUEUES


def write_and_sync(store):
    store.write([(Q, b"b", b"1")])
    store.sync()


def keys_of(store):
    return [key for key, _ in store.scan(Q)]


@pytest.mark.parametrize(("keep", "found"), [(0, [b"a"]), (1, [b"a", b"b"]), (2, [b"a", b"b", b"c"])])
def test_a_crash_keeps_a_prefix_of_what_was_not_synced(keep, found):
    """After a power loss everything synced is there, and then batches in their order up to some point."""
    store = MemoryStore()
    store.write([(Q, b"a", b"1")])
    store.sync()
    store.write([(Q, b"b", b"1")])
    store.write([(Q, b"c", b"1")])

    after = store.crash(keep=keep)

    assert keys_of(after) == found


def test_a_crash_takes_drops_back_too():
    """A drop that was not synced has not happened."""
    store = MemoryStore()
    store.write([(Q, b"a", b"1")])
    store.sync()
    store.write([], [(Q, b"a", b"b")])

    assert keys_of(store.crash()) == [b"a"]


@pytest.mark.parametrize("fault", ["fail_write", "fail_sync"])
def test_a_failed_store_takes_no_further_part_and_still_reads(fault):
    """After a failed write or sync nothing is written until the store was opened again."""
    store = MemoryStore()
    store.write([(Q, b"a", b"1")])
    store.sync()
    setattr(store, fault, "the disk is gone")

    with pytest.raises(StoreError, match="the disk is gone"):
        write_and_sync(store)
    setattr(store, fault, "")

    with pytest.raises(StoreError, match="the disk is gone"):
        store.write([(Q, b"c", b"1")])
    with pytest.raises(StoreError, match="the disk is gone"):
        store.sync()
    assert store.get(Q, b"a") == b"1"
    again = store.crash()
    again.write([(Q, b"d", b"1")])
    assert keys_of(again) == [b"a", b"d"]


def test_a_failed_write_may_survive():
    """Nothing of a failed batch may be relied on, its absence included."""
    store = MemoryStore()
    store.fail_write, store.write_survives = "late", True

    with pytest.raises(StoreError):
        store.write([(Q, b"a", b"1")])

    assert keys_of(store) == []
    assert keys_of(store.crash(keep=1)) == [b"a"]


def test_a_full_store_refuses_and_says_how_much_room_there_is():
    """Full means no write, and no room."""
    store = MemoryStore()
    store.full = True

    assert store.free_bytes() == 0
    with pytest.raises(StoreError, match="no space"):
        store.write([(Q, b"a", b"1")])
