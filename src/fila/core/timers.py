"""Deadlines: a heap that says when the next one falls due.

Entries are not removed when their reason is gone; whoever takes a due entry looks whether it still means anything. So
that a heap does not fill with the dead, their number is told with `drop`, and the heap asks `alive` when half are.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

# (due, tie, queue number, subject)
Entry = tuple[int, int, int, int]
SWEEP_MIN = 1_024


class Timers:
    """Subjects of queues, by the time that they fall due."""

    def __init__(self, alive: Callable[[int, int, int], bool]) -> None:
        self._alive = alive
        self._heap: list[Entry] = []
        self._ties = 0
        self._dropped = 0

    def add(self, due_ns: int, queue: int, subject: int) -> None:
        """Let a subject fall due."""
        self._ties += 1
        heappush(self._heap, (due_ns, self._ties, queue, subject))

    def drop(self) -> None:
        """Take note that one entry has lost its meaning."""
        self._dropped += 1
        if self._dropped > SWEEP_MIN and self._dropped * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if self._alive(entry[2], entry[3], entry[0])]
            heapify(self._heap)
            self._dropped = 0

    def next_ns(self) -> int | None:
        """Return when the first entry falls due."""
        return self._heap[0][0] if self._heap else None

    def take(self, now_ns: int) -> tuple[int, int] | None:
        """Remove and return the queue and subject of an entry that is due."""
        if self._heap and self._heap[0][0] <= now_ns:
            _, _, queue, subject = heappop(self._heap)
            return queue, subject
        return None
