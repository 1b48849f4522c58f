"""The connection to one broker: calls with deadlines that are repeated where that is safe, and what streams wait for."""

import asyncio
import logging
import os
from collections.abc import Awaitable
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

import grpc
from grpc import aio

from fila import limits
from fila.client.address import Address
from fila.client.backoff import Backoff
from fila.client.channel import open_channel
from fila.client.reach import failure_of
from fila.errors import (
    Absence,
    ClosedError,
    Code,
    FilaError,
    NotFoundError,
    OutcomeUnknownError,
    QueueNotFoundError,
    RPCError,
    UnavailableError,
)
from fila.wire.v1.admin_pb2_grpc import FilaAdminStub
from fila.wire.v1.service_pb2 import ProduceResponse
from fila.wire.v1.service_pb2_grpc import FilaServiceStub

if TYPE_CHECKING:
    from fila.wire.v1.admin_pb2_grpc import FilaAdminAsyncStub
    from fila.wire.v1.service_pb2_grpc import FilaServiceAsyncStub

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
ResponseT_co = TypeVar("ResponseT_co", covariant=True)

logger = logging.getLogger("fila.client")

_READY = grpc.ChannelConnectivity.READY
_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


class Method(Protocol[RequestT_contra, ResponseT_co]):
    """A unary call of a stub."""

    def __call__(
        self, request: RequestT_contra, /, *, timeout: float | None = None
    ) -> Awaitable[ResponseT_co]: ...


