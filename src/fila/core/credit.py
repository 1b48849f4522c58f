"""How much each consumer may still receive, and what it holds."""

from fila.core.leases import Lease


class Consumer:
    """Somebody who receives deliveries of one queue."""

    __slots__ = (
        "_unsent",
        "bytes",
        "leases",
        "messages",
        "number",
        "once",
        "ready",
        "refill",
        "reports_begun",
        "stopped",
    )

    def __init__(self, number: int, messages: int, bytes_: int, *, refill: bool, once: bool) -> None:
        self.number = number
        self.messages = messages
        self.bytes = bytes_
        self.refill = refill
        self.once = once
        # Deliveries with leases left, by epoch.
        self.leases: dict[int, Lease] = {}
        # With `refill`: deliveries that are not on their way to it yet, with the messages and bytes of those leases that
        # have ended since. They are given back when it is sent: else one that does not read would be leased more and more.
        self._unsent: dict[int, tuple[int, int]] = {}
        # Whether it stands in its group's row of those that can take something.
        self.ready = False
        self.reports_begun = False
        # Whether it wants nothing more.
        self.stopped = False

    @property
    def has_credit(self) -> bool:
        """Whether a delivery may be tried; one that holds nothing also gets a message larger than its bytes."""
        return self.messages > 0 and self.bytes > 0

    def took(self, lease: Lease) -> None:
        """Take note of a delivery."""
        self.leases[lease.epoch] = lease
        if self.refill:
            self._unsent[lease.epoch] = (0, 0)

    def give_back(self, epoch: int, messages: int, bytes_: int) -> None:
        """Raise the credit by leases that have ended, or keep that until their delivery is sent."""
        if epoch in self._unsent:
            before = self._unsent[epoch]
            self._unsent[epoch] = (before[0] + messages, before[1] + bytes_)
        else:
            self.grant(messages, bytes_)

    def sent(self, epoch: int) -> None:
        """Take note that a delivery is on its way."""
        self.grant(*self._unsent.pop(epoch, (0, 0)))

    def stop(self) -> None:
        """Give up all credit, now and in future."""
        self.stopped = True
        self.messages = self.bytes = 0

    def spend(self, messages: int, bytes_: int) -> None:
        """Lower the credit by a delivery."""
        self.messages -= messages
        self.bytes -= bytes_

    def grant(self, messages: int, bytes_: int) -> None:
        """Raise the credit, unless nothing more is wanted."""
        if self.stopped:
            return
        self.messages += messages
        self.bytes += bytes_
