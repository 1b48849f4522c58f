"""What each command must be answered, by the checker's account, and what it changes there."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fila import limits
from fila.core.commands import (
    Attach,
    Begin,
    Command,
    CreateQueue,
    Credit,
    DeleteConfig,
    DeleteQueue,
    Detach,
    Enqueue,
    GetConfig,
    GetStats,
    ListConfig,
    ListQueues,
    PurgeQueue,
    Sent,
    SetConfig,
    SettleMessages,
    SettleRuns,
    Stop,
)
from fila.core.model import NO_GATES, Action, Address, GateKeys, QueueStats, Runs
from fila.core.outcome import Attached, Enqueued
from fila.errors import (
    ConfigKeyNotFoundError,
    InvalidArgumentError,
    MessageNotFoundError,
    QueueExistsError,
    QueueNotFoundError,
)
from fila.sim.model import ConsumerModel, Message, QueueModel, State
from fila.sim.violation import Violation

if TYPE_CHECKING:
    from fila.sim.checker import Checker

Place = tuple[int, int]

# Answers to what names no lease: the error, and whether it says that the message is finished.
_NOT_LEASED = (MessageNotFoundError, False)
_FINISHED = (MessageNotFoundError, True)


class Answers:
    """One method for each command: it says whether something changed that must be durable."""

    def __init__(self, checker: "Checker") -> None:
        self._checker = checker
        self._replies: dict[int, object] = {}
        self._closed: list[int] = []
        self._judges: dict[type, Callable[..., bool]] = {
            CreateQueue: self._create,
            DeleteQueue: self._delete,
            PurgeQueue: self._purge,
            ListQueues: self._list,
            GetStats: self._stats,
            SetConfig: self._set_config,
            DeleteConfig: self._delete_config,
            GetConfig: self._get_config,
            ListConfig: self._list_config,
            Enqueue: self._enqueue,
            Attach: self._attach,
            Credit: self._credit,
            Begin: self._begin,
            Sent: self._sent,
            Stop: self._stop,
            Detach: self._detach,
            SettleRuns: self._settle_runs,
            SettleMessages: self._settle_messages,
        }

    def judge(self, command: Command, bodies: bytes, replies: dict[int, object], closed: list[int]) -> bool:
        """Take the command's reply out of `replies` and judge it; add the consumers that it closes to `closed`."""
        self._replies, self._closed = replies, closed
        if isinstance(command, Enqueue):
            return self._enqueue(command, bodies)
        return self._judges[type(command)](command)

    def _expect(self, command: Any, expected: object) -> None:
        """Judge a reply: equal, or an error of the same type."""
        missing = object()
        found = self._replies.pop(command.request, missing)
        if found is missing:
            raise Violation("replies", f"{type(command).__name__} {command.request} was not answered")
        same = type(found) is type(expected) if isinstance(expected, Exception) else found == expected
        if not same:
            raise Violation("replies", f"{command!r} was answered {found!r}, not {expected!r}")

    def _queue(self, command: Any) -> QueueModel | None:
        """Return the command's queue, or judge the error where there is none."""
        queue = self._checker.queues.get(command.queue)
        if queue is None:
            self._expect(command, QueueNotFoundError(""))
        return queue

    # --- queues -----------------------------------------------------------------------------------------

    def _create(self, command: CreateQueue) -> bool:
        checker = self._checker
        if command.spec.name in checker.queues:
            self._expect(command, QueueExistsError(""))
            return False
        queue = QueueModel(checker.next_number, command.spec)
        checker.journal.note("create", queue, checker.next_number)
        checker.next_number += 1
        checker.queues[command.spec.name] = checker.numbers[queue.number] = queue
        self._expect(command, queue.number)
        return True

    def _delete(self, command: DeleteQueue) -> bool:
        checker = self._checker
        queue = self._queue(command)
        if queue is None:
            return False
        checker.journal.note("delete", queue, 0)
        queue.deleted = True
        for message in queue.messages.values():
            if message.state is State.LEASED:
                checker.gates.ended(message.gates)
        del checker.queues[command.queue], checker.numbers[queue.number]
        for consumer in list(queue.consumers.values()):
            self._closed.append(consumer.number)
            checker.detach(consumer)
        self._expect(command, None)
        return True

    def _purge(self, command: PurgeQueue) -> bool:
        queue = self._queue(command)
        if queue is None:
            return False
        gone = [message for message in queue.messages.values() if message.state is not State.LEASED]
        self._finish(gone)
        self._checker.gates.disturb(gone)
        queue.clear_lanes()
        self._expect(command, len(gone))
        return bool(gone)

    def _list(self, command: ListQueues) -> bool:
        queues = sorted(self._checker.queues.values(), key=lambda queue: queue.spec.name)
        found = self._replies.get(command.request)
        names = [stats.spec.name for stats in found] if isinstance(found, tuple) else found
        if not isinstance(found, tuple) or names != [queue.spec.name for queue in queues]:
            raise Violation("replies", f"the queues are listed as {names!r}")
        self._expect(command, tuple(_stats(queue, stats) for queue, stats in zip(queues, found, strict=True)))
        return False

    def _stats(self, command: GetStats) -> bool:
        queue = self._queue(command)
        if queue is None:
            return False
        found = self._replies.get(command.request)
        if not isinstance(found, QueueStats):
            self._expect(command, "QueueStats")
        assert isinstance(found, QueueStats)
        self._check_keys(queue, found)
        self._expect(command, _stats(queue, found))
        return False

    def _check_keys(self, queue: QueueModel, found: QueueStats) -> None:
        """Deficits are the core's own affair; what waits and what weighs is not."""
        unfinished = {message.key for message in queue.messages.values()}
        if found.active_keys < len(unfinished) or len(found.keys) != min(
            found.active_keys, limits.STATS_KEYS_MAX
        ):
            raise Violation("stats", f"{found.active_keys} active keys; {sorted(unfinished)} have messages")
        for key in found.keys:
            model = queue.keys.get(key.key)
            pending = 0 if model is None else model.ready
            weight = None if model is None else model.share.weight
            if key.pending != pending or (weight is not None and key.weight != weight):
                raise Violation("stats", f"{key!r} should have {pending} pending and the weight {weight}")
        missing = unfinished - {key.key for key in found.keys}
        if missing and len(found.keys) < limits.STATS_KEYS_MAX:
            raise Violation("stats", f"the keys {sorted(missing)} have messages and are not listed")

    # --- the runtime configuration ------------------------------------------------------------------------

    def _set_config(self, command: SetConfig) -> bool:
        about_gates = command.key.split(".")[0] in {"throttle", "concurrency", "pause"}
        if about_gates and command.value == "bad":
            self._expect(command, InvalidArgumentError(""))
            return False
        value = command.value if command.value or not about_gates else None
        changed = value != self._checker.gates.config.get(command.key)
        if changed:
            self._change_config(command.key, value)
        self._expect(command, None)
        return changed

    def _delete_config(self, command: DeleteConfig) -> bool:
        if command.key not in self._checker.gates.config:
            self._expect(command, ConfigKeyNotFoundError(""))
            return False
        self._change_config(command.key, None)
        self._expect(command, None)
        return True

    def _change_config(self, key: str, value: str | None) -> None:
        checker = self._checker
        checker.journal.note("config", key, checker.gates.config.get(key))
        used = {
            name
            for queue in checker.queues.values()
            for message in queue.messages.values()
            for name in (*message.gates.throttle, *message.gates.concurrency)
        }
        checker.gates.set(key, value, used)

    def _get_config(self, command: GetConfig) -> bool:
        self._expect(command, self._checker.gates.config.get(command.key, ConfigKeyNotFoundError("")))
        return False

    def _list_config(self, command: ListConfig) -> bool:
        entries = sorted(self._checker.gates.config.items())
        self._expect(command, tuple(entry for entry in entries if entry[0].startswith(command.prefix)))
        return False

    # --- enqueue ----------------------------------------------------------------------------------------

    def _enqueue(self, command: Enqueue, bodies: bytes = b"") -> bool:
        checker = self._checker
        queue = self._queue(command)
        if queue is None:
            return False
        first, count = queue.next_offset, len(command.sizes)
        time_ms = checker.now_ns // limits.MS_NS
        checker.journal.note("append", queue, first)
        messages = []
        begin = 0
        for place, size in enumerate(command.sizes):
            message = Message(
                queue,
                first + place,
                command.keys[0 if command.key_index is None else command.key_index[place]],
                weight=1 if command.weights is None else command.weights[place],
                cost=1 if command.costs is None else command.costs[place],
                time_ms=time_ms,
                body=bodies[begin : begin + size],
                gates=_gates_of(command, place),
            )
            begin += size
            queue.messages[message.offset] = message
            queue.weigh(message.key, message.weight, message.cost)
            messages.append(message)
        queue.counts[State.WAITING] += count
        queue.next_offset = first + count
        queue.body_bytes_max = max(queue.body_bytes_max, *command.sizes)
        queue.line_up(messages)
        checker.gates.arrived(messages)
        self._expect(command, Enqueued(queue.number, first, count, time_ms))
        return True

    # --- consumers --------------------------------------------------------------------------------------

    def _attach(self, command: Attach) -> bool:
        queue = self._queue(command)
        if queue is None:
            return False
        consumer = ConsumerModel(command.consumer, queue, command.credit_messages, command.credit_bytes)
        consumer.refill, consumer.once = command.refill, command.once
        self._checker.consumers[command.consumer] = queue.consumers[command.consumer] = consumer
        self._expect(command, Attached(queue.number, queue.spec.visibility_timeout_ms))
        return False

    def _credit(self, command: Credit) -> bool:
        consumer = self._checker.consumers.get(command.consumer)
        if consumer is not None:
            consumer.grant(command.messages, command.bytes)
        return False

    def _sent(self, command: Sent) -> bool:
        consumer = self._checker.consumers.get(command.consumer)
        if consumer is not None:
            consumer.grant(*consumer.unsent.pop(command.epoch, (0, 0)))
        return False

    def _begin(self, command: Begin) -> bool:
        consumer = self._checker.consumers.get(command.consumer)
        if consumer is not None:
            consumer.begun = True
            for message, _ in self._leases(command.consumer, command.runs):
                if message is not None:
                    message.begun = True
        return False

    def _stop(self, command: Stop) -> bool:
        consumer = self._checker.consumers.get(command.consumer)
        if consumer is None:
            return False
        consumer.stopped = True
        consumer.messages = consumer.bytes = 0
        unseen = [message for message in consumer.held.values() if message.epoch > command.seen]
        self._release(sorted(unseen, key=lambda message: message.epoch))
        return bool(unseen)

    def _detach(self, command: Detach) -> bool:
        consumer = self._checker.consumers.get(command.consumer)
        changed = consumer is not None and self._leave(consumer, command)
        if command.request:
            self._expect(command, None)
        return changed

    def _leave(self, consumer: ConsumerModel, command: Detach) -> bool:
        """Let a consumer go, and say whether any of its leases ended by that."""
        ended = False
        held = list(consumer.held.values())
        consumer.attached = False
        if not command.keep:
            lost = [message for message in held if _is_lost(message, consumer, command)]
            kept = [
                message for message in held if message.begun and command.keep_begun and message not in lost
            ]
            released = [message for message in held if message not in lost and message not in kept]
            ended = bool(lost or released)
            # Not ordered: which of a consumer's leases ends first is nobody's promise.
            queue = consumer.queue
            waking = self._checker.fail(lost, ordered=len(lost) < 2)
            for message in released:
                self._checker.end_lease(message)
            waking += queue.place(released, front=True)
            if queue.judged:
                queue.shares.activate(waking)
        self._checker.detach(consumer)
        return ended

    # --- settling ---------------------------------------------------------------------------------------

    def _settle_runs(self, command: SettleRuns) -> bool:
        good: list[Message] = []
        refused: list[Place] = []
        seen: set[int] = set()
        for message, place in self._leases(command.consumer, command.runs):
            if message is None or id(message) in seen:
                refused.append(place)
            else:
                seen.add(id(message))
                good.append(message)
        self._settle(command, good)
        found = self._replies.pop(command.request, None)
        if not isinstance(found, Runs):
            raise Violation("replies", f"{command!r} was answered {found!r}")
        if sorted(self._expand(found)) != sorted(refused):
            raise Violation("refusals", f"{command!r} refused {found!r}, not the (epoch, position) {refused}")
        return bool(good)

    def _settle_messages(self, command: SettleMessages) -> bool:
        queue = self._queue(command)
        if queue is None:
            return False
        good: list[Message] = []
        expected: list[object] = []
        seen: set[int] = set()
        for place, address in enumerate(command.addresses):
            message = self._addressed(queue, address)
            epoch = 0 if command.epochs is None else command.epochs[place]
            if message is None or not message.leased_under(epoch) or id(message) in seen:
                expected.append(_NOT_LEASED if not _is_finished(queue, address) else _FINISHED)
            else:
                seen.add(id(message))
                good.append(message)
                expected.append(None)
        self._settle(command, good)
        found = self._replies.pop(command.request, None)
        kinds = (
            [None if answer is None else (type(answer), answer.finished) for answer in found]
            if isinstance(found, tuple)
            else found
        )
        if kinds != expected:
            raise Violation("refusals", f"{command!r} was answered {found!r}, not {expected!r}")
        return bool(good)

    def _settle(self, command: SettleRuns | SettleMessages, messages: Sequence[Message]) -> None:
        if not messages:
            return
        # Deliveries in the order in which they were named; the messages of each in that of the delivery. What is given
        # back stands in the order in which it had been delivered.
        epochs = list(dict.fromkeys(message.epoch for message in messages))
        if command.action is Action.RELEASE:
            epochs.sort()
        chosen = {id(message) for message in messages}
        messages = [
            message
            for epoch in epochs
            for message in self._checker.epochs[epoch][2]
            if id(message) in chosen and message.epoch == epoch
        ]
        if command.action is Action.ACK:
            self._finish(messages)
        elif command.action is Action.NACK:
            waking = self._checker.fail(messages)
            if messages[0].queue.judged:
                messages[0].queue.shares.activate(waking)
        elif command.action is Action.RELEASE:
            self._release(messages)
        else:
            self._extend(messages, command.timeout_ms)

    def _finish(self, messages: Sequence[Message]) -> None:
        checker = self._checker
        for message in messages:
            if message.state is State.LEASED:
                checker.end_lease(message)
            else:
                checker.journal.save(message)
            message.queue.move(message, State.FINISHED)

    def _release(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._checker.end_lease(message)
        if messages:
            messages[0].queue.line_up(messages, front=True)

    def _extend(self, messages: Sequence[Message], timeout_ms: int) -> None:
        checker = self._checker
        for message in messages:
            checker.journal.save(message)
            message.deadline_ns = checker.now_ns + timeout_ms * limits.MS_NS
            checker.timers.set(message)

    # --- naming leases ----------------------------------------------------------------------------------

    def _leases(self, consumer: int, runs: Runs) -> Iterator[tuple[Message | None, Place]]:
        """Yield each place of the runs with its message, or None where that lease, or its consumer, has ended."""
        attached = consumer in self._checker.consumers
        for epoch, position in self._expand(runs):
            _, holder, messages = self._checker.epochs.get(epoch, (0, 0, ()))
            message = messages[position] if position < len(messages) else None
            if message is None or holder != consumer or not attached or not message.leased_under(epoch):
                yield None, (epoch, position)
            else:
                yield message, (epoch, position)

    def _expand(self, runs: Runs) -> list[Place]:
        """Return (epoch, position) of every message that the runs name; of one beyond the delivery, the first."""
        expanded = []
        for epoch, position, count in zip(runs.epochs, runs.positions, runs.counts, strict=True):
            length = len(self._checker.epochs[epoch][2]) if epoch in self._checker.epochs else 0
            end = min(length, position + count) if count else length
            expanded += [(epoch, place) for place in range(position, max(end, position + 1))]
        return expanded

    def _addressed(self, queue: QueueModel, address: Address) -> Message | None:
        message = queue.messages.get(address.offset)
        if (
            message is None
            or address.queue_number != queue.number
            or address.enqueued_at_ms != message.time_ms
        ):
            return None
        return message


def _gates_of(command: Enqueue, place: int) -> GateKeys:
    if command.gates is None:
        return NO_GATES
    return command.gates[0 if command.gate_index is None else command.gate_index[place]]


def _is_finished(queue: QueueModel, address: Address) -> bool:
    """Whether the address is of a message that was there and is not any more; the time of one is forgotten with it."""
    return (
        address.queue_number == queue.number
        and address.offset < queue.next_offset
        and address.offset not in queue.messages
    )


def _is_lost(message: Message, consumer: ConsumerModel, command: Detach) -> bool:
    """Whether the end of its consumer counts against a message: it was sent, and may have been begun."""
    seen = command.seen is None or message.epoch <= command.seen
    return command.lost and seen and (message.begun or not consumer.begun)


def _stats(queue: QueueModel, found: QueueStats) -> QueueStats:
    """Return what the queue's stats should be; what is judged apart is taken from `found`."""
    counts = queue.counts
    return QueueStats(
        number=queue.number,
        spec=queue.spec,
        depth=counts[State.WAITING] + counts[State.DELAYED],
        delayed=counts[State.DELAYED],
        in_flight=counts[State.LEASED],
        consumers=len(queue.consumers),
        active_keys=found.active_keys,
        next_offset=queue.next_offset,
        keys=found.keys,
        gates=found.gates,
    )
