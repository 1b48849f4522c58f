"""What may be used in `with`: it is closed at the end."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class SyncContext(ABC):
    """Closes itself when its context is left."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave(error)

    @abstractmethod
    def _leave(self, error: BaseException | None) -> None:
        """Close; the error is what the context was left with."""
