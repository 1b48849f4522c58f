"""The producer's side of a Produce stream, without I/O: what arrives while a batch is in flight forms the next.

Messages go in one by one, frames come out; receipts go in, batches are resolved. It must not know who carries the
frames. Nothing is allocated per message but its place in the columns.

A stream may be lost and followed by another: batches without a receipt are sent again, in their order.
"""

from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic

from fila import limits
from fila.client.arguments import check_whole
from fila.client.bodies import headers_part, payload_head
from fila.client.failures import again, renamed
from fila.client.waiting import Pending
from fila.errors import (
    ClosedError,
    Code,
    FilaError,
    InvalidArgumentError,
    LimitError,
    OutcomeUnknownError,
    QueueNotFoundError,
    RPCError,
    UnavailableError,
)
from fila.wire.columns import check_key
from fila.wire.ids import message_id
from fila.wire.status import error_of
from fila.wire.v1.messages_pb2 import MessageColumns
from fila.wire.v1.service_pb2 import ProduceRequest, ProduceResponse
from fila.wire.varint import varint

# Of ProduceRequest and MessageColumns, as in service.proto and messages.proto.
_MESSAGES_TAG = b"\x1a"
_BODIES_TAG = b"\x0a"


class Batch(Pending):
    """The columns of some messages, and later where they went."""

    __slots__ = (
        "born",
        "bytes",
        "costs",
        "count",
        "enqueued_at_ms",
        "first_number",
        "first_offset",
        "in_doubt",
        "key_index",
        "keys",
        "parts",
        "queue_number",
        "sequence",
        "sizes",
        "weights",
    )

    def __init__(self, first_number: int = 1) -> None:
        super().__init__()
        # Of all messages of its producer, counted from 1.
        self.first_number = first_number
        # When its first message came.
        self.born = 0.0
        self.sequence = 0
        # Whether it went out on a stream that was lost, or that is no more: the broker may have taken it.
        self.in_doubt = False
        # The bodies in parts, which are those that the user has given. Kept until the receipt, to be sent again.
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

    def frame(self, queue: str) -> bytes:
        """Return the batch as a ProduceRequest, encoded.

        The bodies are laid into it in one go. As a field of a message they would be copied three times, half a megabyte each.
        """
        keys = list(self.keys)
        # What is the default for all is left out.
        columns = MessageColumns(
            sizes=self.sizes,
            keys=() if keys == [limits.FAIRNESS_KEY_DEFAULT] else keys,
            key_index=self.key_index if len(keys) > 1 else (),
            weights=self.weights or (),
            costs=self.costs or (),
        ).SerializeToString()
        bodies_head = _BODIES_TAG + varint(self.bytes)
        return b"".join(
            (
                ProduceRequest(sequence=self.sequence, queue=queue).SerializeToString(),
                _MESSAGES_TAG,
                varint(len(columns) + len(bodies_head) + self.bytes),
                columns,
                bodies_head,
                *self.parts,
            )
        )

    def clear(self) -> None:
        """Forget the messages: only where they went is still asked for."""
        self.parts, self.sizes, self.keys, self.key_index = [], [], {}, []
        self.weights = self.costs = None

    def message_id(self, position: int) -> str:
        """Return the id of a message, of a batch that was taken."""
        return message_id(self.queue_number, self.first_offset + position, self.enqueued_at_ms)

    def key_of(self, position: int) -> str:
        """Return the fairness key of a message, of a batch that was not taken."""
        return list(self.keys)[self.key_index[position]]

    def error_of(self, position: int) -> FilaError | None:
        """Return why a message was not taken, naming it; None if it was."""
        if self.error is None:
            return None
        number = self.first_number + position
        key = self.key_of(position)
        return renamed(self.error, f"message {number:,} of the producer (key {key!r}): {self.error.message}")


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
        repeat: bool = True,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.queue = queue
        self._repeat = repeat
        self._clock = clock
        self._batch_messages = batch_messages
        self._batch_bytes = batch_bytes
        self._batches_in_flight_max = batches_in_flight
        self._messages_held_max = messages_held_max
        self._bytes_held_max = bytes_held_max
        self._open = Batch()
        self._full: deque[Batch] = deque()
        self._in_flight: deque[Batch] = deque()
        # Batches of this stream that have to go out again, on the next.
        self._again: list[Batch] = []
        self._sequence = 0
        # Set when the broker takes nothing more on this stream.
        self.stopping = False
        # Set when this stream is to end at once: nothing goes out, and what comes is for nobody.
        self._is_cut = False
        self.messages_held = 0
        self.bytes_held = 0
        # Set when the stream is gone and none will follow: nothing more goes in.
        self.failed: FilaError | None = None
        # The first refusal since someone asked: a flush reports it even if nobody looked at the receipt.
        self.refused: FilaError | None = None

    @property
    def has_room(self) -> bool:
        """Whether a message may be added now."""
        return self.messages_held < self._messages_held_max and self.bytes_held < self._bytes_held_max

    @property
    def is_writer_due(self) -> bool:
        """Whether a whole batch waits that may be written now: whoever adds in a loop should let the writer run."""
        return bool(self._full) and len(self._in_flight) < self._batches_in_flight_max

    @property
    def sent(self) -> int:
        """How many messages went in so far: the number of the last one."""
        return self._open.first_number + self._open.count - 1

    def unresolved(self, number: int) -> Batch | None:
        """Return a batch with a message up to this number that has no receipt yet; None when all have theirs.

        It is the one that is probably resolved last: batches that go out again are resolved after those behind them.
        """
        for batches in ((self._open,), self._full, self._in_flight, self._again):
            for batch in reversed(batches):
                if batch.count and batch.first_number <= number:
                    return batch
        return None

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
            raise self._no_room()
        key = fairness_key or limits.FAIRNESS_KEY_DEFAULT
        batch = self._open
        if key not in batch.keys:
            check_key(key)
        if size > limits.BODY_BYTES_MAX or weight is not None or cost is not None:
            _check(size, weight, cost)

        if batch.count and batch.bytes + size > self._batch_bytes:
            batch = self._close_open()
        if not batch.count:
            batch.born = self._clock()
        weights, costs = batch.weights, batch.costs
        if weight is not None or cost is not None:
            weights, costs = _columns(batch, weight, cost)
        keys = batch.keys
        index = keys.get(key, len(keys))
        # From here on nothing is called: Ctrl-C, which may end this function wherever something is, must not leave half
        # a message in the batch.
        keys[key] = index
        batch.key_index += (index,)
        batch.parts += (head, payload)
        batch.sizes += (size,)
        if weights is not None:
            weights += (weight or 1,)
            batch.weights = weights
        if costs is not None:
            costs += (cost or 1,)
            batch.costs = costs
        batch.count += 1
        batch.bytes += size
        self.messages_held += 1
        self.bytes_held += size
        if batch.count >= self._batch_messages:
            self._close_open()
        return batch

    def _no_room(self) -> LimitError:
        return LimitError(
            f"the producer of {self.queue!r} holds {self.messages_held:,} messages and {self.bytes_held:,} bytes: "
            "await room() before sending more"
        )

    def _close_open(self) -> Batch:
        """Let the open batch wait for its turn, and return the next one."""
        batch = self._open
        following = Batch(batch.first_number + batch.count)
        # Both or none, as in `add`.
        self._full += (batch,)
        self._open = following
        return following

    def _next_batch(self) -> Batch:
        last = self._open
        self._open = Batch(last.first_number + last.count)
        return self._open

    def next_frame(self) -> bytes | None:
        """Return the next frame to write, or None while there is none or enough are in flight."""
        if (
            self.failed is not None
            or self.stopping
            or self._is_cut
            or len(self._in_flight) >= self._batches_in_flight_max
        ):
            return None
        if self._full:
            batch = self._full.popleft()
        elif self._open.count and not self._in_flight:
            batch = self._open
            self._next_batch()
        else:
            return None
        self._sequence += 1
        batch.sequence = self._sequence
        self._in_flight.append(batch)
        return batch.frame(self.queue if self._sequence == 1 else "")

    def on_response(self, response: ProduceResponse) -> None:
        """Take a receipt and resolve its batch. Raises RPCError for one that is not next."""
        if self._is_cut:
            return
        if not response.sequence:
            # What is in flight still gets its receipts, the rest waits for the next stream.
            self.stopping = True
            return
        if not self._in_flight or self._in_flight[0].sequence != response.sequence:
            raise RPCError(
                f"the broker sent a receipt for batch {response.sequence}, which is not next", Code.INTERNAL
            )
        batch = self._in_flight.popleft()
        error: FilaError | None = None
        if response.error_code:
            error = error_of(response.error_code, response.error, not_found=QueueNotFoundError)
            if isinstance(error, UnavailableError) and (response.not_taken or self._repeat):
                # Those behind it are refused as well, or would overtake it: no more of them on this stream.
                self.stopping = True
                self._again.append(batch)
                batch.in_doubt = batch.in_doubt or not response.not_taken
                return
            if isinstance(error, UnavailableError):
                error = OutcomeUnknownError(error.message)
        elif response.count != batch.count:
            error = RPCError(f"the broker took {response.count} of {batch.count} messages", Code.INTERNAL)
        batch.queue_number = response.queue_number
        batch.first_offset = response.first_offset
        batch.enqueued_at_ms = response.enqueued_at_ms
        self._resolve(batch, error)

    @property
    def is_idle(self) -> bool:
        """Whether every frame of this stream has its receipt."""
        return not self._in_flight

    def lost(self, error: FilaError) -> None:
        """The stream is gone, and another will follow: what has no receipt goes out again, or fails."""
        self._doubt(error)
        in_flight, self._in_flight = self._in_flight, deque()
        again, self._again = self._again, []
        self._sequence = 0
        self.stopping = self._is_cut = False
        if self._repeat or error.not_done:
            again += in_flight
        else:
            unknown = OutcomeUnknownError(f"{error.message}; the messages may have been taken or not")
            for batch in in_flight:
                self._resolve(batch, unknown)
        self._full.extendleft(reversed(again))

    def fail(self, error: FilaError) -> None:
        """The stream is gone, and none will follow: what has no receipt will not get one."""
        if self.failed is not None:
            return
        self.failed = error
        self._doubt(error)
        left = [*self._again, *self._in_flight, *self._full, self._open]
        self._again, self._in_flight, self._full, self._open = [], deque(), deque(), Batch()
        for batch in left:
            if batch.count:
                self._resolve(batch, _failure(batch, error))

    def _doubt(self, error: FilaError) -> None:
        """Note what a stream has left without a receipt, unless it never was one, or the broker says that it took none."""
        if not error.not_done:
            for batch in self._in_flight:
                batch.in_doubt = True

    def expire(self, timeout_seconds: float) -> bool:
        """Fail what has waited for its receipt for too long, and return whether the stream has to end.

        It has where a batch in flight has failed: its receipt would be taken for that of another.
        """
        due = self._clock() - timeout_seconds
        waited = UnavailableError(f"no receipt within {timeout_seconds:g} seconds")
        while self._in_flight and self._in_flight[0].born <= due:
            self._is_cut = True
            batch = self._in_flight.popleft()
            batch.in_doubt = True
            self._resolve(batch, _failure(batch, waited))
        while self._again and self._again[0].born <= due:
            batch = self._again.pop(0)
            self._resolve(batch, _failure(batch, waited))
        if not self._full and not self._in_flight and self._open.count:
            self._close_open()
        while self._full and self._full[0].born <= due:
            batch = self._full.popleft()
            self._resolve(batch, _failure(batch, waited))
        return self._is_cut

    def _resolve(self, batch: Batch, error: FilaError | None) -> None:
        self.messages_held -= batch.count
        self.bytes_held -= batch.bytes
        if error is not None:
            # The keys stay: a failed message names itself.
            batch.parts, batch.sizes, batch.weights, batch.costs = [], [], None, None
            batch.error = error
            self.refused = self.refused or batch.error_of(0)
        else:
            batch.clear()
        batch.resolve(error)


