"""Ack, Nack, ExtendLease and ReleaseBatch by message id, on behalf of whoever holds the lease."""

from collections.abc import Sequence

from fila import limits
from fila.broker.loop import Broker
from fila.core.commands import SettleMessages
from fila.core.model import Action, Address
from fila.errors import FilaError, InvalidArgumentError, MessageNotFoundError
from fila.server.call import checked_queue, checked_timeout_ms, shortened
from fila.wire.ids import parse_message_id
from fila.wire.status import short_message
from fila.wire.v1.service_pb2 import (
    AckBatchRequest,
    AckBatchResponse,
    AckRequest,
    AckResponse,
    ExtendLeaseRequest,
    ExtendLeaseResponse,
    NackBatchRequest,
    NackBatchResponse,
    NackRequest,
    NackResponse,
    ReleaseBatchRequest,
    ReleaseBatchResponse,
    SettleResult,
)


class Settler:
    """Answers the unary calls that settle leases."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def ack(self, request: AckRequest) -> bytes:
        """Finish one message."""
        await self._settle_one(request, Action.ACK)
        return AckResponse().SerializeToString()

    async def nack(self, request: NackRequest) -> bytes:
        """Report that one message failed."""
        await self._settle_one(request, Action.NACK, shortened(request.error))
        return NackResponse().SerializeToString()

    async def ack_batch(self, request: AckBatchRequest) -> bytes:
        """Finish many messages, each with its own result."""
        results = await self._settle_many(request, Action.ACK)
        return AckBatchResponse(results=results).SerializeToString()

    async def nack_batch(self, request: NackBatchRequest) -> bytes:
        """Report that many messages failed, each with its own result."""
        results = await self._settle_many(request, Action.NACK, error=shortened(request.error))
        return NackBatchResponse(results=results).SerializeToString()

    async def extend_lease(self, request: ExtendLeaseRequest) -> bytes:
        """Move the deadlines of many leases, each with its own result."""
        timeout_ms = checked_timeout_ms(request.timeout_ms)
        results = await self._settle_many(request, Action.EXTEND, timeout_ms=timeout_ms)
        return ExtendLeaseResponse(results=results).SerializeToString()

    async def release_batch(self, request: ReleaseBatchRequest) -> bytes:
        """Give many leases back untouched, each with its own result."""
        results = await self._settle_many(request, Action.RELEASE)
        return ReleaseBatchResponse(results=results).SerializeToString()

    async def _settle_one(self, request: AckRequest | NackRequest, action: Action, error: str = "") -> None:
        queue = checked_queue(request.queue)
        address = Address(*parse_message_id(request.message_id))
        (answer,) = await self._broker.ask(
            lambda number: SettleMessages(number, queue, action, (address,), None, error)
        )
        if answer is not None:
            raise answer

    async def _settle_many(
        self,
        request: AckBatchRequest | NackBatchRequest | ExtendLeaseRequest | ReleaseBatchRequest,
        action: Action,
        *,
        error: str = "",
        timeout_ms: int = 0,
    ) -> list[SettleResult]:
        queue = checked_queue(request.queue)
        ids, given_epochs = request.message_ids, request.lease_epochs
        if len(ids) > limits.BATCH_MESSAGES_MAX:
            raise InvalidArgumentError(
                f"a batch has at most {limits.BATCH_MESSAGES_MAX:,} messages, not {len(ids):,}"
            )
        if given_epochs and len(given_epochs) != len(ids):
            raise InvalidArgumentError(
                f"there are {len(given_epochs):,} lease epochs for {len(ids):,} message ids"
            )
        results = [SettleResult() for _ in ids]
        places, addresses = _parse_ids(ids, results)
        epochs = [given_epochs[place] for place in places] if given_epochs else None
        answers = await self._broker.ask(
            lambda number: SettleMessages(number, queue, action, addresses, epochs, error, timeout_ms)
        )
        for place, answer in zip(places, answers, strict=True):
            if answer is not None:
                _refuse(results[place], answer)
        return results


def _parse_ids(ids: Sequence[str], results: list[SettleResult]) -> tuple[list[int], list[Address]]:
    """Return the places and addresses of the ids that are ids; the others get their result at once."""
    places, addresses = [], []
    for place, text in enumerate(ids):
        try:
            addresses.append(Address(*parse_message_id(text)))
        except InvalidArgumentError as error:
            _refuse(results[place], error)
        else:
            places.append(place)
    return places, addresses


def _refuse(result: SettleResult, error: FilaError) -> None:
    result.error_code = error.code
    result.error = short_message(error)
    result.finished = isinstance(error, MessageNotFoundError) and error.finished
