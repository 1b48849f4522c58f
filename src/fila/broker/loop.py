"""The host of the core: takes commands, steps, commits, and lets out what is durable.

It runs in the asyncio thread; only the sync runs in another, one at a time. While a sync runs, commands collect; when it
ends, they are one step and one batch, and while that is synced the results of the one before go out. So the window
under load is the length of a sync, and without load there is none. A window also closes at a number of bytes: then its
step is written while the sync before it still runs, and waits for the next sync together with what follows.

After a failed write or sync memory may be ahead of the disk: everybody who waits is told that the outcome is
unknown, the state is dropped, and the store is opened again until it works.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

from fila import limits
from fila.broker.bodies import Bodies
from fila.broker.clock import Clock
from fila.broker.commit import Committer
from fila.broker.damage import Damage
from fila.broker.recovery import Recovered, recover
from fila.broker.reports import Reports
from fila.broker.sinks import Sink
from fila.broker.space import Space, seen_free_bytes
from fila.core.commands import Attach, Command, CreateQueue, Detach, Enqueue, Rest
from fila.core.outcome import Delivery, Enqueued, Outcome
from fila.core.scheduler import Scheduler
from fila.errors import FilaError, LimitError, StoreError, UnavailableError
from fila.storage.store import Store
from fila.telemetry.metrics import NoTelemetry, Telemetry

logger = logging.getLogger(__name__)

Reply = Callable[[Any], None]
# What a broker that stops no longer takes: everything that begins something.
BEGINNINGS = (Enqueue, Attach, CreateQueue)


class Pending(NamedTuple):
    """A step that is written, what is to be called for telemetry when it is durable, and how much of the store it dropped."""

    outcome: Outcome
    report: Callable[[], None] | None
    drops: int


class Broker:
    """One shard: one scheduler with one store."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        clock: Clock | None = None,
        telemetry: Telemetry | None = None,
        disk_free_bytes_min: int = limits.DISK_FREE_BYTES_MIN,
    ) -> None:
        self._open_store = open_store
        self._clock = clock or Clock()
        self._reports = Reports(telemetry or NoTelemetry(), self._clock)
        self._disk_free_bytes_min = disk_free_bytes_min
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="fila-sync")
        self._space = Space(disk_free_bytes_min, self._fail)
        self._damage = Damage(self.expect, self.submit)
        self._requests = 0
        self._waiting: dict[int, Reply] = {}
        self._bodies_waiting: dict[int, bytes] = {}
        self._consumers = 0
        self._sinks: dict[int, Sink] = {}
        # Consumers whose credit the core refills.
        self._refilled: set[int] = set()
        self._deserted = asyncio.Event()
        self._deserted.set()
        self._commands: deque[Command] = deque()
        self._commands_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._idle.set()
        # Steps that are being synced, and steps that are written since and wait for the next sync, in order.
        self._syncing: list[Pending] = []
        self._written: list[Pending] = []
        self._written_bytes = 0
        self._turn_handle: asyncio.Handle | None = None
        self._wake_handle: asyncio.TimerHandle | None = None
        self._draining = False
        self._failure: FilaError | None = None
        self._opened_at = 0.0
        self.recovered: Recovered
        self._store: Store
        self._scheduler: Scheduler
        self._committer: Committer
        self._bodies: Bodies

    # --- life -------------------------------------------------------------------------------------------

    def open(self) -> Recovered:
        """Open the store and take back what it holds. Raises StoreError."""
        self._loop = asyncio.get_running_loop()
        store = self._open_store()
        try:
            self._scheduler, self.recovered = recover(store, self._clock.now_ns())
            free_bytes = store.free_bytes()
        except BaseException:
            store.close()
            raise
        self._store = store
        self._clock.not_before(self.recovered.now_ns)
        self._bodies = Bodies(store)
        self._committer = Committer(store, self.recovered.next_queue, self._bodies.keep)
        self._failure = None
        self._opened_at = self._loop.time()
        self._space.open(store, free_bytes)
        self._wake_soon()
        return self.recovered

    async def stop(self) -> None:
        """Take nothing new, let consumers give back what they hold, finish the commit and close the store."""
        self._draining = True
        stopping = UnavailableError("the broker is stopping: connect again when it is back")
        for sink in list(self._sinks.values()):
            _tell(sink.close, stopping)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._deserted.wait(), limits.DRAIN_TIMEOUT_MS / 1_000)
        for consumer in list(self._sinks):
            self._sinks.pop(consumer)
            if self._failure is None:
                self.submit(Detach(0, consumer, keep_begun=True))
        # Between the event and us somebody may have submitted again.
        while not self._idle.is_set():
            await self._idle.wait()
        if self._failure is None:
            self.submit(Rest(self.expect(lambda _: None)))
            while not self._idle.is_set():
                await self._idle.wait()
        if self._wake_handle is not None:
            self._wake_handle.cancel()
        self._space.close()
        failed, self._failure = self._failure, stopping
        self._answer_all(stopping)
        await self._loop.run_in_executor(None, self._worker.shutdown)
        if failed is None:
            self._store.close()
        await self._space.stop()

    # --- what edges call --------------------------------------------------------------------------------

    def expect(self, reply: Reply) -> int:
        """Return a request number; the reply to the command that carries it is given to `reply`, on the loop."""
        self._requests += 1
        self._waiting[self._requests] = reply
        return self._requests

    def submit(self, command: Command, bodies: bytes = b"") -> None:
        """Take a command for the next step; `bodies` belong to an Enqueue. Raises LimitError or UnavailableError."""
        try:
            refusal = self._refusal(command)
        except BaseException:
            self._waiting.pop(getattr(command, "request", 0), None)
            raise
        if refusal is not None:
            self._waiting.pop(getattr(command, "request", 0), None)
            raise refusal
        if type(command) is Enqueue:
            self._bodies_waiting[command.request] = bodies
            self._commands_bytes += _held_bytes(command, bodies)
            if self._commands_bytes > limits.PENDING_BYTES_MAX // 2:
                self._room.clear()
        elif type(command) is Attach and command.refill:
            self._refilled.add(command.consumer)
        self._commands.append(command)
        self._idle.clear()
        if self._turn_handle is None and (not self._syncing or self._is_window_full()):
            self._turn_handle = self._loop.call_soon(self._turn)

    async def ask(self, build: Callable[[int], Command], bodies: bytes = b"") -> Any:
        """Submit a command and return its reply; an error reply is raised."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def answer(value: object) -> None:
            if not future.done():
                future.set_result(value)

        self.submit(build(self.expect(answer)), bodies)
        reply = await future
        if isinstance(reply, FilaError):
            raise reply
        return reply

    def open_consumer(self, sink: Sink) -> int:
        """Return a consumer number; what is delivered to it goes to the sink."""
        self._consumers += 1
        self._sinks[self._consumers] = sink
        self._deserted.clear()
        return self._consumers

    def close_consumer(self, consumer: int) -> None:
        """Forget a consumer's sink, when its Detach has been submitted."""
        self._sinks.pop(consumer, None)
        self._refilled.discard(consumer)
        if not self._sinks:
            self._deserted.set()

    async def room(self) -> None:
        """Wait while more is pending than the broker should take on."""
        if not self._room.is_set():
            await self._room.wait()

    def _refusal(self, command: Command) -> FilaError | None:
        if self._failure is not None:
            # A new one each time: an error that is raised again and again collects the frames of all who raised it.
            return UnavailableError(self._failure.message, not_done=True)
        beginning = isinstance(command, BEGINNINGS)
        if self._draining and beginning:
            return UnavailableError("the broker is stopping: connect again when it is back", not_done=True)
        if not beginning:
            return None
        if (
            len(self._commands) >= limits.PENDING_COMMANDS_MAX
            or self._commands_bytes > limits.PENDING_BYTES_MAX
        ):
            return LimitError(
                "the broker has as much waiting for the disk as it may hold: try again in a moment"
            )
        if self._space.full and not isinstance(command, Attach):
            self._space.look()
            if self._space.full:
                return LimitError(
                    f"the disk of the broker has less than {self._disk_free_bytes_min // limits.MIB} MiB left: "
                    "make room; what is stored can be consumed meanwhile"
                )
        return None

    # --- the turn ---------------------------------------------------------------------------------------

    def _is_window_full(self) -> bool:
        """Say whether enough has collected to write it before the sync that runs has ended."""
        return (
            self._commands_bytes >= limits.COMMIT_WINDOW_BYTES
            and self._written_bytes < limits.COMMIT_BYTES_MAX
        )

    def _turn(self) -> None:
        """Step what has collected and write it; make it durable at once if no sync runs."""
        self._turn_handle = None
        if self._failure is None:
            self._step()
            if not self._syncing:
                self._let_out([])

    def _step(self) -> None:
        """Step what has collected, and write what was decided."""
        begin_ns = self._clock.now_ns()
        commands = self._take_commands()
        try:
            outcome = self._scheduler.step(begin_ns, commands)
            stepped_ns = self._clock.now_ns()
            written = self._committer.write(outcome, self._take_bodies(outcome))
        except Exception as error:  # noqa: BLE001 - whatever it was, memory and disk may differ now
            self._fail(error)
            return
        report = self._reports.stepped(outcome, len(commands), begin_ns, stepped_ns, written)
        self._written.append(Pending(outcome, report, written.drops))
        self._written_bytes += written.bytes

    def _take_commands(self) -> list[Command]:
        """Take what has collected, up to what one commit may hold."""
        commands = self._commands
        if self._commands_bytes <= limits.COMMIT_BYTES_MAX:
            self._commands = deque()
            self._commands_bytes = 0
            self._room.set()
            return list(commands)
        taken: list[Command] = []
        taken_bytes = 0
        while commands and taken_bytes < limits.COMMIT_BYTES_MAX:
            command = commands.popleft()
            taken.append(command)
            if type(command) is Enqueue:
                taken_bytes += _held_bytes(command, self._bodies_waiting[command.request])
        self._commands_bytes -= taken_bytes
        if self._commands_bytes <= limits.PENDING_BYTES_MAX // 2:
            self._room.set()
        return taken

    def _take_bodies(self, outcome: Outcome) -> dict[int, list[bytes]]:
        """Take the bodies of what a step decided on: by queue those that it appends, in order."""
        bodies: dict[int, list[bytes]] = {}
        waiting = self._bodies_waiting
        if waiting:
            for request, reply in outcome.replies:
                body = waiting.pop(request, None)
                if body is not None and type(reply) is Enqueued:
                    bodies.setdefault(reply.queue_number, []).append(body)
        return bodies

    def _sync(self) -> int | None:
        """Make what is written durable; in the worker thread. Return how much room the disk has, if that can be seen."""
        self._committer.sync()
        return seen_free_bytes(self._store)

    def _synced(self, done: "asyncio.Future[int | None]") -> None:
        durable, self._syncing = self._syncing, []
        error = done.exception()
        if error is None:
            self._space.note(done.result())
        else:
            durable = []
        if self._failure is not None:
            # A write failed while this sync ran: what the sync made durable is answered all the same.
            self._give_all(durable)
            self._end()
        elif error is not None:
            self._fail(error)
        else:
            if self._commands:
                self._step()
            self._let_out(durable)

    def _let_out(self, durable: list[Pending]) -> None:
        """Let out steps that are durable, in order; the next sync begins first, so that it runs meanwhile."""
        if self._failure is not None:
            self._give_all(durable)
            return
        if any(pending.outcome.must_sync for pending in self._written):
            self._syncing, self._written = self._written, []
            self._written_bytes = 0
            sync = self._loop.run_in_executor(self._worker, self._sync)
            sync.add_done_callback(self._synced)
        else:
            # Nothing of this needs a sync, and what was before it is durable.
            durable = durable + self._written
            self._written = []
            self._written_bytes = 0
        self._give_all(durable)
        if self._syncing:
            return
        if self._commands:
            if self._turn_handle is None:
                self._turn_handle = self._loop.call_soon(self._turn)
        else:
            self._wake_later()
            self._idle.set()

    def _give_all(self, durable: list[Pending]) -> None:
        for outcome, report, drops in durable:
            if report is not None:
                report()
            self._give(outcome)
            if drops:
                self._space.dropped(outcome.writes)

    def _give(self, outcome: Outcome) -> None:
        """Give replies, closings and deliveries, in this order. Whoever fails at taking his takes nobody else's away."""
        waiting = self._waiting
        for request, reply in outcome.replies:
            take = waiting.pop(request, None)
            if take is not None:
                _tell(take, reply)
        for consumer, error in outcome.closings:
            sink = self._sinks.get(consumer)
            self.close_consumer(consumer)
            if sink is not None:
                _tell(sink.close, error)
        for delivery in outcome.deliveries:
            sink = self._sinks.get(delivery.consumer)
            if sink is None:
                continue
            try:
                sink.deliver(delivery, self._bodies.slices(delivery))
            except StoreError:
                self._settle_unreadable(delivery)
            except Exception:
                logger.exception("a consumer of the queue %s failed, and is ended", delivery.queue_name)
                _tell(sink.close, UnavailableError("an error within the broker, which its log shows"))

    def _settle_unreadable(self, delivery: Delivery) -> None:
        unreadable = self._bodies.unreadable(delivery)
        # A broker that has failed takes no commands: then all consumers are ended, and the leases stay as they are.
        with suppress(UnavailableError):
            self._damage.settle(delivery, unreadable, refill=delivery.consumer in self._refilled)

    # --- time -------------------------------------------------------------------------------------------

    def _wake_later(self) -> None:
        """See to it that a step happens when something falls due."""
        if self._wake_handle is not None:
            self._wake_handle.cancel()
            self._wake_handle = None
        due_ns = self._scheduler.next_wake_ns()
        if due_ns is not None:
            delay_ns = max(0, due_ns - self._clock.now_ns())
            self._wake_handle = self._loop.call_later(delay_ns / limits.SECOND_NS, self._wake_soon)

    def _wake_soon(self) -> None:
        self._wake_handle = None
        self._idle.clear()
        if self._turn_handle is None and not self._syncing:
            self._turn_handle = self._loop.call_soon(self._turn)

    # --- trouble ----------------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        """Let nothing more in; end the rest when what is durable has gone out."""
        # A fault of ours, not of the disk, is shown with its place. Either way the disk has what was promised, and no more.
        logger.error(
            "the store failed, and is opened again: %s",
            error,
            exc_info=None if isinstance(error, StoreError) else error,
        )
        what = error if isinstance(error, FilaError) else "an error within the broker, which its log shows"
        self._failure = UnavailableError(f"the broker could not store it, and the outcome is unknown: {what}")
        self._space.close()
        if not self._syncing:
            self._loop.call_soon(self._end)

    def _end(self) -> None:
        """Tell everybody that the outcome is unknown, drop the state, and open the store again."""
        reason = self._failure
        assert reason is not None
        # At once, but not again and again. First of all here: whoever is told below may fail at it.
        interval = limits.REOPEN_INTERVAL_MS / 1_000
        self._loop.call_later(0 if self._loop.time() - self._opened_at > interval else interval, self._reopen)
        self._written = []
        self._written_bytes = 0
        self._commands.clear()
        self._commands_bytes = 0
        self._bodies_waiting.clear()
        self._room.set()
        if self._wake_handle is not None:
            self._wake_handle.cancel()
            self._wake_handle = None
        self._store.close()
        self._idle.set()
        sinks, self._sinks = self._sinks, {}
        self._deserted.set()
        self._refilled.clear()
        self._answer_all(reason)
        for sink in sinks.values():
            _tell(sink.close, reason)

    def _answer_all(self, reason: FilaError) -> None:
        """Tell all who wait for a reply that there will be none."""
        waiting, self._waiting = self._waiting, {}
        for reply in waiting.values():
            _tell(reply, UnavailableError(reason.message))

    def _reopen(self) -> None:
        if self._draining:
            return
        try:
            self.open()
        except Exception as error:
            self._failure = UnavailableError(f"the broker cannot use its store, and tries again: {error}")
            self._loop.call_later(limits.REOPEN_INTERVAL_MS / 1_000, self._reopen)
            if not isinstance(error, StoreError):
                raise
            logger.warning("the store cannot be opened yet: %s", error)
        else:
            logger.info("the store is open again: %d messages", self.recovered.messages)


def _held_bytes(command: Enqueue, bodies: bytes) -> int:
    """Return what a batch takes while it waits: empty bodies have columns and keys too."""
    return len(bodies) + limits.MESSAGE_MEMORY_BYTES * len(command.sizes) + sum(map(len, command.keys))


def _tell(take: Callable[[Any], None], value: object) -> None:
    """Give somebody what is his; a fault in taking it is shown, and his alone."""
    try:
        take(value)
    except Exception:
        logger.exception("an answer of the broker could not be taken")
