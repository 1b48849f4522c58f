"""The producer on asyncio."""

import asyncio
import logging
import os
from collections.abc import Callable, Generator, Mapping
from typing import Any

from fila.client import shown
from fila.client.batching import Batch, BatchingCore
from fila.client.connection import Connection
from fila.client.context import Context
from fila.client.failures import again
from fila.client.streams import Session, until, wait_for
from fila.errors import ClosedError, FilaError, OutcomeUnknownError
from fila.wire.v1.service_pb2 import ProduceResponse

logger = logging.getLogger("fila.client")

# Into so many parts the time that a message may wait is divided: it fails at most one of them too late.
_LOOKS = 20


class Place:
    """A message's place in its batch: what the receipts of both faces share."""

    __slots__ = ("_batch", "_position")

    def __init__(self, batch: Batch, position: int) -> None:
        self._batch = batch
        self._position = position

    @property
    def done(self) -> bool:
        """Whether it is known what became of the message."""
        return self._batch.done

    @property
    def number(self) -> int:
        """Which of its producer's messages it is, from 1: what an error calls it."""
        return self._batch.first_number + self._position

    def _id(self) -> str:
        """Return the message's id once its batch is resolved, or raise why it was not taken."""
        error = self._batch.error_of(self._position)
        if error is not None:
            raise error
        return self._batch.message_id(self._position)


class Receipt(Place):
    """Awaiting it waits until the message is durable and returns its id, or raises why it was not taken."""

    __slots__ = ()

    def __repr__(self) -> str:
        return shown.receipt("Receipt", self._batch, self._position)

    def __await__(self) -> Generator[Any, None, str]:
        if not self._batch.done:
            yield from wait_for(self._batch)
        return self._id()


class ProducerStream:
    """A producer's end of its streams. It must not know which thread its user is in: `BatchingCore` is guarded by `lock`."""

    def __init__(
        self,
        connection: Connection,
        core: BatchingCore,
        running: "set[ProducerStream]",
        *,
        lock: Any,
        delivery_seconds: float,
    ) -> None:
        self.core = core
        self.lock = lock
        self._delivery_seconds = delivery_seconds
        self._process = os.getpid()
        # The client's producers that have a stream.
        self._running = running
        self._leaving = False
        # Set when time ran out, until the broker answers.
        self._is_silent = False
        self._is_told = False
        self._watch: asyncio.TimerHandle | None = None
        # Told whenever there may be room again.
        self.tell: Callable[[], None] = lambda: None
        self._session: Session[bytes, ProduceResponse] = Session(
            connection,
            # The channel opens with the stream.
            lambda: connection.produce(),  # noqa: PLW0108
            self,
            f"the producer of {core.queue!r}",
        )

        # Says that there may be something to write. The first time, it opens the stream.
        self.wake: Callable[[], None] = self._start

    def _start(self) -> None:
        self.wake = self._session.wake
        self._running.add(self)
        self._session.start()
        self._watch_later()

    async def flush(self, timeout_seconds: float | None = None) -> None:
        """Wait until all messages sent so far are durable, and raise the first refusal since the last flush."""
        core = self.core
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._resolved()
        except TimeoutError:
            self._is_silent = True
            raise OutcomeUnknownError(
                f"{core.messages_held:,} messages of the producer of {core.queue!r} have no receipt after "
                f"{timeout_seconds:g} seconds; they may be taken or not"
            ) from None
        with self.lock:
            refused, core.refused = core.refused, None
        if refused is not None:
            raise again(refused)

    async def _resolved(self) -> None:
        core = self.core
        if core.messages_held:
            # A thread that was interrupted may have put something in and not said so.
            self.wake()
        with self.lock:
            number = core.sent
            batch = core.unresolved(number)
        while batch is not None:
            await until(batch)
            with self.lock:
                batch = core.unresolved(number)

    async def close(self, timeout_seconds: float | None = None) -> None:
        """Flush, for so long at most, and end the stream."""
        try:
            await self.flush(timeout_seconds)
        finally:
            await self.abort()

    async def abort(self) -> None:
        """End the stream without a flush: what has no receipt yet fails."""
        self._leaving = True
        self.on_failed(ClosedError(f"the producer of {self.core.queue!r} is closed: make another"))
        # Who has not answered for so long is not waited for again.
        await self._session.close(at_once=self._is_silent)

    # --- what the session asks ---

    @property
    def is_leaving(self) -> bool:
        """Whether our side ends when there is nothing left to write."""
        return self._leaving or self.core.stopping

    def next_request(self) -> bytes | None:
        """Return the next frame."""
        with self.lock:
            return self.core.next_frame()

    def on_response(self, response: ProduceResponse) -> None:
        """Take a receipt."""
        self._is_silent = False
        with self.lock:
            self.core.on_response(response)
        self._session.wake()
        self.tell()

    def on_lost(self, error: FilaError) -> None:
        """What has no receipt goes out again."""
        with self.lock:
            self.core.lost(error)
        self.tell()

    def on_failed(self, error: FilaError) -> None:
        """What has no receipt fails."""
        if not self._leaving:
            self._tell_of_loss()
        with self.lock:
            self.core.fail(error)
        self._running.discard(self)
        if self._watch is not None:
            self._watch.cancel()
        self.tell()

    def _tell_of_loss(self) -> None:
        held = self.core.messages_held
        if held and not self._is_told and os.getpid() == self._process:
            self._is_told = True
            logger.warning(
                "messages of the producer of %r that were sent and have no receipt: %d; they may be lost: "
                "use it in a context, or await its flush() or close() before the event loop ends",
                self.core.queue,
                held,
            )

    def __del__(self) -> None:
        # Where the loop has ended without a word to its tasks.
        self._tell_of_loss()

    def _watch_later(self) -> None:
        self._watch = asyncio.get_running_loop().call_later(self._delivery_seconds / _LOOKS, self._look)

    def _look(self) -> None:
        with self.lock:
            is_late = self.core.expire(self._delivery_seconds)
        if is_late:
            self._is_silent = True
            self._session.cut(f"the broker gave no receipt within {self._delivery_seconds:g} seconds")
        self.tell()
        self._watch_later()


