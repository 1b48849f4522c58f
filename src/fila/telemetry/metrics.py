"""The telemetry port: what a host reports about its work, batch by batch.

It knows no library, reads no clock and keeps nothing. A host asks `enabled` once and, where it is off, does
not even collect the figures, so that telemetry switched off costs nothing.
"""

from collections.abc import Mapping
from typing import Protocol


class Telemetry(Protocol):
    """Receives figures about batches, never about single messages; no call blocks or fails."""

    @property
    def enabled(self) -> bool:
        """Say whether anybody listens; it never changes."""
        ...

    def enqueued(self, queue: str, messages: int, payload_bytes: int) -> None:
        """Report a batch that was taken into a queue."""
        ...

    def delivered(self, queue: str, messages: int, attempts_retried: int) -> None:
        """Report a delivery, and how many of its messages had been tried before."""
        ...

    def settled(self, queue: str, action: str, messages: int) -> None:
        """Report what became of messages: "ack", "nack", "expire", "release", "extend", "lost" or "purge"."""
        ...

    def step(self, commands: int, duration_ns: int) -> None:
        """Report one round of the scheduler."""
        ...

    def commit(self, messages: int, payload_bytes: int, write_ns: int, sync_ns: int) -> None:
        """Report one group commit; `sync_ns` is 0 where it was left to the page cache."""
        ...

    def span(self, name: str, start_ns: int, end_ns: int, attributes: Mapping[str, str | int]) -> None:
        """Report a finished piece of work, its times in nanoseconds since 1970."""
        ...

    def shutdown(self) -> None:
        """Send what is still held, for a bounded time, and stop."""
        ...


class NoTelemetry:
    """Do nothing: the default."""

    __slots__ = ()

    @property
    def enabled(self) -> bool:
        """Say that nobody listens."""
        return False

    def enqueued(self, queue: str, messages: int, payload_bytes: int) -> None:
        """Do nothing."""

    def delivered(self, queue: str, messages: int, attempts_retried: int) -> None:
        """Do nothing."""

    def settled(self, queue: str, action: str, messages: int) -> None:
        """Do nothing."""

    def step(self, commands: int, duration_ns: int) -> None:
        """Do nothing."""

    def commit(self, messages: int, payload_bytes: int, write_ns: int, sync_ns: int) -> None:
        """Do nothing."""

    def span(self, name: str, start_ns: int, end_ns: int, attributes: Mapping[str, str | int]) -> None:
        """Do nothing."""

    def shutdown(self) -> None:
        """Do nothing."""
