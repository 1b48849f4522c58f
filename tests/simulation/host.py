"""The broker's host without threads: step, write, sync, give, each at the harness's command, so that it can stop in between.

It keeps the order of `fila.broker.loop`: while a sync runs, commands collect, and a full window is stepped and written; when
the sync ends, the next one begins before the results of the one before go out.
"""

from collections.abc import Callable, Sequence
from random import Random

from fila import limits
from fila.broker.bodies import Bodies
from fila.broker.commit import Committer
from fila.broker.recovery import Recovered, recover
from fila.core.commands import Sent
from fila.core.outcome import Enqueued, Outcome, PutRow
from fila.errors import StoreError
from fila.sim.checker import Checker
from fila.sim.trace import Trace
from fila.sim.workload import Ask, Workload
from fila.storage.memory import MemoryStore

# How often a window is full before the sync has ended.
FULL_WINDOW = 0.2
# How often the consumers have read all that was given to them when the next commands arrive.
READS = 0.8


class CrashError(Exception):
    """The process ends here."""


class Host:
    """One opening of the store: a scheduler, and what is on its way to the disk and to the clients."""

    def __init__(
        self,
        store: MemoryStore,
        checker: Checker,
        workload: Workload,
        *,
        wall_ns: int,
        cache_bytes_max: int,
        random: Random,
        crash_point: Callable[[str], None],
        trace: Trace | None,
    ) -> None:
        self.store = store
        self.checker = checker
        self.workload = workload
        self.recovered: Recovered
        self.scheduler, self.recovered = recover(store, wall_ns)
        self.bodies = Bodies(store, cache_bytes_max)
        self.committer = Committer(store, self.recovered.next_queue, self.bodies.keep)
        # What is being synced, and whether that has happened; what was written since; what nobody has looked at yet.
        self.syncing: list[Outcome] = []
        self._synced = False
        self.written: list[Outcome] = []
        self.collected: list[Ask] = []
        # Deliveries that were given and that their consumers have not taken off the wire.
        self._unsent: list[Ask] = []
        self._random = random
        self._crash_point = crash_point
        self._trace = trace
        checker.opened(self.recovered.now_ns)

    def submit(self, asks: Sequence[Ask], now_ns: int) -> None:
        """Take commands: step now, or while a sync runs after it, or during it if the window is full."""
        if self._random.random() < READS:
            self.collected.extend(self._unsent)
            self._unsent.clear()
        self.collected.extend(asks)
        if not self.syncing:
            self.turn(now_ns)
        elif self._random.random() < FULL_WINDOW:
            self._step(now_ns)

    def turn(self, now_ns: int) -> None:
        """Step what has collected, write it, and make it durable if no sync runs."""
        self._step(now_ns)
        if not self.syncing:
            self._let_out([], now_ns)

    def finish_sync(self, now_ns: int) -> None:
        """The sync that is under way ends: let out what it made durable."""
        if not self.syncing:
            return
        if not self._synced:
            self.sync()
        durable, self.syncing = self.syncing, []
        self._note_durable(durable)
        self._crash_point("sync")
        if self.collected:
            self._step(now_ns)
        self._let_out(durable, now_ns)

    def finish_syncs(self, now_ns: int) -> None:
        """Let all syncs end, until nothing is under way."""
        while self.syncing:
            self.finish_sync(now_ns)

    def sync(self) -> None:
        """Make everything written durable."""
        self.committer.sync()
        self._synced = True

    def _note_durable(self, outcomes: Sequence[Outcome]) -> None:
        self.checker.durable(max([outcome.step for outcome in outcomes if outcome.writes], default=0))

    def _step(self, now_ns: int) -> None:
        asks, self.collected = self.collected, []
        outcome = self.scheduler.step(now_ns, [command for command, _ in asks])
        if self._trace is not None:
            self._trace.add(outcome)
        self.checker.stepped(asks, outcome)
        self.checker.sleeps_until(self.scheduler.next_wake_ns())
        self._crash_point("step")
        self._write(asks, outcome)
        self.written.append(outcome)
        self._crash_point("write")
        if any(type(write) is PutRow and fills_segment(write) for write in outcome.writes):
            self._crash_point("segment")

    def _let_out(self, durable: list[Outcome], now_ns: int) -> None:
        """Begin the next sync if anything written needs it, and give what is durable, in order."""
        if any(outcome.must_sync for outcome in self.written):
            self.syncing, self.written = self.written, []
            self._synced = False
            if self._random.random() < 0.5:
                # What a sync does, it does at some moment between its begin and its end.
                self.sync()
        else:
            durable, self.written = durable + self.written, []
        for outcome in durable:
            self.give(outcome)
        if self.collected and not self.syncing:
            self.turn(now_ns)

    def give(self, outcome: Outcome) -> None:
        """Give replies, closings and deliveries, in this order."""
        self.checker.answered(outcome.step)
        self._crash_point("reply")
        for consumer, _ in outcome.closings:
            self.workload.closed(consumer)
        for delivery in outcome.deliveries:
            self.checker.received(delivery, self._read(delivery))
            self.workload.delivered(delivery)
            self._unsent.append((Sent(delivery.consumer, delivery.epoch), b""))
            self._crash_point("delivery")

    def _read(self, delivery) -> bytes | None:
        try:
            return b"".join(self.bodies.slices(delivery))
        except StoreError:
            return None

    def _write(self, asks: Sequence[Ask], outcome: Outcome) -> None:
        replies = dict(outcome.replies)
        appended: dict[int, list[bytes]] = {}
        for command, body in asks:
            reply = replies.get(command.request) if body else None
            if type(reply) is Enqueued:
                appended.setdefault(reply.queue_number, []).append(body)
        self.committer.write(outcome, appended)


def fills_segment(row: PutRow) -> bool:
    """Whether an index row ends its segment: then the rows before it may have been joined to it."""
    return (row.first + len(row.sizes)) % limits.SEGMENT_MESSAGES == 0
