"""What the demo does to both queues: how many messages, when, and how fast they are worked off."""

from dataclasses import dataclass
from typing import Literal

# One has a backlog, the other sends now and then.
NOISY = "acme"
QUIET = "bolt"
# As fast as a worker that calls another service: slow enough to watch, quick enough that a minute is not needed.
RATE_PER_S = 200
QUIET_MESSAGES = 10


@dataclass(frozen=True, slots=True)
class Discipline:
    """One of the two queues: its discipline, and what people call it."""

    name: Literal["drr", "fifo"]
    title: str
    short_title: str


FIFO = Discipline("fifo", "First in, first out (FIFO)", "fifo")
FAIR = Discipline("drr", "fila: fair by tenant", "fila")


@dataclass(frozen=True, slots=True)
class Plan:
    """The same for both queues: a flood that takes so long to work off, and a few messages of the other tenant."""

    seconds: float

    @property
    def flood(self) -> int:
        """The messages that the noisy tenant sends at the start."""
        return max(1, round(self.seconds * RATE_PER_S))

    @property
    def quiet_interval_seconds(self) -> float:
        """The quiet tenant sends one after each of these: all while the flood is still being worked off."""
        return self.seconds / (QUIET_MESSAGES + 2)

    @property
    def messages(self) -> dict[str, int]:
        """How many each tenant sends to each queue."""
        return {NOISY: self.flood, QUIET: QUIET_MESSAGES}
