"""The interface of a discipline: whose message is served next, among the keys of one group.

A discipline holds the waiting messages by offset. It knows nothing of leases, consumers or stores.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from fila.core.log import QueueLog

Lane = deque[int]


class Key:
    """A fairness key while it has unfinished messages or a place in the order of service."""

    __slots__ = (
        "active",
        "deficit",
        "due",
        "earned",
        "finish",
        "in_round",
        "lane",
        "live",
        "name",
        "number",
        "ring",
        "weight",
    )

    def __init__(self, name: str, number: int, lane: Lane) -> None:
        self.name = name
        self.number = number
        # What waits, first to be served first: a deque of offsets, or where gates are in play a LaneSet, which looks like one.
        self.lane: Any = lane
        self.weight = 1
        # Unfinished messages: waiting, leased or delayed.
        self.live = 0
        # Whether the discipline remembers it; then it may not be forgotten.
        self.active = False
        # The account of deficit round robin: what it has earned and not spent; its place in the order of visits; the
        # last round that it was paid for; the round of its next visit; whether it has left the list of new keys.
        self.deficit = 0
        self.ring = 0
        self.earned = 0
        self.due = 0
        self.in_round = False
        # The account of weighted fair queueing: the virtual time at which its last delivery ends.
        self.finish = 0


class Discipline(Protocol):
    """Holds what waits and says what goes next."""

    # How many messages wait; whoever puts messages into lanes himself keeps count here.
    waiting: int

    @property
    def shared(self) -> Key | None:
        """Return what is ordered, where that is all keys as one."""

    def new_key(self, name: str, number: int) -> Key:
        """Make the discipline's own kind of key."""

    def push(self, keys: Sequence[Key], key_index: Sequence[int] | None, first: int, count: int) -> None:
        """Append new messages, from offset `first` on; each belongs to the key at its place in `key_index`."""

    def push_back(self, key: Key, offset: int) -> None:
        """Put a message behind those of its key: it has failed and is tried again."""

    def push_front(self, key: Key, offset: int) -> None:
        """Put a message before those of its key: it was given back untouched."""

    def restore(self, key: Key, offsets: Iterable[int]) -> None:
        """Take back what a key had waiting. It has its place among the others, and is not new."""

    def restored(self) -> None:
        """Hear that all keys are back."""

    def take(self, count: int, bytes_max: int, force: bool) -> tuple[list[int], list[int]]:
        """Remove and return up to `count` messages, as offsets and key numbers, in the order of service.

        Stops before a message that exceeds the bytes, except that with `force` the first always goes.
        """

    def reweigh(self, key: Key, weight: int) -> None:
        """Give a key another weight, at once for all that it has waiting."""

    # --- one message at a time, for whoever puts messages into lanes and takes them out himself ----------------

    def woke(self, key: Key) -> None:
        """Hear that a key has something waiting, also when it had before."""

    def choose(self) -> Key:
        """Return the key whose turn it is; something waits."""

    def charge(self, key: Key, cost: int) -> None:
        """Hear that a message of the chosen key was taken off its lane."""

    def drop(self, key: Key) -> None:
        """Hear that the chosen key has nothing waiting any more, without having been served."""

    def refund(self, key: Key, cost: int) -> None:
        """Take a charge back."""

    def deficit(self, key: Key) -> int:
        """Return what a key has earned and not spent, in cost units; 0 where the discipline has no such thing."""


Forget = Callable[[Key], None]
Make = Callable[[QueueLog, int, Forget], Discipline]
