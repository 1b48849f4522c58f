"""The broker's host without threads: step, write, sync, give, each at the harness's command, so that it can stop in between.

It keeps the order of `fila.broker.loop`: one step at a time is being synced, what comes meanwhile is collected, and the next
step is written before the results of the one before go out.
"""

from collections.abc import Callable, Sequence

from fila.broker.bodies import Bodies
from fila.broker.commit import Committer
from fila.broker.recovery import Recovered, recover
from fila.core.outcome import Enqueued, Outcome
from fila.errors import StoreError
from fila.sim.checker import Checker
from fila.sim.trace import Trace
from fila.sim.workload import Ask, Workload
from fila.storage.memory import MemoryStore


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
        self.unreleased: Outcome | None = None
        self.collected: list[Ask] = []
        # The last step in each batch that was written and not synced.
        self.written_steps: list[int] = []
        self.synced_step = self.recovered.step
        self._crash_point = crash_point
        self._trace = trace
        checker.opened(self.recovered.now_ns)

    def submit(self, asks: Sequence[Ask], now_ns: int) -> None:
        """Take commands: step now, or after the step that is being synced."""
        self.collected.extend(asks)
        if self.unreleased is None:
            self.turn(now_ns)

    def turn(self, now_ns: int) -> None:
        """Step what has collected, and write it."""
        self.unreleased = outcome = self._step(now_ns)
        if not outcome.must_sync:
            self.release(now_ns)

    def _step(self, now_ns: int) -> Outcome:
        asks, self.collected = self.collected, []
        outcome = self.scheduler.step(now_ns, [command for command, _ in asks])
        if self._trace is not None:
            self._trace.add(outcome)
        self.checker.stepped(asks, outcome)
        self.checker.sleeps_until(self.scheduler.next_wake_ns())
        self._crash_point("step")
        self._write(asks, outcome)
        self._crash_point("write")
        return outcome

    def finish_sync(self, now_ns: int) -> None:
        """The sync that is under way ends: let out what it made durable."""
        if self.unreleased is None:
            return
        self.sync()
        self._crash_point("sync")
        self.release(now_ns)

    def sync(self) -> None:
        """Make everything written durable."""
        self.committer.sync()
        if self.written_steps:
            self.synced_step = self.written_steps[-1]
            self.written_steps.clear()
        self.checker.durable(self.synced_step)

    def release(self, now_ns: int) -> None:
        """Begin the next step, then give the results of the one before."""
        outcome, self.unreleased = self.unreleased, None
        assert outcome is not None
        if outcome.must_sync and self.collected:
            self._turn_behind(outcome, now_ns)
        else:
            self.give(outcome)
        if self.collected and self.unreleased is None:
            self.turn(now_ns)

    def _turn_behind(self, outcome: Outcome, now_ns: int) -> None:
        """Write the next step, then give this one, then what the next one allows."""
        following = self._step(now_ns)
        self.give(outcome)
        self.unreleased = following
        if not following.must_sync:
            self.release(now_ns)

    def give(self, outcome: Outcome) -> None:
        """Give replies, closings and deliveries, in this order."""
        self.checker.answered(outcome.step)
        self._crash_point("reply")
        for consumer, _ in outcome.closings:
            self.workload.closed(consumer)
        for delivery in outcome.deliveries:
            self.checker.received(delivery, self._read(delivery))
            self.workload.delivered(delivery)
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
        if outcome.writes:
            self.written_steps.append(outcome.step)
        self.committer.write(outcome, appended)
