"""The clients that make the load: the fast paths and the unary calls, with as little work as a client can do.

They know the wire and nothing of what is measured. The broker and the server to compare with get the same calls
from the same code.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from grpc import aio

from fila import limits
from fila.bench.messages import Batch
from fila.errors import UnavailableError
from fila.wire.v1 import messages_pb2, service_pb2

# Enough that the broker never waits for the client, few enough that a batch does not wait long behind others.
PRODUCE_BATCHES_IN_FLIGHT = 32
# Two dozen full deliveries.
CREDIT_MESSAGES = 10_000
CREDIT_BYTES = 16 * limits.MIB


class Stream(ABC):
    """One bidirectional call with a task that reads it; a failure of that task reaches whoever waits."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._changed = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return as soon as the condition holds; it is looked at after every answer. Raises what broke the stream."""
        while not condition():
            if self._reader.done():
                self._reader.result()
                raise UnavailableError("the server ended the stream")
            self._changed.clear()
            await self._changed.wait()

    def wake(self) -> None:
        """Let whoever waits look at its condition again."""
        self._changed.set()

    async def close(self) -> None:
        """End the stream in order: what is half-closed gives its leases back."""
        await self._finish_writing()
        # A stream that has already ended has nothing left to say.
        if not self._call.done():
            await self._call.done_writing()
        await self._reader

    async def _finish_writing(self) -> None:  # noqa: B027 - not every stream has a task that writes
        """Wait for the task that writes, where there is one."""

    @abstractmethod
    def _take(self, response: Any) -> None:
        """Take one answer."""

    async def _read(self) -> None:
        try:
            # Reading raises when the call ends with an error.
            while (response := await self._call.read()) is not aio.EOF:
                self._take(response)
                self._changed.set()
        finally:
            self._changed.set()


class ProduceStream(Stream):
    """A producer with a bounded number of unanswered batches."""

    def __init__(
        self, channel: aio.Channel, queue: str, *, batches_in_flight: int = PRODUCE_BATCHES_IN_FLIGHT
    ) -> None:
        call: Any = channel.stream_stream(
            "/fila.v1.FilaService/Produce",
            # The frames are encoded already.
            request_serializer=None,
            response_deserializer=service_pb2.ProduceResponse.FromString,
        )
        super().__init__(call())
        self._queue = queue
        self._batches_in_flight = batches_in_flight
        self._sequence = 0
        self._sent_at_s: deque[float] = deque()
        self.sent = 0
        self.receipted = 0
        self.first_offset = 0
        self.receipt_times_s: list[float] = []

    async def send(self, batch: Batch, *, queue: str = "") -> None:
        """Send a batch as soon as few enough are unanswered."""
        if len(self._sent_at_s) >= self._batches_in_flight:
            await self.wait_until(lambda: len(self._sent_at_s) < self._batches_in_flight)
        self._sequence += 1
        head = service_pb2.ProduceRequest(
            sequence=self._sequence, queue=queue or (self._queue if self._sequence == 1 else "")
        )
        self._sent_at_s.append(time.perf_counter())
        self.sent += batch.count
        # Encodings of parts of one message, one behind the other, are the encoding of the whole.
        await self._call.write(head.SerializeToString() + batch.field)

    async def send_all(
        self,
        batches: Iterator[Batch],
        *,
        messages: int | None = None,
        seconds: float | None = None,
        gate: Callable[[], bool] | None = None,
    ) -> None:
        """Send until so many messages or seconds have gone, and wait for the receipts.

        While `gate` is closed nothing is sent; whoever may have opened it calls `wake`.
        """
        end_sent = None if messages is None else self.sent + messages
        end_s = None if seconds is None else time.perf_counter() + seconds
        while (end_sent is None or self.sent < end_sent) and (end_s is None or time.perf_counter() < end_s):
            if gate is not None and not gate():
                await self.wait_until(gate)
            await self.send(next(batches))
        await self.wait_until(lambda: not self._sent_at_s)

    def _take(self, response: Any) -> None:
        if response.error_code:
            raise UnavailableError(f"batch {response.sequence} was refused: {response.error}")
        self.receipt_times_s.append(time.perf_counter() - self._sent_at_s.popleft())
        self.receipted += response.count
        self.first_offset = response.first_offset


