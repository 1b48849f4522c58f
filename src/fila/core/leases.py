"""What one delivery still holds: the leases of its messages, by place, as bitmaps."""

from collections.abc import Sequence

from fila.core.segment import places


class Lease:
    """The leases of one delivery. `held` has a bit for each place whose lease has not ended."""

    __slots__ = (
        "begun",
        "consumer",
        "deadline_ns",
        "deadlines_ns",
        "due_ns",
        "epoch",
        "held",
        "numbers",
        "offsets",
    )

    def __init__(
        self, epoch: int, consumer: int, offsets: Sequence[int], numbers: Sequence[int], deadline_ns: int
    ) -> None:
        self.epoch = epoch
        self.consumer = consumer
        self.offsets = offsets
        # The number of each message's key.
        self.numbers = numbers
        # When the leases expire; `deadlines_ns` has those places that differ.
        self.deadline_ns = deadline_ns
        self.deadlines_ns: dict[int, int] = {}
        # The time of its entry among the timers: one at most, however often leases are extended.
        self.due_ns = deadline_ns
        self.held = (1 << len(offsets)) - 1
        # What its consumer says it is working on.
        self.begun = 0

    def select(self, position: int, count: int) -> int:
        """Return the mask of a run; a count of 0 goes to the end. Places that do not exist are left out."""
        size = len(self.offsets)
        if position >= size:
            return 0
        end = size if count == 0 else min(size, position + count)
        return (1 << end) - (1 << position)

    def expired(self, now_ns: int) -> int:
        """Return the mask of the held places whose deadline has come."""
        expired = self.held if self.deadline_ns <= now_ns else 0
        for place, deadline_ns in self.deadlines_ns.items():
            if deadline_ns > now_ns:
                expired &= ~(1 << place)
            else:
                expired |= 1 << place & self.held
        return expired

    def extend(self, mask: int, deadline_ns: int) -> None:
        """Give held places another deadline."""
        if mask == self.held:
            self.deadline_ns = deadline_ns
            self.deadlines_ns.clear()
        else:
            for place in places(mask):
                self.deadlines_ns[place] = deadline_ns

    def next_deadline_ns(self) -> int:
        """Return the first deadline among the held places."""
        common = self.held
        first: int | None = None
        for place, deadline_ns in self.deadlines_ns.items():
            bit = 1 << place
            common &= ~bit
            if self.held & bit and (first is None or deadline_ns < first):
                first = deadline_ns
        if common and (first is None or self.deadline_ns < first):
            first = self.deadline_ns
        assert first is not None, "no lease is held"
        return first

    def deadlines(self) -> list[int]:
        """Return the deadlines of the held places, or one for all."""
        if not self.deadlines_ns:
            return [self.deadline_ns]
        return [self.deadlines_ns.get(place, self.deadline_ns) for place in places(self.held)]
