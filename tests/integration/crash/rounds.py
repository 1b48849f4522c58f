"""The crash test: a real server under load, killed again and again, restarted on the same data, and at the end emptied.

`run` makes one test of so many kills from one seed. What the clients send and when the kill comes is drawn from the seed;
how far the server had come by then is the machine's to decide.
"""

import asyncio
import time
from dataclasses import asdict
from pathlib import Path
from random import Random

import grpc
from tests.integration.crash.consumers import Consumer
from tests.integration.crash.oracle import Lease, Oracle
from tests.integration.crash.producers import Producer
from tests.integration.server_process import ServerProcess

from fila.wire.v1 import admin_pb2 as admin
from fila.wire.v1.admin_pb2_grpc import FilaAdminStub
from fila.wire.v1.service_pb2_grpc import FilaServiceStub

# Name, discipline, visibility timeout. Long enough for some leases to live through a restart, and not to wait for at the end.
QUEUES = (("round", "drr", 1_000), ("line", "fifo", 1_500), ("fair", "wfq", 2_000))
LOAD_SECONDS_MAX = 0.7
# One kill of so many comes while the server starts, and one of so many while it stops.
DURING_START = 8
DURING_STOP = 6
START_SECONDS_MAX = 1.5
DRAIN_SECONDS_MAX = 60
# What a client may be told while the server dies; the second is gRPC's own word for a write to a connection just lost.
DYING = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
LOST = "Internal error from Core"


class CrashTest:
    """One oracle over all lives of one data directory."""

    def __init__(self, directory: Path, seed: int):
        self._directory = directory
        self._random = Random(seed)
        self.oracle = Oracle()
        self.kills = {"load": 0, "start": 0, "stop": 0}
        self._left: list[Lease] = []

    async def run(self, kills: int):
        """Kill so often, then let everything be consumed."""
        for number in range(kills):
            if number and self._random.randrange(DURING_START) == 0:
                self._kill_during_start()
            else:
                await self._life()
        await self._last_life()
        self.oracle.drained()

    def _start(self) -> ServerProcess:
        self.oracle.life += 1
        self.oracle.alive = True
        return ServerProcess(self._directory, "--data-dir", self._directory / "data")

    def _kill_during_start(self):
        with self._start() as server:
            time.sleep(self._random.uniform(0, START_SECONDS_MAX))
            server.kill()
        self.kills["start"] += 1

    async def _life(self):
        """Start, load, kill, and hear what the clients still hear."""
        with self._start() as server:
            server.wait_until_ready()
            async with _channel(server.address) as channel:
                await self._create(channel)
                load = [asyncio.create_task(_until_death(work)) for work in self._load(channel)]
                await asyncio.wait(
                    load,
                    timeout=self._random.uniform(0.05, LOAD_SECONDS_MAX),
                    return_when=asyncio.FIRST_EXCEPTION,
                )
                if self._random.randrange(DURING_STOP) == 0:
                    self.oracle.stopped.add(self.oracle.life)
                    server.terminate()
                    await asyncio.sleep(self._random.uniform(0, 0.1))
                    self.kills["stop"] += 1
                else:
                    self.kills["load"] += 1
                server.kill()
                self.oracle.alive = False
                # What was answered before the kill may still be on its way.
                async with asyncio.timeout(10):
                    await asyncio.gather(*load)

    async def _create(self, channel):
        stub = FilaAdminStub(channel)
        for name, discipline, timeout_ms in QUEUES if self.oracle.life == 1 else ():
            config = admin.QueueConfig(discipline=discipline, visibility_timeout_ms=timeout_ms)
            await stub.CreateQueue(admin.CreateQueueRequest(name=name, config=config))

    def _load(self, channel):
        stub, random, oracle = FilaServiceStub(channel), self._random, self.oracle
        names = [name for name, _, _ in QUEUES]
        for place, queue in enumerate(names):
            for kind in ("produce", "enqueue", "enqueue"):
                name = f"{oracle.life}{kind[0]}{place}{random.randrange(1 << 16):04x}"
                yield getattr(Producer(name, stub, oracle, queue, Random(random.random())), kind)()
            yield Consumer(stub, oracle, queue, Random(random.random())).subscribe()
        yield Consumer(stub, oracle, names[0], Random(random.random())).consume()
        yield Consumer(stub, oracle, names[1], Random(random.random())).consume()
        yield Consumer(stub, oracle, names[2], Random(random.random())).lease(self._left)

    async def _last_life(self):
        """Consume and ack everything, until nothing is left."""
        with self._start() as server:
            server.wait_until_ready()
            async with _channel(server.address) as channel:
                stub = FilaServiceStub(channel)
                work = [
                    asyncio.create_task(
                        Consumer(stub, self.oracle, name, self._random, drain=True).subscribe()
                    )
                    for name, _, _ in QUEUES
                ]
                empty = asyncio.create_task(_empty(FilaAdminStub(channel)))
                done, _ = await asyncio.wait(
                    [*work, empty], timeout=DRAIN_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    task.result()
                assert done == {empty}, f"after {DRAIN_SECONDS_MAX} s messages are left"
                for task in work:
                    task.cancel()
                await asyncio.gather(*work, return_exceptions=True)
            server.terminate()
            assert server.wait() == 0, server.errors

    def report(self) -> dict[str, object]:
        """Return what happened, for one line."""
        return {"kills": self.kills, "messages": asdict(self.oracle.counts)}


def _channel(address):
    # A pool of its own: else a channel to an earlier server on the same port would be taken over, back-off and all.
    return grpc.aio.insecure_channel(
        address,
        options=[("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 32 << 20)],
    )


async def _until_death(work):
    try:
        await work
    except grpc.aio.AioRpcError as error:
        if error.code() not in DYING and error.details() != LOST:
            raise


async def _empty(stub):
    """Return when no queue has anything waiting or leased."""
    while True:
        queues = (await stub.ListQueues(admin.ListQueuesRequest())).queues
        if not any(queue.depth or queue.in_flight for queue in queues):
            return
        await asyncio.sleep(0.05)


def run(directory: Path, seed: int, kills: int) -> dict[str, object]:
    """Make one test. Raises LawBrokenError."""
    test = CrashTest(directory, seed)
    began = time.monotonic()
    try:
        asyncio.run(test.run(kills))
    except BaseException as error:
        error.add_note(f"seed {seed}, life {test.oracle.life}, {test.report()}")
        raise
    return {"seed": seed, "seconds": round(time.monotonic() - began, 1), **test.report()}
