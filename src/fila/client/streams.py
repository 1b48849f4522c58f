"""One bidirectional stream on asyncio: a reader and a writer around a core without I/O."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar, cast

import grpc
from grpc import aio

from fila import limits
from fila.client.waiting import Pending
from fila.errors import Code, FilaError, QueueNotFoundError, RPCError, UnavailableError
from fila.wire.status import error_of_call

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


def wait_for(pending: Pending) -> Generator[Any, None, None]:
    """Wait until it has happened; each waiter has its own future, so that one may give up without the others."""
    if not pending.done:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pending.waiters.append(future)
        yield from future


class Pump(Generic[RequestT, ResponseT]):
    """Carries a core's frames.

    `next_request` is asked whenever the stream can take one, `on_response` is told of each that comes, and `on_end`
    is told once why there will be no more.
    """

    def __init__(
        self,
        call: "aio.StreamStreamCall[RequestT, ResponseT]",
        *,
        next_request: Callable[[], RequestT | None],
        on_response: Callable[[ResponseT], None],
        on_end: Callable[[FilaError], None],
    ) -> None:
        self._call = call
        self._next_request = next_request
        self._on_response = on_response
        self._on_end = on_end
        self._idle: asyncio.Future[None] | None = None
        self._closing = False
        self._failure: FilaError | None = None
        self._reader = asyncio.create_task(self._read())
        self._writer = asyncio.create_task(self._write())

    def wake(self) -> None:
        """There may be something to write."""
        idle = self._idle
        if idle is not None:
            self._idle = None
            if not idle.done():
                idle.set_result(None)

    def half_close(self) -> None:
        """Write what is left and end our side; the reader goes on."""
        self._closing = True
        self.wake()

    async def close(self, timeout_seconds: float = limits.STREAM_CLOSE_TIMEOUT_SECONDS) -> None:
        """Write what is left, half-close, and wait until the broker has answered all of it."""
        self.half_close()
        try:
            await asyncio.wait([self._reader], timeout=timeout_seconds)
        finally:
            self._call.cancel()
            self._writer.cancel()
            await asyncio.gather(self._reader, self._writer, return_exceptions=True)

    async def _write(self) -> None:
        try:
            while True:
                request = self._next_request()
                if request is not None:
                    await self._call.write(request)
                elif self._closing:
                    await self._call.done_writing()
                    return
                else:
                    self._idle = asyncio.get_running_loop().create_future()
                    await self._idle
        except (grpc.RpcError, asyncio.InvalidStateError):
            # The stream has ended: the reader is told why.
            return
        except Exception as error:
            # A frame that cannot be built: without this, whoever waits for its answer would wait for ever.
            self._failure = RPCError(f"a frame could not be sent: {error!r}", Code.INTERNAL)
            self._call.cancel()
            raise

    async def _read(self) -> None:
        error: FilaError = RPCError("the stream's reader stopped", Code.INTERNAL)
        try:
            while True:
                response = await self._call.read()
                if response is aio.EOF:
                    error = UnavailableError(
                        "the stream is closed" if self._closing else "the broker ended the stream"
                    )
                    return
                # What is not EOF is a response; the stubs do not say so.
                self._on_response(cast("ResponseT", response))
        except grpc.RpcError as rpc_error:
            error = error_of_call(rpc_error, not_found=QueueNotFoundError)
        except asyncio.CancelledError:
            # By us, or by grpc because the call was cancelled: nobody waits for this task but `close`.
            error = self._failure or UnavailableError("the stream is closed")
        except FilaError as protocol_error:
            error = protocol_error
            self._call.cancel()
        finally:
            self._writer.cancel()
            self._on_end(error)
