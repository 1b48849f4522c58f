"""How much a consumer leases ahead of its loop."""

from fila import limits


class Window:
    """How many messages may wait on our side for the loop to reach them.

    As many as the loop works off in a moment: then it does not wait for the network, and what is leased ahead neither
    keeps other consumers idle nor stands before a message that comes later and would be served first. So the size
    follows the pace of the loop, from none at all for slow work (a message is leased when the loop asks for one), up to
    `most` for quick work. A `fixed` window is what the user has asked for, whatever the pace.
    """

    __slots__ = ("fixed", "most", "size")

    def __init__(self, most: int, *, fixed: bool) -> None:
        self.most = most
        self.fixed = fixed
        self.size = most if fixed else 1

    @property
    def stale_seconds(self) -> float | None:
        """How long a message may wait for the loop before it goes back; None: for as long as its lease allows."""
        return None if self.fixed else limits.WINDOW_STALE_SECONDS

    def worked_off(self, count: int, seconds: float) -> None:
        """Learn how long the loop took for so many messages."""
        if self.fixed:
            return
        size = round(count * limits.WINDOW_SECONDS / seconds) if seconds > 0 else self.most
        # A quick moment proves little: it doubles at most.
        self.size = min(size, 2 * max(1, self.size), self.most)

    def stalled(self) -> None:
        """Learn that the loop has not come back for a message."""
        if not self.fixed:
            self.size = 0
