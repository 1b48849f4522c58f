"""What gates promise, by the checker's account: an own reading of the configuration, own buckets and counts.

It knows no parks and no lines. What it judges is seen from outside: no message passes that a limit holds, and where somebody could
take one, none waits that every gate would let through.
"""

from collections import deque
from collections.abc import Iterable

from fila import limits
from fila.core.model import GateKeys
from fila.sim.model import Message, QueueModel, describe
from fila.sim.shares import Share, Shares
from fila.sim.violation import Violation

# Tokens are counted in so many parts, so that a nanotoken a second times a nanosecond is a whole number of them.
UNITS = 10**18
NANO = 10**9
# How long a gate may let tokens collect before it opens.
SLACK_NS = limits.GATE_WAIT_NS
NEVER = 1 << 100
# More steps than a crash ever takes.
KEPT = 100

Limit = tuple[int, int]


class BucketModel:
    """What a rate has let through."""

    def __init__(self, limit: Limit, level: int, now_ns: int) -> None:
        self.rate, burst = limit
        self.burst = burst * NANO
        self.level = min(level, self.burst)
        self.at_ns = now_ns
        # After each of the last steps that took from it: the step, its level, the time.
        self.takes: deque[tuple[int, int, int]] = deque(maxlen=KEPT)

    def refill(self, now_ns: int) -> None:
        """Add what has come."""
        self.level = min(self.burst, self.level + self.rate * (now_ns - self.at_ns))
        self.at_ns = now_ns

    def needs(self, cost: int) -> int:
        """Return the level at which a message may pass."""
        return max(1, min(cost * UNITS, self.burst))


