"""How the writes of a step become one batch, and that recovery hands back what commit wrote."""

import pytest

from fila.broker.commit import NOTHING, Committer
from fila.core.model import Discipline, QueueSpec
from fila.core.outcome import (
    DeleteAttempt,
    DeleteLease,
    DeletePage,
    DeleteProgress,
    DeleteRow,
    DropQueue,
    DropRange,
    Outcome,
    PutAttempt,
    PutLease,
    PutPage,
    PutProgress,
    PutQueue,
    PutRow,
)
from fila.storage import keys, records
from fila.storage.memory import MemoryStore
from fila.storage.store import Family

SPEC = QueueSpec("orders", Discipline.FIFO, quantum=5, visibility_timeout_ms=2_000)


@pytest.fixture
def store():
    return MemoryStore()


def commit(store, *writes, bodies=None, step=1):
    return Committer(store).write(Outcome(step=step, now_ns=step * 10, writes=list(writes)), bodies or {})


def row(queue, first, length=1):
    return PutRow(
        queue, first, length, 3, ["k"], [0] * length, [5] * length, [9] * length, [0] * length, None, None
    )


def offsets(store, family):
    return [keys.split_offset_key(key) for key, _ in store.scan(family)]


def numbers(store, family):
    return [keys.split_group_key(key) for key, _ in store.scan(family)]


def test_a_step_that_decided_nothing_writes_nothing(store):
    """No write, no batch: an idle broker does not wear the disk."""
    assert commit(store) is NOTHING
    assert store.unsynced == 0


def test_a_step_is_one_batch(store):
    """Whatever a step touches, a crash leaves all of it or nothing."""
    commit(store, PutQueue(1, SPEC, 7, 0), row(1, 0), DropRange(2, 0, 1_024), PutLease(1, 9, 1, [0], [5]))

    assert store.unsynced == 1


def test_every_commit_says_where_the_broker_stands(store):
    """Step, time and the next queue number are stored with what the step did."""
    committer = Committer(store, next_queue=4)

    committer.write(Outcome(step=8, now_ns=80, writes=[PutProgress(1, 0, 1)]), {})
    before = records.decode_state(keys.STATE, store.get(Family.META, keys.STATE))
    committer.write(Outcome(step=9, now_ns=90, writes=[PutQueue(4, SPEC, 7, 0), DropQueue(4)]), {})
    after = records.decode_state(keys.STATE, store.get(Family.META, keys.STATE))

    assert before == (8, 80, 4)
    assert after == (9, 90, 5)


def test_each_write_finds_its_place_and_its_end(store):
    """Each kind is put under its key, in its form, and its deletion takes just that."""
    commit(
        store,
        PutQueue(1, SPEC, 7, 3),
        row(1, 2),
        PutPage(1, 2, 0, 5, [5]),
        PutProgress(1, 0, 0b101),
        PutLease(1, 77, 6, [2, 9], [50]),
        PutAttempt(1, 2, 3, 40, "boom"),
        bodies={1: b"hello"},
    )

    key, group_key = keys.offset_key(1, 2), keys.group_key(1, 2)
    queue = records.decode_queue(b"", store.get(Family.QUEUES, keys.queue_key(1)))
    assert queue == ("orders", "fifo", 5, 2_000, 7, 3)
    assert PutRow(1, 2, *records.decode_row(key, store.get(Family.INDEX, key))) == row(1, 2)
    assert store.get(Family.MESSAGES, key).endswith(b"hello")
    assert records.decode_progress(b"", store.get(Family.PROGRESS, keys.group_key(1, 0))) == 0b101
    assert records.decode_lease(b"", store.get(Family.LEASES, keys.group_key(1, 77))) == (6, [2, 9], [50])
    assert records.decode_attempt(b"", store.get(Family.ATTEMPTS, group_key)) == (3, 40, "boom")

    commit(
        store,
        DeleteRow(1, 2),
        DeletePage(1, 2),
        DeleteProgress(1, 0),
        DeleteLease(1, 77),
        DeleteAttempt(1, 2),
    )

    left = [family for family in Family if family is not Family.META and list(store.scan(family))]
    assert left == [Family.QUEUES]


