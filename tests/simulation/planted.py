"""Wrong versions of the core, the commit path and the host, each of which the simulation must find.

A planted bug is a context manager that replaces one function or method. Most wrap the right one, so that they stay true bugs
when the code around them changes.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tests.simulation.host import Host

from fila import limits
from fila.broker import commit, recovery
from fila.broker.commit import NOTHING, Committer
from fila.core import group as group_module
from fila.core import scheduler as scheduler_module
from fila.core import selection
from fila.core.attempts import Attempt
from fila.core.credit import Consumer
from fila.core.fairness.drr import Drr
from fila.core.fairness.fifo import Fifo
from fila.core.fairness.wfq import Wfq
from fila.core.gates.bucket import Bucket
from fila.core.gates.gate import Gate, RateGate
from fila.core.gates.holding import Holding
from fila.core.gates.keeper import Keeper
from fila.core.gates.lanes import Lane
from fila.core.gates.rules import Rules
from fila.core.group import Group
from fila.core.leases import Lease
from fila.core.log import QueueLog
from fila.core.outcome import DeletePage, PutProgress
from fila.core.scheduler import Scheduler
from fila.core.segment import Segment, places
from fila.errors import MessageNotFoundError, StoreError
from fila.storage import records
from fila.storage.memory import MemoryStore

BUGS: dict[str, Callable[[], Any]] = {}


def planted(function: Callable[[], Iterator[None]]) -> Callable[[], Any]:
    """Register a planted bug under its name."""
    bug = contextmanager(function)
    BUGS[function.__name__] = bug
    return bug


def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Any:
    """Replace an attribute by what `make` makes of it."""
    return patch.object(owner, name, make(getattr(owner, name)))


def patched_write(name: str, wrong: Callable[..., None]) -> Any:
    """Let the commit path store one kind of write wrongly."""
    kind = next(kind for kind in commit._ADD if kind.__name__ == name)
    return patch.dict(commit._ADD, {kind: wrong})


# --- the host -----------------------------------------------------------------------------------------


@planted
def reply_before_sync():
    """What a step decided goes out while its sync still runs."""

    def wrapped(let_out):
        def wrong(host, durable, now_ns):
            for outcome in host.written:
                host.give(outcome)
            let_out(host, durable, now_ns)

        return wrong

    with replaced(Host, "_let_out", wrapped):
        yield


@planted
def sync_that_does_nothing():
    """The host believes that its writes are durable."""
    with patch.object(Committer, "sync", lambda _: None):
        yield


@planted
def going_on_after_a_failed_write():
    """A failed write is forgotten, and the broker goes on with what it has in memory."""

    def wrapped(write):
        def wrong(committer, outcome, bodies):
            try:
                return write(committer, outcome, bodies)
            except StoreError:
                return NOTHING

        return wrong

    def fail(store, reason):
        store.fail_write = ""
        store.full = False
        raise StoreError(reason)

    with replaced(Committer, "write", wrapped), patch.object(MemoryStore, "_end", fail):
        yield


@planted
def acks_without_sync():
    """A step that only settles asks for no sync."""

    def wrapped(settle):
        def wrong(scheduler, *rest):
            before = scheduler._out.must_sync
            settle(scheduler, *rest)
            scheduler._out.must_sync = before

        return wrong

    with replaced(Scheduler, "_settle", wrapped):
        yield


# --- recovery -----------------------------------------------------------------------------------------


@planted
def lease_forgotten_at_recovery():
    """Whatever was leased waits after a restart."""
    with patch.object(recovery._Reading, "leases", lambda _: 0):
        yield


@planted
def attempts_forgotten_at_recovery():
    """After a restart nothing has ever failed."""
    with patch.object(recovery._Reading, "attempts", lambda _: 0):
        yield


@planted
def progress_forgotten_at_recovery():
    """After a restart the acked messages of a partly finished row are back."""
    with patch.object(recovery._Reading, "progress", lambda _: None):
        yield


@planted
def epochs_used_again_after_a_crash():
    """The number of the start does not rise."""

    def wrapped(open_meta):
        return lambda store: (open_meta(store)[0], 1)

    with replaced(recovery, "_open_meta", wrapped):
        yield


@planted
def offsets_begin_again_after_a_restart():
    """The next offset comes from the rows alone."""

    def wrapped(restore):
        return lambda scheduler, record: restore(scheduler, record._replace(next_offset=0))

    with replaced(Scheduler, "restore_queue", wrapped):
        yield


@planted
def queue_numbers_used_again_after_a_restart():
    """The next queue number comes from the queues alone."""

    def wrapped(decode):
        return lambda key, value: decode(key, value)._replace(next_queue=1)

    with replaced(recovery.records, "decode_state", wrapped):
        yield


@planted
def time_goes_back_at_a_restart():
    """The broker trusts the wall clock more than its store."""

    def wrapped(decode):
        return lambda key, value: decode(key, value)._replace(now_ns=0)

    with replaced(recovery.records, "decode_state", wrapped):
        yield


@planted
def segments_restored_out_of_order():
    """Segments come back in the order in which their records were read, last first."""

    def wrapped(restored):
        def wrong(log):
            restored(log)
            log.segments = dict(sorted(log.segments.items(), reverse=True))

        return wrong

    with replaced(QueueLog, "restored", wrapped):
        yield


# --- what is stored -----------------------------------------------------------------------------------


@planted
def progress_off_by_one():
    """The bitmap of finished messages is shifted by one bit."""

    def wrapped(encode):
        return lambda finished: encode(finished >> 1)

    with replaced(records, "encode_progress", wrapped):
        yield


@planted
def page_deleted_too_early():
    """A page goes with the first of its messages."""

    def wrapped(finished):
        def wrong(log, number, segment, ended, writes):
            finished(log, number, segment, ended, writes)
            last = segment.finished.bit_length() - 1
            writes.append(DeletePage(log.number, segment.first + segment.pages[last]))

        return wrong

    with replaced(QueueLog, "_finished", wrapped):
        yield


@planted
def joined_rows_lose_what_was_finished():
    """Rows that are written again as one begin with an empty bitmap."""
    joined: set[int] = set()

    def wrapped_join(join_rows):
        def wrong(segment):
            joined.add(segment.first)
            return join_rows(segment)

        return wrong

    def wrapped_close(close_progress):
        def wrong(log, writes):
            close_progress(log, writes)
            for place, write in enumerate(writes):
                if type(write) is PutProgress and write.first in joined:
                    writes[place] = PutProgress(write.queue, write.first, 0)
            joined.clear()

        return wrong

    with replaced(Segment, "join_rows", wrapped_join), replaced(QueueLog, "close_progress", wrapped_close):
        yield


@planted
def attempts_not_stored():
    """A failed message carries its count in memory only."""
    with patched_write("PutAttempt", lambda *_: None):
        yield


@planted
def attempts_left_behind():
    """The record of a failed message outlives the message."""
    with patched_write("DeleteAttempt", lambda *_: None):
        yield


@planted
def extension_not_stored():
    """An extended lease has its first deadline again after a crash."""

    def wrapped(extend):
        def wrong(group, lease, mask, deadline_ns):
            was_dirty = lease.epoch in group._dirty
            extend(group, lease, mask, deadline_ns)
            if not was_dirty:
                group._dirty.pop(lease.epoch, None)

        return wrong

    with replaced(Group, "extend", wrapped):
        yield


@planted
def delete_leaves_rows():
    """Deleting a queue removes its own record and leaves the rest."""

    def wrong(batch, write):
        batch._drop(commit.keys.queue_ranges(write.number)[:1])

    with patched_write("DropQueue", wrong):
        yield


@planted
def purge_leaves_pages():
    """Purging drops rows and leaves the bodies."""

    def wrong(batch, write):
        ranges = commit.keys.offset_ranges(write.queue, write.first, write.end)
        batch._drop([each for each in ranges if each[0] != "messages"])

    with patched_write("DropRange", wrong):
        yield


@planted
def bodies_shifted_between_pages():
    """Every page but the first of a step begins where the one before it began."""

    def wrapped(close_pages):
        def wrong(log, segment, start, writes):
            before = log._step_bytes
            close_pages(log, segment, start, writes)
            log._step_bytes = before

        return wrong

    with replaced(QueueLog, "_close_pages", wrapped):
        yield


# --- leases -------------------------------------------------------------------------------------------


@planted
def release_counts_an_attempt():
    """Giving a message back counts against it."""

    def wrapped(release):
        def wrong(group, lease, mask):
            release(group, lease, mask)
            for place in places(mask):
                before = group.attempts.get(lease.offsets[place])
                group.attempts[lease.offsets[place]] = Attempt(before.count + 1 if before else 1, 0)

        return wrong

    with replaced(Group, "release", wrapped):
        yield


@planted
def expiry_ignored_for_extended_leases():
    """Where one lease of a delivery was extended, none of them ends."""

    def wrapped(expire):
        return lambda group, epoch, now_ns, writes: (
            0
            if epoch in group.leases and group.leases[epoch].deadlines_ns
            else expire(group, epoch, now_ns, writes)
        )

    with replaced(Group, "expire", wrapped):
        yield


@planted
def extension_ignored():
    """An extended lease ends at its first deadline."""
    with patch.object(Lease, "extend", lambda *_: None):
        yield


@planted
def no_expiry_under_load():
    """Leases end only in a step without commands."""

    def wrapped(step):
        def wrong(scheduler, now_ns, commands):
            if not commands:
                return step(scheduler, now_ns, commands)
            with patch.object(Scheduler, "_fall_due", lambda _: None):
                return step(scheduler, now_ns, commands)

        return wrong

    with replaced(Scheduler, "step", wrapped):
        yield


@planted
def expiry_a_moment_early():
    """A lease ends just before its deadline, when something else wakes the broker."""

    def wrapped(take):
        return lambda timers, now_ns: take(timers, now_ns + 50_000_000)

    def always(_lease):
        return lambda lease, now_ns: _lease(lease, now_ns + 50_000_000)

    with replaced(scheduler_module.Timers, "take", wrapped), replaced(Lease, "expired", always):
        yield


@planted
def sleeping_through_retries():
    """The core asks to be woken for leases only."""
    with patch.object(Scheduler, "next_wake_ns", lambda scheduler: scheduler._expiries.next_ns()):
        yield


@planted
def ack_of_a_lost_lease_accepted():
    """Whoever had the message once may settle it."""

    def wrapped(find):
        return lambda group, address, _wanted: find(group, address, 0)

    with replaced(selection, "find_lease", wrapped):
        yield


@planted
def finished_means_not_leased():
    """Every ack of a lease that has ended is said to have been done before."""

    def wrapped(_):
        return lambda *_: MessageNotFoundError("the message is finished", finished=True)

    with replaced(selection, "not_leased", wrapped):
        yield


@planted
def finished_is_forgotten_with_its_segment():
    """An ack that was done long ago looks like one whose lease is somebody else's."""

    def wrapped(not_leased):
        def wrong(group, address):
            if address.offset >> group_module.BITS not in group.log.segments:
                return MessageNotFoundError("the message is not leased")
            return not_leased(group, address)

        return wrong

    with replaced(selection, "not_leased", wrapped):
        yield


