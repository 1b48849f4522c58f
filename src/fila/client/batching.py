"""The producer's side of a Produce stream, without I/O: what arrives while a batch is in flight forms the next.

Messages go in one by one, frames come out; receipts go in, batches are resolved. It must not know who carries the
frames. Nothing is allocated per message but its place in the columns.
"""

from collections import deque
from collections.abc import Mapping

from fila import limits
from fila.client.bodies import headers_part, payload_head
from fila.client.failures import again
from fila.client.waiting import Pending
from fila.errors import Code, FilaError, InvalidArgumentError, LimitError, QueueNotFoundError, RPCError
from fila.wire.columns import check_key, check_number
from fila.wire.status import error_of
from fila.wire.v1.messages_pb2 import MessageColumns
from fila.wire.v1.service_pb2 import ProduceRequest, ProduceResponse


class Batch(Pending):
    """The columns of some messages, and later where they went."""

    __slots__ = (
        "bytes",
        "costs",
        "count",
        "enqueued_at_ms",
        "first_offset",
        "key_index",
        "keys",
        "parts",
        "queue_number",
        "sequence",
        "sizes",
        "weights",
    )

    def __init__(self) -> None:
        super().__init__()
        self.sequence = 0
        self.parts: list[bytes] = []
        self.sizes: list[int] = []
        self.keys: dict[str, int] = {}
        self.key_index: list[int] = []
        # None: all 1.
        self.weights: list[int] | None = None
        self.costs: list[int] | None = None
        self.count = 0
        self.bytes = 0
        self.queue_number = 0
        self.first_offset = 0
        self.enqueued_at_ms = 0

    def columns(self) -> MessageColumns:
        """Return the messages as they go on the wire; what is the default for all is left out."""
        keys = list(self.keys)
        return MessageColumns(
            bodies=b"".join(self.parts),
            sizes=self.sizes,
            keys=() if keys == [limits.FAIRNESS_KEY_DEFAULT] else keys,
            key_index=self.key_index if len(keys) > 1 else (),
            weights=self.weights or (),
            costs=self.costs or (),
        )

    def clear(self) -> None:
        """Forget the messages: only where they went is still asked for."""
        self.parts, self.sizes, self.keys, self.key_index = [], [], {}, []
        self.weights = self.costs = None


