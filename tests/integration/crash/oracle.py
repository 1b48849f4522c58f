"""What the clients of a broker may rely on, kept beside the clients and judged as answers come in.

It knows what was sent, what was answered, and on which life of the server; nothing of how the broker works. A crash makes
nothing uncertain but calls that had no answer yet.
"""

from dataclasses import dataclass, field

# The broker's clock and ours are read from the same machine, but not from the same counter.
CLOCK_SLACK_MS = 20


class LawBrokenError(AssertionError):
    """The broker did what no client must ever see."""


@dataclass(slots=True, eq=False)
class Lease:
    """A delivery of one message, as its consumer saw it."""

    message: "Sent"
    id: str
    epoch: int
    attempts: int
    deadline_ms: int
    life: int
    # It belongs to a stream, which gives it back when the server stops in order.
    of_stream: bool
    # What was sent to settle it, and of that what has no answer.
    settlements: int = 0
    unanswered: int = 0


@dataclass(slots=True, eq=False)
class Sent:
    """One message that a producer has sent."""

    tag: str
    queue: str
    key: str
    weight: int
    payload: bytes
    headers: dict[str, str]
    id: str = ""
    offset: int = -1
    answered: bool = False
    # Acks without an answer: the message may be finished.
    acks_unanswered: int = 0
    # The life of the server that answered the ack, and the epoch that it was for; 0 where it named none.
    acked: tuple[int, int] | None = None
    # Calls that settle whatever lease there is, and may have met another one than their sender meant.
    by_id_alone: int = 0
    # The newest lease that was seen.
    lease: Lease | None = None
    epochs: set[int] = field(default_factory=set)
    # (epoch, attempts) of every delivery, and of every answered nack with the attempt that it made.
    attempts: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Counts:
    """What happened, for the report."""

    enqueued: int = 0
    unanswered: int = 0
    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    nacked: int = 0
    released: int = 0
    extended: int = 0
    refused: int = 0


