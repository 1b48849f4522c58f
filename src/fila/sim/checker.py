"""The judge: told commands, outcomes and crashes, it keeps its own account of them and raises at the first broken law.

It is told of each step as the core decided it (`stepped`), of what became durable, of what reached the clients, and of
what a crash took. It never looks at writes or at the core's memory, so a promise that only the core believes in is found.
"""

from collections.abc import Sequence

from fila import limits
from fila.core.commands import Command
from fila.core.model import NO_GATES
from fila.core.outcome import Delivery, Outcome
from fila.errors import QueueNotFoundError
from fila.sim.answers import Answers
from fila.sim.gates import NEVER, SLACK_NS, Gates
from fila.sim.model import (
    STATES,
    ConsumerModel,
    Journal,
    Message,
    QueueModel,
    State,
    Timers,
    backoff_ns,
    describe,
)
from fila.sim.shares import Share
from fila.sim.violation import Violation


class Checker:
    """The account of one broker, through all its restarts."""

    def __init__(self) -> None:
        self.queues: dict[str, QueueModel] = {}
        self.numbers: dict[int, QueueModel] = {}
        self.consumers: dict[int, ConsumerModel] = {}
        self.now_ns = 0
        self.next_number = 1
        self.timers = Timers()
        self.journal = Journal()
        self.gates = Gates()
        # What each delivery held, by epoch, also of those that a crash took: epochs never come again.
        self.epochs: dict[int, tuple[int, int, tuple[Message, ...]]] = {}
        self.delivered_messages = 0
        self.steps = 0
        self._promised: set[int] = set()
        self._durable = -1
        self._answers = Answers(self)

    # --- what the host tells ----------------------------------------------------------------------------

    def stepped(self, commands: Sequence[tuple[Command, bytes]], outcome: Outcome) -> None:
        """Judge a step as it was decided: its replies, closings and deliveries."""
        if outcome.now_ns < self.now_ns:
            raise Violation("time", f"step {outcome.step} went back by {self.now_ns - outcome.now_ns} ns")
        self.now_ns = outcome.now_ns
        self.steps += 1
        self.journal.begin(outcome.step, outcome.now_ns)
        self.gates.at(outcome.now_ns)
        self._wake_up()
        replies = dict(outcome.replies)
        if len(replies) != len(outcome.replies):
            raise Violation("replies", f"step {outcome.step} answered a request twice")
        closed: list[int] = []
        changed = False
        for command, bodies in commands:
            changed |= self._answers.judge(command, bodies, replies, closed)
        if replies:
            raise Violation("replies", f"step {outcome.step} answered what was not asked: {replies}")
        self._check_closings(outcome, closed)
        if changed:
            self._promised.add(outcome.step)
            if not outcome.must_sync:
                raise Violation(
                    "durability", f"step {outcome.step} changed what must be durable and asks for no sync"
                )
        for delivery in outcome.deliveries:
            self._judge_delivery(delivery)
        self._check_work_conserved()
        for queue in self.queues.values():
            if queue.shares.has_strangers:
                self.gates.rest(queue, spare=any(map(_could_take, queue.consumers.values())))

    def durable(self, step: int) -> None:
        """Take note that the writes of all steps up to this one were synced."""
        self._durable = max(self._durable, step)
        self.journal.forget(step)

    def answered(self, step: int) -> None:
        """Judge that the replies of a step reach the clients."""
        if step in self._promised:
            self._promised.discard(step)
            if step > self._durable:
                # What a crash now loses was promised: the earliest moment to say so.
                raise Violation("durability", f"step {step} was answered before its writes were durable")

    def received(self, delivery: Delivery, bodies: bytes | None) -> None:
        """Judge the bodies, back to back, that reach a consumer; None: the store had them no more."""
        _, _, messages = self.epochs[delivery.epoch]
        if bodies is None and any(
            message.queue.deleted or message.state is State.FINISHED for message in messages
        ):
            # While the delivery was on its way, somebody else has acked one of them by its address, or deleted the queue.
            return
        if bodies != b"".join([message.body for message in messages]):
            raise Violation(
                "bodies", f"delivery {delivery.epoch} of {describe(messages[0])} and others: {bodies!r:.200}"
            )

    def sleeps_until(self, wake_ns: int | None) -> None:
        """Judge when the core wants to be woken."""
        due_ns = self.timers.next_ns()
        if due_ns is not None and (wake_ns is None or wake_ns > due_ns):
            raise Violation(
                "timers", f"a lease or delay ends at {due_ns}, and the core sleeps until {wake_ns}"
            )
        opens_ns, message = self._next_opening()
        if opens_ns < NEVER and (wake_ns is None or wake_ns > opens_ns + SLACK_NS):
            raise Violation(
                "timers", f"{describe(message)} may go at {opens_ns}, and the core sleeps until {wake_ns}"
            )

    def crashed(self, survived_step: int) -> None:
        """Take back what a crash took: consumers, and every step after the last one in the store."""
        self.now_ns = 0
        if survived_step < self._durable:
            raise Violation(
                "durability",
                f"step {self._durable} was synced, and the store came back at step {survived_step}",
            )
        for kind, *rest in self.journal.take_back(survived_step):
            self._take_back(str(kind), rest)
        self._promised = {step for step in self._promised if step <= survived_step}
        self._durable = survived_step
        self.journal.forget(survived_step)
        self.consumers.clear()
        self.timers = Timers()
        for queue in self.numbers.values():
            queue.consumers.clear()
            queue.counts = [0] * len(STATES)
            for message in queue.messages.values():
                message.consumer = None
                message.begun = False
                if message.state is State.WAITING and message.attempts:
                    # The store says when it may be tried, and not where it stood: it lines up again at the first step.
                    message.state = State.DELAYED
                queue.counts[message.state] += 1
                if message.state in {State.LEASED, State.DELAYED}:
                    self.timers.set(message)
            queue.rebuild()
        self.gates.crashed(survived_step)
        for queue in self.numbers.values():
            for message in queue.messages.values():
                if message.state is State.LEASED:
                    self.gates.begun(message.gates)

    def opened(self, now_ns: int) -> None:
        """Judge the time at which a broker starts: not before anything that the store knows of."""
        if now_ns < self.journal.survived_ns:
            raise Violation(
                "time", f"the broker starts at {now_ns}, and has stored {self.journal.survived_ns}"
            )
        self.now_ns = now_ns
        if self.steps:
            self.gates.opened(now_ns)

    def drained(self) -> None:
        """Judge the end of a run in which everything was consumed and acked."""
        for queue in self.queues.values():
            for message in queue.messages.values():
                raise Violation("nothing is lost", f"{describe(message)} was never delivered and acked")

    # --- what the answers use ---------------------------------------------------------------------------

    def fail(self, messages: Sequence[Message], *, ordered: bool = True) -> list[Share]:
        """Count a failed attempt of leased messages: the first is tried again at once, the others later.

        Return the keys that this wakes, for the caller to activate.
        """
        at_once: list[Message] = []
        for message in messages:
            self.end_lease(message)
            message.attempts += 1
            if not self._delay(message):
                at_once.append(message)
        return at_once[0].queue.place(at_once, ordered=ordered) if at_once else []

    def _delay(self, message: Message) -> bool:
        """Let a message that has failed wait for its time; False if it may be tried at once."""
        span_ns = backoff_ns(message.attempts)
        message.not_before_ns = self.now_ns + span_ns
        if not span_ns:
            return False
        message.queue.move(message, State.DELAYED)
        self.timers.set(message)
        return True

    def end_lease(self, message: Message) -> None:
        """Take a lease away; a consumer with `refill` gets credit back for it, once its delivery is on its way."""
        self.journal.save(message)
        self.gates.ended(message.gates)
        self.gates.disturb((message,))
        consumer, epoch = message.consumer, message.epoch
        message.epoch = 0
        message.begun = False
        message.consumer = None
        if consumer is not None:
            del consumer.held[message.queue.number, message.offset]
            if not consumer.refill or not consumer.attached:
                return
            if epoch in consumer.unsent:
                messages, byte_count = consumer.unsent[epoch]
                consumer.unsent[epoch] = (messages + 1, byte_count + message.size)
            else:
                consumer.grant(1, message.size)

    def detach(self, consumer: ConsumerModel) -> None:
        """Forget a consumer; its leases have no holder."""
        consumer.attached = False
        for message in consumer.held.values():
            message.consumer = None
        consumer.held.clear()
        del consumer.queue.consumers[consumer.number]
        del self.consumers[consumer.number]

    # --- a step -----------------------------------------------------------------------------------------

    def _wake_up(self) -> None:
        """End the leases and delays whose time has come, before any command."""
        due = self.timers.pop_due(self.now_ns)
        if not due:
            return
        ready: dict[int, list[Message]] = {}
        for message in due:
            self.journal.save(message)
            if message.state is State.LEASED:
                self.end_lease(message)
                message.attempts += 1
                if self._delay(message):
                    continue
            self.gates.disturb((message,))
            ready.setdefault(message.queue.number, []).append(message)
        for messages in ready.values():
            messages[0].queue.line_up(messages, ordered=False)

    def _check_closings(self, outcome: Outcome, closed: list[int]) -> None:
        found = [consumer for consumer, _ in outcome.closings]
        if sorted(found) != sorted(closed):
            raise Violation("closings", f"consumers {found} were closed, not {closed}")
        for consumer, error in outcome.closings:
            if not isinstance(error, QueueNotFoundError):
                raise Violation("closings", f"consumer {consumer} was closed with {error!r}")

    def _judge_delivery(self, delivery: Delivery) -> None:
        consumer = self.consumers.get(delivery.consumer)
        queue = self.numbers.get(delivery.queue)
        count = len(delivery.offsets)
        if (
            consumer is None
            or queue is None
            or consumer.queue is not queue
            or delivery.queue_name != queue.spec.name
        ):
            raise Violation(
                "deliveries", f"consumer {delivery.consumer} is not attached to queue {delivery.queue}"
            )
        if delivery.epoch in self.epochs:
            raise Violation("epochs", f"epoch {delivery.epoch} was used before")
        deadline_ns = self.now_ns + queue.spec.visibility_timeout_ms * limits.MS_NS
        if (delivery.leased_at_ns, delivery.deadline_ns) != (self.now_ns, deadline_ns):
            raise Violation(
                "leases", f"delivery {delivery.epoch} ends at {delivery.deadline_ns}, not {deadline_ns}"
            )
        if not 1 <= count <= limits.DELIVERY_MESSAGES_MAX:
            raise Violation("deliveries", f"delivery {delivery.epoch} has {count} messages")
        self._check_credit(consumer, count, sum(delivery.sizes))
        messages = tuple(self._lease(queue, consumer, delivery, place) for place in range(count))
        self.epochs[delivery.epoch] = (queue.number, consumer.number, messages)
        self.delivered_messages += count
        if consumer.once:
            self.detach(consumer)
        elif consumer.refill:
            consumer.unsent[delivery.epoch] = (0, 0)

    def _check_credit(self, consumer: ConsumerModel, count: int, byte_count: int) -> None:
        if count > consumer.messages:
            raise Violation(
                "credit",
                f"consumer {consumer.number} has credit for {consumer.messages} messages and got {count}",
            )
        if byte_count > consumer.bytes and (count > 1 or consumer.held):
            raise Violation(
                "credit",
                f"consumer {consumer.number} has credit for {consumer.bytes} bytes and got {byte_count}",
            )
        consumer.messages -= count
        consumer.bytes -= byte_count

    def _lease(self, queue: QueueModel, consumer: ConsumerModel, delivery: Delivery, place: int) -> Message:
        offset = delivery.offsets[place]
        message = queue.messages.get(offset)
        if message is None:
            if offset >= queue.next_offset:
                raise Violation("deliveries", f"offset {offset} of queue {queue.spec.name!r} was never given")
            raise Violation(
                "acked stays acked",
                f"offset {offset} of queue {queue.spec.name!r} is finished and was delivered",
            )
        if message.state is State.LEASED:
            raise Violation("one lease", f"{describe(message)} has the lease {message.epoch} and got another")
        if message.state is State.DELAYED:
            raise Violation(
                "back-off", f"{describe(message)} waits until {message.not_before_ns}; it is {self.now_ns}"
            )
        self._check_columns(message, delivery, place)
        self.gates.check(message, self.journal.step)
        self.gates.left(message)
        self.gates.begun(message.gates)
        queue.take(message)
        self.journal.save(message)
        queue.move(message, State.LEASED)
        message.epoch = delivery.epoch
        message.deadline_ns = delivery.deadline_ns
        message.consumer = consumer
        message.begun = False
        consumer.held[queue.number, offset] = message
        self.timers.set(message)
        return message

    def _check_columns(self, message: Message, delivery: Delivery, place: int) -> None:
        weights, attempts = delivery.weights, delivery.attempts
        found = (
            delivery.keys[delivery.key_index[place]],
            delivery.sizes[place],
            delivery.times_ms[place],
            1 if weights is None else weights[place],
            0 if attempts is None else attempts[place],
        )
        gates = NO_GATES
        if delivery.gates is not None:
            gates = delivery.gates[0 if delivery.gate_index is None else delivery.gate_index[place]]
        if gates != message.gates:
            raise Violation("columns", f"{describe(message)} was delivered with {gates}, not {message.gates}")
        expected = (message.key, message.size, message.time_ms, message.weight, message.attempts)
        if found != expected:
            raise Violation(
                "columns",
                f"{describe(message)} was delivered with key, size, time, weight, attempts {found}, not {expected}",
            )

    def _check_work_conserved(self) -> None:
        """Nobody waits while there is room: a consumer with credit and a message that fits never look at each other."""
        for queue in self.queues.values():
            if not queue.counts[State.WAITING]:
                continue
            if queue.shares.has_strangers and not self._free_to_go(queue):
                continue
            for consumer in queue.consumers.values():
                if (
                    consumer.messages > 0
                    and consumer.bytes > 0
                    and (not consumer.held or consumer.bytes >= queue.body_bytes_max)
                ):
                    raise Violation(
                        "work conservation",
                        f"queue {queue.spec.name!r} has {queue.counts[State.WAITING]} waiting, and consumer"
                        f" {consumer.number} credit for {consumer.messages} messages and {consumer.bytes} bytes",
                    )

    def _free_to_go(self, queue: QueueModel) -> list[Message]:
        """Return the heads of lanes that all their gates surely let through."""
        heads = [lane[0] for lane in queue.lanes()]
        dearest = self._dearest()
        return [head for head in heads if self.gates.opens_ns(head, dearest) + SLACK_NS <= self.now_ns]

    def _dearest(self) -> int:
        """Return the largest cost of all that waits: whose turn it is at a gate may have that."""
        return max(
            (message.cost for queue in self.queues.values() for lane in queue.lanes() for message in lane),
            default=1,
        )

    def _next_opening(self) -> tuple[int, Message]:
        """Return when the next message may go that somebody could take."""
        found: tuple[int, Message | None] = (NEVER, None)
        dearest = 0
        for queue in self.queues.values():
            if not (queue.shares.has_strangers and queue.counts[State.WAITING]):
                continue
            if not any(map(_could_take, queue.consumers.values())):
                continue
            dearest = dearest or self._dearest()
            for lane in queue.lanes():
                opens_ns = self.gates.opens_ns(lane[0], dearest)
                if self.now_ns < opens_ns < found[0]:
                    found = (opens_ns, lane[0])
        return found  # type: ignore[return-value]

    # --- a crash ----------------------------------------------------------------------------------------

    def _take_back(self, kind: str, rest: list[object]) -> None:
        if kind == "message":
            message, state, attempts, not_before_ns, epoch, deadline_ns = rest
            assert isinstance(message, Message)
            assert isinstance(state, int)
            if message.state is State.FINISHED and state is not State.FINISHED:
                message.queue.messages[message.offset] = message
            message.state = state
            message.attempts, message.not_before_ns = attempts, not_before_ns  # type: ignore[assignment]
            message.epoch, message.deadline_ns = epoch, deadline_ns  # type: ignore[assignment]
            return
        if kind == "config":
            key, value = rest
            assert isinstance(key, str)
            if value is None:
                self.gates.config.pop(key, None)
            else:
                self.gates.config[key] = value  # type: ignore[assignment]
            return
        queue, before = rest
        assert isinstance(queue, QueueModel)
        assert isinstance(before, int)
        if kind == "append":
            for offset in range(before, queue.next_offset):
                queue.messages.pop(offset, None)
            queue.next_offset = before
        elif kind == "create":
            del self.queues[queue.spec.name], self.numbers[queue.number]
            self.next_number = before
        else:
            assert kind == "delete"
            queue.deleted = False
            self.queues[queue.spec.name] = self.numbers[queue.number] = queue


def _could_take(consumer: ConsumerModel) -> bool:
    """Whether a consumer has room for any message of its queue."""
    queue = consumer.queue
    return (
        consumer.messages > 0
        and consumer.bytes > 0
        and (not consumer.held or consumer.bytes >= queue.body_bytes_max)
    )
