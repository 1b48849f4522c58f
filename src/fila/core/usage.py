"""How much memory the core's own structures take, so that producers can be refused before it is too much."""

from fila import limits


class Usage:
    """Counts over all queues."""

    __slots__ = ("failed", "keys", "lanes", "leased", "messages", "queues", "segments")

    def __init__(self) -> None:
        # Unfinished messages; those of them that are leased; those that have failed before.
        self.messages = 0
        self.leased = 0
        self.failed = 0
        self.keys = 0
        self.lanes = 0
        self.segments = 0
        self.queues = 0

    def bytes_with(self, messages: int, keys: int, lanes: int = 0) -> int:
        """Return what would be used with so many more messages, keys and lanes."""
        # A queue's own share covers its first segment, which may be nearly empty.
        segments = max(0, self.segments - self.queues) + (messages >> limits.SEGMENT_BITS)
        return (
            (self.messages + messages) * limits.MESSAGE_MEMORY_BYTES
            + self.leased * limits.LEASE_MEMORY_BYTES
            + self.failed * limits.ATTEMPT_MEMORY_BYTES
            + segments * limits.SEGMENT_MEMORY_BYTES
            + (self.keys + keys) * limits.KEY_MEMORY_BYTES
            + (self.lanes + lanes) * limits.LANE_MEMORY_BYTES
            + self.queues * limits.QUEUE_MEMORY_BYTES
        )
