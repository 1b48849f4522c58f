"""The server to compare with: it decodes the same frames, answers with the same sizes, and decides and keeps nothing.

What is faster than this is not to be had with gRPC in Python on the machine at hand. It counts messages per queue,
so that a consumer gets as many as were produced, in deliveries made from the first batch that came.
"""

import argparse
import asyncio
import gc
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc import aio

from fila import limits
from fila.bench.transport import open_runner
from fila.wire.channel import SERVER_OPTIONS
from fila.wire.v1 import admin_pb2, messages_pb2, service_pb2

MESSAGE_ID = "01890a5d-ac96-774b-bcce-b302099a8057"
ENQUEUED_AT_MS = 1_700_000_000_000


@dataclass(slots=True)
class BareQueue:
    """How many messages of a queue are not delivered yet, and who waits for them."""

    waiting: int = 0
    offset: int = 0
    columns: messages_pb2.MessageColumns | None = None
    consumers: list[asyncio.Event] = field(default_factory=list)

    def add(self, count: int) -> int:
        """Count messages in and return the first offset."""
        first_offset = self.offset
        self.waiting += count
        self.offset += count
        for event in self.consumers:
            event.set()
        return first_offset


def _unary(behaviour: Any, request: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(behaviour, request.FromString, _serialize)


def _stream(behaviour: Any, request: Any) -> Any:
    return grpc.stream_stream_rpc_method_handler(behaviour, request.FromString, _serialize)


def _serialize(response: Any) -> bytes:
    encoded: bytes = response.SerializeToString()
    return encoded


class BareAdmin:
    """Queues come and go by being named."""

    def __init__(self, queues: defaultdict[str, BareQueue]) -> None:
        self._queues = queues

    def handler(self) -> grpc.GenericRpcHandler:
        """Return what the server calls."""
        methods = {
            "CreateQueue": _unary(self.create_queue, admin_pb2.CreateQueueRequest),
            "DeleteQueue": _unary(self.delete_queue, admin_pb2.DeleteQueueRequest),
        }
        return grpc.method_handlers_generic_handler("fila.v1.FilaAdmin", methods)

    async def create_queue(self, request: Any, _context: Any) -> Any:
        """Answer."""
        return admin_pb2.CreateQueueResponse(queue_id=request.name)

    async def delete_queue(self, request: Any, _context: Any) -> Any:
        """Forget the count."""
        self._queues.pop(request.queue, None)
        return admin_pb2.DeleteQueueResponse()


class BareService:
    """Decode, count, answer."""

    def __init__(self, queues: defaultdict[str, BareQueue]) -> None:
        self._queues = queues
        self._deliveries: dict[tuple[str, int], service_pb2.SubscribeResponse] = {}
        self._epoch = 1 << 40

    def handler(self) -> grpc.GenericRpcHandler:
        """Return what the server calls."""
        methods = {
            "Enqueue": _unary(self.enqueue, service_pb2.EnqueueRequest),
            "Lease": _unary(self.lease, service_pb2.LeaseRequest),
            "AckBatch": _unary(self.ack_batch, service_pb2.AckBatchRequest),
            "Produce": _stream(self.produce, service_pb2.ProduceRequest),
            "Subscribe": _stream(self.subscribe, service_pb2.SubscribeRequest),
        }
        return grpc.method_handlers_generic_handler("fila.v1.FilaService", methods)

    async def enqueue(self, request: Any, _context: Any) -> Any:
        """Count one message."""
        queue = self._queues[request.queue]
        if queue.columns is None:
            body = messages_pb2.Body(payload=request.payload).SerializeToString()
            queue.columns = messages_pb2.MessageColumns(bodies=body, sizes=[len(body)], keys=["default"])
        offset = queue.add(1)
        return service_pb2.EnqueueResponse(message_id=MESSAGE_ID, offset=offset)

    async def produce(self, _requests: AsyncIterator[Any], context: Any) -> None:
        """Count batches, with one receipt each."""
        queue = BareQueue()
        while (request := await context.read()) is not aio.EOF:
            if request.queue:
                queue = self._queues[request.queue]
            if queue.columns is None:
                queue.columns = request.messages
            count = len(request.messages.sizes)
            await context.write(
                service_pb2.ProduceResponse(
                    sequence=request.sequence,
                    queue_number=1,
                    first_offset=queue.add(count),
                    count=count,
                    enqueued_at_ms=ENQUEUED_AT_MS,
                )
            )

    async def subscribe(self, _requests: AsyncIterator[Any], context: Any) -> None:
        """Deliver what was counted in, against credit, and confirm acks."""
        first = await context.read()
        queue = self._queues[first.queue]
        consumer = BareConsumer(self, first.queue, queue)
        queue.consumers.append(consumer.changed)
        await context.write(service_pb2.SubscribeResponse(subscribed=service_pb2.Subscribed(queue_number=1)))
        writer = asyncio.create_task(consumer.write(context))
        request = first
        while request is not aio.EOF:
            consumer.credit_messages += request.credit_messages
            consumer.credit_bytes += request.credit_bytes
            consumer.sequence = request.sequence or consumer.sequence
            consumer.changed.set()
            request = await context.read()
        writer.cancel()
        queue.consumers.remove(consumer.changed)

    async def lease(self, request: Any, _context: Any) -> Any:
        """Hand out one message."""
        queue = self._queues[request.queue]
        queue.waiting -= 1
        message = messages_pb2.Message(id=MESSAGE_ID, payload=b"\0" * 1024)
        message.metadata.queue_id = request.queue
        message.metadata.fairness_key = "default"
        message.metadata.lease_epoch = self._epoch
        message.timestamps.enqueued_at.seconds = message.timestamps.leased_at.seconds = int(time.time())
        return service_pb2.LeaseResponse(messages=[message])

    async def ack_batch(self, request: Any, _context: Any) -> Any:
        """Answer for each message."""
        return service_pb2.AckBatchResponse(results=[service_pb2.SettleResult() for _ in request.message_ids])

    def delivery(self, name: str, queue: BareQueue, count: int) -> service_pb2.SubscribeResponse:
        """Return a delivery of so many messages, ready but for its epoch."""
        response = self._deliveries.get((name, count))
        if response is None:
            assert queue.columns is not None  # messages wait, so some have come
            response = self._deliveries[name, count] = make_delivery(queue.columns, count)
        self._epoch += 1
        response.delivery.epoch = self._epoch
        return response


class BareConsumer:
    """What one consumer may still receive, and what it has acked."""

    def __init__(self, service: BareService, name: str, queue: BareQueue) -> None:
        self.credit_messages = 0
        self.credit_bytes = 0
        self.sequence = 0
        self.changed = asyncio.Event()
        self._settled = 0
        self._service = service
        self._name = name
        self._queue = queue

    async def write(self, context: Any) -> None:
        """Confirm and deliver until the stream ends."""
        while True:
            await self.changed.wait()
            self.changed.clear()
            if self.sequence != self._settled:
                self._settled = self.sequence
                await context.write(
                    service_pb2.SubscribeResponse(settled=service_pb2.Settled(sequence=self._settled))
                )
            while (count := self._room()) > 0:
                self._queue.waiting -= count
                self.credit_messages -= count
                response = self._service.delivery(self._name, self._queue, count)
                self.credit_bytes -= len(response.delivery.bodies)
                await context.write(response)

    def _room(self) -> int:
        count = min(self._queue.waiting, self.credit_messages, limits.DELIVERY_MESSAGES_MAX)
        columns = self._queue.columns
        if count > 0 and columns is not None:
            body_bytes = max(1, columns.sizes[0])
            count = min(
                count, self.credit_bytes // body_bytes, max(1, limits.DELIVERY_BYTES_MAX // body_bytes)
            )
        return count


def make_delivery(columns: messages_pb2.MessageColumns, count: int) -> service_pb2.SubscribeResponse:
    """Repeat the messages of a batch until there are `count`."""
    response = service_pb2.SubscribeResponse()
    sizes = list(columns.sizes)
    index = list(columns.key_index) or [0] * len(sizes)
    whole, rest = divmod(count, len(sizes))
    delivery = response.delivery
    delivery.leased_at_ms = ENQUEUED_AT_MS
    delivery.lease_expires_at_ms = ENQUEUED_AT_MS + limits.VISIBILITY_TIMEOUT_MS_DEFAULT
    delivery.sizes.extend(sizes * whole + sizes[:rest])
    delivery.keys.extend(columns.keys)
    delivery.key_index.extend(index * whole + index[:rest])
    delivery.enqueued_at_ms.append(ENQUEUED_AT_MS)
    delivery.bodies = columns.bodies * whole + columns.bodies[: sum(sizes[:rest])]
    return response


async def serve(address: str) -> None:
    """Serve until SIGTERM."""
    server = aio.server(options=SERVER_OPTIONS, maximum_concurrent_rpcs=limits.CALLS_MAX)
    queues: defaultdict[str, BareQueue] = defaultdict(BareQueue)
    server.add_generic_rpc_handlers((BareService(queues).handler(), BareAdmin(queues).handler()))
    server.add_insecure_port(address)
    await server.start()
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    gc.freeze()
    await stopping.wait()
    await server.stop(None)


def main() -> None:
    """Run the bare server: `python -m fila.bench.bare --listen 127.0.0.1:0`."""
    parser = argparse.ArgumentParser(description="A gRPC server that decodes, counts and answers.")
    parser.add_argument("--listen", required=True)
    arguments = parser.parse_args()
    with open_runner() as runner:
        runner.run(serve(arguments.listen))


if __name__ == "__main__":
    main()
