"""Lease: take some messages now, or wait for the first; for cron jobs, functions and people with grpcurl."""

import asyncio

import grpc

from fila import limits
from fila.broker.loop import Broker
from fila.errors import FilaError, InvalidArgumentError
from fila.server.call import Call, Handler, checked_queue, decode, refuse
from fila.server.consumer import Consumer
from fila.server.streams import Streams
from fila.wire.frames import message_frames
from fila.wire.v1.service_pb2 import LeaseRequest


class _LeaseCall:
    """One Lease: a consumer that takes one delivery and goes."""

    def __init__(self, broker: Broker, queue: str) -> None:
        self._wake = asyncio.Event()
        self._consumer = Consumer(broker, queue, self._wake, once=True)
        self._stopping: FilaError | None = None

    def stop(self, error: FilaError) -> None:
        """Wait no longer."""
        self._stopping = error
        self._wake.set()

    async def serve(self, max_messages: int, wait_ms: int) -> bytes:
        """Return the LeaseResponse, encoded. Raises FilaError."""
        consumer = self._consumer
        try:
            await consumer.attach(credit_messages=max_messages, credit_bytes=limits.LEASE_BYTES_MAX)
            await self._wait(wait_ms)
            if not consumer.deliveries:
                # What the core leases until it has heard that this call ends still belongs to this call.
                consumer.finish()
                while not (consumer.gone or consumer.deliveries):
                    self._wake.clear()
                    await self._wake.wait()
            if consumer.deliveries:
                delivery, bodies = consumer.deliveries.popleft()
                return b"".join(message_frames(delivery, bodies))
            error = self._stopping or consumer.error
            if error is not None:
                raise error
            return b""
        finally:
            # A caller that went away leaves its delivery here: it is given back.
            consumer.leave(keep=True)

    async def _wait(self, wait_ms: int) -> None:
        if not wait_ms:
            return
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while not (self._consumer.deliveries or self._stopping or self._consumer.error):
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            return


def lease_handler(broker: Broker, streams: Streams) -> Handler:
    """Return the handler of Lease."""

    async def lease(frame: bytes, call: Call) -> bytes:
        try:
            request = decode(LeaseRequest, frame, limits.REQUEST_BYTES_MAX)
            if request.max_messages > limits.LEASE_MESSAGES_MAX:
                raise InvalidArgumentError(
                    f"max_messages {request.max_messages} is not in 0 to {limits.LEASE_MESSAGES_MAX:,}"
                )
            if request.wait_ms > limits.LEASE_WAIT_MS_MAX:
                raise InvalidArgumentError(
                    f"wait_ms {request.wait_ms} is not in 0 to {limits.LEASE_WAIT_MS_MAX:,}"
                )
            streams.check_open()
            stream = _LeaseCall(broker, checked_queue(request.queue))
            with streams.hold(stream):
                return await stream.serve(request.max_messages or 1, request.wait_ms)
        except FilaError as error:
            await refuse(call, error)

    return grpc.unary_unary_rpc_method_handler(lease)
