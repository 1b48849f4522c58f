"""Subscribe: deliveries in columns against credit; acks, nacks, extensions and releases on the same stream.

The call's own coroutine writes, a task reads. A client that ends its side gives back what it holds; one that breaks off, or
breaks the protocol, has lost it. A client that does not read holds up nobody: what waits for it is bounded by its credit, and
what it may still ask for by what it has been answered.

A broker that stops says so, delivers nothing more, and reads on until the client ends its side or a time has passed. What the client
is working on then stays leased to it: it is settled after the restart, by id.
"""

import asyncio

import grpc

from fila import limits
from fila.broker.loop import Broker
from fila.core.commands import Begin, Credit
from fila.errors import FilaError, InvalidArgumentError, UnavailableError
from fila.server.call import Call, Handler, checked_queue, decode, read_frame, refuse, write_frame
from fila.server.consumer import Consumer
from fila.server.credit import StreamCredit
from fila.server.settling import Settling
from fila.server.streams import Streams
from fila.wire.frames import delivery_frame, stopping_frame, subscribed_frame
from fila.wire.leases import read_runs
from fila.wire.v1.service_pb2 import SubscribeRequest


class _SubscribeStream:
    """One consumer with credit."""

    def __init__(self, broker: Broker, call: Call, queue: str) -> None:
        self._broker = broker
        self._call = call
        self._queue = queue
        self._wake = asyncio.Event()
        self._paid = asyncio.Event()
        self._consumer = Consumer(broker, queue, self._wake)
        self._settling = Settling(broker, self._consumer.number, self._wake)
        self._credit = StreamCredit()
        self._stopping: FilaError | None = None
        self._stop_is_told = False
        self._stop_is_over = False
        self._failure: FilaError | None = None
        self._reader: asyncio.Task[None] | None = None

    def stop(self, error: FilaError) -> None:
        """Deliver nothing more, and give the client time to settle what it has done and to end its side."""
        if self._reader is not None and self._reader.done():
            # It ends already, and of its own accord.
            return
        # Of frames that are not confirmed in the end nobody can say that they were not done: the store may fail meanwhile.
        self._stopping = UnavailableError(error.message)
        self._want_nothing()
        self._wake.set()
        asyncio.get_running_loop().call_later(limits.SUBSCRIBE_STOP_GRACE_MS / 1_000, self._cut)

    def _cut(self) -> None:
        """Read nothing more, confirm what is durable, and end."""
        self._stop_is_over = True
        self._wake.set()

    def _want_nothing(self) -> None:
        self._credit.stop()
        self._consumer.stop()

    async def serve(self, first: SubscribeRequest) -> FilaError | None:
        """Serve the stream until it ends, and return why, if it must end with an error."""
        lost = True
        try:
            messages, size = self._credit.grant(first.credit_messages, first.credit_bytes)
            attached = await self._consumer.attach(credit_messages=messages, credit_bytes=size)
            await write_frame(self._call, subscribed_frame(attached, self._broker.recovered.incarnation))
            self._take_leases(first)
            self._reader = asyncio.create_task(self._read())
            self._reader.add_done_callback(lambda _: self._wake.set())
            error = await self._write()
            # What the client did not cause is not held against its messages.
            lost = error is not None and error is self._failure
            if not lost:
                await self._release()
            return error
        finally:
            if self._reader is not None:
                self._reader.cancel()
            self._leave(lost=lost)

    async def _write(self) -> FilaError | None:
        """Write until the stream is to end."""
        consumer, settling = self._consumer, self._settling
        while True:
            self._wake.clear()
            error = self._error()
            half_closed = self._is_half_closed()
            if self._stopping is not None and not self._stop_is_told and error is None and not half_closed:
                self._stop_is_told = True
                await write_frame(self._call, stopping_frame())
            elif consumer.deliveries and error is None and not half_closed:
                await self._write_delivery()
            elif settling.is_ready():
                await self._confirm()
            elif error is not None:
                return error
            elif half_closed and not settling.owed:
                # A call that was broken off also reads as ended, a moment before it is cancelled. Only one that still takes
                # an answer has ended well.
                await self._confirm()
                return self._stopping
            else:
                await self._wake.wait()

    async def _write_delivery(self) -> None:
        delivery, bodies = self._consumer.deliveries.popleft()
        size = sum(delivery.sizes)
        self._consumer.begin_write(delivery)
        self._credit.delivered(len(delivery.offsets), size)
        settled = self._take_confirmation() if self._settling.is_ready() else b""
        await write_frame(self._call, delivery_frame(delivery, bodies, settled))
        more = self._credit.written(size)
        if more:
            self._broker.submit(Credit(self._consumer.number, 0, more))

    async def _confirm(self) -> None:
        await write_frame(self._call, self._take_confirmation())

    def _take_confirmation(self) -> bytes:
        frame = self._settling.confirm()
        self._paid.set()
        return frame

    async def _release(self) -> None:
        """Leave, wait until the leases are back in their queue, and confirm what was settled until then."""
        assert self._reader is not None
        self._reader.cancel()
        self._leave(lost=False)
        while not self._consumer.gone:
            self._wake.clear()
            await self._wake.wait()
        if self._settling.is_ready():
            await self._confirm()

    def _leave(self, *, lost: bool) -> None:
        # Whose broker stops has not failed, however its stream ends, and is not done with what it has begun.
        stopping = self._stopping is not None
        self._consumer.leave(lost=lost and not stopping, keep_begun=stopping)

    def _error(self) -> FilaError | None:
        """Return why the stream must end, whatever the client does."""
        error = self._consumer.error or self._settling.failure or self._failure
        return error or (self._stopping if self._stop_is_over else None)

    def _is_half_closed(self) -> bool:
        reader = self._reader
        if reader is None or not reader.done() or self._error() is not None:
            return False
        # An error that is nobody's fault but ours comes out here.
        reader.result()
        return True

    async def _read(self) -> None:
        try:
            while (frame := await read_frame(self._call)) is not None:
                if self._error() is not None:
                    # It ends, and a broker that has opened its store again would not know this consumer: it would refuse what
                    # is still leased.
                    return
                self._take(decode(SubscribeRequest, frame, limits.SETTLE_FRAME_BYTES_MAX))
                while self._settling.owed > limits.SETTLE_MESSAGES_OWED_MAX:
                    self._paid.clear()
                    await self._paid.wait()
                await self._broker.room()
        except UnavailableError as error:
            # This frame was not done; those before it may have been.
            self._failure = UnavailableError(error.message)
        except FilaError as error:
            self._failure = error

    def _take(self, request: SubscribeRequest) -> None:
        if request.queue and request.queue != self._queue:
            raise InvalidArgumentError("only the first frame of a stream names its queue")
        self._take_leases(request)
        if request.credit_messages or request.credit_bytes:
            messages, size = self._credit.grant(request.credit_messages, request.credit_bytes)
            if messages or size:
                self._broker.submit(Credit(self._consumer.number, messages, size))

    def _take_leases(self, request: SubscribeRequest) -> None:
        if request.stop:
            # First of all: what the same frame gives back must not come back.
            self._want_nothing()
        if request.HasField("begun"):
            runs = read_runs(request.begun)
            if runs.epochs:
                self._broker.submit(Begin(self._consumer.number, runs))
        self._settling.take(request)


def subscribe_handler(broker: Broker, streams: Streams) -> Handler:
    """Return the handler of Subscribe."""

    async def subscribe(_requests: object, call: Call) -> None:
        error: FilaError | None
        try:
            frame = await read_frame(call)
            if frame is None:
                raise InvalidArgumentError("the stream ended before its first frame")
            request = decode(SubscribeRequest, frame, limits.SETTLE_FRAME_BYTES_MAX)
            streams.check_open()
            stream = _SubscribeStream(broker, call, checked_queue(request.queue))
            with streams.hold(stream):
                error = await stream.serve(request)
        except FilaError as refusal:
            error = refusal
        if error is not None:
            await refuse(call, error)

    return grpc.stream_stream_rpc_method_handler(subscribe)