@planted
def begun_is_given_back_when_the_broker_stops():
    """A stopping broker gives the messages away that its consumers are working on."""

    def wrapped(give_back):
        def wrong(scheduler, group, consumer, lease, **ending):
            give_back(scheduler, group, consumer, lease, **ending | {"keep_begun": False})

        return wrong

    with replaced(Scheduler, "_give_back", wrapped):
        yield


@planted
def stopped_consumer_gets_credit_again():
    """What a consumer said it wants no more is sent to it after all."""

    def wrapped(stop):
        def wrong(consumer):
            stop(consumer)
            consumer.stopped = False

        return wrong

    with replaced(Consumer, "stop", wrapped):
        yield


@planted
def stop_forgets_what_was_not_sent():
    """Deliveries that a consumer was not sent when it stopped stay leased to it."""

    def wrapped(stop):
        def wrong(scheduler, command):
            stop(scheduler, replace(command, seen=1 << 63))

        return wrong

    with replaced(Scheduler, "_stop", wrapped):
        yield


@planted
def nack_to_the_head():
    """What has failed comes before the others of its key."""
    with (
        patch.object(Drr, "push_back", Drr.push_front),
        patch.object(Wfq, "push_back", Wfq.push_front),
        patch.object(Fifo, "push_back", Fifo.push_front),
    ):
        yield


