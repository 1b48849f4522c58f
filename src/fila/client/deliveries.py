"""The consumer's side of a Subscribe stream, without I/O: deliveries become messages, settlements become frames.

Time comes in as seconds of a monotonic clock. What one turn of the caller's loop settles leaves in one frame, as runs,
and the credit that it frees leaves with it. It must not know who carries the frames, nor who waits for them.
"""

from collections import deque
from collections.abc import Awaitable
from typing import Protocol

from fila import limits
from fila.client.messages import DeliveredMessage, Settle
from fila.client.runs import RunsBuilder, read_runs
from fila.client.waiting import Pending
from fila.errors import Code, FilaError, MessageNotFoundError, RPCError
from fila.wire.ids import message_id
from fila.wire.v1.service_pb2 import (
    Delivery,
    ExtendRuns,
    NackRuns,
    Settled,
    SubscribeRequest,
    SubscribeResponse,
)

# What became of a place in a delivery.
_WAITING, _BEGUN, _SETTLED, _EXPIRED = range(4)


class Holder(Protocol):
    """Whoever can settle what a stream delivered."""

    def settle(self, message: DeliveredMessage, action: Settle, argument: str | int) -> Awaitable[None]:
        """Note it for the next frame; the result waits for the confirmation."""


class Held:
    """One delivery: its columns, and what became of each message."""

    __slots__ = (
        "_enqueued_at_ms",
        "_first_offset",
        "_offsets",
        "announced",
        "attempts",
        "bodies",
        "body_start",
        "count",
        "deadline",
        "epoch",
        "expires_at",
        "handed",
        "holder",
        "key_index",
        "keys",
        "lease_expires_at_ms",
        "leased_at_ms",
        "left",
        "queue",
        "queue_number",
        "sizes",
        "states",
        "weights",
    )

    def __init__(
        self, delivery: Delivery, *, holder: Holder, queue: str, queue_number: int, now: float
    ) -> None:
        self.holder = holder
        self.queue = queue
        self.queue_number = queue_number
        self.epoch = delivery.epoch
        self.leased_at_ms = delivery.leased_at_ms
        self.lease_expires_at_ms = delivery.lease_expires_at_ms
        # The broker's clock is not ours: only how long the lease lasts can be compared. It was on its way for a
        # while, so this is late rather than early, and the broker has the last word.
        self.deadline = now + (delivery.lease_expires_at_ms - delivery.leased_at_ms) / 1000
        # Pushed back by extensions of messages in work.
        self.expires_at = self.deadline
        self.sizes: list[int] = delivery.sizes[:]
        self.count = len(self.sizes)
        self.bodies = delivery.bodies
        self.keys: list[str] = list(delivery.keys)
        self.key_index: list[int] = delivery.key_index[:]
        self.weights: list[int] = delivery.weights[:]
        self.attempts: list[int] = delivery.attempts[:]
        self._first_offset = delivery.first_offset
        self._offsets: list[int] = delivery.offsets[:]
        self._enqueued_at_ms: list[int] = delivery.enqueued_at_ms[:]
        self.states = bytearray(self.count)
        self.left = self.count
        # Places before it were handed out, and the first so many of those were reported as begun.
        self.handed = 0
        self.announced = 0
        self.body_start = 0

    def check(self) -> None:
        """Raise RPCError if the columns contradict each other."""
        count = self.count
        optional = (self.key_index, self.weights, self.attempts, self._offsets)
        if (
            not count
            or sum(self.sizes) != len(self.bodies)
            or any(column and len(column) != count for column in optional)
            or len(self._enqueued_at_ms) not in (1, count)
            or not self.keys
            or (self.key_index and max(self.key_index) >= len(self.keys))
        ):
            raise RPCError(f"the columns of delivery {self.epoch} contradict each other", Code.INTERNAL)

    def offset(self, position: int) -> int:
        """Return a message's place in the queue."""
        return self._offsets[position] if self._offsets else self._first_offset + position

    def enqueued_at_ms(self, position: int) -> int:
        """Return when the broker took a message."""
        times = self._enqueued_at_ms
        return times[position] if len(times) > 1 else times[0]

    def message_id(self, position: int) -> str:
        """Return a message's id."""
        return message_id(self.queue_number, self.offset(position), self.enqueued_at_ms(position))


class Frame(Pending):
    """What was settled together, and is confirmed together."""

    __slots__ = (
        "ack",
        "error_characters",
        "extended",
        "extends",
        "nacks",
        "refused",
        "release",
        "sequence",
    )

    def __init__(self) -> None:
        super().__init__()
        self.sequence = 0
        self.ack = RunsBuilder()
        self.release = RunsBuilder()
        self.nacks: dict[str, RunsBuilder] = {}
        self.error_characters = 0
        self.extends: dict[int, RunsBuilder] = {}
        # The timeout, in ms, by epoch and position.
        self.extended: dict[tuple[int, int], int] = {}
        self.refused: list[tuple[int, int, int, str]] = []

    def outcome(self, epoch: int, position: int) -> FilaError | None:
        """Return why the settlement of one message failed, or None if it is durable."""
        if self.error is not None:
            return self.error
        for refused_epoch, start, count, reason in self.refused:
            if refused_epoch == epoch and start <= position and (not count or position < start + count):
                return MessageNotFoundError(reason or "the lease had ended")
        return None


