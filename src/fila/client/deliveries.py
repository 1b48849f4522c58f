"""The consumer's side of a Subscribe stream, without I/O: deliveries become messages, settlements become frames.

Time comes in as seconds of a monotonic clock. What one turn of the caller's loop settles leaves in one frame, as runs,
and the credit that it frees leaves with it. It must not know who carries the frames, nor who waits for them.

A stream may be lost and followed by another. Deliveries of the lost one are *adrift*: their leases may live on in the
broker, but the new stream does not know them, so what is still to be said of them is said by message id.
"""

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from fila import limits
from fila.client.frame import Frame, Places
from fila.client.held import BEGUN, EXPIRED, SETTLED, WAITING, Held, Holder
from fila.client.messages import Delivered, Settle
from fila.client.runs import RunsBuilder, read_runs
from fila.client.window import Window
from fila.errors import FilaError, MessageNotFoundError
from fila.wire.v1.service_pb2 import (
    Delivery,
    ExtendRuns,
    NackRuns,
    Settled,
    SubscribeRequest,
    SubscribeResponse,
)

DeliveredT = TypeVar("DeliveredT", bound=Delivered)


@dataclass(frozen=True, slots=True)
class Adrift:
    """What a lost stream leaves to be said by message id."""

    # Settled, and not confirmed.
    frames: list[Frame]
    # Leased, and not handed out: to be given back.
    waiting: list[Places]