@planted
def release_to_the_tail():
    """What was given back comes after the others of its key."""
    with (
        patch.object(Drr, "push_front", Drr.push_back),
        patch.object(Wfq, "push_front", Wfq.push_back),
        patch.object(Fifo, "push_front", Fifo.push_back),
    ):
        yield


@planted
def back_off_ignored():
    """Whatever has failed is tried again at once."""
    with patch.object(group_module, "backoff_ms", lambda _: 0):
        yield


@planted
def back_off_without_end():
    """Delays double for ever."""
    with patch.object(
        group_module, "backoff_ms", lambda attempts: 100 << attempts - 2 if attempts > 1 else 0
    ):
        yield


@planted
def lost_consumers_cost_no_attempt():
    """A message that kills its worker goes round for ever."""

    def wrapped(give_back):
        return lambda *arguments, **ending: give_back(*arguments, **ending | {"lost": False})

    with replaced(Scheduler, "_give_back", wrapped):
        yield


@planted
def begun_ignored():
    """A lost consumer pays for what it had not begun."""

    def wrapped(give_back):
        def wrong(scheduler, group, consumer, lease, **ending):
            consumer.reports_begun = False
            give_back(scheduler, group, consumer, lease, **ending)

        return wrong

    with replaced(Scheduler, "_give_back", wrapped):
        yield


