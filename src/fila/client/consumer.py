"""The consumer on asyncio: `async for message in client.consume(queue)`."""

import asyncio
from collections.abc import AsyncIterator, Generator
from time import monotonic
from typing import Any, Self, cast

from fila import limits
from fila.client import shown
from fila.client.context import Context
from fila.client.failures import again
from fila.client.frame import Frame
from fila.client.leasing import UnarySettlement
from fila.client.messages import Delivered, DeliveredMessage, Message, Settle
from fila.client.streams import until
from fila.client.subscription import Subscription


class Outcome:
    """What became of one message, in what was settled with others."""

    __slots__ = ("_epoch", "_position", "pending")

    # Set by the faces themselves: one is made for each message, and a parent's constructor would be a call more.
    pending: Frame | UnarySettlement
    _epoch: int
    _position: int

    def __repr__(self) -> str:
        return shown.settlement("Settlement", self.pending, self._epoch, self._position)

    @property
    def done(self) -> bool:
        """Whether it is known."""
        return self.pending.done

    def check(self) -> None:
        """Raise why the broker refused it, if it did."""
        error = self.pending.outcome(self._epoch, self._position)
        if error is not None:
            raise again(error)


# What there is to wait for when there is nothing: it has ended, and so may be shared.
_AT_ONCE = cast("Generator[Any, None, None]", iter(()))


def _turn() -> Generator[Any, None, None]:
    """Let the others have a turn of the event loop."""
    yield


class StreamSettlement(Outcome):
    """What became of an ack, nack or release, for asyncio.

    All that one turn of the event loop settles shares one frame and one confirmation.
    """

    __slots__ = ("_subscription",)

    def __init__(
        self,
        subscription: "AsyncSubscription",
        pending: Frame | UnarySettlement,
        epoch: int,
        position: int,
    ) -> None:
        self.pending = pending
        self._epoch = epoch
        self._position = position
        self._subscription = subscription

    def __await__(self) -> Generator[Any, None, None]:
        pending, subscription = self.pending, self._subscription
        if subscription.core.unconfirmed > limits.ACKS_UNCONFIRMED_MAX:
            return subscription.confirmed().__await__()
        if type(pending) is Frame and pending.count >= limits.ACKS_FRAME_MESSAGES and not pending.sequence:
            # A loop that never waits would keep the frame from being written.
            return _turn()
        return _AT_ONCE

    async def durable(self, timeout_seconds: float | None = None) -> None:
        """Wait until the broker has it on disk; raises MessageNotFoundError if the lease had ended before.

        Raises OutcomeUnknownError after `timeout_seconds`, or the client's if that is None.
        """
        await until(
            self.pending, self._subscription.timeout_seconds if timeout_seconds is None else timeout_seconds
        )
        self.check()


class Extension(StreamSettlement):
    """What became of an extension: whether the lease still lives is what its caller wants to know."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return self.durable().__await__()


class AsyncSubscription(Subscription[DeliveredMessage]):
    """A subscription whose user is in the same event loop."""

    _arrival: asyncio.Future[None] | None = None

    def notify(self) -> None:
        """Wake all who wait."""
        arrival, self._arrival = self._arrival, None
        if arrival is not None and not arrival.done():
            arrival.set_result(None)

    def take(self) -> DeliveredMessage | None:
        """Return a message that is here already."""
        message = self.core.take(monotonic())
        # The first since a frame went out. Those after it are begun as well, and a second call would change nothing.
        if message is not None and message.position == message.held.announced:
            self._session.wake()
        return message

    async def next_message(self) -> DeliveredMessage | None:
        """Wait for a message; None when there will be none, because the stream was closed here."""
        self.start()
        while True:
            message = self.take()
            if message is not None:
                return message
            if self.is_ending:
                return None
            if self.core.failed is not None:
                raise again(self.core.failed)
            self._session.wake()
            await self._changed()

    async def confirmed(self) -> None:
        """Wait until another ack may be sent."""
        while self.core.unconfirmed > limits.ACKS_UNCONFIRMED_MAX and self.core.failed is None:
            await self._changed()

    async def _changed(self) -> None:
        if self._arrival is None:
            self._arrival = asyncio.get_running_loop().create_future()
        # Shared by all that wait, each of whom may be cancelled.
        await asyncio.shield(self._arrival)

    def settle(self, message: Delivered, action: Settle, argument: str | int) -> StreamSettlement:
        """Note it for the frame of this turn."""
        held, position = message.held, message.position
        is_extension = action is Settle.EXTEND
        # The time is needed for an extension alone, and to ask for it costs as much as the rest.
        now = monotonic() if is_extension else 0.0
        pending: Frame | UnarySettlement | None = self.core.settle(held, position, action, argument, now)
        if pending is None:
            pending = self.settle_by_id(message, action, argument)
        # The first of its frame, as in `take`; an extension is not counted in its frame.
        if self._lingering or type(pending) is not Frame or pending.count <= 1 or is_extension:
            self.wake()
        kind = Extension if is_extension else StreamSettlement
        return kind(self, pending, held.epoch, position)


class Consumer(AsyncIterator[Message], Context):
    """The messages of a queue, as they may be worked on. Made by `AsyncClient.consume`.

    Awaiting it waits until the broker has taken the subscription. Leaving the loop, the context or `aclose` gives back
    what was not handed out. A message that was handed out stays with whoever has it until it is settled; `aclose` and
    the end of a context give it back as well.
    """

    def __init__(self, subscription: AsyncSubscription) -> None:
        self._subscription = subscription
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        subscription = self._subscription
        return f"<Consumer of {subscription.queue!r}{', ending' if subscription.is_ending else ''}>"

    def __await__(self) -> Generator[Any, None, Self]:
        return self._subscribed().__await__()

    async def _subscribed(self) -> Self:
        await self.__aenter__()
        pending = self._subscription.subscribed
        await until(pending)
        if pending.error is not None:
            raise again(pending.error)
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        message = self._subscription.take()
        if message is None:
            self._loop = asyncio.get_running_loop()
            message = await self._subscription.next_message()
            if message is None:
                raise StopAsyncIteration
        return message

    def stop(self) -> None:
        """Ask for no more: what was not handed out goes back, and the loop ends."""
        self._subscription.abandon()

    def keep_alive(self) -> None:
        """Extend the leases of all that is held, as far as they are more than half through."""
        self._subscription.keep_alive()

    async def aclose(self) -> None:
        """End the stream: what is not settled goes back to the queue, without an attempt."""
        await self._subscription.close()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._subscription.start()
        return self

    async def _leave(self, error: BaseException | None) -> None:
        await self.aclose()

    def __del__(self) -> None:
        # `break` calls nothing but this. It may run in any thread.
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._subscription.abandon)
