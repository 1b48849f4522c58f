"""What a workload is run with: its own defaults, smaller ones for a quick look, and what the user asked for."""

from dataclasses import dataclass

# Kept in hand between the producer and the acks of `both`: enough for full batches, too few to be read from disk.
AHEAD_MESSAGES_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Parameters:
    """The size and the shape of a load. A load ends after `messages`, or after `seconds` where that is None."""

    messages: int | None
    seconds: float
    payload_bytes: int
    keys: int
    batch: int
    repeat: int
    prepared: bool = False
    quiet_limit_s: float = 10.0
