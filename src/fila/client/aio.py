"""The asynchronous client.

One channel to one broker. Messages in bulk travel on the streams of `producer` and `consume`; the rest are unary
calls, each with a deadline.
"""

import asyncio
import os
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Self

from fila import limits
from fila.client import address
from fila.client.arguments import (
    check_config,
    check_consume,
    check_lease,
    check_message,
    check_message_id,
    check_queue,
    check_seconds,
    check_text,
    check_times,
    check_worker_options,
    checked_batch,
    checked_error,
    checked_timeout_ms,
)
from fila.client.batching import BatchingCore
from fila.client.connection import Connection
from fila.client.consumer import AsyncSubscription, Consumer
from fila.client.context import Context
from fila.client.leasing import Kind, UnarySettler, settle_error
from fila.client.messages import DeliveredMessage, LeasedMessage, Message, Settle
from fila.client.producer import Producer, ProducerStream
from fila.client.subscription import Subscription
from fila.client.values import Discipline, EnqueueResult, KeyStats, NewMessage, QueueInfo, QueueStats
from fila.client.worker import Worker
from fila.errors import (
    FilaError,
    InvalidArgumentError,
    LimitError,
    MessageNotFoundError,
    OutcomeUnknownError,
    QueueExistsError,
    QueueNotFoundError,
    UnavailableError,
)
from fila.wire.status import error_of
from fila.wire.v1 import admin_pb2, messages_pb2, service_pb2


@dataclass(frozen=True, slots=True)
class Inside:
    """What the two faces share."""

    connection: Connection
    settler: UnarySettler
    # Those that have a stream.
    subscriptions: set[Subscription[Any]]
    producers: set[ProducerStream]

    def producer_stream(
        self, queue: str, *, repeat: bool, delivery_seconds: float, lock: AbstractContextManager[object]
    ) -> ProducerStream:
        """Return a producer's end of its streams; whoever uses its core holds the lock."""
        check_seconds("delivery_seconds", delivery_seconds, may_be_zero=False)
        check_queue(queue)
        return ProducerStream(
            self.connection,
            BatchingCore(queue, repeat=repeat),
            self.producers,
            lock=lock,
            delivery_seconds=delivery_seconds,
        )

    async def lease(
        self, queue: str, max_messages: int, wait_seconds: float
    ) -> Sequence[messages_pb2.Message]:
        """Take what is ready, or wait for the first message."""
        check_lease(queue, max_messages, wait_seconds)
        request = service_pb2.LeaseRequest(
            queue=queue, max_messages=max_messages, wait_ms=round(wait_seconds * 1000)
        )
        call = self.connection.call(
            self.connection.service.Lease, request, repeat=False, wait_seconds=wait_seconds
        )
        return (await call).messages


