"""The producer on asyncio."""

import asyncio
from collections.abc import Callable, Generator, Mapping
from typing import Any

from grpc import aio

from fila.client.batching import Batch, BatchingCore
from fila.client.context import Context
from fila.client.failures import again
from fila.client.streams import Pump, wait_for
from fila.errors import FilaError, UnavailableError
from fila.wire.ids import message_id
from fila.wire.v1.service_pb2 import ProduceRequest, ProduceResponse

OpenProduce = Callable[[], "aio.StreamStreamCall[ProduceRequest, ProduceResponse]"]


class Receipt:
    """Awaiting it waits until the message is durable and returns its id, or raises why it was not taken."""

    __slots__ = ("_batch", "_position")

    def __init__(self, batch: Batch, position: int) -> None:
        self._batch = batch
        self._position = position

    @property
    def done(self) -> bool:
        """Whether awaiting it returns at once."""
        return self._batch.done

    def __await__(self) -> Generator[Any, None, str]:
        batch = self._batch
        if not batch.done:
            yield from wait_for(batch)
        if batch.error is not None:
            raise again(batch.error)
        return message_id(batch.queue_number, batch.first_offset + self._position, batch.enqueued_at_ms)


class Producer(Context):
    """Sends messages to one queue in batches that form by themselves. Made by `AsyncClient.producer`.

    What arrives while a batch is in flight forms the next one, so a lone message leaves at once and a flood leaves in
    large batches. Order is kept. Leaving the context flushes.
    """

    def __init__(self, core: BatchingCore, open_call: OpenProduce, running: set["Producer"]) -> None:
        self._core = core
        self._open_call = open_call
        # The client's producers that have a stream.
        self._running = running
        self._pump: Pump[ProduceRequest, ProduceResponse] | None = None
        self._room: list[asyncio.Future[None]] = []

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
        if self._pump is None:
            self._start()
        else:
            self._pump.wake()
        return Receipt(batch, batch.count - 1)

    async def room(self) -> None:
        """Wait until another message may be sent; return at once while there is room."""
        core = self._core
        if core.has_full_batch:
            # The writer runs in this thread: a loop that never waits would fill the producer first.
            await asyncio.sleep(0)
        while not core.has_room:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(future)
            await future
        if core.failed is not None:
            raise again(core.failed)

    async def flush(self) -> None:
        """Wait until all messages sent so far are durable.

        Raises the first refusal since the last flush, whether or not its receipt was awaited.
        """
        core = self._core
        last = core.last
        if last is not None:
            await _Once(last)
        refused, core.refused = core.refused, None
        if refused is not None:
            raise again(refused)

    async def close(self) -> None:
        """Flush, and end the stream."""
        try:
            await self.flush()
        finally:
            await self.abort()

    async def abort(self) -> None:
        """End the stream without a flush: what has no receipt yet fails."""
        self._core.fail(UnavailableError(f"the producer of {self._core.queue!r} is closed"))
        if self._pump is not None:
            await self._pump.close()
        self._running.discard(self)

    async def _leave(self, error: BaseException | None) -> None:
        if error is None:
            await self.close()
            return
        # The body's own error is the one to report.
        try:
            await self.flush()
        except FilaError as flush_error:
            error.add_note(f"flushing the producer of {self._core.queue!r} failed too: {flush_error}")
        finally:
            await self.abort()

    def _start(self) -> None:
        self._running.add(self)
        self._pump = Pump(
            self._open_call(),
            next_request=self._core.next_request,
            on_response=self._on_response,
            on_end=self._on_end,
        )

    def _on_response(self, response: ProduceResponse) -> None:
        self._core.on_response(response)
        if self._core.failed is not None and self._pump is not None:
            self._pump.half_close()
        self._after_progress()

    def _on_end(self, error: FilaError) -> None:
        self._core.fail(error)
        self._after_progress()

    def _after_progress(self) -> None:
        if self._pump is not None:
            self._pump.wake()
        if self._room and self._core.has_room:
            waiting, self._room = self._room, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)


class _Once:
    __slots__ = ("_batch",)

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __await__(self) -> Generator[Any, None, None]:
        return wait_for(self._batch)