def _failure(batch: Batch, error: FilaError) -> FilaError:
    """Return what a batch without a receipt fails with: once it may have arrived, nobody knows what became of it."""
    if batch.in_doubt and isinstance(error, UnavailableError | ClosedError):
        return OutcomeUnknownError(f"{error.message}; the message may have been taken or not")
    return error


def _check(size: int, weight: int | None, cost: int | None) -> None:
    """Raise InvalidArgumentError for what the broker would refuse."""
    if size > limits.BODY_BYTES_MAX:
        raise InvalidArgumentError(f"a message of {size:,} bytes is larger than {limits.BODY_BYTES_MAX:,}")
    if weight is not None:
        check_whole("weight", weight, 1, limits.WEIGHT_MAX)
    if cost is not None:
        check_whole("cost", cost, 1, limits.COST_MAX)


def _columns(batch: Batch, weight: int | None, cost: int | None) -> tuple[list[int] | None, list[int] | None]:
    """Return the columns that a message with these numbers goes into; None: still all 1."""
    weights, costs = batch.weights, batch.costs
    if weights is None and (weight or 1) != 1:
        weights = [1] * batch.count
    if costs is None and (cost or 1) != 1:
        costs = [1] * batch.count
    return weights, costs


def _as_bytes(payload: object) -> bytes:
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    raise InvalidArgumentError(f"a payload is bytes, not {type(payload).__name__}: encode it first")
