"""The consumer for threads: `for message in client.consume(queue)`."""

import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Self

from fila import limits
from fila.client import shown
from fila.client.blocking.context import SyncContext
from fila.client.blocking.portal import Portal, Poster
from fila.client.connection import Connection
from fila.client.consumer import Outcome
from fila.client.failures import again
from fila.client.frame import Frame
from fila.client.leasing import UnarySettlement, UnarySettler
from fila.client.messages import BaseMessage, Delivered, DeliveredSyncMessage, Settle, SyncMessage
from fila.client.streams import until
from fila.client.subscription import Subscription
from fila.wire.v1.service_pb2 import SubscribeRequest


class SyncStreamSettlement(Outcome):
    """What became of an ack, nack, extension or release."""

    __slots__ = ("_portal",)

    def __init__(self, portal: Portal, pending: Frame | UnarySettlement, epoch: int, position: int) -> None:
        self.pending = pending
        self._epoch = epoch
        self._position = position
        self._portal = portal

    def __repr__(self) -> str:
        return shown.settlement("SyncSettlement", self.pending, self._epoch, self._position)

    def durable(self, timeout_seconds: float | None = None) -> None:
        """Wait until the broker has it on disk; raises MessageNotFoundError if the lease had ended before.

        Raises OutcomeUnknownError after `timeout_seconds`, or the client's if that is None.
        """
        if not self.done:
            seconds = self._portal.timeout_seconds if timeout_seconds is None else timeout_seconds
            self._portal.run(until(self.pending, seconds))
        self.check()


class SyncSubscription(Subscription[DeliveredSyncMessage]):
    """A subscription whose user is in another thread. Its lock guards the core."""

    def __init__(self, portal: Portal, connection: Connection, queue: str, **options: Any) -> None:
        self._portal = portal
        self._lock = threading.Lock()
        self._bell = portal.bell(self._lock)
        super().__init__(connection, queue, message_type=DeliveredSyncMessage, lock=self._lock, **options)
        self.wake_soon = Poster(portal, self.wake)

    def notify(self) -> None:
        """Wake all who wait."""
        self._bell.ring()

    def next_message(self) -> DeliveredSyncMessage | None:
        """Wait for a message; None when there will be none, because the stream was closed here."""
        while True:
            if self.is_ending and not self._portal.is_foreign:
                # Also where the whole client was closed while this thread worked on its last message.
                return None
            self._portal.check()
            with self._lock:
                message = self.core.take(monotonic())
                if message is not None:
                    break
                if self.is_ending:
                    return None
                if self.core.failed is not None:
                    raise again(self.core.failed)
                gate = self._bell.gate()
            # There may be credit to grant.
            self.wake_soon()
            gate.acquire()
        # The first since a frame went out. Those after it are begun as well, and a second call would change nothing.
        if message.position == message.held.announced:
            self.wake_soon()
        return message

    def next_request(self) -> SubscribeRequest | None:
        """Return the next frame, and let those go on who wait for it to leave."""
        request = super().next_request()
        if request is not None:
            self.notify()
        return request

    def settle(self, message: Delivered, action: Settle, argument: str | int) -> SyncStreamSettlement:
        """Note it for the next frame, and wait while too much is unconfirmed."""
        self._portal.check()
        held, position, core = message.held, message.position, self.core
        pending: Frame | UnarySettlement | None
        gate: threading.Lock | None = None
        with self._lock:
            now = monotonic() if action is Settle.EXTEND else 0.0
            pending = frame = core.settle(held, position, action, argument, now)
            # Asked under the lock: two threads that settle together must not each take the other for the first.
            is_first = frame is not None and frame.count <= 1
            if frame is not None and frame.count >= limits.ACKS_FRAME_MESSAGES and not frame.sequence:
                gate = self._bell.gate()
        if core.unconfirmed > limits.ACKS_UNCONFIRMED_MAX:
            self._wait_for_room()
        elif gate is not None:
            # The loop's thread gets the interpreter when this one waits, or when it has had it for five milliseconds:
            # by then the stream would have run dry.
            self.wake_soon()
            gate.acquire(timeout=limits.ACKS_FRAME_SECONDS)
        if pending is None:
            pending = self._portal.ask(lambda: self.settle_by_id(message, action, argument))
        # The first of its frame, as in `next_message`.
        elif self._lingering or is_first:
            self.wake_soon()
        return SyncStreamSettlement(self._portal, pending, held.epoch, position)

    def _wait_for_room(self) -> None:
        while True:
            self._portal.check()
            with self._lock:
                if self.core.unconfirmed <= limits.ACKS_UNCONFIRMED_MAX or self.core.failed is not None:
                    return
                gate = self._bell.gate()
            self.wake_soon()
            gate.acquire()


class SyncConsumer(Iterator[SyncMessage], SyncContext):
    """The messages of a queue, as they may be worked on. Made by `Client.consume`.

    Several threads may share it. Leaving the context, or `close`, gives back what is not settled and ends the iteration
    in every thread. To leave the loop without them gives back what was not handed out.
    """

    def __init__(self, portal: Portal, subscription: SyncSubscription, owner: object) -> None:
        self._portal = portal
        self._subscription = subscription
        # A client that nobody holds any more is closed.
        self._owner = owner
        portal.post(subscription.start)

    def __repr__(self) -> str:
        subscription = self._subscription
        return f"<SyncConsumer of {subscription.queue!r}{', ending' if subscription.is_ending else ''}>"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> SyncMessage:
        message = self._subscription.next_message()
        if message is None:
            raise StopIteration
        return message

    def stop(self) -> None:
        """Ask for no more: what was not handed out goes back, and the loop ends."""
        self._portal.post(self._subscription.abandon)

    def close(self) -> None:
        """End the stream: what is not settled goes back to the queue, without an attempt."""
        if not self._portal.is_closed:
            self._portal.run(self._subscription.close())

    def _leave(self, error: BaseException | None) -> None:
        self.close()

    def __del__(self) -> None:
        # `break` calls nothing but this.
        self.stop()


@contextmanager
def beside(
    consumer: SyncConsumer, work: Callable[[SyncSubscription], Coroutine[Any, Any, None]]
) -> Iterator[None]:
    """Run a coroutine beside a consumer, in the client's own thread."""
    portal, subscription = consumer._portal, consumer._subscription  # noqa: SLF001 - it is no part of what users see
    answer = portal.start(work(subscription))
    try:
        yield
    finally:
        portal.post(answer.cancel)


class SyncLeaseSettler:
    """Settles what a unary Lease returned, and waits for it."""

    def __init__(self, portal: Portal, settler: UnarySettler, owner: object) -> None:
        self._portal = portal
        self._settler = settler
        # A client that nobody holds any more is closed.
        self._owner = owner

    def settle_leased(
        self, message: BaseMessage, action: Settle, argument: str | int
    ) -> SyncStreamSettlement:
        """Settle, and raise why it was refused."""
        settlement = self._portal.run(_settled(self._settler.settle_leased, message, action, argument))
        return SyncStreamSettlement(self._portal, settlement, message.epoch, 0)


async def _settled(
    settle: Callable[[BaseMessage, Settle, str | int], UnarySettlement],
    message: BaseMessage,
    action: Settle,
    argument: str | int,
) -> UnarySettlement:
    settlement = settle(message, action, argument)
    await settlement
    return settlement
