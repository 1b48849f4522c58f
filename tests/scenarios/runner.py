"""Runs a scenario: a text of commands and of what the broker must answer, that a reader needs no Python for.

A file begins with a title. Then come blocks: commands (and remarks that begin with `#`), a line `----`, what happened, an empty line. Each command is a step
of its own; one that begins with `+` joins the step of the command above it. Between steps everything is written and, where the
core asks for it, synced.

    queue NAME [discipline=drr|wfq|fifo] [quantum=N] [timeout=30s]
    enqueue QUEUE [key=K] [count=N] [weight=W] [cost=C] [size=BYTES] [gates=A,B] [slots=C]
    consumer QUEUE [name=C] [credit=N] [bytes=N] [refill] [once]
    credit C [messages=N] [bytes=N]
    ack|nack|release|extend QUEUE MESSAGE... [lease=last|first|any] [by=10s]
    begin C MESSAGE...
    stop C [unsent]            it wants nothing more; with `unsent`, nothing that it holds was sent to it
    detach C [lost] [keep] [keep-begun]
    config KEY VALUE | unset KEY | get KEY | configs [PREFIX]
    gates QUEUE                what the gates of a queue's messages say
    purge QUEUE | delete QUEUE | stats QUEUE | keys QUEUE | queues
    advance 10s [busy]         time passes; the broker wakes when it asked to, or with `busy` has no time to
    wake                       when that is
    restart [power] [clean]    the process is killed; with `power`, what was not synced is gone; with `clean` it had stopped

A message is called KEY/N, the N-th of its key in its queue. `KEY/N:failed=2` is delivered with two failed attempts.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fila import limits
from fila.broker.commit import Committer
from fila.broker.recovery import recover
from fila.core.commands import (
    Attach,
    Begin,
    Command,
    CreateQueue,
    Credit,
    DeleteConfig,
    DeleteQueue,
    Detach,
    Enqueue,
    GetConfig,
    GetStats,
    ListConfig,
    ListQueues,
    PurgeQueue,
    Rest,
    Sent,
    SetConfig,
    SettleMessages,
    Stop,
)
from fila.core.model import Action, Address, Discipline, GateKeys, QueueSpec, QueueStats, Runs
from fila.core.outcome import Delivery, Enqueued, Outcome
from fila.errors import FilaError, MessageNotFoundError
from fila.storage.memory import MemoryStore

START_NS = 1_700_000_000 * limits.SECOND_NS
UNITS_NS = {"ms": limits.MS_NS, "s": limits.SECOND_NS, "h": 3_600 * limits.SECOND_NS, "ns": 1}
RULE = "----"


@dataclass
class Block:
    """Some commands and what they should print."""

    commands: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)


def parse(text: str) -> tuple[list[str], list[Block]]:
    """Split a scenario into its title lines and its blocks."""
    title: list[str] = []
    blocks = [Block()]
    answering = False
    for line in text.splitlines():
        if line.startswith("#") and len(blocks) == 1 and not blocks[0].commands:
            title.append(line)
        elif line == RULE:
            answering = True
        elif not line.strip():
            if answering:
                blocks.append(Block())
                answering = False
        elif answering:
            blocks[-1].expected.append(line)
        else:
            blocks[-1].commands.append(line)
    return title, [block for block in blocks if block.commands]


def render(title: list[str], blocks: list[Block]) -> str:
    """Write a scenario back."""
    parts = ["\n".join([*block.commands, RULE, *block.expected]) for block in blocks]
    return "\n".join(title) + "\n" + "\n\n".join(parts) + "\n"


def span_ns(text: str) -> int:
    """Read a span such as 30s or 100ms."""
    digits = text.rstrip("mnsh")
    return int(digits) * UNITS_NS[text[len(digits) :]]


def span_text(span: int) -> str:
    """Write a span in the largest unit that fits."""
    for unit in ("s", "ms"):
        if span % UNITS_NS[unit] == 0:
            return f"{span // UNITS_NS[unit]}{unit}"
    return f"{span}ns"


class Words:
    """The words of a command: plain ones, and name=value."""

    def __init__(self, line: str) -> None:
        words = line.split()
        self.plain = [word for word in words if "=" not in word]
        self.named = dict(word.split("=", 1) for word in words if "=" in word)

    def number(self, name: str, default: int) -> int:
        """Return a number by name."""
        return int(self.named.get(name, default))

    def flag(self, name: str) -> bool:
        """Return whether a plain word is there."""
        return name in self.plain


def _gates(words: Words) -> list[GateKeys] | None:
    """Return the gates of an enqueued batch."""
    throttle, slots = (
        tuple(words.named[name].split(",")) if name in words.named else () for name in ("gates", "slots")
    )
    return [GateKeys(throttle, slots)] if throttle or slots else None


class Scenario:
    """A broker of its own, and the names that the text uses."""

    def __init__(self) -> None:
        self.now_ns = START_NS
        self.store = MemoryStore()
        # What the hosts of streams say next: that deliveries are on their way.
        self._sent: list[Command] = []
        self.consumers: dict[str, int] = {}
        self.addresses: dict[tuple[str, str], Address] = {}
        self.labels: dict[tuple[int, int], str] = {}
        self.counts: dict[tuple[str, str], int] = {}
        self.leases: dict[Address, list[tuple[int, int, int]]] = {}
        self._requests = 0
        self._asked: dict[int, Callable[[object], Iterator[str]]] = {}
        self._bodies: dict[int, int] = {}
        self._open(START_NS)

    def run(self, commands: list[str]) -> list[str]:
        """Run the commands of a block and return what happened, line by line."""
        lines: list[str] = []
        at = 0
        while at < len(commands):
            end = at + 1
            while end < len(commands) and commands[end].startswith("+"):
                end += 1
            if not commands[at].startswith("#"):
                lines += self._run(commands[at:end])
            at = end
        return lines

    def _run(self, group: list[str]) -> Iterator[str]:
        words = [Words(line.lstrip("+ ")) for line in group]
        special = {"advance": self._advance, "wake": self._wake, "restart": self._restart}
        first = words[0].plain[0]
        if first in special:
            yield from special[first](words[0])
            return
        yield from self._step([getattr(self, f"_{each.plain[0]}")(each) for each in words])

    # --- the broker -------------------------------------------------------------------------------------

    def _open(self, wall_ns: int) -> None:
        self.scheduler, recovered = recover(self.store, wall_ns)
        self.committer = Committer(self.store, recovered.next_queue)
        self.now_ns = recovered.now_ns

    def _step(self, commands: list[Command]) -> Iterator[str]:
        sent, self._sent = self._sent, []
        outcome = self.scheduler.step(self.now_ns, [*sent, *commands])
        self._sent = [Sent(delivery.consumer, delivery.epoch) for delivery in outcome.deliveries]
        bodies: dict[int, list[bytes]] = {}
        for request, reply in outcome.replies:
            if isinstance(reply, Enqueued):
                bodies.setdefault(reply.queue_number, []).append(bytes(self._bodies[request]))
        self.committer.write(outcome, bodies)
        if outcome.must_sync:
            self.committer.sync()
        yield from self._tell(outcome)

    def _tell(self, outcome: Outcome) -> Iterator[str]:
        for request, reply in outcome.replies:
            asked = self._asked.pop(request, None)
            if isinstance(reply, FilaError):
                yield f"error {type(reply).__name__}: {reply}"
            elif asked is not None:
                yield from asked(reply)
        for consumer, error in outcome.closings:
            yield f"close {self._name_of(consumer)}: {type(error).__name__}"
        for delivery in outcome.deliveries:
            yield self._deliver(delivery)

    def _deliver(self, delivery: Delivery) -> str:
        labels = []
        for place, offset in enumerate(delivery.offsets):
            address = Address(delivery.queue, offset, delivery.times_ms[place])
            self.leases.setdefault(address, []).append((delivery.epoch, place, delivery.consumer))
            failed = delivery.attempts[place] if delivery.attempts is not None else 0
            label = self.labels[delivery.queue, offset]
            labels.append(f"{label}:failed={failed}" if failed else label)
        name = self._name_of(delivery.consumer)
        to = f" to {name}:" if len(self.consumers) > 1 else ""
        return f"deliver{to} {' '.join(labels)}"

    def _name_of(self, consumer: int) -> str:
        return next(name for name, number in self.consumers.items() if number == consumer)

    def _ask(self, tell: Callable[[object], Iterator[str]] | None = None) -> int:
        self._requests += 1
        if tell is not None:
            self._asked[self._requests] = tell
        return self._requests

    # --- time -------------------------------------------------------------------------------------------

    def _advance(self, words: Words) -> Iterator[str]:
        begin_ns = self.now_ns
        end_ns = begin_ns + span_ns(words.plain[1])
        while not words.flag("busy"):
            wake_ns = self.scheduler.next_wake_ns()
            if wake_ns is None or wake_ns > end_ns:
                break
            self.now_ns = max(self.now_ns, wake_ns)
            for line in self._step([]):
                yield f"after {span_text(self.now_ns - begin_ns)}: {line}"
        self.now_ns = end_ns

    def _wake(self, _words: Words) -> Iterator[str]:
        wake_ns = self.scheduler.next_wake_ns()
        yield "wake never" if wake_ns is None else f"wake in {span_text(max(0, wake_ns - self.now_ns))}"

    def _restart(self, words: Words) -> Iterator[str]:
        if words.flag("clean"):
            yield from self._step([Rest(self._ask())])
        self.store = self.store.crash() if words.flag("power") else self.store.reopen()
        self.consumers.clear()
        self._open(self.now_ns)
        yield from self._step([])

    # --- commands ---------------------------------------------------------------------------------------

    def _queue(self, words: Words) -> Command:
        spec = QueueSpec(
            words.plain[1],
            Discipline(words.named.get("discipline", "drr")),
            words.number("quantum", limits.QUANTUM_DEFAULT),
            span_ns(words.named.get("timeout", "30s")) // limits.MS_NS,
        )
        return CreateQueue(self._ask(), spec)

    def _enqueue(self, words: Words) -> Command:
        queue, count = words.plain[1], words.number("count", 1)
        key = words.named.get("key", limits.FAIRNESS_KEY_DEFAULT)

        def tell(reply: object) -> Iterator[str]:
            assert isinstance(reply, Enqueued)
            for offset in range(reply.first_offset, reply.first_offset + reply.count):
                number = self.counts[queue, key] = self.counts.get((queue, key), 0) + 1
                self.labels[reply.queue_number, offset] = f"{key}/{number}"
                self.addresses[queue, f"{key}/{number}"] = Address(
                    reply.queue_number, offset, reply.enqueued_at_ms
                )
            yield from ()

        request = self._ask(tell)
        size = words.number("size", 10)
        self._bodies[request] = size * count
        weight, cost = words.number("weight", 1), words.number("cost", 1)
        return Enqueue(
            request,
            queue,
            [size] * count,
            [key],
            None,
            None if weight == 1 else [weight] * count,
            None if cost == 1 else [cost] * count,
            _gates(words),
        )

    def _config(self, words: Words) -> Command:
        return SetConfig(self._ask(), words.plain[1], words.plain[2] if len(words.plain) > 2 else "")

    def _unset(self, words: Words) -> Command:
        return DeleteConfig(self._ask(), words.plain[1])

    def _get(self, words: Words) -> Command:
        return GetConfig(self._ask(lambda reply: iter([f"value {reply}"])), words.plain[1])

    def _configs(self, words: Words) -> Command:
        def tell(reply: object) -> Iterator[str]:
            assert isinstance(reply, tuple)
            yield from (f"config {key} {value}" for key, value in reply)

        return ListConfig(self._ask(tell), words.plain[1] if len(words.plain) > 1 else "")

    def _gates(self, words: Words) -> Command:
        def tell(reply: object) -> Iterator[str]:
            assert isinstance(reply, QueueStats)
            for gate in reply.gates:
                line = f"gate {gate.kind} {gate.name} waiting {gate.waiting}"
                if gate.kind == "throttle":
                    line += f" tokens {gate.tokens:g} rate {gate.rate:g} burst {gate.burst:g}"
                elif gate.kind == "concurrency":
                    line += f" limit {gate.limit} in flight {gate.in_flight}"
                yield line

        return GetStats(self._ask(tell), words.plain[1])

    def _consumer(self, words: Words) -> Command:
        name = words.named.get("name", f"c{len(self.consumers) + 1}")
        self.consumers[name] = number = self._ask()
        return Attach(
            self._ask(),
            number,
            words.plain[1],
            words.number("credit", 1_000),
            words.number("bytes", limits.CREDIT_BYTES_MAX),
            refill=words.flag("refill"),
            once=words.flag("once"),
        )

    def _credit(self, words: Words) -> Command:
        return Credit(self.consumers[words.plain[1]], words.number("messages", 0), words.number("bytes", 0))

    def _ack(self, words: Words) -> Command:
        return self._settle(words, Action.ACK)

    def _nack(self, words: Words) -> Command:
        return self._settle(words, Action.NACK)

    def _release(self, words: Words) -> Command:
        return self._settle(words, Action.RELEASE)

    def _extend(self, words: Words) -> Command:
        return self._settle(words, Action.EXTEND)

    def _settle(self, words: Words, action: Action) -> Command:
        queue, labels = words.plain[1], words.plain[2:]
        addresses = [self.addresses[queue, label] for label in labels]
        which = {"first": 0, "last": -1}
        lease = words.named.get("lease", "last")
        epochs = [
            0 if lease == "any" or address not in self.leases else self.leases[address][which[lease]][0]
            for address in addresses
        ]

        def tell(reply: object) -> Iterator[str]:
            assert isinstance(reply, tuple)
            # In the order of the text, each kind on a line of its own.
            told: dict[str, list[str]] = {}
            for label, error in zip(labels, reply, strict=True):
                if error is not None:
                    assert isinstance(error, MessageNotFoundError)
                    told.setdefault("finished" if error.finished else "refused", []).append(label)
            yield from (f"{kind} {' '.join(named)}" for kind, named in told.items())

        timeout_ms = span_ns(words.named.get("by", "0s")) // limits.MS_NS
        error = words.named.get("error", "")
        return SettleMessages(self._ask(tell), queue, action, addresses, epochs, error, timeout_ms)

    def _begin(self, words: Words) -> Command:
        consumer = self.consumers[words.plain[1]]
        places = [
            (epoch, place)
            for label in words.plain[2:]
            for (_, name), address in self.addresses.items()
            if name == label
            for epoch, place, holder in self.leases.get(address, [])
            if holder == consumer
        ]
        epochs, positions = tuple(epoch for epoch, _ in places), tuple(place for _, place in places)
        return Begin(consumer, Runs(epochs, positions, (1,) * len(places)))

    def _detach(self, words: Words) -> Command:
        consumer = self.consumers.pop(words.plain[1])
        return Detach(
            self._ask(),
            consumer,
            lost=words.flag("lost"),
            keep=words.flag("keep"),
            keep_begun=words.flag("keep-begun"),
        )

    def _stop(self, words: Words) -> Command:
        return Stop(self.consumers[words.plain[1]], 0 if words.flag("unsent") else 1 << 63)

    def _purge(self, words: Words) -> Command:
        return PurgeQueue(self._ask(lambda reply: iter([f"purged {reply}"])), words.plain[1])

    def _delete(self, words: Words) -> Command:
        return DeleteQueue(self._ask(), words.plain[1])

    def _stats(self, words: Words) -> Command:
        def tell(reply: object) -> Iterator[str]:
            assert isinstance(reply, QueueStats)
            yield (
                f"depth {reply.depth} delayed {reply.delayed} leased {reply.in_flight}"
                f" consumers {reply.consumers} next offset {reply.next_offset}"
            )

        return GetStats(self._ask(tell), words.plain[1])

    def _keys(self, words: Words) -> Command:
        def tell(reply: object) -> Iterator[str]:
            assert isinstance(reply, QueueStats)
            for key in reply.keys:
                yield f"key {key.key} waiting {key.pending} deficit {key.deficit} weight {key.weight}"

        return GetStats(self._ask(tell), words.plain[1])

    def _queues(self, _words: Words) -> Command:
        def tell(reply: object) -> Iterator[str]:
            assert isinstance(reply, tuple)
            for stats in reply:
                yield f"queue {stats.number} {stats.spec.name} depth {stats.depth}"

        return ListQueues(self._ask(tell))
