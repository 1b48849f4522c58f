"""The loop that everyone writes otherwise: a handler for each message, so many at once, and a clean end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from functools import partial
from inspect import (
    isasyncgenfunction,
    isawaitable,
    isbuiltin,
    iscoroutinefunction,
    isgeneratorfunction,
    isroutine,
)
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from fila import limits
from fila.client.consumer import Consumer
from fila.client.messages import Message
from fila.client.signals import stopping_on_signals
from fila.errors import FilaError, InvalidArgumentError, MessageNotFoundError

if TYPE_CHECKING:
    from fila.client.aio import AsyncClient

logger = logging.getLogger("fila.client")

Handler = Callable[[Message], Awaitable[object]]


class Worker:
    """Calls a handler for each message of a queue. Made by `AsyncClient.worker`.

    A message is acked when its handler returns, and nacked with the error's text when it raises, unless the handler has
    settled it itself. While the handler runs, the lease is kept alive. On SIGTERM, Ctrl-C or `stop`, nothing new is begun
    and what was not begun goes back; `run` returns when the handlers have ended. Those that take longer than
    `drain_seconds` are cancelled, and their messages go back too. A second signal does what it does without a worker: a
    second Ctrl-C cancels `run`. Where that is cancelled, its handlers are cancelled at once.
    """

    def __init__(
        self, client: "AsyncClient", queue: str, handler: Handler, *, concurrency: int, drain_seconds: float
    ) -> None:
        check_worker(handler, concurrency)
        if is_no_coroutine_function(handler):
            raise InvalidArgumentError(
                f"the handler {handler!r} is no coroutine function: write `async def`, or use the synchronous Client"
            )
        self._client = client
        self._queue = queue
        self._handler = handler
        self._concurrency = concurrency
        self._drain_seconds = drain_seconds
        self._consumer: Consumer | None = None
        self._in_work: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(concurrency)
        self._is_stopping = False
        self._unfit: InvalidArgumentError | None = None

    def __repr__(self) -> str:
        return f"<Worker of {self._queue!r}, at most {self._concurrency} at once{', stopping' if self._is_stopping else ''}>"

    def stop(self) -> None:
        """Begin nothing new; `run` returns when the handlers have ended. To be called in the event loop's thread."""
        self._is_stopping = True
        # For the one who waits for a handler to end before it takes the next message.
        self._slots.release()
        if self._consumer is not None:
            self._consumer.stop()

    def __await__(self) -> Generator[Any, None, None]:
        return self.run().__await__()

    async def run(self) -> None:
        """Work until told to stop.

        Raises QueueNotFoundError, UnavailableError if nobody answers at the start, and InvalidArgumentError when the handler
        turns out to be no coroutine function.
        """
        # As many again as are in work, so that nobody waits for the network.
        prefetch = min(2 * self._concurrency, limits.CREDIT_MESSAGES_MAX)
        loop = asyncio.get_running_loop()
        with stopping_on_signals(lambda: loop.call_soon_threadsafe(self.stop)):
            async with self._client.consume(self._queue, prefetch=prefetch) as consumer:
                self._consumer = consumer
                keeper = asyncio.create_task(keep_alive(consumer))
                try:
                    try:
                        await self._take(consumer)
                    finally:
                        # Whatever ended it: what was not begun is not kept from others while the handlers end.
                        consumer.stop()
                    await self._drain()
                except FilaError:
                    await self._drain()
                    raise
                finally:
                    await self._cancel()
                    keeper.cancel()
        if self._unfit is not None:
            raise self._unfit

    async def _take(self, consumer: Consumer) -> None:
        """Begin a handler for each message, until there are no more."""
        while True:
            await self._slots.acquire()
            message = None if self._is_stopping else await anext(consumer, None)
            if message is None:
                return
            task = asyncio.create_task(self._work(message))
            self._in_work.add(task)
            task.add_done_callback(self._in_work.discard)
            task.add_done_callback(lambda _: self._slots.release())

    async def _work(self, message: Message) -> None:
        try:
            outcome: object = self._handler(message)
            if not isawaitable(outcome):
                self._refuse(outcome)
            await outcome
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # By us: the message goes back when the stream ends.
                raise
            await self._failed(message, error)
        except Exception as error:  # noqa: BLE001 - whatever it raises is the broker's to know
            await self._failed(message, error)
        except BaseException:
            # The program is to end; the message is not to blame.
            with suppress(MessageNotFoundError):
                message.release()
            raise
        else:
            # Settled by the handler itself: then that counts.
            with suppress(MessageNotFoundError):
                await message.ack()

    async def _failed(self, message: Message, error: BaseException) -> None:
        logger.warning("the handler failed on %r", message, exc_info=error)
        with suppress(MessageNotFoundError):
            await message.nack(error_text(error))

    async def _drain(self) -> None:
        """Let the handlers end, for as long as they may take."""
        if self._in_work:
            await asyncio.wait(self._in_work, timeout=self._drain_seconds)

    async def _cancel(self) -> None:
        """Cancel the handlers that are left."""
        left = list(self._in_work)
        for task in left:
            task.cancel()
        if left:
            # One that does not heed it is left behind.
            await asyncio.wait(left, timeout=self._drain_seconds)

    def _refuse(self, outcome: object) -> NoReturn:
        """Stop, for no message will be handled; and raise why."""
        self._unfit = InvalidArgumentError(
            f"the handler {self._handler!r} returned {type(outcome).__name__}, and nothing to await: "
            "write `async def`, or use the synchronous Client"
        )
        self.stop()
        raise self._unfit


class Kept(Protocol):
    """What holds leases that are to be kept."""

    def keep_alive(self) -> None:
        """Extend those that are more than half through."""


async def keep_alive(consumer: Kept) -> None:
    """Extend what is held, again and again: twice in the time that the shortest lease may have."""
    while True:
        await asyncio.sleep(limits.VISIBILITY_TIMEOUT_MS_MIN / 4_000)
        consumer.keep_alive()


def check_worker(handler: object, concurrency: int) -> None:
    """Raise InvalidArgumentError for what cannot work."""
    if not callable(handler):
        raise InvalidArgumentError(f"the handler is a function of one message, not {handler!r}")
    if not 1 <= concurrency <= limits.WORKER_CONCURRENCY_MAX:
        raise InvalidArgumentError(
            f"concurrency {concurrency} is not in 1 to {limits.WORKER_CONCURRENCY_MAX:,}"
        )


def is_no_coroutine_function(handler: object) -> bool:
    """Whether it can be told beforehand that calling it returns nothing to await."""
    return isbuiltin(handler) or makes_generators(handler)


def makes_generators(handler: object) -> bool:
    """Whether calling it runs nothing of it, for it yields."""
    called = _called(handler)
    return isgeneratorfunction(called) or isasyncgenfunction(called)


def makes_coroutines(handler: object) -> bool:
    """Whether calling it runs nothing of it, for it is a coroutine function."""
    return iscoroutinefunction(_called(handler))


def _called(handler: object) -> object:
    """Return the function that a call ends up in: that of an object, and of what functools.partial holds."""
    while isinstance(handler, partial):
        handler = handler.func
    if isroutine(handler) or isinstance(handler, type):
        return handler
    return getattr(handler, "__call__", handler)  # noqa: B004 - not whether it can be called, but what is


def error_text(error: BaseException) -> str:
    """Return what the broker is told of a handler's error."""
    return f"{type(error).__name__}: {error}"
