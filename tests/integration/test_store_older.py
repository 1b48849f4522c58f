"""A store that was written before there were gates opens, and takes gates from then on."""

from enum import StrEnum

import pytest
from rocksdict import Rdict

from fila.broker.commit import Committer
from fila.broker.recovery import recover
from fila.core import commands as c
from fila.core.model import GateKeys
from fila.errors import StoreCorruptError
from fila.storage import rocksdb
from fila.storage.rocksdb import RocksStore
from fila.storage.store import Family

NOW_NS = 1_790_000_060_000_000_000
ADDED = {Family.CONFIG, Family.GATES}

# What the broker wrote before, byte by byte: queue `orders` with four messages of `acme` and `bolt` in two index rows of version 1.
# Of those, 0 is acked, 1 has failed once, 2 is leased and 3 was never delivered.
RECORDS = [
    ("meta", b"format".hex(), "01f7df88a90100000000000000"),
    ("meta", b"incarnation".hex(), "01f7df88a90100000000000000"),
    ("meta", b"state".hex(), "015ccc596705000000000000000000f323845bd71802000000"),
    (
        "queues",
        "00000001",
        "01e9a36cad006c50c4a00100000000000000000000e8030000307500000306006472726f7264657273",
    ),
    (
        "messages",
        "000000010000000000000000",
        "01030013000000160000001a0000001f0000006f6e65666f75723566697665",
    ),
    ("messages", "000000010000000000000003", "0101000b0000000f0000006c617374"),
    (
        "index",
        "000000010000000000000000",
        (
            "01c20641a67903000200020000000000000003000000006c50c4a0010000000002000000010000000300000004000000050000000200000001000000"
            "020000000100000007000000010000000400040061636d65626f6c74000001000000"
        ),
    ),
    (
        "index",
        "000000010000000000000003",
        "01173502d96001000100030000000000000004000000006c50c4a001000003000100000001000000040061636d65",
    ),
    ("progress", "0000000100000000000000000000", "01ae0f57f101" + "00" * 127),
    (
        "leases",
        "0000000100000000010000000000",
        "01b4a055370100000000000000010000020000000000000000ac16208b5bd718",
    ),
    ("attempts", "0000000100000000000000000001", "01994c1ea8010000000000f323845bd718626f6f6d"),
]


def families_without(names):
    return StrEnum("Family", {family.name: family.value for family in Family if family not in names})


@pytest.fixture
def write_older(tmp_path, monkeypatch):
    """Writes a store that lacks families, and returns its path."""

    def write(names=ADDED):
        path = tmp_path / "data"
        with monkeypatch.context() as before:
            before.setattr(rocksdb, "Family", families_without(names))
            store = RocksStore(path)
            store.write(
                [(Family(family), bytes.fromhex(key), bytes.fromhex(value)) for family, key, value in RECORDS]
            )
            store.sync()
            store.close()
        assert set(Rdict.list_cf(str(path))) == {"default", *Family} - names
        return path

    return write


def lease_all(scheduler):
    """Lease all that waits, and return offset, body and attempts of each message."""
    outcome = scheduler.step(NOW_NS, [c.Attach(1, 1, "orders", 10, 1_000)])
    found = []
    for delivery in outcome.deliveries:
        for place, offset in enumerate(delivery.offsets):
            found.append((offset, delivery.keys[delivery.key_index[place]]))
    return sorted(found)


def stats(scheduler):
    ((_, found),) = scheduler.step(NOW_NS, [c.GetStats(1, "orders")]).replies
    return found


def test_a_store_from_before_gates_has_everything(write_older):
    """Queue, keys, progress, attempts and leases are as they were left; nobody has to do anything."""
    store = RocksStore(write_older())

    scheduler, recovered = recover(store, NOW_NS)

    assert (recovered.queues, recovered.rows, recovered.messages) == (1, 2, 3)
    assert (recovered.leases, recovered.attempts) == (1, 1)
    assert lease_all(scheduler) == [(1, "bolt"), (2, "acme"), (3, "acme")]
    store.close()


def test_a_store_from_before_gates_takes_gates(write_older):
    """Rows with gates lie beside those without, the configuration is kept, and both are there at the next opening."""
    path = write_older()
    store = RocksStore(path)
    scheduler, _ = recover(store, NOW_NS)
    outcome = scheduler.step(
        NOW_NS,
        [
            c.SetConfig(1, "concurrency.api", "1"),
            c.Enqueue(2, "orders", [1, 1], ["cure"], gates=[GateKeys((), ("api",))]),
        ],
    )
    Committer(store).write(outcome, {1: b"ab"})
    store.sync()
    store.close()

    store = RocksStore(path)
    scheduler, recovered = recover(store, NOW_NS)

    assert recovered.messages == 5
    assert lease_all(scheduler) == [(1, "bolt"), (2, "acme"), (3, "acme"), (4, "cure")]
    assert stats(scheduler).depth == 1
    store.close()


@pytest.mark.parametrize("left_out", [{Family.CONFIG}, {Family.GATES}])
def test_an_opening_that_was_killed_half_way_is_made_good(write_older, left_out):
    """The families are made one after another: a broker that died between them must start the next time."""
    store = RocksStore(write_older(left_out))

    assert recover(store, NOW_NS)[1].messages == 3
    store.close()


def test_another_family_that_is_lost_is_refused_in_an_older_store_too(write_older):
    """That two families may be absent excuses no third one: it would be an empty one."""
    path = write_older()
    database = Rdict(str(path), rocksdb._common_options(path, create=False))
    database.drop_column_family("leases")
    database.close()

    with pytest.raises(StoreCorruptError, match="Column family not found"):
        RocksStore(path)
