"""First in, first out: the order of arrival, whatever the key. For comparison, and for queues that need no fairness."""

from collections import deque
from collections.abc import Iterable, Sequence

from fila import limits
from fila.core.fairness.discipline import Forget, Key
from fila.core.log import QueueLog


class Fifo:
    """One lane for all keys."""

    def __init__(self, log: QueueLog, quantum: int, forget: Forget) -> None:
        self.waiting = 0
        self._log = log
        # The lane of all keys is that of this one.
        self.shared = Key("", 0, deque())

    def new_key(self, name: str, number: int) -> Key:
        return Key(name, number, self.shared.lane)

    def push(self, keys: Sequence[Key], key_index: Sequence[int] | None, first: int, count: int) -> None:
        self.waiting += count
        self.shared.lane.extend(range(first, first + count))
        if key_index is None:
            keys[0].live += count
            return
        for place in key_index:
            keys[place].live += 1

    def push_back(self, key: Key, offset: int) -> None:
        self.waiting += 1
        self.shared.lane.append(offset)

    def push_front(self, key: Key, offset: int) -> None:
        self.waiting += 1
        self.shared.lane.appendleft(offset)

    def restore(self, key: Key, offsets: Iterable[int]) -> None:
        self.shared.lane.extend(offsets)

    def restored(self) -> None:
        # Keys come back one after the other; the order of arrival is that of the offsets.
        lane = self.shared.lane
        plain = lane if isinstance(lane, deque) else lane.plain
        if plain:
            offsets = sorted(plain)
            plain.clear()
            plain.extend(offsets)
        self.waiting = len(lane)

    def woke(self, key: Key) -> None:
        pass

    def choose(self) -> Key:
        return self.shared

    def charge(self, key: Key, cost: int) -> None:
        pass

    def drop(self, key: Key) -> None:
        pass

    def refund(self, key: Key, cost: int) -> None:
        pass

    def take(self, count: int, bytes_max: int, force: bool) -> tuple[list[int], list[int]]:
        lane, segments = self.shared.lane, self._log.segments
        offsets: list[int] = []
        numbers: list[int] = []
        mask = limits.SEGMENT_MESSAGES - 1
        for _ in range(min(count, len(lane))):
            offset = lane[0]
            segment = segments[offset >> limits.SEGMENT_BITS]
            place = offset & mask
            bytes_max -= segment.sizes[place]
            if bytes_max < 0 and not (force and not offsets):
                break
            lane.popleft()
            offsets.append(offset)
            numbers.append(segment.keys[place])
        self.waiting -= len(offsets)
        return offsets, numbers

    def reweigh(self, key: Key, weight: int) -> None:
        key.weight = weight

    def deficit(self, key: Key) -> int:
        return 0
