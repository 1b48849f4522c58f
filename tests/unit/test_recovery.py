"""What recovery hands to the scheduler, and what it refuses."""

import pytest

from fila.broker.commit import Committer
from fila.broker.recovery import recover
from fila.core import commands as c
from fila.core.model import Discipline, QueueSpec
from fila.core.outcome import DropQueue, Outcome, PutAttempt, PutLease, PutProgress, PutQueue, PutRow
from fila.errors import StoreCorruptError
from fila.storage import keys, records
from fila.storage.memory import MemoryStore
from fila.storage.store import Family

SPEC = QueueSpec("orders", Discipline.DRR)
NOW_NS = 1_000_000_000_000


def row(queue, first, length):
    return PutRow(
        queue,
        first,
        length,
        3,
        ["k"],
        [0] * length,
        [5] * length,
        [9] * length,
        [first % 1_024] * length,
        None,
        None,
    )


@pytest.fixture
def store():
    """A store with a queue of 10 messages, of which 2 are finished, 1 is leased and 1 has failed."""
    made = MemoryStore()
    recover(made, NOW_NS)
    writes = [
        PutQueue(1, SPEC, 7, 0),
        row(1, 0, 4),
        row(1, 4, 6),
        PutProgress(1, 0, 0b1000_0001),
        PutLease(1, 5 << 40, 2, [1], [NOW_NS * 2]),
        PutAttempt(1, 2, 1, NOW_NS, "boom"),
    ]
    Committer(made).write(Outcome(step=6, now_ns=NOW_NS + 5, writes=writes), {})
    made.sync()
    return made


def stats(scheduler, queue="orders"):
    outcome = scheduler.step(NOW_NS * 2, [c.GetStats(1, queue)])
    ((_, found),) = outcome.replies
    return found


def test_a_new_store_is_an_empty_broker_and_stays_one():
    """The first opening makes the records that the second one reads."""
    store = MemoryStore()

    _, first = recover(store, NOW_NS)
    _, second = recover(store.crash(), NOW_NS)

    assert (first.queues, first.messages, first.incarnation, first.next_queue) == (0, 0, 1, 1)
    assert (second.queues, second.messages, second.incarnation, second.next_queue) == (0, 0, 2, 1)


def test_everything_but_bodies_comes_back(store):
    """Waiting is what is in a row, not finished and not leased."""
    scheduler, recovered = recover(store, NOW_NS)

    assert (recovered.queues, recovered.messages, recovered.rows) == (1, 8, 2)
    assert (recovered.leases, recovered.attempts, recovered.step) == (1, 1, 6)
    found = stats(scheduler)
    assert (found.in_flight, found.next_offset) == (0, 10)  # the lease has run out by now
    assert found.depth + found.delayed == 8


def test_time_never_goes_back(store):
    """A wall clock that was set back gives the time of the last commit."""
    _, recovered = recover(store, NOW_NS - 1)

    assert recovered.now_ns == NOW_NS + 5


def test_an_incarnation_is_never_used_twice(store):
    """Each opening has a higher incarnation, durable before anything can be delivered in it."""
    incarnations = []
    for _ in range(3):
        _, recovered = recover(store, NOW_NS)
        incarnations.append(recovered.incarnation)
        store = store.crash()

    assert incarnations == [2, 3, 4]


def test_a_queue_number_is_never_used_twice(store):
    """A queue that was deleted before the restart keeps its number."""
    writes = [PutQueue(2, QueueSpec("gone"), 7, 0), DropQueue(2)]
    Committer(store, 2).write(Outcome(step=7, now_ns=NOW_NS, writes=writes), {})

    scheduler, recovered = recover(store, NOW_NS)
    outcome = scheduler.step(NOW_NS * 2, [c.CreateQueue(1, QueueSpec("new"))])

    assert recovered.next_queue == 3
    assert outcome.replies == [(1, 3)]


DAMAGE = {
    "another format": (Family.META, keys.FORMAT, records.encode_number(99), "format 99"),
    "no format": (Family.META, keys.FORMAT, None, "without a format"),
    "no state": (Family.META, keys.STATE, None, "meta record 7374617465 is missing"),
    "no incarnation": (Family.META, keys.INCARNATION, None, "is missing"),
    "row of no queue": (
        Family.INDEX,
        keys.offset_key(9, 0),
        records.encode_row(records.Row(*row(9, 0, 1)[2:])),
        "no queue",
    ),
    "row beyond its segment": (
        Family.INDEX,
        keys.offset_key(1, 1_020),
        records.encode_row(records.Row(*row(1, 1_020, 9)[2:])),
        "beyond its segment",
    ),
    "row that begins in another": (
        Family.INDEX,
        keys.offset_key(1, 3),
        records.encode_row(records.Row(*row(1, 3, 1)[2:])),
        "index record 000000010000000000000003 overlaps the row before it",
    ),
    "row with a short key": (
        Family.INDEX,
        b"\x00",
        records.encode_row(records.Row(*row(1, 0, 1)[2:])),
        "names nothing",
    ),
    "lease of another group": (
        Family.LEASES,
        keys.group_key(1, 1, group=3),
        records.encode_lease(1, [1], [1]),
        "no queue or group",
    ),
    "attempt with a long key": (
        Family.ATTEMPTS,
        b"\x00" * 20,
        records.encode_attempt(1, 1, ""),
        "names nothing",
    ),
    "unknown discipline": (
        Family.QUEUES,
        keys.queue_key(1),
        records.encode_queue(records.Queue("orders", "lottery", 1, 2_000, 7, 0)),
        "lottery",
    ),
    "queue without a name": (
        Family.QUEUES,
        keys.queue_key(1),
        records.encode_queue(records.Queue("", "drr", 1, 2_000, 7, 0)),
        "name is empty",
    ),
    "damaged progress": (Family.PROGRESS, keys.group_key(1, 0), b"\x01" + b"\x00" * 132, "checksum"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_what_cannot_be_is_refused_by_name(store, what):
    """A record that the broker cannot have written stops the start; nothing is skipped."""
    family, key, value, message = DAMAGE[what]
    store.damage(family, key, value)

    with pytest.raises(StoreCorruptError, match=message) as caught:
        recover(store, NOW_NS)

    assert ": restore" in caught.value.message or ": start" in caught.value.message
