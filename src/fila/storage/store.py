"""The port to durable storage: ordered keys in families, atomic batches, sync, scan.

An engine knows nothing of queues. It keeps these promises: a batch is applied whole or not at all; after `sync`
returns, every batch written before it began survives a power loss; after a crash a prefix of the written batches is
there, at least up to the last sync. After an error of `write` or `sync` the engine takes no further part: it is closed
and opened again.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Protocol


class Family(StrEnum):
    """A separate key space. The layout of each is in `keys.py` and `records.py`."""

    META = "meta"
    QUEUES = "queues"
    MESSAGES = "messages"
    INDEX = "index"
    PROGRESS = "progress"
    LEASES = "leases"
    ATTEMPTS = "attempts"
    CONFIG = "config"
    GATES = "gates"


# One change: (family, key, value); a value of None deletes the key.
Change = tuple[Family, bytes, bytes | None]


class Store(Protocol):
    """What the broker needs of an engine."""

    def write(self, changes: Sequence[Change], drops: Sequence[tuple[Family, bytes, bytes]] = ()) -> None:
        """Apply first the drops (each from its first key to before its second), then the changes, as one atomic batch.

        Returns before the batch is durable. Raises StoreError; then nothing of the batch may be relied on.
        """

    def sync(self) -> None:
        """Make everything written so far durable. Safe to call from another thread than `write`."""

    def get(self, family: Family, key: bytes) -> bytes | None:
        """Return the value of a key."""

    def scan(
        self, family: Family, first: bytes = b"", end: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values from `first` to before `end`, in order."""

    def compact(self, family: Family, first: bytes, end: bytes) -> None:
        """Give the space of dropped keys back to the file system. Slow: for a worker thread."""

    def reclaim(self) -> None:
        """Begin to give the space of deleted keys back, because room is short. Returns at once. Raises StoreError."""

    def free_bytes(self) -> int:
        """Return how much room is left. Raises StoreError; the engine takes part all the same."""

    def close(self) -> None:
        """Give the store back. It may be opened again at once."""