class Producer(Context):
    """Sends messages to one queue in batches that form by themselves. Made by `AsyncClient.producer`.

    What arrives while a batch is in flight forms the next one, so a lone message leaves at once and a flood leaves in
    large batches. Order is kept. Leaving the context flushes.
    """

    def __init__(self, stream: ProducerStream) -> None:
        self._stream = stream
        self._core = stream.core
        self._room: list[asyncio.Future[None]] = []
        stream.tell = self._tell_of_room

    def __repr__(self) -> str:
        return shown.producer("Producer", self._core)

    def send(
        self,
        payload: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        fairness_key: str | None = None,
        weight: int | None = None,
        cost: int | None = None,
    ) -> Receipt:
        """Send a message; await the receipt for its id, or `flush` for all of them.

        Raises LimitError when the producer holds all that it may: a loop that awaits no receipts awaits `room`
        before each send.
        """
        batch = self._core.add(payload, headers, fairness_key=fairness_key, weight=weight, cost=cost)
        self._stream.wake()
        return Receipt(batch, batch.count - 1)

    async def room(self) -> None:
        """Wait until another message may be sent; return at once while there is room."""
        core = self._core
        if core.is_writer_due:
            # The writer runs in this thread: a loop that never waits would fill the producer first.
            await asyncio.sleep(0)
        while not core.has_room and core.failed is None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(future)
            await future
        if core.failed is not None:
            raise again(core.failed)

    def _tell_of_room(self) -> None:
        if self._room and (self._core.has_room or self._core.failed is not None):
            waiting, self._room = self._room, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    async def flush(self, timeout_seconds: float | None = None) -> None:
        """Wait until all messages sent so far are durable.

        Raises the first refusal since the last flush, whether or not its receipt was awaited; it names its message.
        Raises OutcomeUnknownError after `timeout_seconds`; the producer goes on all the same.
        """
        await self._stream.flush(timeout_seconds)

    async def close(self) -> None:
        """Flush, and end the stream."""
        await self._stream.close()

    async def abort(self) -> None:
        """End the stream without a flush: what has no receipt yet fails."""
        await self._stream.abort()

    async def _leave(self, error: BaseException | None) -> None:
        if error is None:
            await self.close()
            return
        # The body's own error is the one to report.
        try:
            await self.flush()
        except FilaError as flush_error:
            note_flush_failure(error, self._core.queue, flush_error)
        finally:
            await self.abort()


def note_flush_failure(error: BaseException, queue: str, flush_error: FilaError) -> None:
    """Say in the error that ended a context that the flush failed as well."""
    error.add_note(f"flushing the producer of {queue!r} failed too: {flush_error}")
