"""A worker whose handlers run in threads."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TYPE_CHECKING

from fila import limits
from fila.client.blocking.consumer import SyncConsumer
from fila.client.messages import SyncMessage
from fila.client.signals import stopping_on_signals
from fila.client.worker import check_worker, error_text, keep_alive
from fila.errors import MessageNotFoundError

if TYPE_CHECKING:
    from fila.client.blocking.client import Client

logger = logging.getLogger("fila.client")

SyncHandler = Callable[[SyncMessage], object]


class SyncWorker:
    """Calls a handler for each message of a queue, in threads. Made by `Client.worker`.

    A message is acked when its handler returns, and nacked with the error's text when it raises, unless the handler has
    settled it itself. While the handler runs, the lease is kept alive. On SIGTERM, Ctrl-C or `stop`, nothing new is begun
    and what was not begun goes back; `run` returns when the handlers have ended. A second signal does what it does without
    a worker. A thread cannot be cancelled: after
    `drain_seconds` the messages of those that still run go back too.
    """

    def __init__(
        self, client: "Client", queue: str, handler: SyncHandler, *, concurrency: int, drain_seconds: float
    ) -> None:
        check_worker(handler, concurrency)
        self._client = client
        self._queue = queue
        self._handler = handler
        self._concurrency = concurrency
        self._drain_seconds = drain_seconds
        self._consumer: SyncConsumer | None = None
        self._is_stopping = False

    def stop(self) -> None:
        """Begin nothing new; `run` returns when the handlers have ended. Any thread may call it."""
        self._is_stopping = True
        if self._consumer is not None:
            self._consumer.stop()

    def run(self) -> None:
        """Work until told to stop.

        Raises QueueNotFoundError, and UnavailableError if nobody answers at the start.
        """
        prefetch = min(2 * self._concurrency, limits.CREDIT_MESSAGES_MAX)
        in_work: set[Future[None]] = set()
        threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix=f"fila-worker-{self._queue}")
        with stopping_on_signals(self.stop), self._client.consume(self._queue, prefetch=prefetch) as consumer:
            self._consumer = consumer
            keeper = consumer.start(keep_alive)
            try:
                self._take(consumer, threads, in_work)
            finally:
                wait(in_work, timeout=self._drain_seconds)
                threads.shutdown(wait=False, cancel_futures=True)
                keeper.cancel()

    def _take(
        self, consumer: SyncConsumer, threads: ThreadPoolExecutor, in_work: "set[Future[None]]"
    ) -> None:
        slots = threading.Semaphore(self._concurrency)
        while not self._is_stopping:
            slots.acquire()
            message = next(consumer, None)
            if message is None:
                return
            future = threads.submit(self._work, message)
            in_work.add(future)
            future.add_done_callback(in_work.discard)
            future.add_done_callback(lambda _: slots.release())

    def _work(self, message: SyncMessage) -> None:
        try:
            self._handler(message)
        except Exception as error:
            logger.warning("the handler failed on %r", message, exc_info=True)
            with suppress(MessageNotFoundError):
                message.nack(error_text(error))
        else:
            # Settled by the handler itself: then that counts.
            with suppress(MessageNotFoundError):
                message.ack()
