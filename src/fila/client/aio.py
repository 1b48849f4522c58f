"""The asynchronous client.

One channel to one broker. Messages in bulk travel on the streams of `producer` and `consume`; the rest are unary
calls, each with a deadline.
"""

from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

import grpc
from grpc import aio

from fila import limits
from fila.client import address
from fila.client.batching import BatchingCore
from fila.client.consumer import Consumer, Subscription
from fila.client.context import Context
from fila.client.leasing import Kind, UnarySettler, settle_error
from fila.client.messages import LeasedMessage, Message, Settle, timeout_ms
from fila.client.producer import Producer
from fila.client.values import EnqueueResult, KeyStats, NewMessage, QueueInfo, QueueStats
from fila.errors import (
    InvalidArgumentError,
    LimitError,
    MessageNotFoundError,
    NotFoundError,
    QueueNotFoundError,
    UnavailableError,
)
from fila.wire.channel import CLIENT_OPTIONS
from fila.wire.status import error_of, error_of_call
from fila.wire.v1 import admin_pb2, service_pb2
from fila.wire.v1.admin_pb2_grpc import FilaAdminStub
from fila.wire.v1.service_pb2_grpc import FilaServiceStub

if TYPE_CHECKING:
    from fila.wire.v1.admin_pb2_grpc import FilaAdminAsyncStub
    from fila.wire.v1.service_pb2_grpc import FilaServiceAsyncStub

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
ResponseT_co = TypeVar("ResponseT_co", covariant=True)


class _Method(Protocol[RequestT_contra, ResponseT_co]):
    def __call__(
        self, request: RequestT_contra, /, *, timeout: float | None = None
    ) -> Awaitable[ResponseT_co]: ...