@pytest.mark.parametrize(
    ("writes", "found"),
    [
        ([row(1, 0), DeleteRow(1, 0)], []),
        ([DeleteRow(1, 0), row(1, 0)], [(1, 0)]),
        ([row(1, 0), DropRange(1, 0, 1_024)], []),
        ([DropRange(1, 0, 1_024), row(1, 0)], [(1, 0)]),
        ([row(1, 0), DropRange(1, 0, 1_024), row(1, 5)], [(1, 5)]),
        ([row(1, 0), row(1, 1_024), DropRange(1, 0, 1_024)], [(1, 1_024)]),
        ([row(1, 0), row(2, 0), DropRange(1, 0, 1_024)], [(2, 0)]),
        ([row(1, 0), row(2, 0), DropQueue(1)], [(2, 0)]),
        ([row(1, 0), DropQueue(1), row(2, 0), DropQueue(3)], [(2, 0)]),
        ([row(1, 0), DropRange(1, 0, 1_024), row(1, 0), DropRange(1, 0, 1_024), row(1, 7)], [(1, 7)]),
        ([DropQueue(1), row(1, 0), DropQueue(1)], []),
    ],
)
@pytest.mark.parametrize("stored_before", [False, True])
def test_writes_hold_in_their_order(store, writes, found, stored_before):
    """A drop takes what the same step put there before it, and nothing that it puts there later."""
    if stored_before:
        commit(store, row(1, 0), row(1, 3))
    # What was stored stays where nothing dropped it.
    dropped = any(isinstance(write, DropRange | DropQueue) for write in writes)
    kept = {(1, 3)} if stored_before and not dropped else set()

    commit(store, *writes)

    assert offsets(store, Family.INDEX) == sorted(kept | set(found))


def test_a_dropped_range_takes_all_that_belongs_to_its_offsets(store):
    """Rows, pages, progress and attempts of the range go; leases, the queue and its neighbours stay."""
    for queue in (1, 2):
        commit(
            store,
            PutQueue(queue, SPEC, 7, 0),
            *[row(queue, first) for first in (0, 1_023, 1_024)],
            *[PutPage(queue, first, 0, 1, [1]) for first in (0, 1_024)],
            *[PutProgress(queue, first, 1) for first in (0, 1_024)],
            *[PutAttempt(queue, offset, 1, 1, "") for offset in (3, 1_023, 1_024)],
            PutLease(queue, 3, 1, [0], [1]),
            bodies={queue: b"x"},
        )

    commit(store, DropRange(1, 0, 1_024))

    second = [(2, 0), (2, 1_023), (2, 1_024)]
    assert offsets(store, Family.INDEX) == [(1, 1_024), *second]
    assert offsets(store, Family.MESSAGES) == [(1, 1_024), (2, 0), (2, 1_024)]
    assert numbers(store, Family.PROGRESS) == [(1, 0, 1_024), (2, 0, 0), (2, 0, 1_024)]
    assert numbers(store, Family.ATTEMPTS) == [(1, 0, 1_024), (2, 0, 3), (2, 0, 1_023), (2, 0, 1_024)]
    assert numbers(store, Family.LEASES) == [(1, 0, 3), (2, 0, 3)]
    assert len(list(store.scan(Family.QUEUES))) == 2


def test_a_dropped_queue_leaves_nothing(store):
    """Every family forgets the queue, and no other queue."""
    for queue in (1, 2):
        commit(
            store,
            PutQueue(queue, SPEC, 7, 0),
            row(queue, 0),
            PutPage(queue, 0, 0, 1, [1]),
            PutProgress(queue, 0, 1),
            PutAttempt(queue, 0, 1, 1, ""),
            PutLease(queue, 3, 1, [0], [1]),
            bodies={queue: b"x"},
        )

    commit(store, DropQueue(1))

    for family in Family:
        found = [int.from_bytes(key[:4], "big") for key, _ in store.scan(family)]
        assert found == [2] or family in {Family.META, Family.CONFIG, Family.GATES}


@pytest.mark.parametrize(
    "pieces",
    [
        b"abcdefghij",
        [b"abcdefghij"],
        [b"", b"abc", b"", b"defg", b"hij", b""],
        [bytearray(b"abcde"), memoryview(b"fghij")],
    ],
)
def test_a_page_takes_its_bytes_across_pieces(store, pieces):
    """The bodies of a step are one line of bytes, in however many pieces they came."""
    commit(
        store,
        PutPage(1, 0, 0, 2, [1, 1]),
        PutPage(1, 2, 2, 9, [4, 3]),
        PutPage(1, 4, 9, 9, [0]),
        PutPage(1, 5, 9, 10, [1]),
        bodies={1: pieces},
    )

    found = []
    for key, value in store.scan(Family.MESSAGES):
        page = records.decode_page(key, value)
        found.append([value[begin:end] for begin, end in zip(page.bounds, page.bounds[1:], strict=False)])
    assert found == [[b"a", b"b"], [b"cdef", b"ghi"], [b""], [b"j"]]


def test_a_page_without_bodies_is_refused(store):
    """A page that reaches beyond the bodies of its step is a fault of ours, and nothing is written."""
    with pytest.raises(ValueError, match="ends at byte 4 of 3"):
        commit(store, PutPage(1, 0, 0, 4, [4]), bodies={1: b"abc"})

    assert store.unsynced == 0


def test_a_commit_tells_its_size(store):
    """Changes, drops and bytes are what the store was given."""
    written = commit(
        store, row(1, 0), DropRange(2, 0, 1_024), PutPage(1, 0, 0, 100, [100]), bodies={1: b"x" * 100}
    )

    assert (written.changes, written.drops) == (3, 4)
    assert 100 < written.bytes < 400
