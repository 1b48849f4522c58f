"""Consume: the classic stream, one message a frame, without credit in its protocol.

What one stream may hold unacked is bounded by its window, and refilled as acks come in on any connection. So its leases outlive
it: they end by an ack from wherever, or by their deadline.
"""

import asyncio

import grpc

from fila import limits
from fila.broker.loop import Broker
from fila.core.commands import Sent
from fila.errors import FilaError, InvalidArgumentError
from fila.server.call import Call, Handler, checked_queue, decode, refuse, write_frame
from fila.server.consumer import Consumer
from fila.server.streams import Streams
from fila.wire.frames import message_frames
from fila.wire.v1.service_pb2 import ConsumeRequest


class _ConsumeStream:
    """One classic consumer."""

    def __init__(self, broker: Broker, call: Call, queue: str) -> None:
        self._broker = broker
        self._call = call
        self._wake = asyncio.Event()
        self._consumer = Consumer(broker, queue, self._wake)
        self._stopping: FilaError | None = None
        # How much of the first delivery that still waits is written.
        self._written = 0

    def stop(self, error: FilaError) -> None:
        """Write nothing more."""
        self._stopping = error
        self._wake.set()

    async def serve(self, window: int) -> FilaError:
        """Write messages until the stream must end, and return why."""
        try:
            await self._consumer.attach(
                credit_messages=window, credit_bytes=limits.CONSUMER_WINDOW_BYTES, refill=True
            )
            while self._error() is None:
                self._wake.clear()
                while self._consumer.deliveries and self._error() is None:
                    await self._write_delivery()
                if self._error() is None:
                    await self._wake.wait()
        finally:
            # A stopping broker takes all leases back; else they belong to the client, wherever it acks them.
            self._consumer.leave(keep=self._error() is None, sent=self._written)
        error = self._error()
        assert error is not None
        return error

    async def _write_delivery(self) -> None:
        delivery, bodies = self._consumer.deliveries[0]
        self._written = 0
        self._consumer.begin_write(delivery)
        for frame in message_frames(delivery, bodies):
            # A frame on its way may have arrived: it counts as written.
            self._written += 1
            await write_frame(self._call, frame)
        self._consumer.deliveries.popleft()
        self._written = 0
        # Only now its leases give room for others: else a client that does not read would have more and more waiting here.
        self._broker.submit(Sent(self._consumer.number, delivery.epoch))

    def _error(self) -> FilaError | None:
        return self._stopping or self._consumer.error


def consume_handler(broker: Broker, streams: Streams, *, window_default: int) -> Handler:
    """Return the handler of Consume."""

    async def consume(frame: bytes, call: Call) -> None:
        try:
            request = decode(ConsumeRequest, frame, limits.REQUEST_BYTES_MAX)
            window = request.window or window_default
            if window > limits.CONSUMER_WINDOW_MAX:
                raise InvalidArgumentError(f"window {window} is not in 0 to {limits.CONSUMER_WINDOW_MAX:,}")
            streams.check_open()
            stream = _ConsumeStream(broker, call, checked_queue(request.queue))
            with streams.hold(stream):
                error = await stream.serve(window)
        except FilaError as refusal:
            error = refusal
        await refuse(call, error)

    return grpc.unary_stream_rpc_method_handler(consume)
