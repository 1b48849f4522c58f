"""How much each consumer may still receive, and what it holds."""

from fila.core.leases import Lease


class Consumer:
    """Somebody who receives deliveries of one queue."""

    __slots__ = ("bytes", "leases", "messages", "number", "once", "ready", "refill", "reports_begun")

    def __init__(self, number: int, messages: int, bytes_: int, *, refill: bool, once: bool) -> None:
        self.number = number
        self.messages = messages
        self.bytes = bytes_
        self.refill = refill
        self.once = once
        # Deliveries with leases left, by epoch.
        self.leases: dict[int, Lease] = {}
        # Whether it stands in its group's row of those that can take something.
        self.ready = False
        self.reports_begun = False

    @property
    def has_credit(self) -> bool:
        """Whether a delivery may be tried; a message larger than the bytes left goes to one that holds nothing else."""
        return self.messages > 0 and (self.bytes > 0 or not self.leases)

    def spend(self, messages: int, bytes_: int) -> None:
        """Lower the credit by a delivery."""
        self.messages -= messages
        self.bytes -= bytes_

    def grant(self, messages: int, bytes_: int) -> None:
        """Raise the credit."""
        self.messages += messages
        self.bytes += bytes_