class Gates:
    """All gates of one broker."""

    def __init__(self) -> None:
        self.config: dict[str, str] = {}
        self.in_flight: dict[str, int] = {}
        self._buckets: dict[str, BucketModel] = {}
        self._now_ns = 0
        self._empty_since_ns: int | None = None
        # By queue's number and throttle key: the shares of the keys that wait there alone.
        self._shares: dict[tuple[int, str], _Waiting] = {}

    # --- limits -----------------------------------------------------------------------------------------

    def limit(self, kind: str, name: str) -> str | None:
        """Return the value that holds for a name: its own, or that of the longest pattern."""
        found = self.config.get(f"{kind}.{name}")
        if found is not None:
            return found
        patterns = [key for key in self.config if key.startswith(kind + ".") and key.endswith("*")]
        fitting = [key for key in patterns if name.startswith(key[len(kind) + 1 : -1])]
        return self.config[max(fitting, key=len)] if fitting else None

    def _rate(self, name: str) -> Limit | None:
        value = self.limit("throttle", name)
        if value is None:
            return None
        rate, burst = (round(float(part) * NANO) for part in value.split(","))
        return rate, max(burst, NANO) if rate else burst

    def _bucket(self, name: str) -> BucketModel | None:
        limit = self._rate(name)
        if limit is None:
            return None
        bucket = self._buckets.get(name)
        if bucket is None:
            level, at_ns = limit[1] * NANO, self._now_ns
            if self._empty_since_ns is not None:
                level, at_ns = 0, self._empty_since_ns
            bucket = self._buckets[name] = BucketModel(limit, level, at_ns)
        bucket.refill(self._now_ns)
        return bucket

    def set(self, key: str, value: str | None, used: Iterable[str]) -> None:
        """Let another value hold; `used` are the names of the gates of unfinished messages."""
        used = set(used)
        for name in [*self._buckets, *used]:
            # Up to now the limit is the old one, also of a gate that nothing has passed yet.
            self._bucket(name)
        if value is None:
            self.config.pop(key, None)
        else:
            self.config[key] = value
        for name, bucket in list(self._buckets.items()):
            limit = self._rate(name)
            if limit is None:
                del self._buckets[name]
            elif (limit[0], limit[1] * NANO) != (bucket.rate, bucket.burst):
                if name not in used and bucket.level >= bucket.burst:
                    del self._buckets[name]
                else:
                    takes = bucket.takes
                    self._buckets[name] = bucket = BucketModel(limit, bucket.level, self._now_ns)
                    bucket.takes = takes
        self._shares.clear()

    # --- passing ----------------------------------------------------------------------------------------

    def at(self, now_ns: int) -> None:
        """Take note of the time."""
        self._now_ns = now_ns

    def check(self, message: Message, step: int) -> None:
        """Judge that a message may be delivered, and take what it takes."""
        keys = message.gates
        for name in (*keys.throttle, *keys.concurrency):
            if self.limit("pause", name) == "true":
                raise Violation("pause", f"{describe(message)} was delivered while {name!r} is paused")
        for name in dict.fromkeys(keys.throttle):
            bucket = self._bucket(name)
            if bucket is None:
                continue
            if bucket.level < bucket.needs(message.cost):
                raise Violation(
                    "rate",
                    f"{describe(message)} of cost {message.cost} was delivered with {bucket.level / UNITS} tokens"
                    f" at {name!r} ({self.limit('throttle', name)})",
                )
            bucket.level -= message.cost * UNITS
            if bucket.takes and bucket.takes[-1][0] == step:
                bucket.takes.pop()
            bucket.takes.append((step, bucket.level, self._now_ns))
        for name in dict.fromkeys(keys.concurrency):
            limit = self.limit("concurrency", name)
            if limit is not None and self.in_flight.get(name, 0) >= int(limit):
                raise Violation(
                    "concurrency", f"{describe(message)} was delivered with {limit} of {name!r} in flight"
                )

    def begun(self, keys: GateKeys) -> None:
        """A message is in flight."""
        for name in keys.concurrency:
            self.in_flight[name] = self.in_flight.get(name, 0) + 1

    def ended(self, keys: GateKeys) -> None:
        """It is not any more."""
        for name in keys.concurrency:
            self.in_flight[name] -= 1

    def crashed(self, survived_step: int) -> None:
        """Buckets begin anew: empty, or in debt where that is known; what is in flight is counted by the caller."""
        self._shares.clear()
        self.in_flight.clear()
        for name, bucket in list(self._buckets.items()):
            while bucket.takes and bucket.takes[-1][0] > survived_step:
                bucket.takes.pop()
            if not bucket.takes or bucket.takes[-1][1] >= 0:
                del self._buckets[name]
            else:
                _, bucket.level, bucket.at_ns = bucket.takes[-1]

    def opened(self, now_ns: int) -> None:
        """The broker starts again after a crash."""
        self._now_ns = now_ns
        self._empty_since_ns = now_ns
        for name in list(self._buckets):
            limit, bucket = self._rate(name), self._buckets[name]
            if limit is not None:
                # The limit may be an older one again.
                bucket.rate, bucket.burst = limit[0], limit[1] * NANO
                bucket.refill(now_ns)
            if limit is None or bucket.level >= 0:
                del self._buckets[name]

    # --- waiting ----------------------------------------------------------------------------------------

    def opens_ns(self, message: Message, dearest: int) -> int:
        """Return when all gates of a message let even the dearest through, if nothing else passes."""
        keys = message.gates
        opens_ns = 0
        for name in (*keys.throttle, *keys.concurrency):
            if self.limit("pause", name) == "true":
                return NEVER
        for name in keys.concurrency:
            limit = self.limit("concurrency", name)
            if limit is not None and self.in_flight.get(name, 0) >= int(limit):
                return NEVER
        for name in keys.throttle:
            bucket = self._bucket(name)
            if bucket is None:
                continue
            missing = bucket.needs(dearest) - bucket.level
            if bucket.burst == 0 or (missing > 0 and not bucket.rate):
                return NEVER
            if missing > 0:
                opens_ns = max(opens_ns, self._now_ns + -(-missing // bucket.rate))
            elif bucket.level < bucket.burst and bucket.rate:
                # It opened so long ago.
                opens_ns = max(opens_ns, self._now_ns - -missing // bucket.rate)
        return opens_ns

    # --- shares -----------------------------------------------------------------------------------------

    def alone(self, message: Message) -> str | None:
        """Return the only gate that limits a message, if it is a rate."""
        keys = message.gates
        if keys.concurrency or len(keys.throttle) != 1 or self._rate(keys.throttle[0]) is None:
            return None
        return keys.throttle[0]

    def arrived(self, messages: Iterable[Message]) -> None:
        """New messages wait: at a gate where others do, their keys are new there."""
        waking: dict[tuple[int, str], list[str]] = {}
        for message in messages:
            name = self.alone(message)
            waiting = None if name is None else self._shares.get((message.queue.number, name))
            if waiting is None or name is None:
                continue
            if waiting.add(message):
                waking.setdefault((message.queue.number, name), []).append(message.key)
        for place, keys in waking.items():
            shares = self._shares[place]
            shares.judge.activate([shares.keys[key][0] for key in dict.fromkeys(keys)])

    def left(self, message: Message) -> None:
        """Take note of a message that is delivered."""
        name = self.alone(message)
        waiting = None if name is None else self._shares.get((message.queue.number, name))
        if waiting is not None:
            waiting.serve(message)

    def disturb(self, messages: Iterable[Message]) -> None:
        """Forget the shares of gates at which messages were put back, or from which they were taken."""
        for message in messages:
            for name in message.gates.throttle:
                self._shares.pop((message.queue.number, name), None)

    def rest(self, queue: QueueModel, *, spare: bool) -> None:
        """A step has ended; `spare`: some consumer could have taken more, so that what waits, waits at closed gates."""
        if not spare:
            for place in [place for place in self._shares if place[0] == queue.number]:
                del self._shares[place]
            return
        if not queue.judged:
            return
        for (number, _), shares in self._shares.items():
            if number == queue.number:
                shares.settle()
        found: dict[str, list[Message]] = {}
        mixed: set[str] = set()
        for lane in queue.lanes():
            for message in lane:
                name = self.alone(message)
                if name is None:
                    mixed.update(message.gates.throttle)
                else:
                    found.setdefault(name, []).append(message)
        for name, messages in found.items():
            place = (queue.number, name)
            if name in mixed:
                self._shares.pop(place, None)
            elif place not in self._shares:
                self._shares[place] = _Waiting(queue, messages)


class _Waiting:
    """The keys of one queue that wait at one gate, and their shares of what it lets through."""

    def __init__(self, queue: QueueModel, messages: Iterable[Message]) -> None:
        self.judge = Shares(quantum=queue.spec.quantum, round_robin=queue.shares.round_robin)
        # By key: its share, and as many messages as it has waiting.
        self.keys: dict[str, tuple[Share, list[Message]]] = {}
        self._served: list[tuple[str, int]] = []
        # The broker may remember that one of these owes something, though it has nothing waiting.
        self._known = set(queue.weights)
        for message in messages:
            self.add(message)
        # Nobody knows from outside who of them was served here before: each may be ahead of those that come.
        self.judge.activate([share for share, _ in self.keys.values()])

    def add(self, message: Message) -> bool:
        """Take note of a message, and say whether its key had none."""
        entry = self.keys.get(message.key)
        if entry is None:
            entry = self.keys[message.key] = (self.judge.add(message.key), [])
            if message.key in self._known:
                entry[0].idle_at = []
        self.judge.weigh(entry[0], message.queue.weights[message.key], message.cost)
        entry[1].append(message)
        return len(entry[1]) == 1

    def serve(self, message: Message) -> None:
        """Take note of a delivery."""
        entry = self.keys.get(message.key)
        if entry is None or not entry[1]:
            return
        entry[1].pop()
        self._served.append((message.key, message.cost))

    def settle(self) -> None:
        """Judge what the gate let through in a step: the queue decides again in which order that goes out."""
        served, self._served = self._served, []
        drained = [share for share, waiting in (self.keys[key] for key in dict(served)) if not waiting]
        self.judge.serve_together([(self.keys[key][0], cost) for key, cost in served], drained)