@planted
def unseen_deliveries_count_as_lost():
    """A lost consumer pays for deliveries that never left the broker."""

    def wrapped(detach):
        return lambda scheduler, command: detach(scheduler, replace(command, seen=None))

    with replaced(Scheduler, "_detach", wrapped):
        yield


@planted
def purge_removes_leased():
    """Purging takes from consumers what they work on."""

    def wrapped(purge):
        return lambda log, _kept, writes: purge(log, (), writes)

    with replaced(QueueLog, "purge", wrapped):
        yield


# --- credit -------------------------------------------------------------------------------------------


@planted
def credit_leak():
    """Each delivery costs one credit too many."""

    def wrapped(spend):
        return lambda consumer, messages, byte_count: spend(consumer, messages + 1, byte_count)

    with replaced(Consumer, "spend", wrapped):
        yield


@planted
def credit_exceeded():
    """Each delivery costs one credit too few."""

    def wrapped(spend):
        return lambda consumer, messages, byte_count: spend(consumer, messages - 1, byte_count)

    with replaced(Consumer, "spend", wrapped):
        yield


@planted
def byte_credit_ignored():
    """Bytes are not counted."""

    def wrapped(spend):
        return lambda consumer, messages, _byte_count: spend(consumer, messages, 0)

    with replaced(Consumer, "spend", wrapped):
        yield


@planted
def credit_back_before_the_delivery_was_sent():
    """A consumer that does not read is leased more and more."""
    with patch.object(Consumer, "give_back", lambda consumer, _epoch, *credit: consumer.grant(*credit)):
        yield


@planted
def credit_not_back_after_the_delivery_was_sent():
    """What ended before its delivery was sent is never given back."""
    with patch.object(Consumer, "sent", lambda consumer, epoch: consumer._unsent.pop(epoch, None)):
        yield


@planted
def expiry_gives_no_credit_back():
    """A consumer with a window loses a place with every lease that ends by itself."""

    def wrapped(fail):
        def wrong(group, lease, mask, error, now_ns, writes):
            consumer = group.consumers.get(lease.consumer)
            if consumer is None or error != "lease expired":
                fail(group, lease, mask, error, now_ns, writes)
                return
            refill, consumer.refill = consumer.refill, False
            fail(group, lease, mask, error, now_ns, writes)
            consumer.refill = refill

        return wrong

    with replaced(Group, "fail", wrapped):
        yield


# --- fairness -----------------------------------------------------------------------------------------


@planted
def deficit_kept_by_a_drained_key():
    """An absent key saves up what it did not use."""

    def wrapped(served):
        def wrong(discipline, key, deficit):
            in_round = key.in_round
            served(discipline, key, deficit)
            if in_round and deficit > 0 and not key.lane:
                key.deficit = deficit

        return wrong

    with replaced(Drr, "_served", wrapped):
        yield


@planted
def debt_forgotten_by_a_drained_key():
    """A key that drains is idle at once, and may be new again."""

    def wrapped(served):
        def wrong(discipline, key, deficit):
            served(discipline, key, deficit)
            if not key.lane and key.in_round:
                discipline._retire(key)

        return wrong

    with replaced(Drr, "_served", wrapped):
        yield


