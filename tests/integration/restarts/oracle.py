"""What producers were promised and workers have done, over all lives of a broker, and the laws that this must keep.

A message is known by its id, its content by its payload: what a producer sends again, because the receipt was lost with the broker, is another
message with the same payload. Used from the threads of both clients.
"""

from collections import Counter
from dataclasses import dataclass, field
from threading import Lock


class LawBrokenError(AssertionError):
    """The broker or the client has broken its word."""


@dataclass
class Counts:
    """How much of what happened."""

    sent: int = 0
    acknowledged: int = 0
    handled: int = 0
    # Sent again without need: the receipt had been lost.
    duplicates: int = 0
    failed_on_purpose: int = 0
    held_over_a_restart: int = 0
    # Handed to a handler a second time: after those that failed, none should be.
    handed_again: int = 0
    handed_while_in_work: int = 0


@dataclass
class Oracle:
    """Takes note of everything and finds what contradicts itself."""

    counts: Counts = field(default_factory=Counts)
    life: int = 1
    broken: list[str] = field(default_factory=list)
    warnings: Counter[str] = field(default_factory=Counter)

    def __post_init__(self):
        self._lock = Lock()
        self._sent: set[bytes] = set()
        self._acknowledged: dict[str, bytes] = {}
        # Of each message that was handed out its payload and its place in the queue.
        self._handed: dict[str, tuple[bytes, int]] = {}
        self._in_work: Counter[str] = Counter()
        self._returned: dict[str, int] = {}

    @property
    def open_messages(self) -> int:
        """How many were sent and are not handled."""
        return self.counts.sent - self.counts.handled

    def breaks(self, what: str):
        """A law is broken; the first such are told at the end."""
        with self._lock:
            self.broken.append(f"life {self.life}: {what}")

    # --- producers ------------------------------------------------------------------------------------

    def sends(self, payload: bytes):
        """A producer takes this."""
        with self._lock:
            self._sent.add(payload)
            self.counts.sent += 1

    def acknowledges(self, payload: bytes, message_id: str):
        """A producer has the receipt."""
        with self._lock:
            if message_id in self._acknowledged:
                self.broken.append(f"{message_id} is the receipt of two messages")
            self._acknowledged[message_id] = payload
            self.counts.acknowledged += 1

    # --- workers --------------------------------------------------------------------------------------

    def begins(self, message_id: str, payload: bytes, offset: int):
        """A handler is called. Nothing that a handler has returned from may come back."""
        with self._lock:
            life = self._returned.get(message_id)
            if life is not None:
                self.broken.append(
                    f"life {self.life}: {message_id} came back, and its handler had returned in life {life}"
                )
            if payload not in self._sent:
                self.broken.append(f"life {self.life}: {message_id} has a payload that nobody sent")
            if self._handed.setdefault(message_id, (payload, offset)) != (payload, offset):
                self.broken.append(
                    f"life {self.life}: {message_id} has another payload or offset than before"
                )
            self.counts.handed_again += message_id in self._in_work
            self.counts.handed_while_in_work += self._in_work[message_id] > 0
            self._in_work[message_id] += 1

    def returns(self, message_id: str):
        """The handler returns: the message is acked."""
        with self._lock:
            self._in_work[message_id] -= 1
            self._returned[message_id] = self.life
            self.counts.handled += 1

    def fails(self, message_id: str):
        """The handler raises, or is cancelled: the message will come back."""
        with self._lock:
            self._in_work[message_id] -= 1

    # --- the end --------------------------------------------------------------------------------------

    def check(self):
        """Raise LawBrokenError if something has been broken so far."""
        if self.broken:
            more = len(self.broken) - 10
            raise LawBrokenError("\n".join([*self.broken[:10], *([f"and {more} more"] if more > 0 else [])]))

    def finish(self):
        """The queue is empty, and all clients have ended."""
        for message_id, payload in self._acknowledged.items():
            if message_id not in self._returned:
                self.broken.append(f"{message_id} was acknowledged and is lost: {payload!r}")
            elif self._handed[message_id][0] != payload:
                self.broken.append(f"{message_id} is not what its producer was told")
        self._check_order()
        self.counts.duplicates = len(self._handed) - len({payload for payload, _ in self._handed.values()})
        self.check()

    def _check_order(self):
        """What one producer was acknowledged stands in the queue in the order in which it was sent."""
        last: dict[bytes, tuple[int, int]] = {}
        for message_id, payload in self._acknowledged.items():
            producer, _, number = payload.rpartition(b" ")
            place = (int(number), self._handed[message_id][1]) if message_id in self._handed else None
            before = last.get(producer)
            if place is None:
                continue
            if before is not None and (place[0] > before[0]) is not (place[1] > before[1]):
                self.broken.append(f"{payload!r} at {place[1]} is out of order: {before} before it")
            last[producer] = place
