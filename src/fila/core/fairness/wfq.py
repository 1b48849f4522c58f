"""Weighted fair queueing by start times in virtual time.

Each delivery of a key takes cost / weight of virtual time. A key's next delivery starts when its last one ends, or now
if it was idle; the smallest start is served next, and virtual time is the start of what is being served. A drained
key is remembered until virtual time has reached the end of its last delivery, so that coming and going gains nothing.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from fila import limits
from fila.core.fairness.discipline import Forget, Key
from fila.core.log import QueueLog

# Virtual time per unit of cost at weight 1, so large that integer division by any weight keeps six digits.
SCALE = limits.COST_UNITS * limits.WEIGHT_MAX


class Wfq:
    """A heap of keys by the start of their next delivery."""

    def __init__(self, log: QueueLog, quantum: int, forget: Forget) -> None:
        self.waiting = 0
        self.shared: Key | None = None
        self._log = log
        self._forget = forget
        self._now = 0
        self._ties = 0
        # (start, tie, key): each active key stands here once, a drained one with the end of its last delivery.
        self._heap: list[tuple[int, int, Key]] = []

    def new_key(self, name: str, number: int) -> Key:
        return Key(name, number, deque())

    def push(self, keys: Sequence[Key], key_index: Sequence[int] | None, first: int, count: int) -> None:
        if key_index is None:
            keys[0].lane.extend(range(first, first + count))
            keys[0].live += count
        else:
            for offset, place in zip(range(first, first + count), key_index, strict=True):
                key = keys[place]
                key.lane.append(offset)
                key.live += 1
        self.waiting += count
        for key in keys:
            self._activate(key)

    def push_back(self, key: Key, offset: int) -> None:
        key.lane.append(offset)
        self.waiting += 1
        self._activate(key)

    def push_front(self, key: Key, offset: int) -> None:
        key.lane.appendleft(offset)
        self.waiting += 1
        self._activate(key)

    def restore(self, key: Key, offsets: Iterable[int]) -> None:
        key.lane.extend(offsets)
        self.waiting += len(key.lane)
        self._activate(key)

    def restored(self) -> None:
        pass

    def _activate(self, key: Key) -> None:
        if key.lane and not key.active:
            key.active = True
            self._expect(key, max(self._now, key.finish))

    def _expect(self, key: Key, start: int) -> None:
        self._ties += 1
        heappush(self._heap, (start, self._ties, key))

    def take(self, count: int, bytes_max: int, force: bool) -> tuple[list[int], list[int]]:
        offsets: list[int] = []
        numbers: list[int] = []
        log, heap = self._log, self._heap
        for _ in range(min(count, self.waiting)):
            while not heap[0][2].lane:
                self._retire(heappop(heap)[2])
            start, _, key = heap[0]
            offset = key.lane[0]
            bytes_max -= log.size(offset)
            if bytes_max < 0 and (offsets or not force):
                break
            heappop(heap)
            key.lane.popleft()
            offsets.append(offset)
            numbers.append(key.number)
            self._now = start
            key.finish = start + log.cost(offset) * SCALE // key.weight
            self._expect(key, key.finish)
        self.waiting -= len(offsets)
        if not self.waiting:
            self._rest()
        return offsets, numbers

    # --- one message at a time --------------------------------------------------------------------------

    def woke(self, key: Key) -> None:
        self._activate(key)

    def choose(self) -> Key:
        heap = self._heap
        while not heap[0][2].lane:
            self._retire(heappop(heap)[2])
        return heap[0][2]

    def charge(self, key: Key, cost: int) -> None:
        start, _, chosen = heappop(self._heap)
        assert chosen is key, "a key that was not chosen is charged"
        self._now = start
        key.finish = start + cost * SCALE // key.weight
        self._expect(key, key.finish)
        if not self.waiting:
            self._rest()

    def drop(self, key: Key) -> None:
        if not self.waiting:
            self._rest()

    def refund(self, key: Key, cost: int) -> None:
        # Its next start stays where it is: what stands in the heap cannot be moved.
        pass

    def _rest(self) -> None:
        """Nothing waits, so nobody is owed anything: virtual time moves to the end of what was served."""
        for _, _, key in self._heap:
            self._now = max(self._now, key.finish)
        keys = [key for _, _, key in self._heap]
        self._heap.clear()
        for key in keys:
            self._retire(key)

    def _retire(self, key: Key) -> None:
        key.active = False
        self._forget(key)

    def reweigh(self, key: Key, weight: int) -> None:
        key.weight = weight

    def deficit(self, key: Key) -> int:
        return 0
