"""Deficit round robin with a list of new keys, debts, and rounds that are skipped by arithmetic.

In each round a key earns quantum x weight units, and is served while it has more than nothing; a message of cost c
takes c x 1,000 units, so a deficit may fall below zero: a debt. The rules that are easy to get wrong:

- A key that becomes active waits in the list of *new* keys. From there it gets one delivery, whatever its weight, and
  then joins the round, with what that delivery cost as a debt. Between two deliveries from the list comes one of the
  round, whose turn goes on later.
- A key that drains keeps its place until the round has passed it and its debt is paid. Only then is it idle, and may be
  new again: else a key that comes and goes would be served before all others each time.
- What a drained key had left over is dropped: an absent key saves nothing up.
- A key in debt is not visited round by round. The round in which it may be served again follows from its debt, and the
  round number jumps over rounds that would serve nobody.

Keys are visited in the order of `ring`, always: an order that changed between rounds would give a key two turns in a row.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from operator import attrgetter

from fila import limits
from fila.core.fairness.discipline import Forget, Key
from fila.core.log import QueueLog

UNITS = limits.COST_UNITS
BITS = limits.SEGMENT_BITS
MASK = limits.SEGMENT_MESSAGES - 1
by_ring = attrgetter("ring")


class Drr:
    """The account of all keys of one group."""

    # There may be one at each of many gates.
    __slots__ = (
        "_current",
        "_cursor",
        "_forget",
        "_later",
        "_later_rounds",
        "_log",
        "_new",
        "_next",
        "_plain_weight",
        "_position",
        "_quantum",
        "_rings",
        "_round",
        "_served_new",
        "_twice_until",
        "_visits",
        "shared",
        "waiting",
    )

    def __init__(self, log: QueueLog, quantum: int, forget: Forget) -> None:
        self.waiting = 0
        self.shared: Key | None = None
        self._log = log
        self._quantum = quantum
        # A key of this weight earns one message of cost 1 per round; 0: none does.
        self._plain_weight = UNITS // quantum if UNITS % quantum == 0 else 0
        self._forget = forget
        self._new: deque[Key] = deque()
        self._served_new = False
        self._round = 1
        self._rings = 0
        # Whose turn it is; who follows in this round, from the cursor on; who is due in the next round; who later.
        self._current: Key | None = None
        self._visits: list[Key] = []
        self._cursor = 0
        self._position = 0
        self._next: list[Key] = []
        self._later: dict[int, list[Key]] = {}
        self._later_rounds: list[int] = []
        # Up to this round keys may stand twice among the visits, because a new weight has brought one of them forward.
        self._twice_until = 0

    # --- what waits -------------------------------------------------------------------------------------

    def new_key(self, name: str, number: int) -> Key:
        return Key(name, number, deque())

    def push(self, keys: Sequence[Key], key_index: Sequence[int] | None, first: int, count: int) -> None:
        before = [len(key.lane) for key in keys]
        if key_index is None:
            keys[0].lane.extend(range(first, first + count))
        else:
            appends = [key.lane.append for key in keys]
            for offset, place in zip(range(first, first + count), key_index, strict=True):
                appends[place](offset)
        for key, waited in zip(keys, before, strict=True):
            added = len(key.lane) - waited
            if added:
                key.live += added
                if not key.active:
                    key.active = True
                    self._new.append(key)
        self.waiting += count

    def push_back(self, key: Key, offset: int) -> None:
        key.lane.append(offset)
        self._pushed(key)

    def push_front(self, key: Key, offset: int) -> None:
        key.lane.appendleft(offset)
        self._pushed(key)

    def _pushed(self, key: Key) -> None:
        self.waiting += 1
        self.woke(key)

    def woke(self, key: Key) -> None:
        if not key.active:
            key.active = True
            self._new.append(key)

    def restore(self, key: Key, offsets: Iterable[int]) -> None:
        key.lane.extend(offsets)
        self.waiting += len(key.lane)
        key.active = True
        self._join(key)

    def restored(self) -> None:
        pass

    def deficit(self, key: Key) -> int:
        if not key.in_round or key is self._current:
            return key.deficit
        return key.deficit + (self._passed(key) - key.earned) * self._quantum * key.weight

    # --- who is next ------------------------------------------------------------------------------------

    def take(self, count: int, bytes_max: int, force: bool) -> tuple[list[int], list[int]]:
        offsets: list[int] = []
        numbers: list[int] = []
        new, log, segments = self._new, self._log, self._log.segments
        has_costs = log.has_costs
        left = min(count, self.waiting)
        counts_bytes = bytes_max < left * log.size_max
        while left:
            if not (new or has_costs or counts_bytes or self._current):
                left -= self._take_lap(left, offsets, numbers)
                if not left:
                    break
            key = self._choose() if new else self._current or self._advance()
            assert key is not None, "something waits, and no key has it"
            lane, deficit, number = key.lane, key.deficit, key.number
            turn = 1 if new else left
            taken = 0
            while True:
                if counts_bytes:
                    offset = lane[0]
                    bytes_max -= segments[offset >> BITS].sizes[offset & MASK]
                    if bytes_max < 0 and (offsets or not force):
                        left = 0
                        break
                offset = lane.popleft()
                offsets.append(offset)
                numbers.append(number)
                deficit -= UNITS * log.cost(offset) if has_costs else UNITS
                taken += 1
                if taken == turn or deficit <= 0 or not lane:
                    break
            if not taken:
                break
            left = left and left - taken
            if deficit or not lane or new:
                self._served(key, deficit)
            else:
                # The usual case, kept short: nobody is new, and the key has spent exactly what it earned.
                self._served_new = False
                self._current = None
                key.deficit = 0
                key.due = self._round + 1
                self._next.append(key)
        self.waiting -= len(offsets)
        return offsets, numbers

    def _take_lap(self, left: int, offsets: list[int], numbers: list[int]) -> int:
        """Serve as many visits of the round as are alike, at once: each takes one message and leaves no deficit.

        This is what `take` would do one by one; keys in equal shares with a backlog are the usual case under load.
        """
        this = self._round
        stop = self._cursor + left
        keys = self._visits[self._cursor : stop]
        before = this - 1
        plain = self._plain_weight
        count = 0
        for key in keys:
            if (
                key.weight != plain
                or key.due != this
                or key.deficit
                or key.earned != before
                or len(key.lane) < 2
            ):
                break
            count += 1
        if count < len(keys):
            keys = keys[:count]
        if not keys:
            return 0
        offsets += [key.lane.popleft() for key in keys]
        numbers += [key.number for key in keys]
        after = this + 1
        for key in keys:
            key.earned = this
            key.due = after
        self._next += keys
        self._cursor += count
        self._position = keys[-1].ring
        self._served_new = False
        return count

    def choose(self) -> Key:
        return self._choose() if self._new else self._current or self._choose()

    def charge(self, key: Key, cost: int) -> None:
        self._served(key, key.deficit - UNITS * cost)

    def drop(self, key: Key) -> None:
        if key.in_round:
            assert key is self._current, "a key that was not chosen is dropped"
            self._current = None
            key.deficit = min(key.deficit, 0)
            self._defer(key)
        else:
            assert key is self._new[0], "a key that was not chosen is dropped"
            self._new.popleft()
            self._retire(key)

    def refund(self, key: Key, cost: int) -> None:
        if not key.in_round:
            return
        if key is self._current:
            key.deficit += UNITS * cost
            return
        self._settle(key)
        key.deficit += UNITS * cost
        self._bring_forward(key)

    def _choose(self) -> Key:
        """Return the key to serve: a new one, or the one whose turn it is, in alternation. Something waits."""
        new = self._new
        if new and not self._served_new:
            return new[0]
        key = self._current or self._advance()
        if key is not None:
            return key
        assert new, "something waits, and no key has it"
        return new[0]

    def _served(self, key: Key, deficit: int) -> None:
        """Take note of a delivery: end the turn if nothing is left of it."""
        key.deficit = deficit
        if not key.in_round:
            self._new.popleft()
            self._served_new = True
            self._join(key)
            return
        self._served_new = False
        if deficit > 0 and key.lane:
            return
        self._current = None
        if deficit > 0:
            key.deficit = 0
        self._defer(key)

    def _join(self, key: Key) -> None:
        """Give a key the last place of the round."""
        self._rings += 1
        key.ring = self._rings
        key.in_round = True
        key.earned = self._round - 1
        self._defer(key)

    def _defer(self, key: Key) -> None:
        """Note the round of a key's next visit."""
        key.due = due = self._next_due(key)
        self._expect(key, due)

    def _next_due(self, key: Key) -> int:
        """Return the round in which a key may be served, or has paid and may be forgotten."""
        earning = self._quantum * key.weight
        if key.lane:
            return key.earned + -key.deficit // earning + 1
        return key.earned + max(1, -(key.deficit // earning))

    def _expect(self, key: Key, due: int) -> None:
        """Put a key where the round that it is due in will find it."""
        if due == self._round:
            insort(self._visits, key, lo=self._cursor, key=by_ring)
        elif due == self._round + 1:
            self._next.append(key)
        elif due in self._later:
            self._later[due].append(key)
        else:
            self._later[due] = [key]
            heappush(self._later_rounds, due)

    def _advance(self) -> Key | None:
        """Begin the turn of the next key of the round that may be served."""
        while True:
            visits = self._visits
            while self._cursor < len(visits):
                key = visits[self._cursor]
                self._cursor += 1
                if key.due != self._round or not key.in_round:
                    continue
                self._position = key.ring
                key.deficit += (self._round - key.earned) * self._quantum * key.weight
                key.earned = self._round
                if key.lane:
                    if key.deficit > 0:
                        self._current = key
                        return key
                elif key.deficit >= 0:
                    self._retire(key)
                    continue
                self._defer(key)
            if not self._begin_round():
                return None

    def _begin_round(self) -> bool:
        """Go to the next round in which anybody is due."""
        self._visits, self._next = self._next, []
        self._cursor = self._position = 0
        later = self._later_rounds
        if self._visits:
            self._round += 1
        elif later:
            self._round = later[0]
        else:
            return False
        if later and later[0] == self._round:
            heappop(later)
            self._visits += self._later.pop(self._round)
        self._visits.sort(key=by_ring)
        if self._round <= self._twice_until:
            self._visits = list(dict.fromkeys(self._visits))
        return True

    def _retire(self, key: Key) -> None:
        key.deficit = 0
        key.in_round = False
        key.active = False
        self._forget(key)

    # --- weights ----------------------------------------------------------------------------------------

    def reweigh(self, key: Key, weight: int) -> None:
        if not key.in_round:
            key.weight = weight
            return
        if key is self._current:
            # What is left of its turn was earned by the old weight: a lighter key may keep one turn of its own.
            key.weight = weight
            key.deficit = min(key.deficit, self._quantum * weight)
            return
        # Settle at the old weight for the rounds that have passed it. Its next visit may come sooner; one that comes
        # too soon does no harm, so nothing is moved back (and nothing piles up under weights that go to and fro).
        self._settle(key)
        key.weight = weight
        self._bring_forward(key)

    def _settle(self, key: Key) -> None:
        """Pay a key for the rounds that have passed it."""
        passed = self._passed(key)
        key.deficit += (passed - key.earned) * self._quantum * key.weight
        key.earned = passed

    def _bring_forward(self, key: Key) -> None:
        """Let a key's next visit come sooner, if it is due sooner than it was."""
        due = self._next_due(key)
        if due < key.due:
            self._twice_until = max(self._twice_until, key.due)
            key.due = due
            self._expect(key, due)

    def _passed(self, key: Key) -> int:
        """Return the last round that has passed a key's place."""
        return max(key.earned, self._round if key.ring <= self._position else self._round - 1)
