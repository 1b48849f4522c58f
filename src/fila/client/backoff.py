"""How long to wait before trying again: longer each time, and never at the same time as everybody else."""

import random
from collections.abc import Callable

from fila import limits


class Backoff:
    """Doubles from try to try, with a random part, so that a thousand clients do not come back at once."""

    def __init__(self, draw: Callable[[], float] = random.random) -> None:
        self._draw = draw
        self._delay_ms = limits.RECONNECT_MS_FIRST

    def next_seconds(self) -> float:
        """Return how long to wait now: between half and all of a delay that doubles up to its bound."""
        delay_ms = self._delay_ms
        self._delay_ms = min(2 * delay_ms, limits.RECONNECT_MS_MAX)
        return delay_ms * (1 + self._draw()) / 2_000

    def reset(self) -> None:
        """It worked: begin anew."""
        self._delay_ms = limits.RECONNECT_MS_FIRST
