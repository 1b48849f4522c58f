"""What the objects of both faces look like in a log and in an interpreter."""

from typing import Protocol

from fila.client.batching import Batch, BatchingCore
from fila.errors import FilaError


class Settled(Protocol):
    """What a settlement waits for."""

    done: bool

    def outcome(self, epoch: int, position: int, /) -> FilaError | None:
        """Return why it was refused, or None."""


def receipt(name: str, batch: Batch, position: int) -> str:
    """Show a receipt with its message's id, or with what is known instead."""
    if batch.error is not None:
        state = f"failed: {batch.error.message}"
    elif batch.done:
        state = batch.message_id(position)
    else:
        state = "not durable yet"
    return f"<{name} of message {batch.first_number + position:,}, {state}>"


def producer(name: str, core: BatchingCore) -> str:
    """Show a producer with what it holds."""
    if core.failed is not None:
        return f"<{name} of {core.queue!r}, failed: {core.failed.message}>"
    return f"<{name} of {core.queue!r}, messages without a receipt: {core.messages_held:,}>"


def settlement(name: str, pending: Settled, epoch: int, position: int) -> str:
    """Show a settlement with what became of it."""
    if not pending.done:
        return f"<{name}, not durable yet>"
    error = pending.outcome(epoch, position)
    return f"<{name}, durable>" if error is None else f"<{name}, failed: {error.message}>"