class Connection:
    """One channel to one broker, opened at the first call.

    Until the broker has answered once, whatever finds nobody there fails at once: it is more likely a wrong address
    than a restart. From then on calls and streams wait until it is back.
    """

    # The process that opened a channel first. In its forks gRPC crashes or hangs, whether that is closed or not.
    _process: ClassVar[int | None] = None

    def __init__(
        self,
        address: Address,
        *,
        ca_file: str | os.PathLike[str] | None,
        timeout_seconds: float,
        reconnect_seconds: float | None,
    ) -> None:
        self.address = address
        self.reconnect_seconds = reconnect_seconds
        self._ca_file = ca_file
        self.timeout_seconds = timeout_seconds
        self._channel: aio.Channel | None = None
        self._answered = False
        self._closed = False
        # A channel belongs to the event loop that it was opened in.
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def close_seconds(self) -> float:
        """How long the broker may take to answer what ends a stream."""
        return min(limits.STREAM_CLOSE_TIMEOUT_SECONDS, self.timeout_seconds)

    @property
    def is_open(self) -> bool:
        """Whether there is a channel that has to be closed."""
        return self._channel is not None and not self._closed

    @property
    def service(self) -> "FilaServiceAsyncStub":
        """The service's calls."""
        self._open()
        return self._service

    @property
    def admin(self) -> "FilaAdminAsyncStub":
        """The administration's calls."""
        self._open()
        return self._admin

    def produce(self) -> "aio.StreamStreamCall[bytes, ProduceResponse]":
        """Open a Produce stream, which takes its frames encoded."""
        call: aio.StreamStreamMultiCallable[bytes, ProduceResponse] = self._open().stream_stream(
            "/fila.v1.FilaService/Produce",
            request_serializer=None,
            response_deserializer=ProduceResponse.FromString,
        )
        return call()

    def _open(self) -> aio.Channel:
        if self._closed:
            raise ClosedError("the client is closed: make another")
        loop = asyncio.get_running_loop()
        if self._channel is None:
            self._check_process()
            self._loop = loop
            self._channel = open_channel(self.address, ca_file=self._ca_file)
            service: FilaServiceAsyncStub = FilaServiceStub(self._channel)
            admin: FilaAdminAsyncStub = FilaAdminStub(self._channel)
            self._service, self._admin = service, admin
        elif loop is not self._loop:
            raise RPCError(
                "this client was first used in another event loop, and belongs to that: make a client in each loop, "
                "as with `async with AsyncClient(...)` within what asyncio.run runs",
                Code.FAILED_PRECONDITION,
            )
        return self._channel

    @staticmethod
    def _check_process() -> None:
        if Connection._process is None:
            Connection._process = os.getpid()
            # What gRPC does at a fork, to survive it, crashes the child at random, whether that uses gRPC or not. It asks for
            # this when its first channel opens; whoever needs it has set it.
            os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        elif Connection._process != os.getpid():
            raise RPCError(
                f"this process is a fork of process {Connection._process}, which had used a client: "
                "fork before the first client connects, or start processes with the method 'spawn'",
                Code.FAILED_PRECONDITION,
            )

    async def close(self) -> None:
        """End the channel; whoever waits for it is told."""
        self._closed = True
        if self._channel is not None:
            await self._channel.close()

    def answered(self) -> None:
        """Take note that a broker is there."""
        self._answered = True

    def may_return(self, error: FilaError) -> bool:
        """Whether an error means that the broker has gone and may come back."""
        return (
            isinstance(error, UnavailableError)
            and self._answered
            and not self._closed
            and self.reconnect_seconds != 0
        )

    async def ready(self, timeout_seconds: float | None) -> None:
        """Wait until the broker can be reached. Raises UnavailableError when it cannot within the time."""
        channel = self._open()
        state = channel.get_state(try_to_connect=True)
        if state is _READY or not self._answered or self.reconnect_seconds == 0:
            # What finds nobody there fails by itself, with the reason.
            return
        try:
            async with asyncio.timeout(timeout_seconds):
                while state is not _READY:
                    if self._closed or state is grpc.ChannelConnectivity.SHUTDOWN:
                        raise ClosedError("the client is closed: make another")
                    await channel.wait_for_state_change(state)
                    state = channel.get_state(try_to_connect=True)
        except TimeoutError:
            raise UnavailableError(
                f"the broker at {self.address} did not come back within "
                + (
                    f"{self.timeout_seconds:g} seconds (timeout_seconds)"
                    if self.reconnect_seconds is None
                    else f"{self.reconnect_seconds:g} seconds (reconnect_seconds)"
                ),
                not_done=True,
                absence=Absence.NOBODY,
            ) from None

    def failure_of(
        self, error: grpc.RpcError, *, not_found: type[NotFoundError] = QueueNotFoundError
    ) -> FilaError:
        """Return what a failed call or stream of this connection stands for."""
        return failure_of(error, self.address, not_found=not_found)

    def _late(self, request: object, timeout_seconds: float) -> RPCError:
        name = type(request).__name__.removesuffix("Request")
        return RPCError(
            f"the broker at {self.address} did not answer {name} within {timeout_seconds:g} seconds: "
            "give the client a longer timeout_seconds, or look at the broker's log",
            Code.DEADLINE_EXCEEDED,
        )

    def _patience_seconds(self, left_seconds: float) -> float:
        bound = left_seconds if self.reconnect_seconds is None else self.reconnect_seconds
        return max(0.001, min(bound, left_seconds))

    async def call(
        self,
        method: Method[RequestT_contra, ResponseT_co],
        request: RequestT_contra,
        *,
        repeat: bool,
        not_found: type[NotFoundError] = QueueNotFoundError,
        wait_seconds: float = 0.0,
    ) -> ResponseT_co:
        """Make a call and return its answer, within the client's timeout and what the call itself may wait.

        `repeat`: to do it twice does what doing it once does. Otherwise a lost answer raises OutcomeUnknownError.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout_seconds + wait_seconds
        backoff = Backoff()
        # Whether a try was lost: then not even a later refusal says that nothing was done.
        in_doubt = False
        while True:
            if self._answered:
                try:
                    await self.ready(self._patience_seconds(deadline - loop.time()))
                except UnavailableError as away:
                    away.not_done = not in_doubt
                    raise
            try:
                response = await method(request, timeout=max(0.001, deadline - loop.time()))
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not self._closed or task is None or task.cancelling():
                    raise
                # gRPC cancels the calls of a channel that is closed; their callers were not cancelled.
                if repeat:
                    raise ClosedError("the client was closed before the answer came") from None
                raise OutcomeUnknownError(
                    "the client was closed before the answer came; what was asked for may be done or not"
                ) from None
            except grpc.RpcError as rpc_error:
                status = rpc_error.code()
                error = self.failure_of(rpc_error, not_found=not_found)
                if status is grpc.StatusCode.DEADLINE_EXCEEDED:
                    error = self._late(request, self.timeout_seconds + wait_seconds)
                # Where the sentence is our own or the broker's, gRPC's account adds nothing.
                cause = rpc_error if type(error) is RPCError and status not in _LOST else None
                if status not in _LOST:
                    self._answered = self._answered or not isinstance(error, UnavailableError)
                    raise error from cause
                in_doubt = in_doubt or not error.not_done
                error.not_done = not in_doubt
                delay_seconds = backoff.next_seconds()
                if not (repeat or error.not_done):
                    raise OutcomeUnknownError(
                        f"{error.message}; what was asked for may be done or not"
                    ) from None
                if loop.time() + delay_seconds >= deadline or not self.may_return(error):
                    raise error from None
            else:
                self._answered = True
                return response
            await asyncio.sleep(delay_seconds)