class AsyncClient(Context):
    """Talks to one broker. Use it as `async with AsyncClient(addr) as client`, or `connect` and `close`."""

    def __init__(
        self, addr: str = address.DEFAULT_ADDRESS, *, timeout_seconds: float = limits.CALL_TIMEOUT_SECONDS
    ) -> None:
        self.addr = address.target(addr)
        self._timeout_seconds = timeout_seconds
        self._channel: aio.Channel | None = None
        self._closed = False
        self._subscriptions: set[Subscription] = set()
        self._producers: set[Producer] = set()
        self._settler = UnarySettler(self._settle_by_id)

    # --- connection ---

    @classmethod
    async def connect(
        cls, addr: str = address.DEFAULT_ADDRESS, *, timeout_seconds: float = limits.CALL_TIMEOUT_SECONDS
    ) -> Self:
        """Return a client for a broker that is known to answer; raises UnavailableError if none does."""
        client = cls(addr, timeout_seconds=timeout_seconds)
        try:
            # A list that is too long for a frame is an answer too.
            with suppress(LimitError):
                await client.list_queues()
        except BaseException:
            await client.close()
            raise
        return client

    async def _leave(self, error: BaseException | None) -> None:
        await self.close()

    async def close(self) -> None:
        """End all streams and the connection; what is not settled goes back, what was sent is flushed."""
        if self._closed:
            return
        try:
            await self._settler.drain()
            for subscription in list(self._subscriptions):
                await subscription.close()
            for producer in list(self._producers):
                await producer.close()
        finally:
            self._closed = True
            if self._channel is not None:
                await self._channel.close()

    def _connection(self) -> aio.Channel:
        if self._closed:
            raise UnavailableError("the client is closed")
        if self._channel is None:
            self._channel = aio.insecure_channel(self.addr, options=CLIENT_OPTIONS)
            service: FilaServiceAsyncStub = FilaServiceStub(self._channel)
            admin: FilaAdminAsyncStub = FilaAdminStub(self._channel)
            self._service_stub, self._admin_stub = service, admin
        return self._channel

    @property
    def _service(self) -> "FilaServiceAsyncStub":
        self._connection()
        return self._service_stub

    @property
    def _admin(self) -> "FilaAdminAsyncStub":
        self._connection()
        return self._admin_stub

    async def _call(
        self,
        method: _Method[RequestT_contra, ResponseT_co],
        request: RequestT_contra,
        *,
        not_found: type[NotFoundError] = QueueNotFoundError,
        wait_seconds: float = 0.0,
    ) -> ResponseT_co:
        try:
            return await method(request, timeout=self._timeout_seconds + wait_seconds)
        except grpc.RpcError as error:
            raise error_of_call(error, not_found=not_found) from error

    # --- producing ---

    async def enqueue(
        self,
        queue: str,
        headers: Mapping[str, str] | None = None,
        payload: bytes = b"",
        *,
        fairness_key: str | None = None,
        weight: int | None = None,
        cost: int | None = None,
    ) -> str:
        """Enqueue one message and return its id once it is durable. For many, use `producer`."""
        request = _enqueue_request(queue, NewMessage(payload, headers or {}, fairness_key, weight, cost))
        response = await self._call(self._service.Enqueue, request)
        return response.message_id

    async def enqueue_batch(self, queue: str, messages: Sequence[NewMessage]) -> list[EnqueueResult]:
        """Enqueue many messages in one call; each is taken or refused by itself."""
        request = service_pb2.EnqueueBatchRequest(
            queue=queue, messages=[_enqueue_request("", message) for message in messages]
        )
        response = await self._call(self._service.EnqueueBatch, request)
        return [
            EnqueueResult(
                result.message_id,
                result.offset,
                error_of(result.error_code, result.error, not_found=QueueNotFoundError)
                if result.error_code
                else None,
            )
            for result in response.results
        ]

    def producer(self, queue: str) -> Producer:
        """Return a producer that batches by itself; use it as `async with client.producer(queue) as producer`."""
        # The channel opens with the stream.
        return Producer(BatchingCore(queue), lambda: self._service.Produce(), self._producers)  # noqa: PLW0108

    # --- consuming ---

    def consume(
        self,
        queue: str,
        *,
        prefetch: int = limits.PREFETCH_MESSAGES,
        prefetch_bytes: int = limits.PREFETCH_BYTES,
    ) -> Consumer:
        """Return the messages of a queue: `async for message in client.consume(queue)`.

        Up to `prefetch` messages are leased ahead, so that the loop does not wait for the network; those that the
        loop has not reached go back when it ends.
        """
        if not 1 <= prefetch <= limits.CREDIT_MESSAGES_MAX:
            raise InvalidArgumentError(f"prefetch {prefetch} is not in 1 to {limits.CREDIT_MESSAGES_MAX:,}")
        if not 1 <= prefetch_bytes <= limits.CREDIT_BYTES_MAX:
            raise InvalidArgumentError(
                f"prefetch_bytes {prefetch_bytes} is not in 1 to {limits.CREDIT_BYTES_MAX:,}"
            )
        subscription = Subscription(
            queue,
            lambda: self._service.Subscribe(),  # noqa: PLW0108 - the channel opens with the stream
            prefetch=prefetch,
            prefetch_bytes=prefetch_bytes,
            running=self._subscriptions,
        )
        return Consumer(subscription)

    async def lease(self, queue: str, max_messages: int = 1, wait_seconds: float = 0.0) -> list[Message]:
        """Take up to `max_messages` that are ready, or wait for the first one.

        The leases live until they are settled or run out, whatever becomes of this client.
        """
        wait_ms = round(wait_seconds * 1000)
        request = service_pb2.LeaseRequest(queue=queue, max_messages=max_messages, wait_ms=wait_ms)
        response = await self._call(self._service.Lease, request, wait_seconds=wait_seconds)
        return [LeasedMessage(message, self._settler) for message in response.messages]

    async def ack(self, queue: str, message_id: str) -> None:
        """Ack a message by its id; raises MessageNotFoundError if nobody has it leased."""
        request = service_pb2.AckRequest(queue=queue, message_id=message_id)
        await self._call(self._service.Ack, request, not_found=MessageNotFoundError)

    async def nack(self, queue: str, message_id: str, error: str = "") -> None:
        """Nack a message by its id, and say why; raises MessageNotFoundError if nobody has it leased."""
        request = service_pb2.NackRequest(queue=queue, message_id=message_id, error=error)
        await self._call(self._service.Nack, request, not_found=MessageNotFoundError)

    async def extend(self, queue: str, message_id: str, seconds: float) -> None:
        """Keep a lease for this long from now; raises MessageNotFoundError if nobody has it."""
        kind = (queue, Settle.EXTEND, timeout_ms(seconds))
        results = await self._settle_by_id(kind, [message_id], [])
        error = settle_error(results[0])
        if error is not None:
            raise error

    async def _settle_by_id(
        self, kind: Kind, message_ids: list[str], epochs: list[int]
    ) -> list[service_pb2.SettleResult]:
        queue, action, argument = kind
        if action is Settle.ACK:
            ack = service_pb2.AckBatchRequest(queue=queue, message_ids=message_ids, lease_epochs=epochs)
            return list((await self._call(self._service.AckBatch, ack)).results)
        if action is Settle.NACK:
            nack = service_pb2.NackBatchRequest(
                queue=queue, message_ids=message_ids, lease_epochs=epochs, error=str(argument)
            )
            return list((await self._call(self._service.NackBatch, nack)).results)
        assert action is Settle.EXTEND
        extend = service_pb2.ExtendLeaseRequest(
            queue=queue, message_ids=message_ids, lease_epochs=epochs, timeout_ms=int(argument)
        )
        return list((await self._call(self._service.ExtendLease, extend)).results)

    # --- queues ---

    async def create_queue(
        self,
        name: str,
        *,
        visibility_timeout_ms: int | None = None,
        discipline: str | None = None,
        quantum: int | None = None,
    ) -> None:
        """Create a queue; raises QueueExistsError if there is one of that name."""
        config = admin_pb2.QueueConfig(
            visibility_timeout_ms=visibility_timeout_ms or 0,
            discipline=discipline or "",
            quantum=quantum or 0,
        )
        await self._call(self._admin.CreateQueue, admin_pb2.CreateQueueRequest(name=name, config=config))

    async def delete_queue(self, queue: str) -> None:
        """Delete a queue and its messages."""
        await self._call(self._admin.DeleteQueue, admin_pb2.DeleteQueueRequest(queue=queue))

    async def purge_queue(self, queue: str) -> int:
        """Delete the waiting messages of a queue, not the leased ones, and return their number."""
        response = await self._call(self._admin.PurgeQueue, admin_pb2.PurgeQueueRequest(queue=queue))
        return response.purged

    async def list_queues(self) -> list[QueueInfo]:
        """Return all queues."""
        response = await self._call(self._admin.ListQueues, admin_pb2.ListQueuesRequest())
        return [
            QueueInfo(queue.name, queue.depth, queue.in_flight, queue.active_consumers)
            for queue in response.queues
        ]

    async def stats(self, queue: str) -> QueueStats:
        """Return a queue's numbers."""
        response = await self._call(self._admin.GetStats, admin_pb2.GetStatsRequest(queue=queue))
        return QueueStats(
            depth=response.depth,
            delayed=response.delayed,
            in_flight=response.in_flight,
            active_fairness_keys=response.active_fairness_keys,
            active_consumers=response.active_consumers,
            quantum=response.quantum,
            discipline=response.discipline,
            visibility_timeout_ms=response.visibility_timeout_ms,
            next_offset=response.next_offset,
            queue_number=response.queue_number,
            keys=tuple(
                KeyStats(stats.key, stats.pending_count, stats.current_deficit, stats.weight)
                for stats in response.per_key_stats
            ),
        )


def _enqueue_request(queue: str, message: NewMessage) -> service_pb2.EnqueueRequest:
    return service_pb2.EnqueueRequest(
        queue=queue,
        headers=message.headers,
        payload=message.payload,
        fairness_key=message.fairness_key or "",
        weight=message.weight or 0,
        cost=message.cost or 0,
    )
