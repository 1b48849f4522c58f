"""The consumer on asyncio: `async for message in client.consume(queue)`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from time import monotonic
from typing import Any, Self

from grpc import aio

from fila.client.context import Context
from fila.client.deliveries import DeliveriesCore, Frame
from fila.client.failures import again
from fila.client.messages import DeliveredMessage, Message, Settle
from fila.client.streams import Pump, wait_for
from fila.errors import FilaError
from fila.wire.v1.service_pb2 import SubscribeRequest, SubscribeResponse

OpenSubscribe = Callable[[], "aio.StreamStreamCall[SubscribeRequest, SubscribeResponse]"]


class Settlement:
    """Awaiting it waits until an ack, nack or extension is durable, or raises why it was refused.

    All that one turn of the event loop settles shares one frame and one confirmation.
    """

    __slots__ = ("_epoch", "_frame", "_position")

    def __init__(self, frame: Frame, epoch: int, position: int) -> None:
        self._frame = frame
        self._epoch = epoch
        self._position = position

    def __await__(self) -> Generator[Any, None, None]:
        frame = self._frame
        if not frame.done:
            yield from wait_for(frame)
        if frame.error is not None or frame.refused:
            error = frame.outcome(self._epoch, self._position)
            if error is not None:
                raise again(error)


class Subscription:
    """One Subscribe stream. It outlives its iterator while messages are still being worked on."""

    def __init__(
        self,
        queue: str,
        open_call: OpenSubscribe,
        *,
        prefetch: int,
        prefetch_bytes: int,
        running: set["Subscription"],
    ) -> None:
        self._core = DeliveriesCore(queue, holder=self, prefetch=prefetch, prefetch_bytes=prefetch_bytes)
        self._open_call = open_call
        # The client's subscriptions that have a stream.
        self._running = running
        self._pump: Pump[SubscribeRequest, SubscribeResponse] | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._lingering = False
        self._closing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Open the stream, unless it is open."""
        if self._pump is None:
            self._running.add(self)
            self._pump = Pump(
                self._open_call(),
                next_request=self._core.next_frame,
                on_response=self._on_response,
                on_end=self._on_end,
            )

    def take(self) -> DeliveredMessage | None:
        """Return a message that is here already."""
        message = self._core.take(monotonic())
        if message is not None and self._pump is not None:
            self._pump.wake()
        return message

    async def next_message(self) -> DeliveredMessage | None:
        """Wait for a message; None when there will be none, because the stream was closed here."""
        self.start()
        while True:
            message = self.take()
            if message is not None:
                return message
            if self._closing is not None or self._lingering:
                return None
            if self._core.failed is not None:
                raise again(self._core.failed)
            if self._pump is not None:
                self._pump.wake()
            if self._arrival is None:
                self._arrival = asyncio.get_running_loop().create_future()
            # Shared by all that wait, each of whom may be cancelled.
            await asyncio.shield(self._arrival)

    def settle(self, message: DeliveredMessage, action: Settle, argument: str | int) -> Awaitable[None]:
        """Note it for the frame of this turn."""
        held, position = message.held, message.position
        frame = self._core.settle(held, position, action, argument, monotonic())
        if self._pump is not None:
            self._pump.wake()
        if self._lingering:
            self._close_when_idle()
        return Settlement(frame, held.epoch, position)

    def abandon(self) -> None:
        """Nobody asks for more: give back what was not handed out, and end when the rest is settled or expired."""
        if self._pump is None or self._lingering:
            return
        self._lingering = True
        self._core.stop()
        self._pump.wake()
        self._notify()
        self._close_when_idle()

    async def close(self) -> None:
        """Give back what was not handed out, wait for confirmations and end; what is unsettled goes back too."""
        self._start_closing()
        if self._closing is not None:
            await asyncio.shield(self._closing)

    def _start_closing(self) -> None:
        if self._closing is None and self._pump is not None:
            self._core.stop()
            self._closing = asyncio.get_running_loop().create_task(self._pump.close())
            self._notify()

    def _close_when_idle(self) -> None:
        if not self._core.in_work:
            self._start_closing()

    def _on_response(self, response: SubscribeResponse) -> None:
        self._core.on_response(response, monotonic())
        if response.HasField("delivery"):
            self._arm_expiry()
            self._notify()
            if self._core.stopped and self._pump is not None:
                # It came too late, and goes back. There is only so much of that: no credit is granted any more.
                self._pump.wake()

    def _on_end(self, error: FilaError) -> None:
        self._core.fail(error)
        self._running.discard(self)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self._notify()

    def _notify(self) -> None:
        arrival, self._arrival = self._arrival, None
        if arrival is not None and not arrival.done():
            arrival.set_result(None)

    def _arm_expiry(self) -> None:
        if self._expiry is not None:
            return
        next_expiry = self._core.next_expiry
        if next_expiry is not None:
            delay_seconds = max(0.0, next_expiry - monotonic())
            self._expiry = asyncio.get_running_loop().call_later(delay_seconds, self._on_expiry)

    def _on_expiry(self) -> None:
        self._expiry = None
        self._core.expire(monotonic())
        if self._pump is not None:
            self._pump.wake()
        if self._lingering:
            self._close_when_idle()
        self._arm_expiry()


class Consumer(AsyncIterator[Message], Context):
    """The messages of a queue, as they may be worked on. Made by `AsyncClient.consume`.

    Leaving the loop, the context or `aclose` gives back what was not handed out. A message that was handed out stays
    with whoever has it until it is settled; `aclose` and the end of a context give it back as well.
    """

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._loop: asyncio.AbstractEventLoop | None = None

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