class SubscribeStream(Stream):
    """A consumer that acks every delivery as a whole, and grants again what it used up.

    `on_delivery` sees each delivery. With `paused` nothing is granted but by `grant`; without `ack` the end of the
    stream gives the messages back.
    """

    def __init__(
        self,
        channel: aio.Channel,
        queue: str,
        *,
        paused: bool = False,
        ack: bool = True,
        on_delivery: Callable[[Any], None] | None = None,
    ) -> None:
        call: Any = channel.stream_stream(
            "/fila.v1.FilaService/Subscribe",
            request_serializer=service_pb2.SubscribeRequest.SerializeToString,
            response_deserializer=service_pb2.SubscribeResponse.FromString,
        )
        super().__init__(call())
        self._on_delivery = on_delivery
        self._paused = paused
        self._ack = ack
        self._sequence = 0
        # Of each settling frame its number, how many messages it acks, and when it was sent.
        self._unsettled: deque[tuple[int, int, float]] = deque()
        self._epochs: list[int] = []
        self._epochs_count = 0
        self._credit_messages = 0 if paused else CREDIT_MESSAGES
        self._credit_bytes = 0 if paused else CREDIT_BYTES
        self._queue = queue
        self._closing = False
        self._has_work = asyncio.Event()
        self._has_work.set()
        self.subscribed = False
        self.delivered = 0
        self.delivered_at_s = 0.0
        self.settled = 0
        self.settle_times_s: list[float] = []
        self.on_settled: Callable[[], None] | None = None
        self._writer = asyncio.create_task(self._write())

    def grant(self, messages: int, size_bytes: int) -> None:
        """Let the broker send so much more."""
        self._credit_messages += messages
        self._credit_bytes += size_bytes
        self._has_work.set()

    async def _finish_writing(self) -> None:
        # To cancel a task that writes is to cancel its call.
        self._closing = True
        self._has_work.set()
        await self._writer

    def _take(self, response: Any) -> None:
        if response.HasField("delivery"):
            self._take_delivery(response.delivery)
        if response.HasField("settled"):
            self._take_settled(response.settled)
        if response.HasField("subscribed"):
            self.subscribed = True

    def _take_delivery(self, delivery: Any) -> None:
        bodies, at = delivery.bodies, 0
        # Handing out each body is what the least of clients does.
        for size in delivery.sizes:
            _ = bodies[at : at + size]
            at += size
        count = len(delivery.sizes)
        self.delivered += count
        self.delivered_at_s = time.perf_counter()
        if self._ack:
            self._epochs.append(delivery.epoch)
            self._epochs_count += count
        if not self._paused:
            self._credit_messages += count
            self._credit_bytes += at
        if self._on_delivery is not None:
            self._on_delivery(delivery)
        self._has_work.set()

    def _take_settled(self, settled: Any) -> None:
        if settled.refused:
            raise UnavailableError(f"acks were refused: {settled.refused[0].reason}")
        while self._unsettled and self._unsettled[0][0] <= settled.sequence:
            _, count, sent_at_s = self._unsettled.popleft()
            self.settled += count
            self.settle_times_s.append(time.perf_counter() - sent_at_s)
        if self.on_settled is not None:
            self.on_settled()

    async def _write(self) -> None:
        queue = self._queue
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            if queue or self._epochs or self._credit_messages or self._credit_bytes:
                try:
                    await self._call.write(self._next_frame(queue))
                except (grpc.RpcError, asyncio.InvalidStateError):
                    # The reading task learns the reason and reports it.
                    return
                queue = ""
            if self._closing:
                return

    def _next_frame(self, queue: str) -> service_pb2.SubscribeRequest:
        frame = service_pb2.SubscribeRequest(
            queue=queue, credit_messages=self._credit_messages, credit_bytes=self._credit_bytes
        )
        self._credit_messages = self._credit_bytes = 0
        if self._epochs:
            self._sequence += 1
            frame.sequence = self._sequence
            frame.ack.CopyFrom(messages_pb2.LeaseRuns(epochs=self._epochs))
            self._unsettled.append((self._sequence, self._epochs_count, time.perf_counter()))
            self._epochs, self._epochs_count = [], 0
        return frame
