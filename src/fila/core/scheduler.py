"""The state machine: commands and the time in, an Outcome out.

A step does, in this order: what fell due (expired leases, delayed retries), the commands, the records of what was
appended, deliveries to consumers with credit, and the records of what changed. The same commands at the same times give
the same outcomes, to the byte.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fila import limits
from fila.core import commands as c
from fila.core import outcome as o
from fila.core.attempts import Attempt
from fila.core.configuration import Configuration
from fila.core.credit import Consumer
from fila.core.fairness.discipline import Make
from fila.core.fairness.drr import Drr
from fila.core.fairness.fifo import Fifo
from fila.core.fairness.wfq import Wfq
from fila.core.gates.holding import Holding
from fila.core.gates.keeper import Keeper
from fila.core.group import Group
from fila.core.leases import Lease
from fila.core.log import QueueLog
from fila.core.model import Action, Discipline, GateKeys
from fila.core.room import memory_error, offsets_error
from fila.core.selection import in_order, select_messages, select_runs
from fila.core.stats import queue_stats
from fila.core.timers import Timers
from fila.core.usage import Usage
from fila.errors import LimitError, QueueExistsError, QueueNotFoundError

DISCIPLINES: dict[Discipline, Make] = {Discipline.DRR: Drr, Discipline.WFQ: Wfq, Discipline.FIFO: Fifo}
# Epochs of different starts of the broker never meet: the start's number stands above so many deliveries.
EPOCH_BITS = 40


class Scheduler:
    """All queues of one shard."""

    def __init__(
        self, *, now_ns: int, incarnation: int, first_step: int = 0, next_queue_number: int = 1
    ) -> None:
        self._now_ns = now_ns
        self._step = first_step
        self._epoch = incarnation << EPOCH_BITS
        self.next_queue_number = next_queue_number
        self._usage = Usage()
        self._queues: dict[str, Group] = {}
        self._by_number: dict[int, Group] = {}
        self._by_consumer: dict[int, Group] = {}
        self._expiries = Timers(self._lease_alive)
        self._retries = Timers(self._delay_alive)
        # Groups that may have something to deliver, and those with records to write.
        self._hot: dict[int, Group] = {}
        self._changed: dict[int, Group] = {}
        self._out = o.Outcome(step=first_step, now_ns=now_ns)
        self._keeper = Keeper(now_ns, self._heat)
        self._configuration = Configuration(self._keeper.changed)
        self._facts: dict[tuple[str, str], list[int]] = {}
        self._handlers: dict[type, Callable[[Any], None]] = {
            c.Enqueue: self._enqueue,
            c.SettleRuns: self._settle_runs,
            c.SettleMessages: self._settle_messages,
            c.Credit: self._credit,
            c.Begin: self._begin,
            c.Sent: self._sent,
            c.Attach: self._attach,
            c.Stop: self._stop,
            c.Detach: self._detach,
            c.CreateQueue: self._create_queue,
            c.DeleteQueue: self._delete_queue,
            c.PurgeQueue: self._purge_queue,
            c.ListQueues: self._list_queues,
            c.GetStats: self._get_stats,
            c.SetConfig: self._configure,
            c.DeleteConfig: self._configure,
            c.GetConfig: self._configure,
            c.ListConfig: self._configure,
            c.Rest: self._rest,
        }

    # --- the step ---------------------------------------------------------------------------------------

    def step(self, now_ns: int, commands: Sequence[c.Command]) -> o.Outcome:
        """Take the commands at this time, and return what must be written, answered and delivered."""
        assert now_ns >= self._now_ns, "time goes back"
        self._now_ns = now_ns
        self._step += 1
        out = self._out = o.Outcome(step=self._step, now_ns=now_ns)
        self._facts = {}
        self._fall_due()
        handlers = self._handlers
        for command in commands:
            handlers[type(command)](command)
        for group in self._changed.values():
            self._close_rows(group)
        self._deliver()
        if self._keeper.close(out.writes):
            out.must_sync = True
        for group in self._changed.values():
            group.close_leases(out.writes)
            group.log.close_progress(out.writes)
        self._changed.clear()
        out.facts = [o.Fact(kind, queue, *counts) for (kind, queue), counts in self._facts.items()]
        return out

    def next_wake_ns(self) -> int | None:
        """Return when a step is due even without a command."""
        dues = (self._expiries.next_ns(), self._retries.next_ns(), self._keeper.next_wake_ns())
        return min((due for due in dues if due is not None), default=None)

    def _fall_due(self) -> None:
        now_ns = self._now_ns
        self._keeper.fall_due(now_ns)
        while due := self._expiries.take(now_ns):
            group = self._by_number.get(due[0])
            if group is None:
                continue
            expired = group.expire(due[1], now_ns, self._out.writes)
            if expired:
                self._fact("expire", group, expired)
                self._touch(group)
        while due := self._retries.take(now_ns):
            group = self._by_number.get(due[0])
            if group is not None:
                group.retry_due(due[1], now_ns)
                self._hot[group.log.number] = group

    def _deliver(self) -> None:
        keeper = self._keeper
        while self._hot or keeper.attention:
            for group in self._hot.values():
                group.reconsider()
            keeper.serve()
            hot, self._hot = self._hot, {}
            self._deliver_to(hot)
            keeper.look_again()

    def _heat(self, holding: Holding) -> None:
        """Take note that a group may have something to deliver."""
        group = self._by_number.get(holding.number)
        if group is not None:
            self._hot[holding.number] = group

    def _deliver_to(self, hot: dict[int, Group]) -> None:
        out = self._out
        for number, group in hot.items():
            while group.can_deliver:
                delivery = group.deliver(self._epoch, self._now_ns)
                if delivery is None:
                    continue
                self._epoch += 1
                self._changed[number] = group
                if delivery.consumer not in group.consumers:
                    # It was there for one delivery.
                    del self._by_consumer[delivery.consumer]
                out.deliveries.append(delivery)
                self._fact("deliver", group, len(delivery.offsets))

    def _close_rows(self, group: Group) -> None:
        if group.log.open:
            group.log.close_rows(self._step, group.name_of, group.gates_of, self._out.writes)

    def _touch(self, group: Group) -> None:
        """Take note that a group has changes that must be durable, and may have something to deliver."""
        number = group.log.number
        self._changed[number] = group
        self._hot[number] = group
        self._out.must_sync = True

    def _fact(self, kind: str, group: Group, count: int, bytes_: int = 0) -> None:
        counts = self._facts.setdefault((kind, group.log.spec.name), [0, 0])
        counts[0] += count
        counts[1] += bytes_

    def _reply(self, request: int, reply: object) -> None:
        self._out.replies.append((request, reply))

    def _find(self, request: int, name: str) -> Group | None:
        group = self._queues.get(name)
        if group is None:
            self._reply(request, no_queue(name))
        return group

    # --- queues -----------------------------------------------------------------------------------------

    def _create_queue(self, command: c.CreateQueue) -> None:
        spec = command.spec
        if spec.name in self._queues:
            self._reply(command.request, QueueExistsError(f"the queue {spec.name!r} exists"))
            return
        if len(self._queues) >= limits.QUEUES_MAX:
            reason = f"there are {limits.QUEUES_MAX:,} queues, which is the limit: delete one first"
            self._reply(command.request, LimitError(reason))
            return
        if self.next_queue_number >> limits.QUEUE_NUMBER_BITS:
            self._reply(
                command.request, LimitError("all queue numbers are used up: begin with a new data directory")
            )
            return
        number = self.next_queue_number
        self.next_queue_number += 1
        group = self._add_queue(QueueLog(number, spec, self._now_ns // limits.MS_NS, self._usage))
        self._out.writes.append(group.log.record())
        self._out.must_sync = True
        self._reply(command.request, number)

    def _add_queue(self, log: QueueLog) -> Group:
        group = Group(
            log, DISCIPLINES[log.spec.discipline], self._expiries, self._retries, self._usage, self._keeper
        )
        self._usage.queues += 1
        self._queues[log.spec.name] = self._by_number[log.number] = group
        return group

    def _delete_queue(self, command: c.DeleteQueue) -> None:
        group = self._find(command.request, command.queue)
        if group is None:
            return
        number = group.log.number
        for consumer in group.consumers.values():
            del self._by_consumer[consumer.number]
            self._out.closings.append((consumer.number, no_queue(command.queue)))
        del self._queues[command.queue], self._by_number[number]
        group.remove()
        self._usage.queues -= 1
        self._changed.pop(number, None)
        self._hot.pop(number, None)
        self._out.writes.append(o.DropQueue(number))
        self._out.must_sync = True
        self._reply(command.request, None)

    def _purge_queue(self, command: c.PurgeQueue) -> None:
        group = self._find(command.request, command.queue)
        if group is None:
            return
        self._close_rows(group)
        purged = group.purge(self._out.writes)
        self._fact("purge", group, purged)
        self._touch(group)
        self._reply(command.request, purged)

    def _list_queues(self, command: c.ListQueues) -> None:
        self._reply(
            command.request,
            tuple(queue_stats(self._queues[name], with_keys=False) for name in sorted(self._queues)),
        )

    def _get_stats(self, command: c.GetStats) -> None:
        group = self._find(command.request, command.queue)
        if group is not None:
            self._reply(command.request, queue_stats(group, with_keys=True))

    # --- the runtime configuration ------------------------------------------------------------------------

    def _configure(self, command: c.SetConfig | c.DeleteConfig | c.GetConfig | c.ListConfig) -> None:
        self._reply(command.request, self._written(self._configuration.answer, command))

    def _rest(self, command: c.Rest) -> None:
        self._written(self._keeper.rest)
        self._reply(command.request, None)

    def _written(self, do: Callable[..., object], *arguments: object) -> object:
        """Do something that may leave writes, which then must be durable, and return what it returns."""
        before = len(self._out.writes)
        found = do(*arguments, self._out.writes)
        self._out.must_sync |= len(self._out.writes) > before
        return found

    # --- messages in ------------------------------------------------------------------------------------

    def _enqueue(self, command: c.Enqueue) -> None:
        group = self._find(command.request, command.queue)
        if group is None:
            return
        count = len(command.sizes)
        assert count > 0, "an empty batch"
        full = memory_error(self._usage, command) or offsets_error(group.log, count)
        if full:
            self._reply(command.request, full)
            return
        time_ms = self._now_ns // limits.MS_NS
        tags = None
        if command.gates is not None:
            tags = group.hold().tags_of(command.gates, command.gate_index, count)
        first = group.push(
            command.keys, command.key_index, command.sizes, command.weights, command.costs, time_ms, tags
        )
        self._fact("enqueue", group, count, sum(command.sizes))
        self._touch(group)
        self._reply(command.request, o.Enqueued(group.log.number, first, count, time_ms))

    # --- consumers --------------------------------------------------------------------------------------

    def _attach(self, command: c.Attach) -> None:
        group = self._find(command.request, command.queue)
        if group is None:
            return
        if len(self._by_consumer) >= limits.CONSUMERS_MAX:
            reason = f"there are {limits.CONSUMERS_MAX:,} consumers, which is the limit: end one first"
            self._reply(command.request, LimitError(reason))
            return
        assert command.consumer not in self._by_consumer, "a consumer number is used twice"
        consumer = Consumer(
            command.consumer,
            command.credit_messages,
            command.credit_bytes,
            refill=command.refill,
            once=command.once,
        )
        group.consumers[consumer.number] = consumer
        self._by_consumer[consumer.number] = group
        group.refresh(consumer)
        self._hot[group.log.number] = group
        self._reply(command.request, o.Attached(group.log.number, group.log.spec.visibility_timeout_ms))

    def _consumer(self, number: int) -> tuple[Group, Consumer] | None:
        group = self._by_consumer.get(number)
        if group is None:
            return None
        consumer = group.consumers.get(number)
        return None if consumer is None else (group, consumer)

    def _credit(self, command: c.Credit) -> None:
        found = self._consumer(command.consumer)
        if found:
            group, consumer = found
            consumer.grant(command.messages, command.bytes)
            group.refresh(consumer)
            self._hot[group.log.number] = group

    def _begin(self, command: c.Begin) -> None:
        found = self._consumer(command.consumer)
        if found:
            consumer = found[1]
            consumer.reports_begun = True
            for epoch, position, count in zip(
                command.runs.epochs, command.runs.positions, command.runs.counts, strict=True
            ):
                lease = consumer.leases.get(epoch)
                if lease is not None:
                    lease.begun |= lease.select(position, count)

    def _sent(self, command: c.Sent) -> None:
        found = self._consumer(command.consumer)
        if found:
            group, consumer = found
            consumer.sent(command.epoch)
            group.refresh(consumer)
            self._hot[group.log.number] = group

    def _stop(self, command: c.Stop) -> None:
        found = self._consumer(command.consumer)
        if found:
            group, consumer = found
            for lease in reversed(group.stop(consumer)):
                if lease.epoch > command.seen:
                    self._give_back(group, consumer, lease)

    def _detach(self, command: c.Detach) -> None:
        group = self._by_consumer.pop(command.consumer, None)
        consumer = group.consumers.get(command.consumer) if group else None
        if group is not None and consumer is not None:
            leases = group.detach(consumer)
            if not command.keep:
                for lease in reversed(leases):
                    seen = command.seen is None or lease.epoch <= command.seen
                    lost = command.lost and seen
                    self._give_back(group, consumer, lease, lost=lost, keep_begun=command.keep_begun)
        if command.request:
            self._reply(command.request, None)

    def _give_back(
        self, group: Group, consumer: Consumer, lease: Lease, *, lost: bool = False, keep_begun: bool = False
    ) -> None:
        failed = 0
        if lost:
            failed = lease.held & lease.begun if consumer.reports_begun else lease.held
        released = lease.held & ~failed
        if keep_begun:
            released &= ~lease.begun
        self._touch(group)
        if released:
            group.release(lease, released)
            self._fact("release", group, released.bit_count())
        if failed:
            group.fail(lease, failed, "consumer lost", self._now_ns, self._out.writes)
            self._fact("lost", group, failed.bit_count())

    # --- settling ---------------------------------------------------------------------------------------

    def _settle_runs(self, command: c.SettleRuns) -> None:
        group = self._by_consumer.get(command.consumer)
        consumer = group.consumers.get(command.consumer) if group else None
        runs = command.runs
        if group is None or consumer is None:
            self._reply(command.request, runs)
            return
        masks, refused = select_runs(consumer.leases, runs)
        for epoch, mask in in_order(masks, command.action):
            self._settle(group, consumer.leases[epoch], mask, command)
        self._reply(command.request, refused)

    def _settle_messages(self, command: c.SettleMessages) -> None:
        group = self._find(command.request, command.queue)
        if group is None:
            return
        masks, results = select_messages(group, command.addresses, command.epochs)
        for epoch, mask in in_order(masks, command.action):
            self._settle(group, group.leases[epoch], mask, command)
        self._reply(command.request, results)

    def _settle(
        self, group: Group, lease: Lease, mask: int, command: c.SettleRuns | c.SettleMessages
    ) -> None:
        action = command.action
        if action is Action.ACK:
            group.ack(lease, mask, self._out.writes)
        elif action is Action.NACK:
            group.fail(lease, mask, command.error, self._now_ns, self._out.writes)
        elif action is Action.RELEASE:
            group.release(lease, mask)
        else:
            group.extend(lease, mask, self._now_ns + command.timeout_ms * limits.MS_NS)
        self._fact(action.value, group, mask.bit_count())
        self._touch(group)

    # --- recovery: each record comes back as the Write that made it, before the first step ---------------------

    def restore_queue(self, record: o.PutQueue) -> None:
        """Take back a queue; its other records follow."""
        self.next_queue_number = max(self.next_queue_number, record.number + 1)
        self._add_queue(
            QueueLog(record.number, record.spec, record.created_at_ms, self._usage, record.next_offset)
        )

    def restore_progress(self, record: o.PutProgress) -> None:
        """Take back which messages of a segment are finished."""
        self._by_number[record.queue].log.restore_progress(record)

    def restore_attempt(self, record: o.PutAttempt) -> None:
        """Take back how often a message has failed."""
        attempt = Attempt(record.attempts, record.not_before_ns)
        self._by_number[record.queue].attempts[record.offset] = attempt

    def restore_lease(self, record: o.PutLease) -> None:
        """Take back the leases of a delivery."""
        self._by_number[record.queue].restore_lease(record)

    def restore_row(self, row: o.PutRow) -> None:
        """Take back an index row, after the rows before it."""
        group = self._by_number[row.queue]
        numbers = [group.key(name).number for name in row.keys]
        if row.gates is None:
            group.log.restore_row(row, numbers)
            return
        tags = [group.hold().tag(GateKeys(*keys)) for keys in row.gates]
        index = row.gate_index
        of_messages = tags * row.length if index is None else [tags[place] for place in index]
        group.log.restore_row(row, numbers, of_messages)

    def restore_config(self, record: o.PutConfig) -> None:
        """Take back an entry of the runtime configuration, before the rows. Raises InvalidArgumentError."""
        self._configuration.restore(record)

    def restore_bucket(self, record: o.PutBucket) -> None:
        """Take back how full a bucket was, before the rows."""
        self._keeper.restore(record)

    def restore_gates(self, *, rested: bool, empty: bool) -> None:
        """End the recovery of gates, before the rows: the broker had stopped cleanly, or the store is new, or neither."""
        self._keeper.ready(rested=rested, empty=empty)

    def ready(self) -> None:
        """End recovery: let everything wait that is not finished, leased or delayed."""
        for number, group in self._by_number.items():
            group.restored()
            if group.holding is not None:
                group.holding.drop_unused()
            self._changed[number] = group

    # --- timers: whether an entry still means anything -----------------------------------------------------

    def _lease_alive(self, queue: int, epoch: int, due_ns: int) -> bool:
        group = self._by_number.get(queue)
        lease = group.leases.get(epoch) if group else None
        return lease is not None and lease.due_ns == due_ns

    def _delay_alive(self, queue: int, offset: int, due_ns: int) -> bool:
        group = self._by_number.get(queue)
        return group is not None and group.delayed.get(offset) == due_ns


def no_queue(name: str) -> QueueNotFoundError:
    """Say that there is no such queue."""
    return QueueNotFoundError(f"there is no queue {name!r}: create it first")
