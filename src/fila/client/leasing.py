"""Settling by id and epoch, over unary calls: what one turn of the event loop settles in the same way is one call."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from time import monotonic
from typing import Any

from fila.client.failures import again
from fila.client.messages import BaseMessage, Settle
from fila.client.streams import until, wait_for
from fila.client.waiting import Pending
from fila.errors import Code, FilaError, MessageNotFoundError
from fila.limits import LEASE_MESSAGES_MAX, STREAM_CLOSE_TIMEOUT_SECONDS
from fila.wire.status import error_of
from fila.wire.v1.service_pb2 import SettleResult

# Queue, what to do, and the error or the timeout that goes with it.
Kind = tuple[str, Settle, str | int]
# Ids and epochs, in order, to results, in order. Raises FilaError.
SettleCall = Callable[[Kind, list[str], list[int]], Awaitable[list[SettleResult]]]


class UnarySettlement(Pending):
    """Awaiting it waits until the settlement is durable, or raises why it was refused."""

    __slots__ = ("epoch", "id", "lives_until")

    def __init__(self, message_id: str, epoch: int, lives_until: float) -> None:
        super().__init__()
        self.id = message_id
        self.epoch = epoch
        # When the lease ends by our monotonic clock, for those who wait for a broker that is away; 0: they do not.
        self.lives_until = lives_until

    def __repr__(self) -> str:
        state = "not durable yet" if not self.done else f"failed: {self.error}" if self.error else "durable"
        return f"<Settlement of {self.id}, {state}>"

    def __await__(self) -> Generator[Any, None, None]:
        if not self.done:
            yield from wait_for(self)
        if self.error is not None:
            raise again(self.error)

    async def durable(self, timeout_seconds: float | None = None) -> None:
        """Wait for it as awaiting it does, for so long at most; the call itself is bounded too."""
        await until(self, timeout_seconds)
        await self

    def outcome(self, _epoch: int, _position: int) -> FilaError | None:
        """Return why it was refused, or None."""
        return self.error


class UnarySettler:
    """Gathers settlements of a turn and sends them."""

    def __init__(self, call: SettleCall, may_return: Callable[[FilaError], bool]) -> None:
        self._call = call
        # Whether an error means that the broker has gone and may come back.
        self._may_return = may_return
        self._gathered: dict[Kind, list[UnarySettlement]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def settle_leased(
        self, message: BaseMessage, action: Settle, argument: str | int, lives_until: float = 0.0
    ) -> UnarySettlement:
        """Gather one."""
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._send)
        settlement = UnarySettlement(message.id, message.epoch, lives_until)
        self._gathered.setdefault((message.queue, action, argument), []).append(settlement)
        return settlement

    async def drain(self) -> None:
        """Wait until all that was gathered is answered, but not for long where the broker is away."""
        self._send()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STREAM_CLOSE_TIMEOUT_SECONDS)

    def _send(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for kind, settlements in gathered.items():
            for chunk in chunks(kind, len(settlements)):
                task = asyncio.ensure_future(self._settle(kind, settlements[chunk]))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def settle(
        self, kind: Kind, ids: list[str], epochs: list[int], lives_until: float = 0.0
    ) -> list[FilaError | None]:
        """Settle now, and return for each lease why it was refused, or None.

        Goes on as long as the leases live and the broker may come back.
        """
        results: dict[int, list[FilaError | None]] = {}
        for chunk in chunks(kind, len(ids)):
            answers = await self._settle_patiently(kind, ids[chunk], epochs[chunk], lives_until)
            results[chunk.start] = [settle_error(kind[1], answer) for answer in answers]
        return [error for start in sorted(results) for error in results[start]]

    async def _settle_patiently(
        self, kind: Kind, ids: list[str], epochs: list[int], lives_until: float
    ) -> list[SettleResult]:
        while True:
            try:
                return await self._call(kind, ids, epochs)
            except FilaError as error:
                # Each call waits for the broker by itself, as long as any call may.
                is_passing = self._may_return(error) or error.code is Code.DEADLINE_EXCEEDED
                if not is_passing or monotonic() >= lives_until:
                    raise

    async def _settle(self, kind: Kind, settlements: list[UnarySettlement]) -> None:
        try:
            results = await self._settle_patiently(
                kind,
                [each.id for each in settlements],
                [each.epoch for each in settlements],
                max(each.lives_until for each in settlements),
            )
        except FilaError as error:
            for settlement in settlements:
                settlement.resolve(error)
            return
        for settlement, result in zip(settlements, results, strict=True):
            settlement.resolve(settle_error(kind[1], result))


def chunks(kind: Kind, count: int) -> list[slice]:
    """Return what goes into one call each, in the order of the calls."""
    parts = [slice(start, start + LEASE_MESSAGES_MAX) for start in range(0, count, LEASE_MESSAGES_MAX)]
    # What is released stands in front of what was released before: the newest come first.
    return parts[::-1] if kind[1] is Settle.RELEASE else parts


def settle_error(action: Settle, result: SettleResult) -> FilaError | None:
    """Return why a settlement was refused, or None."""
    # An ack that is sent again finds its message finished: by the first one, whose answer was lost.
    if not result.error_code or (result.finished and action is Settle.ACK):
        return None
    return error_of(result.error_code, result.error, not_found=MessageNotFoundError)