class DeliveriesCore(Generic[DeliveredT]):
    """Keeps what a stream holds, and writes its frames."""

    def __init__(
        self,
        queue: str,
        *,
        holder: Holder,
        message_type: type[DeliveredT],
        prefetch: int | None = None,
        prefetch_bytes: int = limits.PREFETCH_BYTES,
    ) -> None:
        self.queue = queue
        self._holder = holder
        self._message_type = message_type
        self._window = Window(prefetch or limits.PREFETCH_MESSAGES, fixed=prefetch is not None)
        self._prefetch_bytes = prefetch_bytes
        # What the open stream has leased to us, and what it may still send.
        self._leased = self._leased_bytes = 0
        self._granted = self._granted_bytes = 0
        # Whether leases are kept alive, also of what waits for the loop.
        self._is_kept = False
        # Whether the loop has asked in vain.
        self._is_asking = False
        self._queue_number = 0
        # Counts the streams.
        self.generation = 0
        self._waiting: deque[Held] = deque()
        self._held: dict[int, Held] = {}
        # Deliveries of lost streams with messages in work.
        self._adrift: dict[int, Held] = {}
        # How many messages are settled and not confirmed.
        self.unconfirmed = 0
        # How many acks came when their leases had ended, since somebody asked.
        self.late_acks = 0
        # Deliveries with places handed out since the last frame.
        self._begun: list[Held] = []
        # All but the last are closed: they wait for their turn to be written.
        self._unsent: deque[Frame] = deque()
        self._sent: deque[Frame] = deque()
        self._sequence = 0
        self._first = True
        self._stop_is_told = False
        # Set when we want no more.
        self.stopped = False
        # Set when the broker will send no more.
        self.stopping = False
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
        if response.stopping:
            # What was not handed out goes back by itself.
            self.stopping = True
            self._forget_waiting()

    def _on_delivery(self, delivery: Delivery, now: float) -> None:
        held = Held(
            delivery,
            holder=self._holder,
            queue=self.queue,
            queue_number=self._queue_number,
            generation=self.generation,
            now=now,
        )
        held.check()
        self._held[held.epoch] = held
        size = len(held.bodies)
        self._leased += held.count
        self._leased_bytes += size
        self._granted -= held.count
        self._granted_bytes -= size
        self._is_asking = False
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
            frame = self._sent.popleft()
            if frame.refused:
                self.late_acks += frame.refused_acks()
            self.resolve(frame)

    def resolve(self, frame: Frame, error: FilaError | None = None) -> None:
        """A frame is confirmed, or never will be."""
        self.unconfirmed -= frame.count
        frame.resolve(error)

    def lost(self) -> Adrift:
        """The stream is gone, and another may follow: return what has to be said without it."""
        waiting = [(held, held.handed, held.count - held.handed) for held in self._waiting]
        adrift = Adrift([*self._sent, *self._unsent], [places for places in waiting if places[2]])
        self._forget_waiting()
        self._adrift |= self._held
        self._held.clear()
        self._begun.clear()
        self._sent.clear()
        self._unsent.clear()
        self.generation += 1
        self._sequence = 0
        self._first = True
        self.stopping = False
        self._leased = self._leased_bytes = self._granted = self._granted_bytes = 0
        return adrift

    def fail(self, error: FilaError) -> None:
        """The stream is gone, and none will follow: nothing more is confirmed."""
        if self.failed is not None:
            return
        self.failed = error
        self.stopped = True
        for frame in self.lost().frames:
            self.resolve(frame, error)

    def _forget_waiting(self) -> None:
        """Drop what was not handed out: it is not ours any more, or will not be for long."""
        for held in self._waiting:
            self._settle_rest(held)
        self._waiting.clear()

    def _settle_rest(self, held: Held) -> None:
        first, rest = held.handed, held.count - held.handed
        held.states[first:] = bytes([SETTLED]) * rest
        held.handed = held.count
        self._free(held, sum(held.sizes[first:]), rest)

    # --- what is asked ---

    def take(self, now: float) -> DeliveredT | None:
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
                else:
                    self._window.worked_off(held.count, now - held.started_at)
                continue
            start = held.body_start
            held.body_start = start + held.sizes[position]
            held.handed = position + 1
            held.states[position] = BEGUN
            if position == held.announced:
                self._begun.append(held)
                if not position:
                    held.started_at = now
            return self._message_type(held, position, start)
        self._is_asking = True
        return None

    @property
    def in_work(self) -> int:
        """How many messages were handed out and are neither settled nor expired."""
        return sum(
            held.states.count(BEGUN) for helds in (self._held, self._adrift) for held in helds.values()
        )

    @property
    def in_work_adrift(self) -> bool:
        """Whether something that a lost stream had brought is still in work."""
        return bool(self._adrift)

    @property
    def has_held(self) -> bool:
        """Whether the stream that is open still holds leases."""
        return bool(self._held)

    @property
    def has_output(self) -> bool:
        """Whether `next_frame` has something to say."""
        return (
            self._first
            or bool(self._unsent)
            or bool(self._begun)
            or self._credit_due
            or (self.stopped and not self._stop_is_told)
        )

    def settle(
        self, held: Held, position: int, action: Settle, argument: str | int, now: float
    ) -> Frame | None:
        """Note a settlement for the next frame and return that frame; None where it has to be said by message id.

        Raises MessageNotFoundError for what was settled before, and when the stream is gone for good.
        """
        state = held.states[position]
        if state == SETTLED:
            raise MessageNotFoundError(f"message {held.message_id(position)} was settled before")
        if self.failed is not None:
            raise MessageNotFoundError(f"the lease ended with its stream: {self.failed.message}")
        if held.generation != self.generation:
            self._settle_adrift(held, position, action, argument, now)
            return None
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
        frame.helds[held.epoch] = held
        frame.count += 1
        self.unconfirmed += 1
        held.states[position] = SETTLED
        # The credit of an expired lease was taken back when it expired.
        if state != EXPIRED:
            # As `_free` does, without a call for each message.
            self._leased -= 1
            self._leased_bytes -= held.sizes[position]
            held.left -= 1
            if not held.left:
                self._held.pop(held.epoch, None)
        return frame

    def _settle_adrift(
        self, held: Held, position: int, action: Settle, argument: str | int, now: float
    ) -> None:
        if action is Settle.EXTEND:
            assert isinstance(argument, int)
            held.expires_at = max(held.expires_at, now + argument / 1000)
            return
        held.states[position] = SETTLED
        held.left -= 1
        if not held.left:
            self._adrift.pop(held.epoch, None)

    def keep_alive(self, now: float) -> tuple[Frame | None, dict[int, list[Places]]]:
        """Extend what is held and more than half through its lease, in a frame.

        Return that frame, and what is adrift, by the timeout in ms that it is to have.

        What was not handed out yet is kept as well: it waits for whoever is at work.
        """
        self._is_kept = True
        frame: Frame | None = None
        for held in self._held.values():
            if held.kept_until - now > held.timeout_seconds / 2:
                continue
            timeout_ms = round(held.timeout_seconds * 1000)
            for position, count in held.open_runs():
                frame = self._extending_frame(held, position, timeout_ms, count)
            held.expires_at = held.deadline = held.kept_until = now + held.timeout_seconds
        adrift: dict[int, list[Places]] = {}
        for held in self._adrift.values():
            if held.kept_until - now <= held.timeout_seconds / 2:
                held.expires_at = held.kept_until = now + held.timeout_seconds
                timeout_ms = round(held.timeout_seconds * 1000)
                places = adrift.setdefault(timeout_ms, [])
                places += [(held, position, count) for position, count in held.open_runs()]
        return frame, adrift

    def give_up_adrift(self) -> list[Places]:
        """Forget what lost streams brought and is still in work, and return it, to be given back."""
        places = [
            (held, position, count) for held in self._adrift.values() for position, count in held.open_runs()
        ]
        for held, position, count in places:
            held.states[position : position + count] = bytes([SETTLED]) * count
        self._adrift.clear()
        return places

    def stop(self) -> None:
        """Ask for no more, and give back what was not handed out."""
        if self.stopped:
            return
        self.stopped = True
        while self._waiting:
            self._give_back(self._waiting.popleft())

    def expire(self, now: float) -> None:
        """Take back the credit of leases that ran out by our clock, and give back what waits for the loop for too long."""
        while self._waiting and now >= self._stale_at(self._waiting[0]):
            held = self._waiting.popleft()
            # Before it asks again, the loop gets nothing: else this would go on and on.
            self._window.stalled()
            self._give_back(held)
        for held in list(self._held.values()):
            if now >= held.expires_at:
                self._expire(held, 0)
        for epoch, held in list(self._adrift.items()):
            if now >= held.expires_at:
                del self._adrift[epoch]

    @property
    def next_expiry(self) -> float | None:
        """When `expire` should be called next."""
        both = (self._held, self._adrift)
        expiries = [held.expires_at for helds in both for held in helds.values()]
        if self._waiting:
            expiries.append(self._stale_at(self._waiting[0]))
        return min(expiries, default=None)

    def _stale_at(self, held: Held) -> float:
        """Return when what waits of a delivery goes back: while its lease lives, so that no attempt is counted."""
        if self._is_kept:
            return held.deadline
        stale_at = held.deadline - held.timeout_seconds / 4
        stale_seconds = self._window.stale_seconds
        return stale_at if stale_seconds is None else min(stale_at, held.came_at + stale_seconds)

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
            if not self.stopping:
                self._grant(request)
        elif not self._stop_is_told:
            # What is given back must not come again with the credit that is left.
            request.stop = self._stop_is_told = True
        # Begun and settled within one turn: there may be nothing left to say.
        return request if request.ByteSize() else None

    def _grant(self, request: SubscribeRequest) -> None:
        request.credit_messages = messages = self._messages_due
        request.credit_bytes = size = max(0, self._prefetch_bytes - self._leased_bytes - self._granted_bytes)
        self._granted += messages
        self._granted_bytes += size

    @property
    def _messages_due(self) -> int:
        """How many more messages the broker may send."""
        window, out = self._window, self._granted
        room = window.most - self._leased - out
        if not window.fixed:
            waiting = sum(held.count - held.handed for held in self._waiting)
            asked = self._is_asking and not waiting and not out
            room = min(room, max(window.size - waiting - out, int(asked)))
        return max(0, room)

    @property
    def _credit_due(self) -> bool:
        # Credit travels with settlements; on its own only when there is so much that the stream might dry up.
        return not self.stopped and not self.stopping and self._messages_due * 2 >= max(1, self._window.size)

    def _open_frame(self) -> Frame:
        # A frame says nothing of order: an extension and the end of the same lease must not meet in one.
        if self._unsent:
            frame = self._unsent[-1]
            if not frame.extends and (not frame.nacks or frame.has_room):
                return frame
        return self._new_frame()

    def _extending_frame(self, held: Held, position: int, timeout_ms: int, count: int = 1) -> Frame:
        """Note an extension, once: a frame that says it twice would be told that the second came too late."""
        frame = self._unsent[-1] if self._unsent else self._new_frame()
        said_ms = {frame.extended.get((held.epoch, place)) for place in range(position, position + count)}
        if said_ms == {timeout_ms}:
            return frame
        if said_ms != {None} or len(frame.nacks) + len(frame.extends) >= limits.SETTLE_ACTIONS_MAX:
            # With another timeout the later one counts: so it has to come in a frame after this one.
            frame = self._new_frame()
        for place in range(position, position + count):
            frame.extended[held.epoch, place] = timeout_ms
        frame.extends.setdefault(timeout_ms, RunsBuilder()).add(held.epoch, position, count)
        frame.helds[held.epoch] = held
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
                if states[position] == BEGUN:
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
        frame.helds[held.epoch] = held
        self._settle_rest(held)

    def _expire(self, held: Held, first: int) -> None:
        """Give up on what is left of a delivery from a place on."""
        states, freed_bytes, freed = held.states, 0, 0
        for position in range(first, held.count):
            if states[position] in (WAITING, BEGUN):
                states[position] = EXPIRED
                freed += 1
                freed_bytes += held.sizes[position]
        held.handed = held.count
        self._free(held, freed_bytes, freed)

    def _free(self, held: Held, freed_bytes: int, freed: int) -> None:
        self._leased -= freed
        self._leased_bytes -= freed_bytes
        held.left -= freed
        if not held.left:
            self._held.pop(held.epoch, None)