class DeliveriesCore:
    """Keeps what a stream holds, and writes its frames."""

    def __init__(
        self,
        queue: str,
        *,
        holder: Holder,
        prefetch: int = limits.PREFETCH_MESSAGES,
        prefetch_bytes: int = limits.PREFETCH_BYTES,
    ) -> None:
        self.queue = queue
        self._holder = holder
        self._prefetch = prefetch
        self._prefetch_bytes = prefetch_bytes
        self._queue_number = 0
        self._waiting: deque[Held] = deque()
        self._held: dict[int, Held] = {}
        # Deliveries with places handed out since the last frame.
        self._begun: list[Held] = []
        # All but the last are closed: they wait for their turn to be written.
        self._unsent: deque[Frame] = deque()
        self._sent: deque[Frame] = deque()
        self._sequence = 0
        self._first = True
        self._credit_messages = prefetch
        self._credit_bytes = prefetch_bytes
        self.stopped = False
        self.failed: FilaError | None = None

    # --- what comes in ---

    def on_response(self, response: SubscribeResponse, now: float) -> None:
        """Take a frame of the broker. Raises RPCError for one that contradicts itself."""
        if response.HasField("delivery"):
            self._on_delivery(response.delivery, now)
        if response.HasField("settled"):
            self._on_settled(response.settled)
        if response.HasField("subscribed"):
            self._queue_number = response.subscribed.queue_number

    def _on_delivery(self, delivery: Delivery, now: float) -> None:
        held = Held(delivery, holder=self._holder, queue=self.queue, queue_number=self._queue_number, now=now)
        held.check()
        self._held[held.epoch] = held
        if self.stopped:
            self._give_back(held)
        else:
            self._waiting.append(held)

    def _on_settled(self, settled: Settled) -> None:
        by_sequence = {frame.sequence: frame for frame in self._sent} if settled.refused else {}
        for refused in settled.refused:
            frame = by_sequence.get(refused.sequence)
            if frame is not None:
                frame.refused += [
                    (epoch, position, count, refused.reason)
                    for epoch, position, count in read_runs(refused.runs)
                ]
        while self._sent and self._sent[0].sequence <= settled.sequence:
            self._sent.popleft().resolve()

    def fail(self, error: FilaError) -> None:
        """The stream is gone: nothing more is confirmed, and the broker has taken the leases back."""
        if self.failed is not None:
            return
        self.failed = error
        self.stopped = True
        self._waiting.clear()
        self._held.clear()
        self._begun.clear()
        frames = [*self._sent, *self._unsent]
        self._sent.clear()
        self._unsent.clear()
        for frame in frames:
            frame.resolve(error)

    # --- what is asked ---

    def take(self, now: float) -> DeliveredMessage | None:
        """Return the next message, which thereby is begun, or None while there is none."""
        waiting = self._waiting
        while waiting:
            held = waiting[0]
            position = held.handed
            if position == held.count or now >= held.deadline:
                # What was not handed out in time is someone else's by now.
                waiting.popleft()
                if now >= held.deadline:
                    self._expire(held, position)
                continue
            start = held.body_start
            held.body_start = start + held.sizes[position]
            held.handed = position + 1
            held.states[position] = _BEGUN
            if not self._begun or self._begun[-1] is not held:
                self._begun.append(held)
            return DeliveredMessage(held, position, start)
        return None

    @property
    def in_work(self) -> int:
        """How many messages were handed out and are neither settled nor expired."""
        return sum(held.states.count(_BEGUN) for held in self._held.values())

    @property
    def has_output(self) -> bool:
        """Whether `next_frame` has something to say."""
        return self._first or bool(self._unsent) or bool(self._begun) or self._credit_due

    def settle(self, held: Held, position: int, action: Settle, argument: str | int, now: float) -> Frame:
        """Note a settlement for the next frame and return that frame.

        Raises MessageNotFoundError for what was settled before, and the stream's error if it is gone.
        """
        if self.failed is not None:
            raise MessageNotFoundError(f"the lease ended with its stream: {self.failed.message}")
        state = held.states[position]
        if state == _SETTLED:
            raise MessageNotFoundError(f"message {held.message_id(position)} was settled before")
        if action is Settle.EXTEND:
            assert isinstance(argument, int)
            frame = self._extending_frame(held, position, argument)
            held.expires_at = max(held.expires_at, now + argument / 1000)
            return frame
        frame = self._open_frame()
        if action is Settle.ACK:
            frame.ack.add(held.epoch, position)
        elif action is Settle.NACK:
            assert isinstance(argument, str)
            if argument not in frame.nacks:
                frame.nacks[argument] = RunsBuilder()
                frame.error_characters += len(argument)
            frame.nacks[argument].add(held.epoch, position)
        else:
            frame.release.add(held.epoch, position)
        held.states[position] = _SETTLED
        # The credit of an expired lease was taken back when it expired.
        if state != _EXPIRED:
            self._free(held, held.sizes[position], 1)
        return frame

    def stop(self) -> None:
        """Ask for no more, and give back what was not handed out."""
        if self.stopped:
            return
        self.stopped = True
        while self._waiting:
            self._give_back(self._waiting.popleft())

    def expire(self, now: float) -> None:
        """Take back the credit of leases that ran out by our clock."""
        for held in list(self._held.values()):
            if now >= held.expires_at:
                self._expire(held, 0)

    @property
    def next_expiry(self) -> float | None:
        """When `expire` should be called next."""
        return min((held.expires_at for held in self._held.values()), default=None)

    # --- what goes out ---

    def next_frame(self) -> SubscribeRequest | None:
        """Return the next frame to write, or None while there is nothing to say."""
        if self.failed is not None or not self.has_output:
            return None
        request = SubscribeRequest()
        if self._first:
            self._first = False
            request.queue = self.queue
        begun = self._take_begun()
        if begun:
            request.begun.CopyFrom(begun.message())
        if self._unsent:
            frame = self._unsent.popleft()
            self._sequence += 1
            frame.sequence = request.sequence = self._sequence
            self._sent.append(frame)
            if frame.ack:
                request.ack.CopyFrom(frame.ack.message())
            if frame.release:
                request.release.CopyFrom(frame.release.message())
            request.nack.extend(
                NackRuns(runs=runs.message(), error=error) for error, runs in frame.nacks.items()
            )
            request.extend.extend(
                ExtendRuns(runs=runs.message(), timeout_ms=timeout_ms)
                for timeout_ms, runs in frame.extends.items()
            )
        if not self.stopped:
            request.credit_messages, self._credit_messages = self._credit_messages, 0
            request.credit_bytes, self._credit_bytes = self._credit_bytes, 0
        # Begun and settled within one turn: there may be nothing left to say.
        return request if request.ByteSize() else None

    @property
    def _credit_due(self) -> bool:
        # Credit travels with settlements; on its own only when so much has expired that the stream might dry up.
        return not self.stopped and self._credit_messages * 2 >= self._prefetch

    def _open_frame(self) -> Frame:
        # A frame says nothing of order: an extension and the end of the same lease must not meet in one.
        if self._unsent:
            frame = self._unsent[-1]
            if (
                not frame.extends
                and frame.error_characters < limits.SETTLE_ERRORS_CHARACTERS
                and len(frame.nacks) < limits.SETTLE_ACTIONS_MAX
            ):
                return frame
        return self._new_frame()

    def _extending_frame(self, held: Held, position: int, timeout_ms: int) -> Frame:
        """Note an extension, once: a frame that says it twice would be told that the second came too late."""
        place = held.epoch, position
        frame = self._unsent[-1] if self._unsent else self._new_frame()
        said_ms = frame.extended.get(place)
        if said_ms == timeout_ms:
            return frame
        if said_ms is not None or len(frame.nacks) + len(frame.extends) >= limits.SETTLE_ACTIONS_MAX:
            # With another timeout the later one counts: so it has to come in a frame after this one.
            frame = self._new_frame()
        frame.extended[place] = timeout_ms
        frame.extends.setdefault(timeout_ms, RunsBuilder()).add(held.epoch, position)
        return frame

    def _new_frame(self) -> Frame:
        frame = Frame()
        self._unsent.append(frame)
        return frame

    def _take_begun(self) -> RunsBuilder:
        builder = RunsBuilder()
        for held in self._begun:
            states, announced = held.states, held.announced
            for position in range(announced, held.handed):
                if states[position] == _BEGUN:
                    builder.add(held.epoch, position)
            held.announced = held.handed
        self._begun.clear()
        return builder

    def _give_back(self, held: Held) -> None:
        first = held.handed
        if first == held.count:
            return
        frame = self._open_frame()
        frame.release.add(held.epoch, first, held.count - first)
        held.states[first:] = bytes([_SETTLED]) * (held.count - first)
        held.handed = held.count
        self._free(held, sum(held.sizes[first:]), held.count - first)

    def _expire(self, held: Held, first: int) -> None:
        """Give up on what is left of a delivery from a place on."""
        states, freed_bytes, freed = held.states, 0, 0
        for position in range(first, held.count):
            if states[position] in (_WAITING, _BEGUN):
                states[position] = _EXPIRED
                freed += 1
                freed_bytes += held.sizes[position]
        held.handed = held.count
        self._free(held, freed_bytes, freed)

    def _free(self, held: Held, freed_bytes: int, freed: int) -> None:
        self._credit_messages += freed
        self._credit_bytes += freed_bytes
        held.left -= freed
        if not held.left:
            self._held.pop(held.epoch, None)
