"""Lanes: the messages of one key that wait at the same gates, in order; and what a flow has of them.

A flow is what a discipline orders: usually a key, within a group's own discipline or within that of a gate. While a flow has only
messages without gates, its `lane` is a plain deque and nothing here is used.
"""

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from fila.core.model import GateKeys

if TYPE_CHECKING:
    from fila.core.gates.gate import Gate


class GateSet:
    """The gates of a message: their names, and those of them that the configuration limits now, in the order to look at them."""

    __slots__ = ("gates", "keys", "uses")

    def __init__(self, keys: GateKeys) -> None:
        self.keys = keys
        self.gates: tuple[Gate, ...] = ()
        # In how many groups it is known.
        self.uses = 0


class Tag:
    """A set of gates as one group knows it: by a number, in a column of its segments."""

    __slots__ = ("gate_set", "live", "number")

    def __init__(self, number: int, gate_set: GateSet) -> None:
        self.number = number
        self.gate_set = gate_set
        # Unfinished messages.
        self.live = 0


class Lane:
    """Messages of one key with one set of gates.

    `free` are in the group's own discipline, `held` in that of the gate `at`; those free come first. With a gate `at`, those
    free were let through by it and not delivered yet.
    """

    __slots__ = ("at", "free", "held", "key", "key_number", "number", "tag")

    def __init__(self, key: str, key_number: int, number: int, tag: Tag) -> None:
        self.key = key
        self.key_number = key_number
        self.number = number
        self.tag = tag
        self.at: Gate | None = None
        self.free: deque[int] | None = None
        self.held: deque[int] | None = None

    def take_free(self) -> deque[int]:
        """Give up what is free."""
        free, self.free = self.free, None
        return free if free is not None else deque()


class LaneSet:
    """What a flow has: messages without gates, and lanes; the oldest head first. Looks like a deque of the former."""

    __slots__ = ("_count", "_gate", "_heap", "plain")

    def __init__(self, plain: deque[int] | None, gate: "Gate | None") -> None:
        # Messages without gates; none have any in the discipline of a gate.
        self.plain = plain
        # The gate that it is at: then what the lanes hold is meant, else what is free.
        self._gate = gate
        # (head, lane's number, lane); entries whose head is no longer that of their lane are skipped.
        self._heap: list[tuple[int, int, Lane]] = []
        self._count = 0 if plain is None else len(plain)

    def __len__(self) -> int:
        return self._count

    def append(self, offset: int) -> None:
        """Append a message without gates."""
        self._own().append(offset)
        self._count += 1

    def appendleft(self, offset: int) -> None:
        """Put a message without gates before the others."""
        self._own().appendleft(offset)
        self._count += 1

    def extend(self, offsets: Iterable[int]) -> None:
        """Append messages without gates."""
        plain = self._own()
        self._count -= len(plain)
        plain.extend(offsets)
        self._count += len(plain)

    def _own(self) -> deque[int]:
        if self.plain is None:
            self.plain = deque()
        return self.plain

    # --- lanes ------------------------------------------------------------------------------------------

    def _messages(self, lane: Lane) -> "deque[int] | None":
        if self._gate is None:
            return lane.free
        return lane.held if lane.at is self._gate else None

    def grown(self, lane: Lane, count: int, *, head: bool) -> None:
        """Take note of more messages of a lane; `head`: its first message is another one now."""
        self._count += count
        if head:
            messages = self._messages(lane)
            assert messages, "a lane without messages stands in a flow"
            heappush(self._heap, (messages[0], lane.number, lane))

    def gone(self, count: int) -> None:
        """Take note that the chosen lane has left with so many messages."""
        self._count -= count
        heappop(self._heap)

    def first(self) -> Lane | None:
        """Return the lane with the oldest head; None: a message without gates is older, or there is no lane."""
        heap = self._heap
        while heap:
            head, _, lane = heap[0]
            messages = self._messages(lane)
            if messages and messages[0] == head:
                return None if self.plain and self.plain[0] < head else lane
            heappop(heap)
        return None

    def pop(self, lane: Lane | None) -> int:
        """Remove and return the first message of what `first` has returned."""
        self._count -= 1
        if lane is None:
            assert self.plain is not None
            return self.plain.popleft()
        messages: Any = self._messages(lane)
        offset: int = messages.popleft()
        heappop(self._heap)
        if messages:
            heappush(self._heap, (messages[0], lane.number, lane))
        return offset

    @property
    def has_lanes(self) -> bool:
        """Whether it has anything but messages without gates."""
        return self._count > (len(self.plain) if self.plain else 0)

    def lanes(self) -> list[Lane]:
        """Return its lanes, by their heads."""
        found = (lane for head, _, lane in sorted(self._heap) if (m := self._messages(lane)) and m[0] == head)
        return list(dict.fromkeys(found))

    def sort(self) -> None:
        """Bring the messages without gates into the order of arrival."""
        if self.plain:
            self.plain = deque(sorted(self.plain))
