"""A worker whose handlers run in threads."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from inspect import isasyncgen, isawaitable, iscoroutine, isgenerator
from typing import TYPE_CHECKING, NoReturn

from fila import limits
from fila.client.blocking.consumer import SyncConsumer, beside
from fila.client.blocking.gates import closed_gate
from fila.client.messages import SyncMessage
from fila.client.signals import stopping_on_signals
from fila.client.worker import check_worker, error_text, keep_alive, makes_coroutines, makes_generators
from fila.errors import FilaError, InvalidArgumentError

if TYPE_CHECKING:
    from fila.client.blocking.client import Client

logger = logging.getLogger("fila.client")

SyncHandler = Callable[[SyncMessage], object]


class SyncWorker:
    """Calls a handler for each message of a queue, in threads. Made by `Client.worker`.

    A message is acked when its handler returns, and nacked with the error's text when it raises, unless the handler has
    settled it itself. While the handler runs, the lease is kept alive. On SIGTERM, Ctrl-C or `stop`, nothing new is begun
    and what was not begun goes back; `run` returns when the handlers have ended. A thread cannot be cancelled: after
    `drain_seconds`, or at a second Ctrl-C, the messages of those that still run go back too, and nobody waits for them.
    """

    def __init__(
        self, client: "Client", queue: str, handler: SyncHandler, *, concurrency: int, drain_seconds: float
    ) -> None:
        check_worker(handler, concurrency)
        if makes_coroutines(handler) or makes_generators(handler):
            raise InvalidArgumentError(
                f"the handler {handler!r} is a coroutine function or a generator: write a plain function, or use AsyncClient"
            )
        self._client = client
        self._queue = queue
        self._handler = handler
        self._concurrency = concurrency
        self._drain_seconds = drain_seconds
        self._consumer: SyncConsumer | None = None
        self._is_stopping = False
        # Guards the next three.
        self._lock = threading.Lock()
        self._threads = 0
        # How many of them wait for a message.
        self._idle = 0
        self._error: BaseException | None = None
        # Opened when nothing more is taken, and when the last thread has ended.
        self._taken = closed_gate()
        self._ended = closed_gate()

    def __repr__(self) -> str:
        return f"<SyncWorker of {self._queue!r}, at most {self._concurrency} at once{', stopping' if self._is_stopping else ''}>"

    def stop(self) -> None:
        """Begin nothing new; `run` returns when the handlers have ended. Any thread may call it."""
        self._is_stopping = True
        # Without the lock: a signal may come wherever the main thread is, also in here. It may be open.
        with suppress(RuntimeError):
            self._taken.release()
        if self._consumer is not None:
            self._consumer.stop()

    def run(self) -> None:
        """Work until told to stop.

        Raises QueueNotFoundError, UnavailableError if nobody answers at the start, and InvalidArgumentError when the handler
        turns out to be no plain function.
        """
        prefetch = min(2 * self._concurrency, limits.CREDIT_MESSAGES_MAX)
        with (
            stopping_on_signals(self.stop),
            self._client.consume(self._queue, prefetch=prefetch) as consumer,
            beside(consumer, keep_alive),
        ):
            self._consumer = consumer
            self._threads = self._idle = 1
            self._start(consumer)
            try:
                # The system may give a signal to another thread; Python acts on it when this one comes back from its wait.
                while not self._taken.acquire(timeout=limits.SIGNAL_CHECK_SECONDS):
                    pass
            finally:
                # Whatever ended it: what was not begun is not kept from others while the handlers end.
                consumer.stop()
            self._ended.acquire(timeout=min(self._drain_seconds, threading.TIMEOUT_MAX))
        if self._error is not None:
            raise self._error

    def _start(self, consumer: SyncConsumer) -> None:
        # A daemon: the end of the program does not wait for it. A pool's threads would be waited for.
        threading.Thread(
            target=self._take, args=(consumer,), name=f"fila-worker-{self._queue}", daemon=True
        ).start()

    def _take(self, consumer: SyncConsumer) -> None:
        """Handle one message after another, until there are no more; the first of many starts the next thread."""
        try:
            while not self._is_stopping:
                message = next(consumer, None)
                if message is None:
                    break
                with self._lock:
                    self._idle -= 1
                    is_next_due = not self._idle and self._threads < self._concurrency
                    self._threads += is_next_due
                    self._idle += is_next_due
                if is_next_due:
                    self._start(consumer)
                self._work(message)
                with self._lock:
                    self._idle += 1
        except BaseException as error:  # noqa: BLE001 - `run` raises it
            with self._lock:
                self._error = self._error or error
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._threads -= 1
            is_last = not self._threads
        self._is_stopping = True
        with suppress(RuntimeError):
            self._taken.release()
        if is_last:
            self._ended.release()

    def _work(self, message: SyncMessage) -> None:
        try:
            outcome = self._handler(message)
            if isawaitable(outcome) or isgenerator(outcome) or isasyncgen(outcome):
                self._refuse(outcome)
        except Exception as error:
            logger.warning("the handler failed on %r", message, exc_info=error)
            with suppress(FilaError):
                message.nack(error_text(error))
        else:
            # Settled by the handler itself: then that counts. Ended meanwhile: then it has gone back.
            with suppress(FilaError):
                message.ack()

    def _refuse(self, outcome: object) -> NoReturn:
        """Stop, for no message will be handled; and raise why."""
        if iscoroutine(outcome):
            outcome.close()
        error = InvalidArgumentError(
            f"the handler {self._handler!r} returned {type(outcome).__name__}, which nobody runs: "
            "write a plain function, or use AsyncClient"
        )
        with self._lock:
            self._error = self._error or error
        self.stop()
        raise error
