"""What may be used in `async with`: it is closed at the end."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Context(ABC):
    """Closes itself when its context is left."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._leave(error)

    @abstractmethod
    async def _leave(self, error: BaseException | None) -> None:
        """Close; the error is what the context was left with."""
