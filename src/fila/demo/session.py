"""The demo as it happens: a broker on a free port in a directory of its own, two queues, and nothing left behind."""

import asyncio
import logging
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fila import assembly, limits
from fila.client.aio import AsyncClient
from fila.config import ServerSettings, Settings, StorageSettings
from fila.demo.plan import FAIR, FIFO, NOISY, QUIET, QUIET_MESSAGES, RATE_PER_S, Discipline, Plan
from fila.demo.tally import Frame, Run, Tally
from fila.errors import Code, FilaError

FRAME_SECONDS = 0.1
# A worker that was held up may catch up by so much, not more: a burst would be no steady pace.
CATCH_UP_SECONDS = 0.2
PAYLOAD = b"some work"

Show = Callable[[Frame], None]


class DemoTimeoutError(FilaError):
    """The machine is too slow or too busy for the demo: try again, or a shorter one."""

    code = Code.ABORTED
    retryable = True


def play(plan: Plan, show: Show) -> Frame:
    """Run the demo, show each frame, and return the last one. Leaves neither process nor directory behind."""
    # What goes wrong is raised; a line of a log would break the frame.
    logging.getLogger("fila").addHandler(logging.NullHandler())
    with _directory() as directory:
        return asyncio.run(_play(plan, directory, show))


@contextmanager
def _directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="fila-demo-"))
    try:
        yield path
    finally:
        # Somebody impatient presses Ctrl-C twice.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        shutil.rmtree(path, ignore_errors=True)
        signal.signal(signal.SIGINT, before)


async def _play(plan: Plan, directory: Path, show: Show) -> Frame:
    settings = Settings(
        server=ServerSettings(listen_addr="127.0.0.1:0"), storage=StorageSettings(data_dir=directory / "data")
    )
    try:
        async with (
            asyncio.timeout(limits.DEMO_TIMEOUT_SECONDS),
            assembly.running(settings) as broker,
            AsyncClient(broker.address) as client,
        ):
            return await Scene(client, plan).run(show)
    except TimeoutError:
        raise DemoTimeoutError(
            f"the demo was not done after {limits.DEMO_TIMEOUT_SECONDS:.0f} s: this machine is too busy for it; "
            "try again, or a shorter one with --seconds"
        ) from None


class Scene:
    """Two queues, the same work for both, a worker for each."""

    def __init__(self, client: AsyncClient, plan: Plan) -> None:
        self._client = client
        self._plan = plan
        self._tallies = {
            discipline: {name: Tally(name, count) for name, count in plan.messages.items()}
            for discipline in (FIFO, FAIR)
        }
        self._started_s = 0.0

    async def run(self, show: Show) -> Frame:
        """Flood, send, work off; return what was measured."""
        for discipline in self._tallies:
            await self._client.create_queue(discipline.name, discipline=discipline.name)
        for discipline in self._tallies:
            await self._flood(discipline)
        self._started_s = _now_s()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._show_on(show))
                for discipline in self._tallies:
                    group.create_task(self._send_few(discipline))
                    group.create_task(self._work(discipline))
        except* (FilaError, OSError) as errors:
            raise _first(errors) from None
        return self._frame()

    async def _flood(self, discipline: Discipline) -> None:
        async with self._client.producer(discipline.name) as producer:
            for _ in range(self._plan.flood):
                await producer.room()
                producer.send(PAYLOAD, fairness_key=NOISY)
                self._tallies[discipline][NOISY].send(_now_s())
            await producer.flush()

    async def _send_few(self, discipline: Discipline) -> None:
        for number in range(1, QUIET_MESSAGES + 1):
            await _sleep_until(self._started_s + number * self._plan.quiet_interval_seconds)
            # It may be delivered before the broker's answer is here.
            self._tallies[discipline][QUIET].send(_now_s())
            await self._client.enqueue(discipline.name, payload=PAYLOAD, fairness_key=QUIET)

    async def _work(self, discipline: Discipline) -> None:
        tallies = self._tallies[discipline]
        due_s = self._started_s
        # Nothing is held in advance, so that the order is the broker's.
        async with self._client.consume(discipline.name, prefetch=1) as messages:
            async for message in messages:
                waited = message.leased_at - message.enqueued_at
                tallies[message.fairness_key].deliver(waited.total_seconds() * 1000)
                await message.ack()
                if all(tally.complete for tally in tallies.values()):
                    return
                due_s = max(due_s + 1 / RATE_PER_S, _now_s() - CATCH_UP_SECONDS)
                await _sleep_until(due_s)

    async def _show_on(self, show: Show) -> None:
        while not all(tally.complete for tallies in self._tallies.values() for tally in tallies.values()):
            show(self._frame())
            await asyncio.sleep(FRAME_SECONDS)

    def _frame(self) -> Frame:
        now_s = _now_s()
        return Frame(
            elapsed_seconds=now_s - self._started_s,
            planned_seconds=self._plan.seconds,
            rate_per_s=RATE_PER_S,
            runs=tuple(
                Run(discipline, tuple(tally.at(now_s) for tally in tallies.values()))
                for discipline, tallies in self._tallies.items()
            ),
        )


def _first(group: BaseExceptionGroup[FilaError | OSError]) -> BaseException:
    """Return one of them: they have one cause, and one sentence is enough."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def _sleep_until(time_s: float) -> None:
    await asyncio.sleep(max(0.0, time_s - _now_s()))
