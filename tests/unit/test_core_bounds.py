"""What the core keeps stays bounded, and nobody is forgotten."""

import pytest

from fila import limits
from fila.core.commands import (
    Attach,
    Begin,
    CreateQueue,
    Credit,
    Detach,
    Enqueue,
    GetStats,
    Sent,
    SettleMessages,
    SettleRuns,
    Stop,
)
from fila.core.model import Action, Address, QueueSpec, Runs
from fila.core.scheduler import Scheduler

START_NS = 10**18
SECOND_NS = limits.SECOND_NS


class Core:
    """A scheduler with one queue, and a clock."""

    def __init__(self):
        self.now_ns = START_NS
        self.scheduler = Scheduler(now_ns=START_NS, incarnation=1)
        self.step(CreateQueue(1, QueueSpec("q", visibility_timeout_ms=1_000)))

    def step(self, *commands):
        return self.scheduler.step(self.now_ns, commands)

    def stats(self):
        return self.step(GetStats(9, "q")).replies[-1][1]


@pytest.fixture
def core():
    """Make a core with an empty queue `q` whose leases last one second."""
    return Core()


def test_timers_do_not_grow_with_extensions(core):
    """A lease has one entry, and at most one more for each time that it fell due and was not over."""
    core.step(Attach(2, 1, "q", 1, 100), Enqueue(3, "q", [1], ["k"]))
    epoch = next(iter(core.scheduler._queues["q"].leases))
    for number in range(5_000):
        core.now_ns += 1_000_000
        timeout_ms = 3_600_000 if number % 2 else 1_000
        core.step(SettleRuns(4, 1, Action.EXTEND, Runs((epoch,), (0,), (1,)), timeout_ms=timeout_ms))

    assert len(core.scheduler._expiries._heap) <= 6
    core.now_ns += 3_600 * SECOND_NS
    assert core.step().facts[0].kind == "expire"


def test_a_consumer_passed_over_for_a_large_message_is_served_when_it_is_gone(core):
    """Credit that is left is used as soon as something that fits is next, whoever took the large message."""
    core.step(Attach(2, 1, "q", 10, 600), Enqueue(3, "q", [100], ["k"]))
    core.step(Enqueue(4, "q", [1_000, 10, 10], ["k"]))

    outcome = core.step(Attach(5, 2, "q", 1, 5_000))

    assert [(each.consumer, list(each.offsets)) for each in outcome.deliveries] == [(2, [1]), (1, [2, 3])]


def test_a_window_is_refilled_only_when_the_delivery_was_sent(core):
    """A client that does not read is not leased more and more, although its leases expire."""
    core.step(Attach(2, 1, "q", 3, 1_000, refill=True), Enqueue(3, "q", [1] * 20, ["k"]))
    epoch = next(iter(core.scheduler._queues["q"].leases))
    for _ in range(3):
        core.now_ns += 2 * SECOND_NS
        assert core.step().deliveries == []

    outcome = core.step(Sent(1, epoch))

    assert [len(each.offsets) for each in outcome.deliveries] == [3]


def test_credit_of_no_bytes_delivers_nothing(core):
    """The exception for large messages needs at least a byte: an expired lease alone opens nothing."""
    core.step(Attach(2, 1, "q", 10, 50), Enqueue(3, "q", [100, 100], ["k"]))
    core.now_ns += 2 * SECOND_NS

    assert core.step().deliveries == []
    assert [len(each.offsets) for each in core.step(Credit(1, 0, 60)).deliveries] == [1]


def test_what_never_reached_a_lost_consumer_is_no_attempt(core):
    """A delivery behind the last one that was sent is given back as it was."""
    first = core.step(Attach(2, 1, "q", 1, 100), Enqueue(3, "q", [1, 1], ["k"])).deliveries[0].epoch
    core.step(Credit(1, 1, 0))
    core.step(Detach(4, 1, lost=True, seen=first))

    delivery = core.step(Attach(5, 2, "q", 2, 100)).deliveries[0]

    attempts = dict(zip(delivery.offsets, delivery.attempts, strict=True))
    assert attempts == {0: 1, 1: 0}


def test_leased_and_failed_messages_count_towards_the_memory(core):
    """The account goes up with leases and failures, and back to nothing when all is acked."""
    usage = core.scheduler._usage
    empty = usage.bytes_with(0, 0)
    enqueued = core.step(Attach(2, 1, "q", 5, 100), Enqueue(3, "q", [1] * 5, ["k"])).replies[-1][1]
    addresses = [Address(enqueued.queue_number, offset, enqueued.enqueued_at_ms) for offset in range(5)]
    assert usage.leased == 5

    core.step(SettleMessages(4, "q", Action.NACK, addresses), Credit(1, 5, 100))
    assert (usage.leased, usage.failed) == (5, 5)
    core.step(SettleMessages(5, "q", Action.ACK, addresses))

    assert (usage.messages, usage.leased, usage.failed) == (0, 0, 0)
    assert usage.bytes_with(0, 0) <= empty + limits.KEY_MEMORY_BYTES + limits.SEGMENT_MEMORY_BYTES


