"""Where deliveries go: the port that each consuming edge implements."""

from typing import Protocol

from fila.core.outcome import Delivery
from fila.errors import FilaError


class Sink(Protocol):
    """One consumer's way out. Its methods are called on the loop and must not block."""

    def deliver(self, delivery: Delivery, bodies: list[bytes]) -> None:
        """Take a delivery; `bodies` are pieces whose concatenation is all its bodies, in order."""

    def close(self, error: FilaError) -> None:
        """End: the queue is gone, or the broker stops or has failed."""
