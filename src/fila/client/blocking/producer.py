"""The producer for threads: `with client.producer(queue) as producer`."""

import threading
from collections.abc import Mapping

from fila.client import shown
from fila.client.batching import Batch
from fila.client.blocking.context import SyncContext
from fila.client.blocking.portal import Portal, Poster
from fila.client.producer import Place, ProducerStream, note_flush_failure
from fila.client.streams import until
from fila.errors import FilaError


class SyncReceipt(Place):
    """Stands for a message that was sent."""

    __slots__ = ("_portal",)

    def __init__(self, portal: Portal, batch: Batch, position: int) -> None:
        super().__init__(batch, position)
        self._portal = portal

    def __repr__(self) -> str:
        return shown.receipt("SyncReceipt", self._batch, self._position)

    def result(self, timeout_seconds: float | None = None) -> str:
        """Wait until the message is durable and return its id, or raise why it was not taken.

        Raises OutcomeUnknownError after `timeout_seconds`; the message may still be taken then.
        """
        if not self._batch.done:
            self._portal.run(until(self._batch, timeout_seconds))
        return self._id()


class SyncProducer(SyncContext):
    """Sends messages to one queue in batches that form by themselves. Made by `Client.producer`.

    Several threads may use it. Leaving the context flushes.
    """

    def __init__(self, portal: Portal, stream: ProducerStream, lock: threading.Lock, owner: object) -> None:
        self._portal = portal
        self._stream = stream
        # A client that nobody holds any more is closed.
        self._owner = owner
        # It guards the core.
        self._lock = lock
        self._bell = portal.bell(lock)
        stream.tell = self._bell.ring
        self._wake = Poster(portal, lambda: stream.wake())  # noqa: PLW0108 - waking means opening only once

    def __repr__(self) -> str:
        return shown.producer("SyncProducer", self._stream.core)

    def send(
        self,
        payload: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        fairness_key: str | None = None,
        weight: int | None = None,
        cost: int | None = None,
    ) -> SyncReceipt:
        """Send a message; ask the receipt for its id, or `flush` for all of them.

        Waits while the producer holds all that it may.
        """
        core = self._stream.core
        receipt: SyncReceipt | None = None
        while receipt is None:
            self._portal.check()
            gate: threading.Lock | None = None
            with self._lock:
                if core.has_room or core.failed is not None:
                    batch = core.add(payload, headers, fairness_key=fairness_key, weight=weight, cost=cost)
                    receipt = SyncReceipt(self._portal, batch, batch.count - 1)
                else:
                    gate = self._bell.gate()
            if gate is not None:
                gate.acquire()
        self._wake()
        return receipt

    def flush(self, timeout_seconds: float | None = None) -> None:
        """Wait until all messages sent so far are durable.

        Raises the first refusal since the last flush, whether or not its receipt was looked at; it names its message.
        Raises OutcomeUnknownError after `timeout_seconds`; the producer goes on all the same.
        """
        self._portal.run(self._stream.flush(timeout_seconds))

    def close(self) -> None:
        """Flush, and end the stream."""
        if not self._portal.is_closed:
            self._portal.run(self._stream.close())

    def abort(self) -> None:
        """End the stream without a flush: what has no receipt yet fails."""
        if not self._portal.is_closed:
            self._portal.run(self._stream.abort())

    def _leave(self, error: BaseException | None) -> None:
        if error is None:
            self.close()
            return
        # The body's own error is the one to report.
        try:
            self.flush()
        except FilaError as flush_error:
            note_flush_failure(error, self._stream.core.queue, flush_error)
        finally:
            self.abort()
