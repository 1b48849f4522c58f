"""The restart test: a real broker that is stopped and killed in turn under producers and workers, and started again on the same port and data.

`run` makes one test of so many restarts from one seed: what the load does and when the broker ends is drawn from it.
"""

import asyncio
import logging
import socket
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from random import Random

from tests.integration.restarts.load import (
    QUEUE,
    AsyncProducer,
    AsyncWorker,
    Producer,
    ThreadProducer,
    ThreadWorker,
    Worker,
)
from tests.integration.restarts.oracle import Oracle
from tests.integration.server_process import ServerProcess

from fila import AsyncClient, Client

# Of both kinds ten: with asyncio, and with threads.
ASYNC_PRODUCERS = ASYNC_WORKERS = 7
THREAD_PRODUCERS = THREAD_WORKERS = 3
# Below what the kernel hands out by itself: nobody takes the port while the broker is away.
PORTS = (20_000, 30_000)
LOAD_SECONDS_MAX = 1.5
AWAY_SECONDS_MAX = 0.5
# What each life must at least acknowledge and handle, so that a restart meets a load.
PROGRESS_MESSAGES = 500
PROGRESS_SECONDS_MAX = 60
DRAIN_SECONDS_MAX = 120


class RestartTest:
    """One oracle over all lives of one data directory."""

    def __init__(self, directory: Path, seed: int, *, visibility_timeout_ms: int | None = None):
        self._directory = directory
        self._random = Random(seed)
        self._address = f"127.0.0.1:{_free_port(self._random)}"
        self._visibility_timeout_ms = visibility_timeout_ms
        self._server: ServerProcess | None = None
        self._clients: list[AsyncClient] = []
        self._thread_clients: list[Client] = []
        self.oracle = Oracle()
        self.restarts = {"SIGTERM": 0, "SIGKILL": 0}
        self.away_seconds: list[float] = []
        self.drain_seconds = 0.0

    async def run(self, restarts: int):
        """Restart so often under load, then let everything be handled."""
        asyncio.get_running_loop().set_exception_handler(self._on_loop_error)
        watch = _LogWatch(self.oracle)
        logging.getLogger().addHandler(watch)
        try:
            await self._start()
            admin = await self._connect()
            await admin.create_queue(QUEUE, visibility_timeout_ms=self._visibility_timeout_ms)
            await self._load(admin, restarts)
            await self._check_that_nothing_is_left(admin)
            self.oracle.finish()
        finally:
            logging.getLogger().removeHandler(watch)
            for client in self._clients:
                await client.close()
            for thread_client in self._thread_clients:
                await asyncio.to_thread(thread_client.close)
            if self._server is not None:
                self._server.close()

    async def _load(self, admin: AsyncClient, restarts: int):
        producers, workers = await self._producers(), await self._workers()
        producing = [asyncio.create_task(self._watched("a producer", each.run())) for each in producers]
        working = [asyncio.create_task(self._watched("a worker", each.run())) for each in workers]
        for number in range(restarts):
            await self._progress()
            await asyncio.sleep(self._random.uniform(0, LOAD_SECONDS_MAX))
            await self._restart("SIGKILL" if number % 2 else "SIGTERM")
        await self._progress()
        for producer in producers:
            producer.stopping = True
        await asyncio.gather(*producing)
        for worker in workers:
            worker.finishing = True
        await self._empty(admin)
        for worker in workers:
            worker.stop()
        await asyncio.gather(*working)

    async def _producers(self) -> list[Producer]:
        producers: list[Producer] = []
        for number in range(ASYNC_PRODUCERS + THREAD_PRODUCERS):
            about = (f"producer-{number}", self.oracle, Random(self._random.random()))
            if number < ASYNC_PRODUCERS:
                producers.append(AsyncProducer(await self._connect(), *about))
            else:
                producers.append(ThreadProducer(await self._connect_threads(), *about))
        return producers

    async def _workers(self) -> list[Worker]:
        workers: list[Worker] = []
        for number in range(ASYNC_WORKERS + THREAD_WORKERS):
            about = (self.oracle, Random(self._random.random()))
            if number < ASYNC_WORKERS:
                workers.append(AsyncWorker(await self._connect(), *about))
            else:
                workers.append(ThreadWorker(await self._connect_threads(), *about))
        return workers

    async def _progress(self):
        """Wait until this life has done something."""
        counts = self.oracle.counts
        acknowledged, handled = (counts.acknowledged + PROGRESS_MESSAGES, counts.handled + PROGRESS_MESSAGES)
        async with _within(PROGRESS_SECONDS_MAX, "the load goes on", self):
            while counts.acknowledged < acknowledged or counts.handled < handled:
                self.oracle.check()
                await asyncio.sleep(0.02)

    async def _restart(self, signal: str):
        server = self._server
        assert server is not None
        self.restarts[signal] += 1
        began = time.monotonic()
        if signal == "SIGKILL":
            await asyncio.to_thread(server.kill)
        else:
            server.terminate()
            code = await asyncio.to_thread(server.wait)
            if code:
                self.oracle.breaks(f"the broker ended with {code}: {server.errors[-1000:]}")
        await asyncio.sleep(self._random.uniform(0, AWAY_SECONDS_MAX))
        await self._start()
        self.away_seconds.append(round(time.monotonic() - began, 2))
        self.oracle.life += 1

    async def _start(self):
        self._server = ServerProcess(
            self._directory, "--data-dir", self._directory / "data", listen=self._address
        )
        await asyncio.to_thread(self._server.wait_until_ready)

    async def _connect(self) -> AsyncClient:
        client = await AsyncClient.connect(self._address)
        self._clients.append(client)
        return client

    async def _connect_threads(self) -> Client:
        client = await asyncio.to_thread(Client.connect, self._address)
        self._thread_clients.append(client)
        return client

    async def _empty(self, admin: AsyncClient):
        """Wait until the queue has nothing that could come back: nothing waits, nothing is leased."""
        began = time.monotonic()
        async with _within(DRAIN_SECONDS_MAX, "the queue is empty", self):
            while (stats := await admin.stats(QUEUE)).depth or stats.in_flight:
                self.oracle.check()
                await asyncio.sleep(0.05)
        self.drain_seconds = round(time.monotonic() - began, 1)

    async def _check_that_nothing_is_left(self, admin: AsyncClient):
        """What was acked is so on the disk."""
        await self._restart("SIGKILL")
        stats = await admin.stats(QUEUE)
        if stats.depth or stats.in_flight:
            self.oracle.breaks(f"after the end {stats.depth} messages wait and {stats.in_flight} are leased")

    async def _watched(self, who: str, work):
        """No exception reaches the user's code."""
        try:
            await work
        except Exception:  # noqa: BLE001 - whatever it is
            self.oracle.breaks(f"{who} got an exception: {traceback.format_exc()}")

    def _on_loop_error(self, _loop, context):
        self.oracle.breaks(f"nobody took an exception: {context}")

    def report(self) -> dict[str, object]:
        """Return what happened, for one line."""
        return {
            "restarts": self.restarts,
            "away_seconds_max": max(self.away_seconds, default=0),
            "drain_seconds": self.drain_seconds,
            "messages": asdict(self.oracle.counts),
            "warnings": dict(self.oracle.warnings),
        }


