"""The synchronous client.

Everything is done by an `AsyncClient` in a thread of its own; what travels in bulk is taken from its cores and put into
them without going through that thread, so that a loop over messages costs no hand-over for each.
"""

import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress

from fila import limits
from fila.client import address
from fila.client.aio import AsyncClient, inside
from fila.client.arguments import check_consume, check_worker_options
from fila.client.blocking.consumer import SyncConsumer, SyncLeaseSettler, SyncSubscription
from fila.client.blocking.context import SyncContext
from fila.client.blocking.portal import Portal
from fila.client.blocking.producer import SyncProducer
from fila.client.blocking.worker import SyncHandler, SyncWorker
from fila.client.messages import LeasedSyncMessage, SyncMessage
from fila.client.values import Discipline, EnqueueResult, NewMessage, QueueInfo, QueueStats
from fila.errors import LimitError


class Client(SyncContext):
    """Talks to one broker. Use it as `with Client(addr) as client`, or call `close` at the end.

    Several threads may share it. It does not survive a fork, and a process that was forked from one that had used a
    client can use none: it is told so. The arguments are those of `AsyncClient`.
    """

    def __init__(
        self,
        addr: str = address.DEFAULT_ADDRESS,
        *,
        timeout_seconds: float = limits.CALL_TIMEOUT_SECONDS,
        reconnect_seconds: float | None = None,
        ca_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self._client = AsyncClient(
            addr, timeout_seconds=timeout_seconds, reconnect_seconds=reconnect_seconds, ca_file=ca_file
        )
        self.addr = self._client.addr
        self._portal = Portal(f"fila-client-{self.addr}", timeout_seconds=timeout_seconds)
        self._inside = inside(self._client)
        # Also when it is forgotten, and at the end of the process.
        self._end = weakref.finalize(self, _end, self._portal, self._client)

    @classmethod
    def connect(
        cls,
        addr: str = address.DEFAULT_ADDRESS,
        *,
        timeout_seconds: float = limits.CALL_TIMEOUT_SECONDS,
        reconnect_seconds: float | None = None,
        ca_file: str | os.PathLike[str] | None = None,
    ) -> "Client":
        """Return a client for a broker that is known to answer; raises UnavailableError if none does."""
        client = cls(
            addr, timeout_seconds=timeout_seconds, reconnect_seconds=reconnect_seconds, ca_file=ca_file
        )
        try:
            # A list that is too long for a frame is an answer too.
            with suppress(LimitError):
                client.list_queues()
        except BaseException:
            client.close()
            raise
        return client

    def close(self) -> None:
        """End all streams and the connection; what is not settled goes back, what was sent is flushed."""
        self._end()

    def __repr__(self) -> str:
        return f"<Client {self.addr}{'' if self._end.alive else ', closed'}>"

    def _leave(self, error: BaseException | None) -> None:
        self.close()

    # --- producing ---

    def enqueue(
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
        return self._portal.run(
            self._client.enqueue(queue, headers, payload, fairness_key=fairness_key, weight=weight, cost=cost)
        )

    def enqueue_batch(self, queue: str, messages: Sequence[NewMessage]) -> list[EnqueueResult]:
        """Enqueue many messages in one call; each is taken or refused by itself."""
        return self._portal.run(self._client.enqueue_batch(queue, messages))

    def producer(
        self,
        queue: str,
        *,
        repeat: bool = True,
        delivery_seconds: float = limits.PRODUCER_DELIVERY_TIMEOUT_SECONDS,
    ) -> SyncProducer:
        """Return a producer that batches by itself; use it as `with client.producer(queue) as producer`.

        What has no receipt when the connection is lost is sent again, and may then be in the queue twice. With
        `repeat=False` it fails with OutcomeUnknownError instead. So does what has no receipt after `delivery_seconds`.
        """
        self._portal.check()
        lock = threading.Lock()
        return SyncProducer(
            self._portal,
            self._inside.producer_stream(queue, repeat=repeat, delivery_seconds=delivery_seconds, lock=lock),
            lock,
            self,
        )

    # --- consuming ---

    def consume(
        self,
        queue: str,
        *,
        prefetch: int | None = None,
        prefetch_bytes: int = limits.PREFETCH_BYTES,
    ) -> SyncConsumer:
        """Return the messages of a queue: `for message in client.consume(queue)`.

        What about a tenth of a second of the loop's work is leased ahead, so that it does not wait for the network; with
        `prefetch`, what it holds is that many messages, whatever its pace. What the loop has not reached goes back when it
        ends.
        """
        check_consume(queue, prefetch, prefetch_bytes)
        self._portal.check()
        subscription = SyncSubscription(
            self._portal,
            self._inside.connection,
            queue,
            prefetch=prefetch,
            prefetch_bytes=prefetch_bytes,
            settler=self._inside.settler,
            running=self._inside.subscriptions,
        )
        return SyncConsumer(self._portal, subscription, self)

    def worker(
        self,
        queue: str,
        handler: SyncHandler,
        *,
        concurrency: int = limits.WORKER_CONCURRENCY,
        drain_seconds: float = limits.WORKER_DRAIN_SECONDS,
    ) -> SyncWorker:
        """Return a worker that calls `handler` for each message, in `concurrency` threads: `worker.run()`."""
        check_worker_options(queue, concurrency, drain_seconds)
        return SyncWorker(self, queue, handler, concurrency=concurrency, drain_seconds=drain_seconds)

    def lease(self, queue: str, max_messages: int = 1, wait_seconds: float = 0.0) -> list[SyncMessage]:
        """Take up to `max_messages` that are ready, or wait for the first one.

        The leases live until they are settled or run out, whatever becomes of this client. Settling them waits for
        the broker's answer.
        """
        messages = self._portal.run(self._inside.lease(queue, max_messages, wait_seconds))
        settler = SyncLeaseSettler(self._portal, self._inside.settler, self)
        return [LeasedSyncMessage(message, settler) for message in messages]

    def ack(self, queue: str, message_id: str) -> None:
        """Ack a message by its id; raises MessageNotFoundError if nobody has it leased."""
        self._portal.run(self._client.ack(queue, message_id))

    def nack(self, queue: str, message_id: str, error: str | BaseException = "") -> None:
        """Nack a message by its id, and say why; raises MessageNotFoundError if nobody has it leased."""
        self._portal.run(self._client.nack(queue, message_id, error))

    def extend(self, queue: str, message_id: str, seconds: float) -> None:
        """Keep a lease for this long from now; raises MessageNotFoundError if nobody has it."""
        self._portal.run(self._client.extend(queue, message_id, seconds))

    # --- queues ---

    def create_queue(
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
        self._portal.run(
            self._client.create_queue(
                name,
                visibility_timeout_ms=visibility_timeout_ms,
                discipline=discipline,
                quantum=quantum,
                exist_ok=exist_ok,
            )
        )

    def delete_queue(self, queue: str) -> None:
        """Delete a queue and its messages."""
        self._portal.run(self._client.delete_queue(queue))

    def purge_queue(self, queue: str) -> int:
        """Delete the waiting messages of a queue, not the leased ones, and return their number."""
        return self._portal.run(self._client.purge_queue(queue))

    def list_queues(self) -> list[QueueInfo]:
        """Return all queues."""
        return self._portal.run(self._client.list_queues())

    def stats(self, queue: str) -> QueueStats:
        """Return a queue's numbers."""
        return self._portal.run(self._client.stats(queue))


def _end(portal: Portal, client: AsyncClient) -> None:
    if portal.is_foreign:
        return
    if portal.is_current_thread:
        # The collector may run in any thread, also in the client's own, which cannot wait for itself.
        portal.close_after(client.close())
        return
    try:
        portal.run(client.close())
    finally:
        portal.close()