def test_stats_show_the_keys_with_most_waiting_first(core):
    """Of very many keys the first are shown, and the number of all."""
    keys = [f"k{number}" for number in range(limits.STATS_KEYS_MAX + 50)]
    core.step(Enqueue(2, "q", [1] * len(keys), keys, range(len(keys))))
    core.step(Enqueue(3, "q", [1, 1], ["k7"]))

    stats = core.stats()

    assert (stats.active_keys, len(stats.keys)) == (len(keys), limits.STATS_KEYS_MAX)
    assert (stats.keys[0].key, stats.keys[0].pending) == ("k7", 3)


def test_stopped_consumer_gets_nothing_more(core):
    """Credit that was left is void, later credit does not count, and what it gives back goes to others."""
    first = core.step(Attach(2, 1, "q", 9, 100), Enqueue(3, "q", [1, 1], ["k"])).deliveries[0]

    stopped = core.step(
        Stop(1, first.epoch), SettleRuns(4, 1, Action.RELEASE, Runs((first.epoch,), (1,), (1,)))
    )
    granted = core.step(Credit(1, 5, 500), Enqueue(5, "q", [1], ["k"]))
    other = core.step(Attach(6, 2, "q", 9, 100))

    assert (stopped.deliveries, granted.deliveries) == ([], [])
    assert [list(each.offsets) for each in other.deliveries] == [[1, 2]]
    assert core.stats().in_flight == 3


def test_stopped_consumer_has_no_share(core):
    """Nothing is put aside for it: others get all at once, as if it were not there."""
    core.step(Attach(2, 1, "q", 9, 100), Attach(3, 2, "q", 9, 100))
    core.step(Stop(2, 0))

    deliveries = core.step(Enqueue(4, "q", [1] * 4, ["k"])).deliveries

    assert [(each.consumer, list(each.offsets)) for each in deliveries] == [(1, [0, 1, 2, 3])]


def test_stop_gives_back_what_was_not_sent_in_its_old_order(core):
    """Deliveries after the last one that was sent wait again, the oldest in front, without an attempt."""
    core.step(Attach(2, 1, "q", 2, 100))
    epochs = []
    for _ in range(3):
        core.step(Credit(1, 2, 0))
        epochs += [each.epoch for each in core.step(Enqueue(3, "q", [1, 1], ["k"])).deliveries]

    outcome = core.step(Stop(1, epochs[0]))
    again = core.step(Attach(5, 2, "q", 9, 100)).deliveries

    assert outcome.must_sync
    assert [(list(each.offsets), each.attempts) for each in again] == [([2, 3, 4, 5], None)]


def test_kept_leases_are_those_that_were_begun(core):
    """With `keep_begun` a consumer leaves its own work leased, to be acked by its epoch, and the rest to others."""
    enqueued = Enqueue(3, "q", [1] * 4, ["k"])
    first = core.step(Attach(2, 1, "q", 4, 100), enqueued).deliveries[0]
    core.step(Begin(1, Runs((first.epoch,), (1,), (2,))))
    core.step(Detach(4, 1, keep_begun=True))

    again = core.step(Attach(5, 2, "q", 9, 100)).deliveries
    begun = [Address(first.queue, offset, first.times_ms[offset]) for offset in (1, 2)]
    ((_, reply),) = core.step(SettleMessages(6, "q", Action.ACK, begun, [first.epoch] * 2)).replies

    assert [(list(each.offsets), each.attempts) for each in again] == [([0, 3], None)]
    assert reply == (None, None)


@pytest.mark.parametrize("keep_begun", [True, False])
def test_consumer_that_reports_nothing_begun_keeps_nothing(core, keep_begun):
    """Nobody knows what it was working on, so all of it goes back, and none of it counts."""
    core.step(Attach(2, 1, "q", 4, 100), Enqueue(3, "q", [1] * 4, ["k"]))
    core.step(Detach(4, 1, keep_begun=keep_begun))

    again = core.step(Attach(5, 2, "q", 9, 100)).deliveries

    assert [(list(each.offsets), each.attempts) for each in again] == [([0, 1, 2, 3], None)]


def test_ack_says_whether_the_message_is_finished(core):
    """Acked, purged and dropped with its segment: finished. Leased by another, waiting, of no such place: not."""
    count = limits.SEGMENT_MESSAGES + 4
    core.step(Attach(2, 1, "q", 1_000, 1 << 20), Enqueue(3, "q", [1] * count, ["k"]))
    first = next(iter(core.scheduler._queues["q"].leases))
    core.step(Credit(1, 25, 0))
    last = max(core.scheduler._queues["q"].leases)
    core.step(SettleRuns(4, 1, Action.ACK, Runs((first, last), (0, 0), (0, 0))))
    core.step(Credit(1, 2, 0))
    number, time_ms = core.stats().number, START_NS // limits.MS_NS

    offsets = (0, limits.SEGMENT_MESSAGES, count - 3, count - 1, count)
    addresses = [Address(number, offset, time_ms) for offset in offsets] + [Address(number + 1, 0, time_ms)]
    ((_, reply),) = core.step(SettleMessages(6, "q", Action.ACK, addresses, [7] * len(addresses))).replies

    assert [error.finished for error in reply] == [True, True, False, False, False, False]