class _LogWatch(logging.Handler):
    """An error in the log is a broken law, a warning is counted."""

    def __init__(self, oracle: Oracle):
        super().__init__(logging.WARNING)
        self._oracle = oracle

    def emit(self, record: logging.LogRecord):
        """Take note."""
        if record.levelno >= logging.ERROR:
            self._oracle.breaks(f"logged as an error by {record.name}: {self.format(record)}")
        else:
            self._oracle.warnings[str(record.msg)] += 1


class _within:  # noqa: N801 - reads as the function that it is
    """Says what was waited for when it does not happen."""

    def __init__(self, seconds: float, what: str, test: RestartTest):
        self._timeout = asyncio.timeout(seconds)
        self._words = f"within {seconds} s it did not come to this: {what}"
        self._test = test

    async def __aenter__(self):
        await self._timeout.__aenter__()

    async def __aexit__(self, *error):
        try:
            await self._timeout.__aexit__(*error)
        except TimeoutError:
            raise AssertionError(f"{self._words}; {self._test.report()}") from None


def _free_port(random: Random) -> int:
    while True:
        port = random.randrange(*PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def run(directory: Path, seed: int, restarts: int, **options) -> dict[str, object]:
    """Make one test. Raises LawBrokenError."""
    test = RestartTest(directory, seed, **options)
    began = time.monotonic()
    try:
        asyncio.run(test.run(restarts))
    except BaseException as error:
        error.add_note(f"seed {seed}, life {test.oracle.life}, {test.report()}")
        raise
    return {"seed": seed, "seconds": round(time.monotonic() - began, 1), **test.report()}