@planted
def new_key_gets_a_whole_turn():
    """A key from the list of new ones is served until its first turn is used up."""

    def wrapped(served):
        def wrong(discipline, key, deficit):
            turn = discipline._quantum * key.weight
            if not key.in_round and key.lane and -deficit < turn:
                key.deficit = deficit
                return
            served(discipline, key, deficit)

        return wrong

    with replaced(Drr, "_served", wrapped):
        yield


@planted
def new_key_waits_for_the_round():
    """The list of new keys is served when the round has nobody."""

    def wrong(discipline):
        return discipline._current or discipline._advance() or discipline._new[0]

    with patch.object(Drr, "_choose", wrong):
        yield


@planted
def weight_change_ignored():
    """A key keeps the weight that it came with."""

    def wrapped(reweigh):
        def wrong(discipline, key, weight):
            if not key.live:
                reweigh(discipline, key, weight)

        return wrong

    with replaced(Drr, "reweigh", wrapped):
        yield


@planted
def turn_keeps_the_old_weight():
    """A key whose weight falls in mid-turn ends the turn of its old weight."""

    def wrapped(reweigh):
        def wrong(discipline, key, weight):
            before = key.deficit
            reweigh(discipline, key, weight)
            if key is discipline._current:
                key.deficit = before

        return wrong

    with replaced(Drr, "reweigh", wrapped):
        yield


@planted
def costs_ignored():
    """Every message counts as one."""
    with patch.object(QueueLog, "cost", lambda *_: 1):
        yield


@planted
def virtual_time_ignores_weights():
    """Weighted fair queueing takes all keys for equal."""

    def wrapped(take):
        def wrong(discipline, *rest, **named):
            keys = {id(entry[2]): (entry[2], entry[2].weight) for entry in discipline._heap}
            for key, _ in keys.values():
                key.weight = 1
            try:
                return take(discipline, *rest, **named)
            finally:
                for key, weight in keys.values():
                    key.weight = weight

        return wrong

    with replaced(Wfq, "take", wrapped):
        yield


# --- gates --------------------------------------------------------------------------------------------


@planted
def tokens_not_taken():
    """A rate gate that is open stays open."""
    with patch.object(Bucket, "take", lambda *_: None):
        yield


