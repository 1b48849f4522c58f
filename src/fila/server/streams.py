"""The streams that are open, so that a stopping server can end each in its own way."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from fila.errors import FilaError, UnavailableError

STOPPING = "the broker is shutting down"


class Stoppable(Protocol):
    """A stream that can be asked to end."""

    def stop(self, error: FilaError) -> None:
        """Take nothing more, answer what was taken, then end with the error: what has no answer by then was not done."""


class Streams:
    """Knows every open stream."""

    def __init__(self) -> None:
        self._open: dict[int, Stoppable] = {}
        self._stopped = False

    def check_open(self) -> None:
        """Raise UnavailableError when the server stops already; ask before making a stream."""
        if self._stopped:
            raise UnavailableError(STOPPING, not_done=True)

    @contextmanager
    def hold(self, stream: Stoppable) -> Iterator[None]:
        """Count a stream as open."""
        self._open[id(stream)] = stream
        try:
            yield
        finally:
            del self._open[id(stream)]

    def stop(self) -> None:
        """Ask all streams to end, and take no new ones."""
        self._stopped = True
        for stream in list(self._open.values()):
            stream.stop(UnavailableError(STOPPING, not_done=True))
