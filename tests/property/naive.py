"""The disciplines as one would explain them: slow, a message at a time, a round at a time. The tests compare the real ones."""

from collections import deque

UNITS = 1_000
VIRTUAL_UNITS = 1_000_000_000


class NaiveKey:
    """A key and its account."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lane: deque[tuple[int, int]] = deque()
        self.weight = 1
        self.deficit = 0
        self.in_round = False
        self.waits_as_new = False
        self.finish = 0
        self.start: int | None = None


class Naive:
    """What all disciplines share: keys by name, and what waits."""

    def __init__(self) -> None:
        self.keys: dict[str, NaiveKey] = {}

    def key(self, name: str) -> NaiveKey:
        """Return a key, made on first sight."""
        return self.keys.setdefault(name, NaiveKey(name))

    def push(self, batch: list[tuple[str, int, int, int]], names: list[str]) -> None:
        """Append messages (key, offset, weight, cost); `names` are the batch's keys in their order."""
        # A batch arrives as one: of the weights that it gives a key only the last was ever the newest.
        for name, weight in {name: weight for name, _, weight, _ in batch}.items():
            self.reweigh(self.key(name), weight)
        for name, offset, _, cost in batch:
            self.key(name).lane.append((offset, cost))
        for name in names:
            self.wake(self.key(name))

    def push_back(self, name: str, offset: int, cost: int) -> None:
        """Put a message behind the others of its key."""
        self.key(name).lane.append((offset, cost))
        self.wake(self.key(name))

    def push_front(self, name: str, offset: int, cost: int) -> None:
        """Put a message before the others of its key."""
        self.key(name).lane.appendleft((offset, cost))
        self.wake(self.key(name))

    def reweigh(self, key: NaiveKey, weight: int) -> None:
        """Give a key another weight."""
        key.weight = weight

    def wake(self, key: NaiveKey) -> None:
        """Take note that something of a key may wait."""


class NaiveDrr(Naive):
    """Visit every key in every round, pay it, and serve it while it has something left."""

    def __init__(self, quantum: int) -> None:
        super().__init__()
        self.quantum = quantum
        self.new: deque[NaiveKey] = deque()
        self.ring: list[NaiveKey] = []
        self.at = 0
        self.turn: NaiveKey | None = None
        self.new_was_served = False

    def wake(self, key: NaiveKey) -> None:
        if key.lane and not key.in_round and not key.waits_as_new:
            key.waits_as_new = True
            self.new.append(key)

    def reweigh(self, key: NaiveKey, weight: int) -> None:
        key.weight = weight
        if key is self.turn:
            key.deficit = min(key.deficit, self.quantum * weight)

    def take(self) -> int:
        """Serve the next message and return its offset. Something waits."""
        if self.new and not self.new_was_served:
            return self._serve_new()
        key = self._whose_turn()
        if key is None:
            return self._serve_new()
        self.new_was_served = False
        offset, cost = key.lane.popleft()
        key.deficit -= UNITS * cost
        if not key.lane and key.deficit > 0:
            key.deficit = 0
        if not key.lane or key.deficit <= 0:
            self.turn = None
        return offset

    def _serve_new(self) -> int:
        key = self.new.popleft()
        key.waits_as_new = False
        key.in_round = True
        self.ring.append(key)
        offset, cost = key.lane.popleft()
        key.deficit = -UNITS * cost
        self.new_was_served = True
        return offset

    def _whose_turn(self) -> NaiveKey | None:
        if self.turn is not None:
            return self.turn
        while self.ring:
            if self.at >= len(self.ring):
                self.at = 0
            key = self.ring[self.at]
            key.deficit += self.quantum * key.weight
            if key.lane:
                self.at += 1
                if key.deficit > 0:
                    self.turn = key
                    return key
            elif key.deficit >= 0:
                del self.ring[self.at]
                key.in_round = False
                key.deficit = 0
            else:
                self.at += 1
        return None


class NaiveWfq(Naive):
    """Serve any key whose next delivery has the smallest start in virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0

    def wake(self, key: NaiveKey) -> None:
        if key.lane and key.start is None:
            key.start = max(self.now, key.finish)

    def may_take(self) -> set[int]:
        """Return the offsets that may be served next."""
        starts = [key.start for key in self.keys.values() if key.start is not None]
        return {
            key.lane[0][0] for key in self.keys.values() if key.start is not None and key.start == min(starts)
        }

    def take(self, offset: int) -> None:
        """Serve this message."""
        key = next(key for key in self.keys.values() if key.lane and key.lane[0][0] == offset)
        assert key.start is not None
        _, cost = key.lane.popleft()
        self.now = key.start
        key.finish = key.start + cost * VIRTUAL_UNITS // key.weight
        key.start = key.finish if key.lane else None

    def rest(self) -> None:
        """Nothing waits: virtual time moves to the end of all that was served."""
        if all(key.start is None for key in self.keys.values()):
            self.now = max([self.now, *(key.finish for key in self.keys.values())])


class NaiveFifo(Naive):
    """One lane."""

    def __init__(self) -> None:
        super().__init__()
        self.lane: deque[int] = deque()

    def push(self, batch: list[tuple[str, int, int, int]], names: list[str]) -> None:
        self.lane.extend(offset for _, offset, _, _ in batch)

    def push_back(self, name: str, offset: int, cost: int) -> None:
        self.lane.append(offset)

    def push_front(self, name: str, offset: int, cost: int) -> None:
        self.lane.appendleft(offset)

    def take(self) -> int:
        """Serve the oldest."""
        return self.lane.popleft()
