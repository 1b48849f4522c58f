"""Produce: pipelined batches in columns, one receipt each, in order.

A batch costs one read, one command and one write: no task and no future. What is taken and not yet answered is bounded;
beyond it the stream is not read, and HTTP/2 holds the producer back.
"""

import asyncio
from collections import deque
from collections.abc import Callable

import grpc

from fila import limits
from fila.broker.loop import Broker
from fila.core.commands import Enqueue
from fila.core.model import GateKeys
from fila.core.outcome import Enqueued
from fila.errors import FilaError, InvalidArgumentError, LimitError, NotFoundError, UnavailableError
from fila.server.call import Call, Handler, checked_queue, decode, read_frame, refuse, write_frame
from fila.server.streams import Streams
from fila.wire.columns import MalformedColumnsError, read_columns
from fila.wire.frames import produce_receipt, produce_refusal
from fila.wire.status import short_message
from fila.wire.v1.service_pb2 import ProduceRequest


class _Batch:
    """A batch that waits for its receipt."""

    __slots__ = ("fail", "frame", "sequence", "size", "wake")

    def __init__(
        self, sequence: int, size: int, wake: asyncio.Event, fail: Callable[[UnavailableError], None]
    ) -> None:
        self.sequence = sequence
        self.size = size
        self.wake = wake
        self.fail = fail
        self.frame: bytes | None = None

    def answer(self, reply: object) -> None:
        """Take the core's reply: Enqueued or an error."""
        if isinstance(reply, Enqueued):
            self.frame = produce_receipt(self.sequence, reply)
        elif isinstance(reply, FilaError):
            self.frame = refusal(self.sequence, reply)
            if isinstance(reply, UnavailableError):
                self.fail(reply)
        else:
            raise TypeError(f"Enqueue was answered with {reply!r}")
        self.wake.set()


class _ProduceStream:
    """One producer: a task reads and submits, the call's own coroutine writes receipts."""

    def __init__(self, broker: Broker, call: Call) -> None:
        self._broker = broker
        self._call = call
        self._queue = ""
        self._sequence = 0
        self._batches: deque[_Batch] = deque()
        self._bytes_in_flight = 0
        self._answered = asyncio.Event()
        self._room = asyncio.Event()
        self._failure: FilaError | None = None
        self._stopping: FilaError | None = None
        self._stop_is_told = False
        self._reader: asyncio.Task[None]

    def stop(self, error: FilaError) -> None:
        """Take nothing more, and give the producer time to end its side.

        To cut it off at once would cost it the receipts that are on their way: its next write would fail, and with that
        the whole call.
        """
        self._stopping = error
        self._answered.set()
        asyncio.get_running_loop().call_later(limits.PRODUCE_STOP_GRACE_MS / 1_000, self._cut)

    def _cut(self) -> None:
        self._failure = self._failure or self._stopping
        self._reader.cancel()

    async def serve(self) -> FilaError | None:
        """Write receipts until the producer is done, and return why the stream must end with an error."""
        self._reader = asyncio.create_task(self._read())
        self._reader.add_done_callback(lambda _: self._answered.set())
        try:
            while True:
                self._answered.clear()
                while self._batches and (frame := self._batches[0].frame) is not None:
                    self._bytes_in_flight -= self._batches.popleft().size
                    self._room.set()
                    await write_frame(self._call, frame)
                if self._reader.done() and not self._batches:
                    if self._failure is None:
                        self._reader.result()
                    return self._failure or self._stopping
                if self._stopping is not None and not self._stop_is_told and not self._reader.done():
                    self._stop_is_told = True
                    await write_frame(self._call, refusal(0, self._stopping))
                else:
                    await self._answered.wait()
        finally:
            self._reader.cancel()

    async def _read(self) -> None:
        try:
            while not self._has_failed() and (frame := await read_frame(self._call)) is not None:
                if self._has_failed():
                    # It came while a batch before it failed.
                    return
                self._take(frame)
                del frame
                while self._is_full():
                    self._room.clear()
                    await self._room.wait()
                await self._broker.room()
        except FilaError as error:
            self._failure = error

    def _has_failed(self) -> bool:
        return self._failure is not None

    def _is_full(self) -> bool:
        return (
            len(self._batches) >= limits.PRODUCE_BATCHES_IN_FLIGHT_MAX
            or self._bytes_in_flight >= limits.PRODUCE_BYTES_IN_FLIGHT_MAX
        )

    def _take(self, frame: bytes) -> None:
        """Submit one batch. Raises InvalidArgumentError for a frame after which nothing of the stream can be trusted."""
        request = decode(ProduceRequest, frame)
        if request.sequence != self._sequence + 1:
            raise InvalidArgumentError(f"the batch has sequence {request.sequence}, not {self._sequence + 1}")
        self._sequence += 1
        if request.queue:
            self._queue = checked_queue(request.queue)
        elif not self._queue:
            raise InvalidArgumentError("the first batch names no queue")
        batch = _Batch(self._sequence, len(frame), self._answered, self._fail)
        if self._stopping is None:
            self._submit(batch, request)
        else:
            # Each is answered until the producer ends its side: to end the stream now might cost it the receipts on their way.
            batch.frame = refusal(batch.sequence, self._stopping)
            self._answered.set()
        self._batches.append(batch)
        self._bytes_in_flight += batch.size

    def _submit(self, batch: _Batch, request: ProduceRequest) -> None:
        try:
            columns = read_columns(request.messages)
            command = Enqueue(
                self._broker.expect(batch.answer),
                self._queue,
                columns.sizes,
                columns.keys,
                columns.key_index,
                columns.weights,
                columns.costs,
                None if columns.gates is None else [GateKeys(*keys) for keys in columns.gates],
                columns.gate_index,
            )
            self._broker.submit(command, columns.bodies)
        except MalformedColumnsError:
            raise
        except (InvalidArgumentError, LimitError, NotFoundError) as error:
            # It concerns this batch alone: the producer hears of it in its receipt, in turn.
            batch.answer(error)
        except UnavailableError as error:
            batch.answer(error)

    def _fail(self, error: UnavailableError) -> None:
        """A batch was not taken, or may not have been: what follows must not overtake it, and is not read."""
        self._failure = self._failure or error


def refusal(sequence: int, error: FilaError) -> bytes:
    """Return the receipt of a batch that failed, and say whether it certainly was not taken."""
    return produce_refusal(sequence, error.code, short_message(error), not_taken=error.not_done)


def produce_handler(broker: Broker, streams: Streams) -> Handler:
    """Return the handler of Produce."""

    async def produce(_requests: object, call: Call) -> None:
        error: FilaError | None
        try:
            streams.check_open()
            stream = _ProduceStream(broker, call)
            with streams.hold(stream):
                error = await stream.serve()
        except FilaError as stopping:
            error = stopping
        if error is not None:
            await refuse(call, error)

    return grpc.stream_stream_rpc_method_handler(produce)