class AsyncClient(Context):
    """Talks to one broker. Use it as `async with AsyncClient(addr) as client`, or `connect` and `close`.

    `timeout_seconds` bounds every call, and `close`; what a producer holds is bounded by its `delivery_seconds`. Once a broker has answered, a lost connection is a pause: streams wait until it is
    back, for `reconnect_seconds` at most (None: for as long as it takes). `ca_file` names the authorities that an
    `https://` broker's certificate must come from; without it, those of the system.
    """

    def __init__(
        self,
        addr: str = address.DEFAULT_ADDRESS,
        *,
        timeout_seconds: float = limits.CALL_TIMEOUT_SECONDS,
        reconnect_seconds: float | None = None,
        ca_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self._process = os.getpid()
        parsed = address.parse(addr)
        check_times(timeout_seconds, reconnect_seconds)
        self.addr = str(parsed)
        self._connection = Connection(
            parsed, ca_file=ca_file, timeout_seconds=timeout_seconds, reconnect_seconds=reconnect_seconds
        )
        self._closed = False
        self._settler = UnarySettler(self._settle_by_id, self._connection.may_return)
        self._inside = Inside(self._connection, self._settler, set(), set())

    # --- connection ---

    @classmethod
    async def connect(
        cls,
        addr: str = address.DEFAULT_ADDRESS,
        *,
        timeout_seconds: float = limits.CALL_TIMEOUT_SECONDS,
        reconnect_seconds: float | None = None,
        ca_file: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Return a client for a broker that is known to answer; raises UnavailableError if none does."""
        client = cls(
            addr, timeout_seconds=timeout_seconds, reconnect_seconds=reconnect_seconds, ca_file=ca_file
        )
        try:
            # A list that is too long for a frame is an answer too.
            with suppress(LimitError):
                await client.list_queues()
        except BaseException:
            await client.close()
            raise
        return client

    def __repr__(self) -> str:
        return f"<AsyncClient {self.addr}{', closed' if self._closed else ''}>"

    async def _leave(self, error: BaseException | None) -> None:
        await self.close()

    async def close(self) -> None:
        """End all streams and the connection; what is not settled goes back, what was sent is flushed."""
        if self._closed:
            return
        seconds = self._connection.close_seconds
        # Together: one that is refused, or that waits, is not at the expense of the others.
        ends: list[Coroutine[Any, Any, None]] = [self._settler.drain()]
        ends += [each.close() for each in self._inside.subscriptions]
        ends += [each.close(seconds) for each in self._inside.producers]
        tasks = [asyncio.ensure_future(end) for end in ends]
        try:
            await asyncio.wait(tasks, timeout=seconds)
        finally:
            self._closed = True
            await self._connection.close()
            # Without a connection they end by themselves, each with its reason.
            _, waiting = await asyncio.wait(tasks, timeout=limits.CLOSE_GRACE_SECONDS)
            for task in waiting:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    def __del__(self) -> None:
        # None: its address made no sense.
        connection = getattr(self, "_connection", None)
        if connection is not None and connection.is_open and os.getpid() == self._process:
            warnings.warn(
                f"the client of {self.addr} was not closed: use `async with`, or await its close()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

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
        """Enqueue one message and return its id once it is durable. For many, use `producer`.

        It is not sent again where that could enqueue it twice: then OutcomeUnknownError says so.
        """
        check_queue(queue)
        check_message(headers, payload, fairness_key, weight, cost)
        request = _enqueue_request(queue, NewMessage(payload, headers or {}, fairness_key, weight, cost))
        response = await self._connection.call(self._connection.service.Enqueue, request, repeat=False)
        return response.message_id

    async def enqueue_batch(self, queue: str, messages: Sequence[NewMessage]) -> list[EnqueueResult]:
        """Enqueue many messages in one call; each is taken or refused by itself."""
        check_queue(queue)
        batch = checked_batch(messages)
        results: list[EnqueueResult | None] = [_refused(message) for message in batch]
        sound = [message for message, refused in zip(batch, results, strict=True) if refused is None]
        if sound:
            request = service_pb2.EnqueueBatchRequest(
                queue=queue, messages=[_enqueue_request("", message) for message in sound]
            )
            call = self._connection.call(self._connection.service.EnqueueBatch, request, repeat=False)
            answers = iter((await call).results)
            results = [refused or _enqueue_result(next(answers)) for refused in results]
        return [result for result in results if result is not None]

    def producer(
        self,
        queue: str,
        *,
        repeat: bool = True,
        delivery_seconds: float = limits.PRODUCER_DELIVERY_TIMEOUT_SECONDS,
    ) -> Producer:
        """Return a producer that batches by itself; use it as `async with client.producer(queue) as producer`.

        What has no receipt when the connection is lost is sent again, and may then be in the queue twice. With
        `repeat=False` it fails with OutcomeUnknownError instead. So does what has no receipt after `delivery_seconds`.
        """
        return Producer(
            self._inside.producer_stream(
                queue, repeat=repeat, delivery_seconds=delivery_seconds, lock=nullcontext()
            )
        )

    # --- consuming ---

    def consume(
        self,
        queue: str,
        *,
        prefetch: int | None = None,
        prefetch_bytes: int = limits.PREFETCH_BYTES,
    ) -> Consumer:
        """Return the messages of a queue: `async for message in client.consume(queue)`.

        What about a tenth of a second of the loop's work is leased ahead, so that it does not wait for the network; with
        `prefetch`, what it holds is that many messages, whatever its pace. What the loop has not reached goes back when it
        ends. Awaiting it first, as in `consumer = await client.consume(queue)`,
        finds out at once whether there is such a queue.
        """
        check_consume(queue, prefetch, prefetch_bytes)
        return Consumer(
            AsyncSubscription(
                self._connection,
                queue,
                message_type=DeliveredMessage,
                prefetch=prefetch,
                prefetch_bytes=prefetch_bytes,
                settler=self._settler,
                running=self._inside.subscriptions,
                lock=nullcontext(),
            )
        )

    def worker(
        self,
        queue: str,
        handler: Callable[[Message], Awaitable[object]],
        *,
        concurrency: int = limits.WORKER_CONCURRENCY,
        drain_seconds: float = limits.WORKER_DRAIN_SECONDS,
    ) -> Worker:
        """Return a worker that calls `handler` for each message, at most `concurrency` at once: `await worker.run()`."""
        check_worker_options(queue, concurrency, drain_seconds)
        return Worker(self, queue, handler, concurrency=concurrency, drain_seconds=drain_seconds)

    async def lease(self, queue: str, max_messages: int = 1, wait_seconds: float = 0.0) -> list[Message]:
        """Take up to `max_messages` that are ready, or wait for the first one.

        The leases live until they are settled or run out, whatever becomes of this client.
        """
        messages = await self._inside.lease(queue, max_messages, wait_seconds)
        return [LeasedMessage(message, self._settler) for message in messages]

    async def ack(self, queue: str, message_id: str) -> None:
        """Ack a message by its id; raises MessageNotFoundError if nobody has it leased."""
        check_queue(queue)
        check_message_id(message_id)
        request = service_pb2.AckRequest(queue=queue, message_id=message_id)
        await self._connection.call(
            self._connection.service.Ack, request, repeat=False, not_found=MessageNotFoundError
        )

    async def nack(self, queue: str, message_id: str, error: str | BaseException = "") -> None:
        """Nack a message by its id, and say why; raises MessageNotFoundError if nobody has it leased."""
        check_queue(queue)
        check_message_id(message_id)
        request = service_pb2.NackRequest(queue=queue, message_id=message_id, error=checked_error(error))
        await self._connection.call(
            self._connection.service.Nack, request, repeat=False, not_found=MessageNotFoundError
        )

    async def extend(self, queue: str, message_id: str, seconds: float) -> None:
        """Keep a lease for this long from now; raises MessageNotFoundError if nobody has it."""
        check_queue(queue)
        check_message_id(message_id)
        kind = (queue, Settle.EXTEND, checked_timeout_ms(seconds))
        results = await self._settle_by_id(kind, [message_id], [])
        error = settle_error(Settle.EXTEND, results[0])
        if error is not None:
            raise error

    async def _settle_by_id(
        self, kind: Kind, message_ids: list[str], epochs: list[int]
    ) -> list[service_pb2.SettleResult]:
        queue, action, argument = kind
        service, call = self._connection.service, self._connection.call
        # Named by its epoch, a lease is settled once, however often it is said.
        repeat = bool(epochs)
        if action is Settle.ACK:
            ack = service_pb2.AckBatchRequest(queue=queue, message_ids=message_ids, lease_epochs=epochs)
            return list((await call(service.AckBatch, ack, repeat=repeat)).results)
        if action is Settle.NACK:
            nack = service_pb2.NackBatchRequest(
                queue=queue, message_ids=message_ids, lease_epochs=epochs, error=str(argument)
            )
            return list((await call(service.NackBatch, nack, repeat=repeat)).results)
        if action is Settle.RELEASE:
            release = service_pb2.ReleaseBatchRequest(
                queue=queue, message_ids=message_ids, lease_epochs=epochs
            )
            return list((await call(service.ReleaseBatch, release, repeat=repeat)).results)
        extend = service_pb2.ExtendLeaseRequest(
            queue=queue, message_ids=message_ids, lease_epochs=epochs, timeout_ms=int(argument)
        )
        return list((await call(service.ExtendLease, extend, repeat=True)).results)

    # --- queues ---

    async def create_queue(
        self,
        name: str,
        *,
        visibility_timeout_ms: int | None = None,
        discipline: Discipline | None = None,
        quantum: int | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Create a queue; raises QueueExistsError if there is one of that name.

        With `exist_ok`, a queue of that name is left as it is, whatever its settings, and that is no error.
        """
        check_text("name", name, "'orders'")
        check_config(visibility_timeout_ms, discipline, quantum)
        config = admin_pb2.QueueConfig(
            visibility_timeout_ms=visibility_timeout_ms or 0,
            discipline=discipline or "",
            quantum=quantum or 0,
        )
        request = admin_pb2.CreateQueueRequest(name=name, config=config)
        try:
            await self._connection.call(self._connection.admin.CreateQueue, request, repeat=exist_ok)
        except QueueExistsError:
            if not exist_ok:
                raise

    async def delete_queue(self, queue: str) -> None:
        """Delete a queue and its messages."""
        check_queue(queue)
        request = admin_pb2.DeleteQueueRequest(queue=queue)
        await self._connection.call(self._connection.admin.DeleteQueue, request, repeat=False)

    async def purge_queue(self, queue: str) -> int:
        """Delete the waiting messages of a queue, not the leased ones, and return their number."""
        check_queue(queue)
        request = admin_pb2.PurgeQueueRequest(queue=queue)
        response = await self._connection.call(self._connection.admin.PurgeQueue, request, repeat=False)
        return response.purged

    async def list_queues(self) -> list[QueueInfo]:
        """Return all queues."""
        request = admin_pb2.ListQueuesRequest()
        response = await self._connection.call(self._connection.admin.ListQueues, request, repeat=True)
        return [
            QueueInfo(queue.name, queue.depth, queue.in_flight, queue.active_consumers)
            for queue in response.queues
        ]

    async def stats(self, queue: str) -> QueueStats:
        """Return a queue's numbers."""
        check_queue(queue)
        request = admin_pb2.GetStatsRequest(queue=queue)
        response = await self._connection.call(self._connection.admin.GetStats, request, repeat=True)
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


def inside(client: AsyncClient) -> Inside:
    """Return what another face of the same client needs of it."""
    return client._inside  # noqa: SLF001 - it is no part of what users see


def _refused(message: NewMessage) -> EnqueueResult | None:
    """Return the result of a message that need not be sent to be refused."""
    try:
        check_message(message.headers, message.payload, message.fairness_key, message.weight, message.cost)
    except InvalidArgumentError as error:
        return EnqueueResult("", 0, error)
    return None


def _enqueue_result(result: service_pb2.EnqueueResult) -> EnqueueResult:
    error: FilaError | None = None
    if result.error_code:
        error = error_of(result.error_code, result.error, not_found=QueueNotFoundError)
        if isinstance(error, UnavailableError):
            # It is stored, or not: only the broker can tell.
            error.not_done = result.not_taken
            error = error if result.not_taken else OutcomeUnknownError(error.message)
    return EnqueueResult(result.message_id, result.offset, error)


def _enqueue_request(queue: str, message: NewMessage) -> service_pb2.EnqueueRequest:
    return service_pb2.EnqueueRequest(
        queue=queue,
        headers=message.headers,
        payload=message.payload,
        fairness_key=message.fairness_key or "",
        weight=message.weight or 0,
        cost=message.cost or 0,
    )
