"""Something that many may wait for and that happens once: a receipt, or a confirmation.

The core does not know who waits: an asyncio future, the log, or nobody at all, which costs nothing.
"""

from typing import Protocol

from fila.errors import FilaError


class Waiter(Protocol):
    """What may wait: an asyncio future is one."""

    def done(self) -> bool:
        """Tell whether it was set or given up."""

    def set_result(self, result: None, /) -> None:
        """Wake whoever waits."""


class Pending:
    """Happens once, and wakes each waiter once."""

    __slots__ = ("done", "error", "waiters")

    def __init__(self) -> None:
        self.done = False
        self.error: FilaError | None = None
        self.waiters: list[Waiter] = []

    def resolve(self, error: FilaError | None = None) -> None:
        """It has happened, or it failed."""
        # First: another thread may look at any time.
        self.error = error
        self.done = True
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.waiters.clear()
