"""Enqueue and EnqueueBatch: messages as objects, for everyone who has no columns.

EnqueueRequest carries headers and payload under the numbers that they have in a stored body: so the body is the request
without its other fields.
"""

import asyncio
from collections.abc import Sequence

from fila import limits
from fila.broker.loop import Broker
from fila.core.commands import Enqueue
from fila.core.model import NO_GATES, GateKeys
from fila.core.outcome import Enqueued
from fila.errors import FilaError, InvalidArgumentError
from fila.server.call import checked_queue
from fila.wire.columns import check_key, check_number, read_gate_keys
from fila.wire.counting import count_entries
from fila.wire.ids import message_id
from fila.wire.status import short_message
from fila.wire.v1.service_pb2 import (
    EnqueueBatchRequest,
    EnqueueBatchResponse,
    EnqueueRequest,
    EnqueueResponse,
    EnqueueResult,
)


class Enqueuer:
    """Answers Enqueue and EnqueueBatch."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def enqueue(self, request: EnqueueRequest) -> bytes:
        """Append one message, and answer when it is durable."""
        queue = checked_queue(request.queue)
        message = _Message(request)
        receipt: Enqueued = await self._broker.ask(
            lambda number: Enqueue(
                number,
                queue,
                (len(message.body),),
                (message.key,),
                None,
                None if message.weight == 1 else (message.weight,),
                None if message.cost == 1 else (message.cost,),
                (message.gates,) if message.gates is not NO_GATES else None,
            ),
            message.body,
        )
        identity = message_id(receipt.queue_number, receipt.first_offset, receipt.enqueued_at_ms)
        return EnqueueResponse(message_id=identity, offset=receipt.first_offset).SerializeToString()

    async def enqueue_batch(self, request: EnqueueBatchRequest) -> bytes:
        """Append many messages, each to its queue, each with its own result."""
        results: dict[int, EnqueueResult] = {}
        groups: dict[str, _Group] = {}
        for place, entry in enumerate(request.messages):
            try:
                queue = checked_queue(entry.queue or request.queue)
                message = _Message(entry)
            except InvalidArgumentError as error:
                results[place] = _refusal(error)
                continue
            group = groups.get(queue)
            if group is None:
                group = groups[queue] = _Group(queue)
            group.add(place, message)
        if sum(group.size for group in groups.values()) > limits.BATCH_BYTES_MAX:
            raise InvalidArgumentError(f"a batch has at most {limits.BATCH_BYTES_MAX:,} bytes")
        # One command for each queue: a task for each is little beside what the client sent.
        answers = await asyncio.gather(*[self._append(group) for group in groups.values()])
        for group, answer in zip(groups.values(), answers, strict=True):
            group.fill(results, answer)
        return EnqueueBatchResponse(
            results=[results[place] for place in range(len(results))]
        ).SerializeToString()

    async def _append(self, group: "_Group") -> Enqueued | FilaError:
        try:
            receipt: Enqueued = await self._broker.ask(group.command, b"".join(group.bodies))
        except FilaError as error:
            return error
        return receipt


def check_batch_frame(frame: bytes) -> None:
    """Refuse a batch with too many messages before it is unpacked: an empty one takes fifty times its two bytes in memory."""
    field = EnqueueBatchRequest.MESSAGES_FIELD_NUMBER
    if count_entries(frame, field, limits.BATCH_MESSAGES_MAX) > limits.BATCH_MESSAGES_MAX:
        raise InvalidArgumentError(f"a batch has at most {limits.BATCH_MESSAGES_MAX:,} messages")


class _Message:
    """One checked message; takes the request apart. Raises InvalidArgumentError."""

    __slots__ = ("body", "cost", "gates", "key", "weight")

    def __init__(self, request: EnqueueRequest) -> None:
        self.key = request.fairness_key or limits.FAIRNESS_KEY_DEFAULT
        check_key(self.key)
        self.weight = check_number("weight", request.weight, limits.WEIGHT_MAX)
        self.cost = check_number("cost", request.cost, limits.COST_MAX)
        self.gates = NO_GATES
        if request.throttle_keys or request.concurrency_keys:
            self.gates = GateKeys(*read_gate_keys(request.throttle_keys, request.concurrency_keys))
            request.ClearField("throttle_keys")
            request.ClearField("concurrency_keys")
        # Taking the rest away costs half of what a copy of headers and payload would.
        request.ClearField("queue")
        request.ClearField("fairness_key")
        request.ClearField("weight")
        request.ClearField("cost")
        request.DiscardUnknownFields()
        self.body = request.SerializeToString()
        if len(self.body) > limits.BODY_BYTES_MAX:
            raise InvalidArgumentError(
                f"a message has at most {limits.BODY_BYTES_MAX:,} bytes, not {len(self.body):,}"
            )


class _Group:
    """The messages of a batch that go to one queue, in columns."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._places: list[int] = []
        self._keys: dict[str, int] = {}
        self._key_index: list[int] = []
        self._weights: list[int] = []
        self._costs: list[int] = []
        self._gates: dict[GateKeys, int] = {}
        self._gate_index: list[int] = []
        self.bodies: list[bytes] = []
        self.size = 0

    def add(self, place: int, message: _Message) -> None:
        self._places.append(place)
        self._key_index.append(self._keys.setdefault(message.key, len(self._keys)))
        self._weights.append(message.weight)
        self._costs.append(message.cost)
        self._gate_index.append(self._gates.setdefault(message.gates, len(self._gates)))
        self.bodies.append(message.body)
        self.size += len(message.body)

    def command(self, request: int) -> Enqueue:
        return Enqueue(
            request,
            self._queue,
            [len(body) for body in self.bodies],
            list(self._keys),
            self._key_index if len(self._keys) > 1 else None,
            _unless_all_one(self._weights),
            _unless_all_one(self._costs),
            None if self._gates.keys() == {NO_GATES} else list(self._gates),
            self._gate_index if len(self._gates) > 1 else None,
        )

    def fill(self, results: dict[int, EnqueueResult], answer: Enqueued | FilaError) -> None:
        """Put the answer where each message was in the request."""
        for distance, place in enumerate(self._places):
            if isinstance(answer, FilaError):
                results[place] = _refusal(answer)
            else:
                offset = answer.first_offset + distance
                identity = message_id(answer.queue_number, offset, answer.enqueued_at_ms)
                results[place] = EnqueueResult(message_id=identity, offset=offset)


def _unless_all_one(numbers: Sequence[int]) -> Sequence[int] | None:
    return None if max(numbers) == 1 else numbers


def _refusal(error: FilaError) -> EnqueueResult:
    return EnqueueResult(error_code=error.code, error=short_message(error), not_taken=error.not_done)