class Oracle:
    """Judges every answer. `life` counts the starts of the server."""

    def __init__(self):
        self.life = 0
        # Whether the server of this life is still there, as far as we have not killed it.
        self.alive = False
        # The lives in which the server was asked to stop.
        self.stopped: set[int] = set()
        self.counts = Counts()
        self.messages: dict[str, Sent] = {}
        self._batches: list[list[Sent]] = []
        self._by_offset: dict[tuple[str, int], str] = {}
        self._by_id: dict[str, str] = {}
        self._calls: dict[int, object] = {}
        # Messages that must still be delivered, by tag.
        self.open: dict[str, Sent] = {}

    def _look_at(self, message: Sent):
        if message.answered and message.acked is None and not message.acks_unanswered:
            self.open[message.tag] = message
        else:
            self.open.pop(message.tag, None)

    # --- producing ------------------------------------------------------------------------------------

    def sent(self, batch: list[Sent]):
        """Note a batch before it goes out; all of it or nothing must be there in the end."""
        for message in batch:
            assert message.tag not in self.messages
            self.messages[message.tag] = message
        self._batches.append(batch)
        self.counts.unanswered += len(batch)

    def enqueued(self, message: Sent, message_id: str, offset: int):
        """Take the answer to an enqueue: from now on the message must not be lost."""
        message.answered = True
        self._look_at(message)
        self.counts.enqueued += 1
        self.counts.unanswered -= 1
        self._place(message, message_id, offset)

    def _place(self, message: Sent, message_id: str, offset: int):
        """An id and an offset belong to one message, and a message has one of each."""
        if message.id:
            self._demand(
                (message.id, message.offset) == (message_id, offset),
                f"{message.tag} was {message.id} at {message.offset}, and now is {message_id} at {offset}",
            )
            return
        message.id, message.offset = message_id, offset
        for table, key in ((self._by_offset, (message.queue, offset)), (self._by_id, message_id)):
            other = table.setdefault(key, message.tag)
            self._demand(other == message.tag, f"{message.tag} and {other} are both {key}")

    # --- consuming ------------------------------------------------------------------------------------

    def delivered(self, call, queue, **fields) -> Lease:
        """Take one delivered message; `call` is a number for each stream, and anything else for a unary call."""
        tag = fields["payload"][:16].decode("ascii", "replace")
        message = self.messages.get(tag)
        self._demand(message is not None, f"{tag!r} was delivered and never sent")
        for name in ("key", "weight", "payload", "headers"):
            sent, received = getattr(message, name), fields[name]
            self._demand(sent == received, f"{name} of {tag} was {sent!r:.80} and came as {received!r:.80}")
        self._demand(message.queue == queue, f"{tag} went to {message.queue} and came from {queue}")
        self._place(message, fields["id"], fields["offset"])
        epoch, attempts = fields["epoch"], fields["attempts"]
        self._check_epoch(message, call, epoch)
        self._check_not_acked(message, epoch)
        self._check_attempts(message, epoch, attempts)
        self._check_alone(message, epoch, fields["leased_at_ms"])
        self.counts.delivered += 1
        self.counts.redelivered += message.lease is not None
        lease = Lease(
            message, message.id, epoch, attempts, fields["deadline_ms"], self.life, isinstance(call, int)
        )
        if message.lease is None or message.lease.epoch < epoch:
            message.lease = lease
        message.attempts.append((epoch, attempts))
        return lease

    def _check_epoch(self, message, call, epoch):
        """An epoch belongs to one delivery for ever, over all lives of the server."""
        here = (self.life, call)
        self._demand(
            self._calls.setdefault(epoch, here) == here,
            f"epoch {epoch:#x} of {message.tag} was given to {self._calls[epoch]} and again to {here}",
        )
        self._demand(epoch not in message.epochs, f"{message.tag} was delivered twice under epoch {epoch:#x}")
        message.epochs.add(epoch)

    def _check_not_acked(self, message, epoch):
        if message.acked is not None:
            life, acked_epoch = message.acked
            again = self.life > life or (acked_epoch and epoch > acked_epoch)
            self._demand(
                not again, f"{message.tag} was acked in life {life} and delivered again in life {self.life}"
            )

    def _check_attempts(self, message, epoch, attempts):
        for known_epoch, known in message.attempts:
            right = attempts >= known if known_epoch < epoch else attempts <= known
            self._demand(
                right,
                f"{message.tag} had {known} attempts at {known_epoch:#x} and has {attempts} at {epoch:#x}",
            )

    def _check_alone(self, message, epoch, leased_at_ms):
        """A lease that nobody ended lasts until its deadline, also over a crash."""
        lease = message.lease
        if lease is None or lease.settlements or lease.epoch > epoch or message.by_id_alone:
            return
        if lease.of_stream and lease.life in self.stopped:
            return
        self._demand(
            leased_at_ms >= lease.deadline_ms - 1,
            f"{message.tag} is leased until {lease.deadline_ms} ({lease.epoch:#x}, life {lease.life}), "
            f"and was leased at {leased_at_ms} ({epoch:#x}, life {self.life})",
        )

    # --- settling -------------------------------------------------------------------------------------

    def settling(self, lease: Lease, action: str, *, by_epoch: bool = True):
        """Note that something goes out to settle a lease: without an answer both outcomes are right."""
        message = lease.message
        lease.unanswered += 1
        lease.settlements += action != "extend"
        if not by_epoch:
            message.by_id_alone += 1
        if action == "ack":
            message.acks_unanswered += 1
            self._look_at(message)

    def settled(self, lease: Lease, action: str, *, by_epoch: bool = True, at_ms: int = 0, until_ms: int = 0):
        """Take the answer that it is done, at `at_ms`; an extension reaches at least to `until_ms`."""
        message = lease.message
        lease.unanswered -= 1
        sure = by_epoch or at_ms < lease.deadline_ms - CLOCK_SLACK_MS
        if not by_epoch and sure:
            message.by_id_alone -= 1
        if action == "ack":
            message.acks_unanswered -= 1
            message.acked = (self.life, lease.epoch if sure else 0)
            self._look_at(message)
            self.counts.acked += 1
        elif action == "nack":
            if sure:
                message.attempts.append((lease.epoch, lease.attempts + 1))
            self.counts.nacked += 1
        elif action == "release":
            self.counts.released += 1
        else:
            lease.deadline_ms = max(lease.deadline_ms, until_ms)
            self.counts.extended += 1

    def refused(self, lease: Lease, action: str, *, at_ms: int):
        """Take the answer that the lease had ended before: if nothing sent before can have ended it, its deadline did."""
        message = lease.message
        lease.unanswered -= 1
        self._demand(
            at_ms >= lease.deadline_ms - CLOCK_SLACK_MS or lease.unanswered or message.by_id_alone,
            f"{action} of {message.tag} was refused {lease.deadline_ms - at_ms} ms before its deadline "
            f"({lease.epoch:#x}, leased in life {lease.life}, answered in life {self.life})",
        )
        self.counts.refused += 1
        if action == "ack":
            message.acks_unanswered -= 1
            self._look_at(message)

    # --- the end --------------------------------------------------------------------------------------

    def drained(self):
        """Judge when nothing is left in the broker."""
        for message in self.open.values():
            raise LawBrokenError(
                f"{message.tag} ({message.id} of {message.queue}) was acknowledged, not acked, and is lost"
            )
        for batch in self._batches:
            seen = sum(1 for message in batch if message.id)
            self._demand(
                seen in {0, len(batch)},
                f"{seen} of the {len(batch)} messages of the batch {batch[0].tag} exist",
            )

    def _demand(self, right, what):
        if not right:
            raise LawBrokenError(what)