@planted
def bucket_fills_too_fast():
    """Some tokens come twice."""

    def wrapped(refill):
        def wrong(bucket, now_ns):
            span_ns = now_ns - bucket.at_ns
            refill(bucket, now_ns)
            bucket.tokens = min(bucket.burst, bucket.tokens + bucket.rate * span_ns // limits.SECOND_NS // 4)

        return wrong

    with replaced(Bucket, "refill", wrapped):
        yield


@planted
def bucket_fills_too_slowly():
    """A tenth of the tokens never comes."""

    def wrapped(refill):
        def wrong(bucket, now_ns):
            before = bucket.tokens
            refill(bucket, now_ns)
            bucket.tokens -= max(0, bucket.tokens - before) // 10

        return wrong

    with replaced(Bucket, "refill", wrapped):
        yield


@planted
def cost_ignored_at_rates():
    """Every message takes one token."""

    def wrapped(take):
        return lambda bucket, _cost: take(bucket, 1)

    with replaced(Bucket, "take", wrapped):
        yield


@planted
def fresh_burst_after_a_crash():
    """Buckets are full when the broker starts, however it ended."""

    def wrapped(ready):
        return lambda keeper, *, rested, empty: ready(keeper, rested=rested, empty=True)

    with replaced(Keeper, "ready", wrapped):
        yield


@planted
def debt_forgotten_at_recovery():
    """A bucket in debt begins empty after a crash."""
    with patch.object(Keeper, "restore", lambda *_: None):
        yield


@planted
def slot_leaks_on_expiry():
    """A lease that ends by itself keeps its slot."""

    def wrapped(fail):
        def wrong(group, lease, mask, error, now_ns, writes):
            if group.holding is None or error != "lease expired":
                fail(group, lease, mask, error, now_ns, writes)
                return
            with patch.object(Keeper, "slots_back", lambda *_: None):
                fail(group, lease, mask, error, now_ns, writes)

        return wrong

    with replaced(Group, "fail", wrapped):
        yield


@planted
def slots_forgotten_at_recovery():
    """What was in flight at a crash takes no slot after it."""

    def wrapped(slots_back):
        def wrong(keeper, keys):
            if all(keeper.in_flight.get(name) for name in keys.concurrency):
                slots_back(keeper, keys)

        return wrong

    with (
        patch.object(Holding, "restore_leased", lambda *_: None),
        replaced(Keeper, "slots_back", wrapped),
    ):
        yield


@planted
def slots_of_a_deleted_queue_leak():
    """A queue takes the slots of its leases with it."""

    def wrapped(remove):
        def wrong(holding):
            with patch.object(Keeper, "slots_back", lambda *_: None):
                remove(holding)

        return wrong

    with replaced(Holding, "remove", wrapped):
        yield


@planted
def second_gate_ignored():
    """A message passes all its gates when it passes the first of them."""

    def wrapped(resolve):
        def wrong(keeper, gate_set):
            resolve(keeper, gate_set)
            gate_set.gates = gate_set.gates[:1]

        return wrong

    with replaced(Keeper, "_resolve", wrapped):
        yield


@planted
def gates_forgotten_at_recovery():
    """After a restart no message waits at any gate."""

    def wrapped(restore_row):
        return lambda scheduler, row: restore_row(scheduler, row._replace(gates=None))

    with replaced(Scheduler, "restore_row", wrapped):
        yield


@planted
def closed_gate_holds_the_key():
    """A message behind a closed gate holds back those of its key."""

    def wrapped(hold_back):
        def wrong(holding, flow, lane, gate):
            hold_back(holding, flow, lane, gate)
            discipline = holding._group.discipline
            if type(flow.lane) is deque and flow.lane and flow is not discipline.shared:
                # Its other messages go behind those of all other keys, again and again.
                discipline.waiting -= len(flow.lane)
                flow.lane.clear()
                discipline.drop(flow)

        return wrong

    with replaced(Holding, "_hold_back", wrapped):
        yield


@planted
def change_holds_for_new_messages_only():
    """What waits already knows nothing of another limit."""

    def wrapped(changed):
        def wrong(keeper, entry, limit):
            users, keeper._users = keeper._users, {}
            changed(keeper, entry, limit)
            keeper._users = users

        return wrong

    with replaced(Keeper, "changed", wrapped):
        yield


@planted
def no_wake_for_gates():
    """The core sleeps until somebody else wakes it."""
    with patch.object(Keeper, "next_wake_ns", lambda _: None):
        yield


@planted
def gate_opens_late():
    """A gate is looked at a tenth of a second after it may open."""

    def wrapped(opens_at_ns):
        def wrong(gate, cost, now_ns):
            opens_ns = opens_at_ns(gate, cost, now_ns)
            return None if opens_ns is None else opens_ns + 100_000_000

        return wrong

    with replaced(RateGate, "opens_at_ns", wrapped):
        yield


@planted
def slot_back_wakes_nobody():
    """Whoever waits for a slot learns of it when something else happens at the gate."""

    def wrapped(slots_back):
        def wrong(keeper, keys):
            before = dict(keeper.attention)
            slots_back(keeper, keys)
            keeper.attention = before

        return wrong

    with replaced(Keeper, "slots_back", wrapped):
        yield


@planted
def plain_turns_at_a_gate():
    """Keys at a gate take turns, whatever they weigh."""
    with (
        patch.object(Holding, "weight_of", lambda *_: 1),
        patch.object(Holding, "reweigh", lambda *_: None),
    ):
        yield


@planted
def lanes_reversed_when_they_are_parked():
    """What is held back stands in the wrong order."""

    def wrapped(take_free):
        return lambda lane: deque(reversed(take_free(lane)))

    with replaced(Lane, "take_free", wrapped):
        yield


@planted
def pause_ignored():
    """A paused gate lets everything through."""
    with patch.object(Gate, "admits", lambda *_: True):
        yield


@planted
def longest_pattern_loses():
    """The shortest pattern wins."""

    def wrapped(put):
        def wrong(rules, kind, name, limit):
            put(rules, kind, name, limit)
            if kind in rules._lengths:
                rules._lengths[kind].sort()

        return wrong

    with replaced(Rules, "_put", wrapped):
        yield


@planted
def configuration_not_stored():
    """A setting is gone with the process."""
    with patched_write("PutConfig", lambda *_: None):
        yield


@planted
def buckets_left_behind():
    """The record of a bucket outlives its limit."""
    with patched_write("DropBucket", lambda *_: None):
        yield
