"""One delivery, as its consumer holds it: its columns, and what became of each message."""

from typing import Any, Protocol

from fila.client.messages import Delivered, Settle
from fila.errors import Code, RPCError
from fila.wire.ids import message_id
from fila.wire.v1.service_pb2 import Delivery

# What became of a place in a delivery.
WAITING, BEGUN, SETTLED, EXPIRED = range(4)


class Holder(Protocol):
    """Whoever can settle what a stream delivered."""

    def settle(self, message: Delivered, action: Settle, argument: str | int) -> Any:
        """Note it for the next frame; the result waits for the confirmation."""


class Held:
    """One delivery: its columns, and what became of each message."""

    __slots__ = (
        "_enqueued_at_ms",
        "_first_offset",
        "_offsets",
        "announced",
        "attempts",
        "bodies",
        "body_start",
        "came_at",
        "count",
        "deadline",
        "epoch",
        "expires_at",
        "generation",
        "handed",
        "holder",
        "kept_until",
        "key_index",
        "keys",
        "lease_expires_at_ms",
        "leased_at_ms",
        "left",
        "queue",
        "queue_number",
        "sizes",
        "started_at",
        "states",
        "timeout_seconds",
        "weights",
    )

    def __init__(
        self,
        delivery: Delivery,
        *,
        holder: Holder,
        queue: str,
        queue_number: int,
        generation: int,
        now: float,
    ) -> None:
        self.holder = holder
        # Which of the streams brought it.
        self.generation = generation
        self.queue = queue
        self.queue_number = queue_number
        self.epoch = delivery.epoch
        self.leased_at_ms = delivery.leased_at_ms
        self.lease_expires_at_ms = delivery.lease_expires_at_ms
        # The broker's clock is not ours: only how long the lease lasts can be compared. It was on its way for a
        # while, so this is late rather than early, and the broker has the last word.
        self.came_at = now
        # When the first of its messages was handed out.
        self.started_at = now
        self.timeout_seconds = (delivery.lease_expires_at_ms - delivery.leased_at_ms) / 1000
        self.deadline = now + self.timeout_seconds
        # Pushed back by extensions of messages in work.
        self.expires_at = self.deadline
        # Pushed back by extensions of all that is open: one message's own says nothing of the others.
        self.kept_until = self.deadline
        self.sizes: list[int] = delivery.sizes[:]
        self.count = len(self.sizes)
        self.bodies = delivery.bodies
        self.keys: list[str] = list(delivery.keys)
        self.key_index: list[int] = delivery.key_index[:]
        self.weights: list[int] = delivery.weights[:]
        self.attempts: list[int] = delivery.attempts[:]
        self._first_offset = delivery.first_offset
        self._offsets: list[int] = delivery.offsets[:]
        self._enqueued_at_ms: list[int] = delivery.enqueued_at_ms[:]
        self.states = bytearray(self.count)
        self.left = self.count
        # Places before it were handed out, and the first so many of those were reported as begun.
        self.handed = 0
        self.announced = 0
        self.body_start = 0

    def check(self) -> None:
        """Raise RPCError if the columns contradict each other."""
        count = self.count
        optional = (self.key_index, self.weights, self.attempts, self._offsets)
        if (
            not count
            or sum(self.sizes) != len(self.bodies)
            or any(column and len(column) != count for column in optional)
            or len(self._enqueued_at_ms) not in (1, count)
            or not self.keys
            or (self.key_index and max(self.key_index) >= len(self.keys))
        ):
            raise RPCError(f"the columns of delivery {self.epoch} contradict each other", Code.INTERNAL)

    def offset(self, position: int) -> int:
        """Return a message's place in the queue."""
        return self._offsets[position] if self._offsets else self._first_offset + position

    def enqueued_at_ms(self, position: int) -> int:
        """Return when the broker took a message."""
        times = self._enqueued_at_ms
        return times[position] if len(times) > 1 else times[0]

    def open_runs(self) -> list[tuple[int, int]]:
        """Return the places that are neither settled nor expired, as positions and counts."""
        runs: list[tuple[int, int]] = []
        for position, state in enumerate(self.states):
            if state not in (WAITING, BEGUN):
                continue
            if runs and sum(runs[-1]) == position:
                runs[-1] = (runs[-1][0], runs[-1][1] + 1)
            else:
                runs.append((position, 1))
        return runs

    def message_id(self, position: int) -> str:
        """Return a message's id."""
        return message_id(self.queue_number, self.offset(position), self.enqueued_at_ms(position))
