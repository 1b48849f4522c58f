"""A server under load: its address, its process if it can be seen, and what both cost while something runs.

The broker and the bare server are both subjects: whatever is done to one is done to the other by the same code.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from grpc import aio

from fila.bench.figures import Sample
from fila.bench.process import ServerProcess, cpu_seconds, resident_bytes
from fila.bench.transport import open_channel
from fila.errors import UnavailableError
from fila.wire.v1 import admin_pb2, admin_pb2_grpc, service_pb2_grpc

# A server that uses less than this share of a core has finished what the last load left behind.
QUIET_SHARE = 0.03
QUIET_INTERVAL_S = 0.2


class Subject:
    """One server that load is put on."""

    def __init__(self, address: str, *, pid: int | None = None, process: ServerProcess | None = None) -> None:
        self.address = address
        self.process = process
        self._pid = pid
        self._channels: list[aio.Channel] = []
        self._queues: list[str] = []
        self._queue_prefix = f"bench-{os.urandom(4).hex()}"
        self._queue_count = 0

    @classmethod
    def start(cls, process: ServerProcess) -> "Subject":
        """Start a server and wait until it answers."""
        process.start()
        process.wait_until_listening()
        return cls(process.address, process=process)

    @property
    def pid(self) -> int | None:
        """The server's process, where it can be seen."""
        return self._pid if self.process is None else self.process.pid

    def channel(self) -> aio.Channel:
        """Return a connection of its own."""
        channel = open_channel(self.address)
        self._channels.append(channel)
        return channel

    def stub(self) -> Any:
        """Return the service's methods on a connection of their own."""
        return service_pb2_grpc.FilaServiceStub(self.channel())

    async def create_queue(self, *, discipline: str = "") -> str:
        """Create a queue that nobody else uses."""
        self._queue_count += 1
        name = f"{self._queue_prefix}-{self._queue_count}"
        await self.create_queues([name], discipline=discipline)
        return name

    async def create_queues(self, names: list[str], *, discipline: str = "", in_flight: int = 64) -> None:
        """Create queues by name, several at a time."""
        channel = open_channel(self.address)
        stub: Any = admin_pb2_grpc.FilaAdminStub(channel)
        self._queues += names
        waiting = iter(names)

        async def create_some() -> None:
            for name in waiting:
                config = admin_pb2.QueueConfig(discipline=discipline)
                await stub.CreateQueue(admin_pb2.CreateQueueRequest(name=name, config=config))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(in_flight, len(names))):
                group.create_task(create_some())
        await channel.close()

    def queue_names(self, count: int) -> list[str]:
        """Return so many names that nobody else uses."""
        return [f"{self._queue_prefix}-many-{number}" for number in range(count)]

    async def delete_queue(self, name: str) -> None:
        """Delete a queue with all that is left in it."""
        channel = open_channel(self.address)
        await admin_pb2_grpc.FilaAdminStub(channel).DeleteQueue(admin_pb2.DeleteQueueRequest(queue=name))
        self._queues.remove(name)
        await channel.close()

    async def close(self) -> None:
        """Close the connections, and leave nothing behind on a server that lives on."""
        if self.process is None:
            for name in list(self._queues):
                await self.delete_queue(name)
        for channel in self._channels:
            await channel.close()
        self._channels.clear()

    async def restart(self) -> float:
        """Stop the server in order and start it again; return when it was started, on the clock of `perf_counter`."""
        if self.process is None:
            raise UnavailableError("a broker that the bench did not start cannot be restarted by it")
        for channel in self._channels:
            await channel.close()
        self._channels.clear()
        self.process.stop()
        self.process.start()
        self.process.wait_until_listening()
        return self.process.started_at_s

    def cpu_seconds(self) -> float | None:
        """Return the processor time that the server has used so far."""
        return None if self.pid is None else cpu_seconds(self.pid)

    def resident_bytes(self) -> int | None:
        """Return the memory that the server holds."""
        return None if self.pid is None else resident_bytes(self.pid)

    async def wait_until_quiet(self, *, limit_s: float) -> None:
        """Wait until what the last load left behind (compaction, above all) is done."""
        deadline_s = time.perf_counter() + limit_s
        while time.perf_counter() < deadline_s:
            before_s = self.cpu_seconds()
            await asyncio.sleep(min(QUIET_INTERVAL_S, limit_s))
            after_s = self.cpu_seconds()
            if before_s is None or after_s is None or after_s - before_s < QUIET_SHARE * QUIET_INTERVAL_S:
                return

    @contextmanager
    def measured(self) -> Iterator[Sample]:
        """Measure what happens inside; the caller fills in messages and latencies."""
        sample = Sample()
        cpu_before_s, start_s = self.cpu_seconds(), time.perf_counter()
        yield sample
        sample.seconds = time.perf_counter() - start_s
        cpu_after_s = self.cpu_seconds()
        sample.cpu_s = None if cpu_before_s is None or cpu_after_s is None else cpu_after_s - cpu_before_s
