"""Bidirectional streams on asyncio: a reader and a writer around a core without I/O, and a new stream for a lost one."""

import asyncio
import logging
from collections.abc import Callable, Generator
from typing import Any, Generic, Protocol, TypeVar, cast

import grpc
from grpc import aio

from fila.client.backoff import Backoff
from fila.client.connection import Connection
from fila.client.waiting import Pending
from fila.errors import Absence, ClosedError, Code, FilaError, OutcomeUnknownError, RPCError, UnavailableError

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
RequestT_co = TypeVar("RequestT_co", covariant=True)
ResponseT_contra = TypeVar("ResponseT_contra", contravariant=True)

logger = logging.getLogger("fila.client")


def wait_for(pending: Pending) -> Generator[Any, None, None]:
    """Wait until it has happened; each waiter has its own future, so that one may give up without the others."""
    if not pending.done:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pending.waiters.append(future)
        yield from future


async def until(pending: Pending, timeout_seconds: float | None = None) -> None:
    """Wait until it has happened, as a coroutine. Raises OutcomeUnknownError after `timeout_seconds`."""
    if timeout_seconds is None or pending.done:
        await _Until(pending)
        return
    try:
        async with asyncio.timeout(timeout_seconds):
            await _Until(pending)
    except TimeoutError:
        raise OutcomeUnknownError(
            f"the broker has not answered within {timeout_seconds:g} seconds; what was asked for may be done or not"
        ) from None


class _Until:
    __slots__ = ("_pending",)

    def __init__(self, pending: Pending) -> None:
        self._pending = pending

    def __await__(self) -> Generator[Any, None, None]:
        return wait_for(self._pending)


class End(Protocol[RequestT_co, ResponseT_contra]):
    """What is at our end of a stream: a core, and whoever waits for it."""

    def next_request(self) -> RequestT_co | None:
        """Return the next frame; asked whenever the stream can take one."""

    def on_response(self, response: ResponseT_contra) -> None:
        """Take a frame of the broker. Raises RPCError for one that makes no sense."""

    @property
    def is_leaving(self) -> bool:
        """Whether our side ends when there is nothing left to write."""

    def on_lost(self, error: FilaError) -> None:
        """The stream is gone, and another will follow."""

    def on_failed(self, error: FilaError) -> None:
        """The stream is gone, and none will follow."""


class Pump(Generic[RequestT, ResponseT]):
    """Carries the frames of one stream."""

    def __init__(
        self,
        call: "aio.StreamStreamCall[RequestT, ResponseT]",
        end: End[RequestT, ResponseT],
        connection: Connection,
    ) -> None:
        self._call = call
        self._end = end
        self._connection = connection
        self._idle: asyncio.Future[None] | None = None
        self._failure: FilaError | None = None
        self.has_answered = False

    def wake(self) -> None:
        """There may be something to write."""
        idle = self._idle
        if idle is not None:
            self._idle = None
            if not idle.done():
                idle.set_result(None)

    def cut(self, error: FilaError) -> None:
        """End the stream at once, for this reason."""
        self._failure = error
        self._call.cancel()

    async def run(self) -> FilaError:
        """Carry frames until the stream ends, and return why it did."""
        writer = asyncio.create_task(self._write())
        try:
            return await self._read()
        finally:
            writer.cancel()
            self._call.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def _write(self) -> None:
        try:
            while True:
                request = self._end.next_request()
                if request is not None:
                    await self._call.write(request)
                elif self._end.is_leaving:
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

    async def _read(self) -> FilaError:
        try:
            while True:
                response = await self._call.read()
                if response is aio.EOF:
                    return UnavailableError("the broker ended the stream", absence=Absence.LOST)
                if not self.has_answered:
                    self.has_answered = True
                    self._connection.answered()
                # What is not EOF is a response; the stubs do not say so.
                self._end.on_response(cast("ResponseT", response))
        except grpc.RpcError as rpc_error:
            return self._connection.failure_of(rpc_error)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # By us, or by grpc because the call was cancelled.
            return self._failure or UnavailableError("the stream is closed", absence=Absence.LOST)
        except FilaError as protocol_error:
            return protocol_error


class Session(Generic[RequestT, ResponseT]):
    """One stream after another: a lost one is followed by the next, as soon as the broker is back."""

    def __init__(
        self,
        connection: Connection,
        open_call: Callable[[], "aio.StreamStreamCall[RequestT, ResponseT]"],
        end: End[RequestT, ResponseT],
        name: str,
    ) -> None:
        self._connection = connection
        self._open_call = open_call
        self._end = end
        self._name = name
        self._pump: Pump[RequestT, ResponseT] | None = None
        self._task: asyncio.Task[None] | None = None
        self._was_lost = False
        self._is_over = False

    @property
    def has_begun(self) -> bool:
        """Whether it was started."""
        return self._task is not None

    @property
    def is_away(self) -> bool:
        """Whether a stream was lost and the broker is not back yet: there is nobody to take leave of."""
        pump = self._pump
        return self._was_lost and (pump is None or not pump.has_answered)

    def start(self) -> None:
        """Open the stream."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._over)

    def wake(self) -> None:
        """There may be something to write."""
        pump = self._pump
        if pump is not None:
            pump.wake()

    def cut(self, reason: str) -> None:
        """End the stream that is open at once, as if the connection were lost."""
        pump = self._pump
        if pump is not None:
            pump.cut(UnavailableError(reason, absence=Absence.LOST))

    async def close(self, *, at_once: bool = False) -> None:
        """Wait until our end, which is leaving, has been answered; cut the stream after a time, or at once."""
        task = self._task
        if task is None:
            return
        self.wake()
        try:
            seconds = 0 if at_once or self.is_away else self._connection.close_seconds
            await asyncio.wait([task], timeout=seconds)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        error: FilaError = ClosedError("the stream is closed")
        try:
            error = await self._carry_on()
        except FilaError as failure:
            error = failure
        finally:
            self._pump = None
            self._is_over = True
            self._end.on_failed(error)

    def _over(self, _task: "asyncio.Task[None]") -> None:
        # Cancelled before it had begun: the loop ended first.
        if not self._is_over:
            self._is_over = True
            self._end.on_failed(ClosedError("the event loop has ended"))

    async def _carry_on(self) -> FilaError:
        """Keep a stream open until there is to be none, and return why."""
        backoff = Backoff()
        loop = asyncio.get_running_loop()
        lost_at: float | None = None
        while True:
            await self._connection.ready(self._patience_seconds(lost_at))
            self._pump = Pump(self._open_call(), self._end, self._connection)
            error = await self._pump.run()
            if self._pump.has_answered:
                if lost_at is not None:
                    logger.info("%s is connected again", self._name)
                backoff.reset()
                lost_at = None
            self._pump = None
            patience_seconds = self._patience_seconds(lost_at)
            if not self._connection.may_return(error) or (
                patience_seconds is not None and patience_seconds <= 0
            ):
                return error
            self._was_lost = True
            self._end.on_lost(error)
            if self._end.is_leaving:
                return error
            if lost_at is None:
                lost_at = loop.time()
                logger.warning("%s has lost its connection: %s; waiting for the broker", self._name, error)
            await asyncio.sleep(backoff.next_seconds())

    def _patience_seconds(self, lost_at: float | None) -> float | None:
        """Return how much longer to wait for the broker; None: for ever."""
        bound = self._connection.reconnect_seconds
        if bound is None or lost_at is None:
            return bound
        return bound - (asyncio.get_running_loop().time() - lost_at)