class BatchingCore:
    """Orders messages into batches and batches into frames."""

    def __init__(
        self,
        queue: str,
        *,
        batch_messages: int = limits.PRODUCER_BATCH_MESSAGES,
        batch_bytes: int = limits.PRODUCER_BATCH_BYTES,
        batches_in_flight: int = limits.PRODUCER_BATCHES_IN_FLIGHT,
        messages_held_max: int = limits.PRODUCER_MESSAGES_HELD_MAX,
        bytes_held_max: int = limits.PRODUCER_BYTES_HELD_MAX,
    ) -> None:
        self.queue = queue
        self._batch_messages = batch_messages
        self._batch_bytes = batch_bytes
        self._batches_in_flight_max = batches_in_flight
        self._messages_held_max = messages_held_max
        self._bytes_held_max = bytes_held_max
        self._open = Batch()
        self._full: deque[Batch] = deque()
        self._in_flight: deque[Batch] = deque()
        self._sequence = 0
        self.messages_held = 0
        self.bytes_held = 0
        # Set when the stream is gone: nothing more goes in.
        self.failed: FilaError | None = None
        # The first refusal since someone asked: a flush reports it even if nobody looked at the receipt.
        self.refused: FilaError | None = None

    @property
    def has_room(self) -> bool:
        """Whether a message may be added now."""
        return self.messages_held < self._messages_held_max and self.bytes_held < self._bytes_held_max

    @property
    def has_full_batch(self) -> bool:
        """Whether a whole batch waits for its frame: whoever adds in a loop should let the writer run."""
        return bool(self._full)

    @property
    def last(self) -> Batch | None:
        """The batch that is resolved last of those that hold messages now."""
        if self._open.count:
            return self._open
        if self._full:
            return self._full[-1]
        return self._in_flight[-1] if self._in_flight else None

    def add(
        self,
        payload: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        fairness_key: str | None = None,
        weight: int | None = None,
        cost: int | None = None,
    ) -> Batch:
        """Add a message to the open batch and return it; the message is the last of its `count`.

        Raises LimitError when the producer holds all that it may, and InvalidArgumentError for what the broker
        would refuse together with the rest of the batch.
        """
        if self.failed is not None:
            raise again(self.failed)
        if type(payload) is not bytes:
            payload = _as_bytes(payload)
        head = payload_head(len(payload))
        if headers:
            head = headers_part(headers) + head
        size = len(head) + len(payload)
        # The same as `has_room`: whoever has waited for room may add one message, whatever its size.
        if self.messages_held >= self._messages_held_max or self.bytes_held >= self._bytes_held_max:
            raise LimitError(
                f"the producer of {self.queue!r} holds {self.messages_held:,} messages and {self.bytes_held:,} bytes: "
                "await room() before sending more"
            )
        key = fairness_key or limits.FAIRNESS_KEY_DEFAULT
        batch = self._open
        if key not in batch.keys:
            check_key(key)
        if size > limits.BODY_BYTES_MAX:
            raise InvalidArgumentError(
                f"a message of {size:,} bytes is larger than {limits.BODY_BYTES_MAX:,}"
            )
        if weight is not None:
            check_number("weight", weight, limits.WEIGHT_MAX)
        if cost is not None:
            check_number("cost", cost, limits.COST_MAX)

        if batch.count and batch.bytes + size > self._batch_bytes:
            self._full.append(batch)
            batch = self._open = Batch()
        batch.parts += (head, payload)
        batch.sizes.append(size)
        batch.key_index.append(batch.keys.setdefault(key, len(batch.keys)))
        if batch.weights is not None or (weight or 1) != 1:
            batch.weights = _extended(batch.weights, batch.count, weight)
        if batch.costs is not None or (cost or 1) != 1:
            batch.costs = _extended(batch.costs, batch.count, cost)
        batch.count += 1
        batch.bytes += size
        self.messages_held += 1
        self.bytes_held += size
        if batch.count >= self._batch_messages:
            self._full.append(batch)
            self._open = Batch()
        return batch

    def next_request(self) -> ProduceRequest | None:
        """Return the next frame to write, or None while there is none or enough are in flight."""
        if self.failed is not None or len(self._in_flight) >= self._batches_in_flight_max:
            return None
        if self._full:
            batch = self._full.popleft()
        elif self._open.count and not self._in_flight:
            batch, self._open = self._open, Batch()
        else:
            return None
        self._sequence += 1
        batch.sequence = self._sequence
        self._in_flight.append(batch)
        request = ProduceRequest(
            sequence=self._sequence,
            queue=self.queue if self._sequence == 1 else "",
            messages=batch.columns(),
        )
        batch.clear()
        return request

    def on_response(self, response: ProduceResponse) -> None:
        """Take a receipt and resolve its batch."""
        if not response.sequence:
            self.stop(error_of(response.error_code, response.error, not_found=QueueNotFoundError))
            return
        if not self._in_flight or self._in_flight[0].sequence != response.sequence:
            self.fail(
                RPCError(
                    f"the broker sent a receipt for batch {response.sequence}, which is not next",
                    Code.INTERNAL,
                )
            )
            return
        batch = self._in_flight.popleft()
        error: FilaError | None = None
        if response.error_code:
            error = error_of(response.error_code, response.error, not_found=QueueNotFoundError)
        elif response.count != batch.count:
            error = RPCError(f"the broker took {response.count} of {batch.count} messages", Code.INTERNAL)
        batch.queue_number = response.queue_number
        batch.first_offset = response.first_offset
        batch.enqueued_at_ms = response.enqueued_at_ms
        self._resolve(batch, error)

    def stop(self, error: FilaError) -> None:
        """The broker takes nothing more: what is not sent fails, what is in flight gets its receipts."""
        if self.failed is not None:
            return
        self.failed = error
        left = [*self._full, self._open]
        self._full.clear()
        self._open = Batch()
        for batch in left:
            if batch.count:
                self._resolve(batch, error)

    def fail(self, error: FilaError) -> None:
        """The stream is gone: what has no receipt will not get one."""
        in_flight, self._in_flight = self._in_flight, deque()
        self.stop(error)
        for batch in in_flight:
            self._resolve(batch, error)

    def _resolve(self, batch: Batch, error: FilaError | None) -> None:
        self.messages_held -= batch.count
        self.bytes_held -= batch.bytes
        if error is not None:
            batch.clear()
            self.refused = self.refused or error
        batch.resolve(error)


def _as_bytes(payload: object) -> bytes:
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    raise InvalidArgumentError(f"a payload is bytes, not {type(payload).__name__}: encode it first")


def _extended(column: list[int] | None, count: int, value: int | None) -> list[int]:
    column = [1] * count if column is None else column
    column.append(value or 1)
    return column
