"""A consumer's end of its streams, without its user: what both faces share.

It outlives its iterator while messages are still being worked on, and a lost connection while the broker may come back.
What was handed out from a lost stream stays with whoever has it, and is settled by message id.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, suppress
from time import monotonic
from typing import Generic

from fila import limits
from fila.client.connection import Connection
from fila.client.deliveries import Adrift, DeliveredT, DeliveriesCore
from fila.client.frame import Frame, Places
from fila.client.late import LateAcks
from fila.client.leasing import UnarySettlement, UnarySettler
from fila.client.messages import Delivered, Settle
from fila.client.streams import Session
from fila.client.waiting import Pending
from fila.errors import FilaError, MessageNotFoundError
from fila.wire.v1.service_pb2 import SubscribeRequest, SubscribeResponse

logger = logging.getLogger("fila.client")


class Subscription(ABC, Generic[DeliveredT]):
    """Delivers the messages of one queue. Its methods are for the event loop; `core` is guarded by `lock`."""

    def __init__(
        self,
        connection: Connection,
        queue: str,
        *,
        message_type: type[DeliveredT],
        prefetch: int | None,
        prefetch_bytes: int,
        settler: UnarySettler,
        running: "set[Subscription[DeliveredT]]",
        lock: AbstractContextManager[object],
    ) -> None:
        self.queue = queue
        self.lock = lock
        # How long whoever waits for a confirmation does so unless told otherwise.
        self.timeout_seconds = connection.timeout_seconds
        self.core = DeliveriesCore(
            queue, holder=self, message_type=message_type, prefetch=prefetch, prefetch_bytes=prefetch_bytes
        )
        # Happens when the broker has answered for the first time, or never will.
        self.subscribed = Pending()
        self._settler = settler
        # The client's subscriptions that have a stream.
        self._running = running
        self._expiry: asyncio.TimerHandle | None = None
        self._lingering = False
        self._closing: asyncio.Task[None] | None = None
        self._adrift: set[asyncio.Task[None]] = set()
        self._late_acks = LateAcks(queue)
        self._session: Session[SubscribeRequest, SubscribeResponse] = Session(
            connection,
            # The channel opens with the stream.
            lambda: connection.service.Subscribe(),  # noqa: PLW0108
            self,
            f"the consumer of {queue!r}",
        )

    @abstractmethod
    def settle(self, message: Delivered, action: Settle, argument: str | int) -> object:
        """Note it for the next frame; what is returned waits for the confirmation."""

    @abstractmethod
    def notify(self) -> None:
        """Wake whoever waits for a message or for room: something has changed."""

    @property
    def is_ending(self) -> bool:
        """Whether nobody is to get another message."""
        return self._closing is not None or self._lingering

    def start(self) -> None:
        """Open the stream, unless it is open."""
        if not self._session.has_begun:
            self._running.add(self)
            self._session.start()

    def wake(self) -> None:
        """There may be something to write."""
        self._session.wake()
        if self._lingering:
            self._close_when_idle()

    def settle_by_id(self, message: Delivered, action: Settle, argument: str | int) -> UnarySettlement:
        """Settle what a lost stream had brought."""
        settlement = self._settler.settle_leased(message, action, argument, message.held.expires_at)
        if action is Settle.ACK:
            settlement.waiters.append(_Reporter(self, settlement))
        return settlement

    def keep_alive(self) -> None:
        """Extend what is held and more than half through its lease."""
        with self.lock:
            _, adrift = self.core.keep_alive(monotonic())
        for timeout_ms, places in adrift.items():
            self._start_adrift(self._extend_by_id(places, timeout_ms))
        self._session.wake()

    def abandon(self) -> None:
        """Nobody asks for more: give back what was not handed out, and end when the rest is settled or expired."""
        if not self._session.has_begun or self._lingering:
            return
        self._lingering = True
        with self.lock:
            self.core.stop()
        self._session.wake()
        self.notify()
        self._close_when_idle()

    async def close(self) -> None:
        """Give back what was not handed out, wait for confirmations and end; what is unsettled goes back too."""
        self._start_closing()
        if self._closing is not None:
            await asyncio.shield(self._closing)

    def _start_closing(self) -> None:
        if self._closing is None and self._session.has_begun:
            with self.lock:
                self.core.stop()
            self._closing = asyncio.get_running_loop().create_task(self._close())
            self.notify()

    async def _close(self) -> None:
        adrift = self.core.in_work_adrift
        await self._session.close()
        if adrift:
            with self.lock:
                places = self.core.give_up_adrift()
            self._start_adrift(self._release_by_id(places))
        await self._settler.drain()
        if self._adrift:
            # Where the broker does not come back in time, the leases run out.
            await asyncio.wait(self._adrift, timeout=limits.STREAM_CLOSE_TIMEOUT_SECONDS)
        self._running.discard(self)

    def _close_when_idle(self) -> None:
        with self.lock:
            in_work = self.core.in_work
        if not in_work:
            self._start_closing()

    # --- what the session asks ---

    @property
    def is_leaving(self) -> bool:
        """Whether our side ends when there is nothing left to write."""
        return self._closing is not None or self.core.stopping or (self._lingering and not self.core.has_held)

    def next_request(self) -> SubscribeRequest | None:
        """Return the next frame."""
        with self.lock:
            return self.core.next_frame()

    def on_response(self, response: SubscribeResponse) -> None:
        """Take a frame of the broker."""
        with self.lock:
            self.core.on_response(response, monotonic())
        if not self.subscribed.done:
            self.subscribed.resolve()
        if response.HasField("delivery"):
            self._arm_expiry()
            if self.core.stopped:
                # It came too late, and goes back. There is only so much of that: no credit is granted any more.
                self._session.wake()
        if response.stopping:
            self._session.wake()
        if self.core.late_acks:
            late, self.core.late_acks = self.core.late_acks, 0
            self._late_acks.add(late)
        self.notify()

    def on_lost(self, error: FilaError) -> None:
        """Say by message id what the stream left unsaid."""
        with self.lock:
            adrift = self.core.lost()
        if adrift.frames or adrift.waiting:
            self._start_adrift(self._settle_adrift(adrift))
        self.notify()

    def on_failed(self, error: FilaError) -> None:
        """Tell whoever waits why there will be no more."""
        # Where the connection was lost after the last message was asked for, what is in work can still be settled by id.
        if self._lingering and self.core.in_work_adrift:
            # And what the last stream had brought as well: there is no frame any more for what is said of it.
            self.on_lost(error)
        else:
            with self.lock:
                self.core.fail(error)
        if not self.subscribed.done:
            self.subscribed.resolve(error)
        if self._closing is None and not self._adrift:
            self._running.discard(self)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self._late_acks.close()
        self.notify()

    # --- what a lost stream leaves ---

    def _start_adrift(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._adrift.add(task)
        task.add_done_callback(self._adrift.discard)

    async def _settle_adrift(self, adrift: Adrift) -> None:
        try:
            for frame in adrift.frames:
                for action, argument, places in frame.settlements():
                    frame.refused += await self._by_id(action, argument, places)
                self._late_acks.add(frame.refused_acks())
                self._resolve(frame, None)
        except FilaError as error:
            logger.warning(
                "what was settled of %r before the connection was lost is in doubt: %s", self.queue, error
            )
            for frame in adrift.frames:
                if not frame.done:
                    self._resolve(frame, error)
        await self._release_by_id(adrift.waiting)

    async def _extend_by_id(self, places: list[Places], timeout_ms: int) -> None:
        try:
            await self._by_id(Settle.EXTEND, timeout_ms, places)
        except FilaError as error:
            logger.warning("leases of %r could not be extended: %s", self.queue, error)

    async def _release_by_id(self, places: list[Places]) -> None:
        # Where it fails, the leases run out.
        with suppress(FilaError):
            if places:
                await self._by_id(Settle.RELEASE, "", places)

    async def _by_id(
        self, action: Settle, argument: str | int, places: list[Places]
    ) -> list[tuple[int, int, int, str]]:
        """Settle places by message id, and return those that were refused, as a frame knows them."""
        each = [(held, position) for held, first, count in places for position in range(first, first + count)]
        ids = [held.message_id(position) for held, position in each]
        epochs = [held.epoch for held, _ in each]
        lives_until = max(held.expires_at for held, _, _ in places)
        errors = await self._settler.settle((self.queue, action, argument), ids, epochs, lives_until)
        return [
            (held.epoch, position, 1, error.message)
            for (held, position), error in zip(each, errors, strict=True)
            if error is not None
        ]

    def _resolve(self, frame: Frame, error: FilaError | None) -> None:
        with self.lock:
            self.core.resolve(frame, error)
        self.notify()

    def report_settlement(self, error: FilaError) -> None:
        """Hear that an ack that nobody may wait for was refused."""
        if isinstance(error, MessageNotFoundError):
            self._late_acks.add(1)
        else:
            logger.warning("a message of %r could not be settled: %s", self.queue, error)

    # --- leases run out ---

    def _arm_expiry(self) -> None:
        if self._expiry is not None:
            return
        with self.lock:
            next_expiry = self.core.next_expiry
        if next_expiry is not None:
            delay_seconds = max(0.0, next_expiry - monotonic())
            self._expiry = asyncio.get_running_loop().call_later(delay_seconds, self._on_expiry)

    def _on_expiry(self) -> None:
        self._expiry = None
        with self.lock:
            self.core.expire(monotonic())
        self.wake()
        self._arm_expiry()


class _Reporter:
    """Waits for a settlement on behalf of the log."""

    __slots__ = ("_settlement", "_subscription")

    def __init__(self, subscription: Subscription[DeliveredT], settlement: UnarySettlement) -> None:
        self._subscription = subscription
        self._settlement = settlement

    def done(self) -> bool:
        """It is never given up."""
        return False

    def set_result(self, _result: None, /) -> None:
        """Look how it ended."""
        error = self._settlement.error
        if error is not None:
            self._subscription.report_settlement(error)
