"""One seed: a workload against the core, the commit path and a store in memory, with crashes at every seam.

`python -m tests.simulation --start S --seeds N` runs many; `run(seed)` runs one and raises a Violation if a law is broken.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from unittest.mock import patch

from tests.simulation.host import CrashError, Host

from fila import limits
from fila.core import timers
from fila.core.commands import Attach, DeleteConfig, SettleRuns
from fila.core.model import Action, Runs
from fila.core.outcome import Delivery
from fila.errors import StoreCorruptError, StoreError
from fila.sim.checker import Checker
from fila.sim.clock import VirtualClock
from fila.sim.trace import Trace
from fila.sim.violation import Violation
from fila.sim.workload import Advance, Submit, Wake, Workload
from fila.storage import keys, records
from fila.storage.memory import MemoryStore
from fila.storage.store import Family

COMMANDS_MIN = 1_000
CRASHES_MIN = 3
POINTS = ("idle", "step", "write", "sync", "reply", "delivery", "segment", "segment")
KINDS = ("sigkill", "power", "write", "sync", "full")
DRAIN_STEPS_MAX = 3_000
# Crashes wait for their point for so many commands, and longer for one that is rare.
PATIENCE = 50
SEGMENT_PATIENCE = 250


@dataclass(slots=True)
class Report:
    """What a run did."""

    seed: int
    commands: int = 0
    steps: int = 0
    delivered: int = 0
    crashes: dict[str, int] = field(default_factory=dict)
    digest: str = ""

    def counts(self) -> dict[str, int]:
        """Return what can be added up over many runs."""
        crashes = {f"crash_{kind}": count for kind, count in self.crashes.items()}
        return {"commands": self.commands, "steps": self.steps, "delivered": self.delivered, **crashes}


class Simulation:
    """The run of one seed."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        # Not the workload's: a change in how crashes are drawn leaves the commands as they were.
        self._random = random = Random(seed ^ 0x5EED)
        self.report = Report(seed)
        self.trace = Trace(keep=50) if trace else None
        self.clock = VirtualClock()
        self.workload = Workload(seed)
        self.checker = Checker()
        self._lazy_sync = random.choice((0.0, 0.3, 0.7))
        self._cache_bytes_max = random.choice((0, 50_000, limits.PAGE_CACHE_BYTES))
        crashes = random.randint(CRASHES_MIN, 6)
        self._crash_at = sorted(random.randrange(20, COMMANDS_MIN) for _ in range(crashes))
        # The point that the next crash waits for, and the kind it will be.
        self._armed: str | None = None
        self._armed_until = 0
        self._kind = ""
        self.host = self._open(MemoryStore())

    def run(self) -> Report:
        """Run to the end, drain, and judge what is left."""
        while self.workload.commands < COMMANDS_MIN or self._crash_at or self._armed:
            if self._crash_at and not self._armed and self.workload.commands >= self._crash_at[0]:
                del self._crash_at[0]
                self._arm()
            if self._armed and self.workload.commands > self._armed_until:
                # What it waits for does not happen: crash where we are.
                self._armed = "idle"
            try:
                self._next()
            except (CrashError, StoreError):
                self._restart()
        self._drain()
        self.report.commands = self.workload.commands
        self.report.steps = self.checker.steps
        self.report.delivered = self.checker.delivered_messages
        if self.trace is not None:
            self.report.digest = self.trace.digest()
        return self.report

    # --- events -----------------------------------------------------------------------------------------

    def _next(self) -> None:
        host, clock = self.host, self.clock
        event = self.workload.next_event()
        if self.trace is not None:
            self.trace.add(clock.now_ns, event)
        if isinstance(event, Submit):
            host.submit(event.commands, clock.now_ns)
        elif isinstance(event, Advance):
            clock.advance(event.span_ns)
        else:
            self._wake(event)
        if host.syncing and self._random.random() >= self._lazy_sync:
            host.finish_sync(clock.now_ns)
        self._crash_point("idle")

    def _wake(self, event: Wake) -> None:
        """Move to the time that the core asked for, and let it step there as the broker would."""
        host = self.host
        host.finish_syncs(self.clock.now_ns)
        wake_ns = host.scheduler.next_wake_ns()
        if wake_ns is not None:
            self.clock.advance_to(wake_ns - event.early_ns)
            host.submit((), self.clock.now_ns)

    # --- crashes ----------------------------------------------------------------------------------------

    def _arm(self) -> None:
        random, store = self._random, self.host.store
        self._armed_until = self.workload.commands + PATIENCE
        self._kind = random.choices(KINDS, (4, 4, 1, 1, 1))[0]
        if self._kind == "sync":
            store.fail_sync = "input/output error"
            self._armed = "never"
        elif self._kind in {"write", "full"}:
            store.fail_write = "input/output error" if self._kind == "write" else ""
            store.full = self._kind == "full"
            store.write_survives = random.random() < 0.5
            self._armed = "never"
        else:
            self._armed = random.choice(POINTS)
            if self._armed == "segment":
                self._armed_until += SEGMENT_PATIENCE

    def _crash_point(self, point: str) -> None:
        if self._armed == point:
            raise CrashError

    def _restart(self) -> None:
        """Begin again from what the store kept, as often as it takes."""
        self._armed = None
        host, random = self.host, self._random
        kind = self._kind
        self.report.crashes[kind] = self.report.crashes.get(kind, 0) + 1
        unsynced = host.store.unsynced
        keep = unsynced if kind == "sigkill" else random.randint(0, unsynced)
        store = host.store.crash(keep)
        if self.trace is not None:
            self.trace.add("crash", kind, keep)
        # Each commit stores its step with what it did, in one batch: the store says how far it came.
        state = store.get(Family.META, keys.STATE)
        self.checker.crashed(records.decode_state(keys.STATE, state).step if state else 0)
        self.workload.crashed()
        store.full = kind == "full"
        # The wall clock may have been set, also back.
        wall_ns = self.clock.now_ns + random.choice((0, 1, -5_000, 60_000)) * limits.MS_NS
        while True:
            try:
                self.host = self._open(store, wall_ns)
            except StoreCorruptError as error:
                raise Violation("recovery", str(error)) from error
            except StoreError:
                wall_ns += limits.REOPEN_INTERVAL_MS * limits.MS_NS
                store = store.crash(store.unsynced)
                continue
            return

    def _open(self, store: MemoryStore, wall_ns: int | None = None) -> Host:
        host = Host(
            store,
            self.checker,
            self.workload,
            wall_ns=self.clock.now_ns if wall_ns is None else wall_ns,
            cache_bytes_max=self._cache_bytes_max,
            random=self._random,
            crash_point=self._crash_point,
            trace=self.trace,
        )
        self.clock = VirtualClock(host.recovered.now_ns)
        return host

    # --- the end ----------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Consume and ack everything, restart once more, and see that nothing is left anywhere."""
        self._consume_all()
        self.checker.drained()
        self._kind = "sigkill"
        self._restart()
        self.report.crashes["sigkill"] -= 1
        self._consume_all()
        for family in (
            Family.MESSAGES,
            Family.INDEX,
            Family.PROGRESS,
            Family.LEASES,
            Family.ATTEMPTS,
            Family.CONFIG,
            Family.GATES,
        ):
            for name, _ in self.host.store.scan(family):
                raise Violation(
                    "the store is left clean", f"everything is acked, and {family} has the key {name.hex()}"
                )

    def _consume_all(self) -> None:
        host, clock = self.host, self.clock
        host.finish_syncs(clock.now_ns)
        self._received: list[Delivery] = []
        self.workload.delivered = self._received.append  # type: ignore[method-assign]
        consumer = 1_000_000_000
        # Whatever was limited is not any more: a rate may be slow, and a pause may last.
        asks = [
            (DeleteConfig(consumer + place, key), b"")
            for place, key in enumerate(sorted(self.checker.gates.config), 1_000_000)
        ]
        for name in self.checker.queues:
            consumer += 1
            asks.append((Attach(consumer, consumer, name, 1_000_000_000, 1 << 50), b""))
        host.submit(asks, clock.now_ns)
        for _ in range(DRAIN_STEPS_MAX):
            host.finish_syncs(clock.now_ns)
            received, self._received[:] = list(self._received), []
            if received:
                consumer += 1
                acks = [
                    (SettleRuns(place, each.consumer, Action.ACK, Runs((each.epoch,), (0,), (0,))), b"")
                    for place, each in enumerate(received, 1)
                ]
                host.submit(acks, clock.now_ns)
                continue
            wake_ns = host.scheduler.next_wake_ns()
            if wake_ns is None:
                return
            clock.advance_to(wake_ns)
            host.submit((), clock.now_ns)
        raise Violation(
            "rest", f"the broker does not come to rest in {DRAIN_STEPS_MAX} steps; it wakes at {wake_ns}"
        )


# Bounds that a day's traffic reaches and a thousand commands do not, so some seeds bring them down.
LIMITS = {
    "PAGE_BYTES": (limits.PAGE_BYTES, limits.PAGE_BYTES, 100),
    "SEGMENT_ROWS_MAX": (limits.SEGMENT_ROWS_MAX, 4),
    "DELIVERY_MESSAGES_MAX": (limits.DELIVERY_MESSAGES_MAX, 7),
    "DELIVERY_BYTES_MAX": (limits.DELIVERY_BYTES_MAX, 3_000),
}


@contextmanager
def limits_of(seed: int) -> Iterator[None]:
    """Let a seed have its own bounds."""
    random = Random(seed ^ 0x11417)
    with ExitStack() as stack:
        for name, values in LIMITS.items():
            stack.enter_context(patch.object(limits, name, random.choice(values)))
        stack.enter_context(patch.object(timers, "SWEEP_MIN", random.choice((timers.SWEEP_MIN, 4))))
        yield


def run(seed: int, *, trace: bool = False) -> Report:
    """Run one seed."""
    with limits_of(seed):
        return Simulation(seed, trace=trace).run()
