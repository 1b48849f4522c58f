"""Builds the concrete objects and joins them: settings in, a running broker out. No logic of its own."""

import asyncio
import gc
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import uvloop

import fila
from fila.broker.loop import Broker
from fila.broker.recovery import Recovered
from fila.config import Settings, TelemetrySettings
from fila.server.grpc_server import GrpcServer
from fila.storage.rocksdb import RocksStore
from fila.telemetry import logs
from fila.telemetry.metrics import NoTelemetry, Telemetry

# Steps make short-lived tuples by the thousand and no cycles: the collector's default finds nothing, ten times as often.
GC_THRESHOLD = (50_000, 20, 100)


@dataclass(frozen=True, slots=True)
class Running:
    """A broker that serves."""

    address: str
    recovered: Recovered
    recovery_seconds: float


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Running]:
    """Run a broker within the running loop, and drain it at the end. Raises StoreError or ConfigError at the start."""
    telemetry = _telemetry(settings.telemetry)
    storage = settings.storage
    broker = Broker(lambda: RocksStore(storage.data_dir, durability=storage.durability), telemetry=telemetry)
    server = GrpcServer(
        broker,
        window_default=settings.scheduler.consumer_window,
        quantum_default=settings.scheduler.quantum,
    )
    try:
        # Before the store: a start that is refused leaves no directory behind.
        address = server.bind(settings.server.listen_addr)
        started = time.perf_counter()
        try:
            recovered = broker.open()
        except BaseException:
            await server.give_back()
            raise
        try:
            seconds = time.perf_counter() - started
            await server.start()
            yield Running(address, recovered, seconds)
        finally:
            await server.stop()
            await broker.stop()
    finally:
        telemetry.shutdown()


async def serve(settings: Settings) -> None:
    """Run a broker until SIGTERM or SIGINT, and say on standard output what it does."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    async with running(settings) as broker:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLD)
        found = broker.recovered
        _say(f"fila {fila.__version__} listens on {broker.address}")
        _say(f"data in {settings.storage.data_dir.absolute()} (durability {settings.storage.durability})")
        _say(
            f"recovered {found.queues:,} queues, {found.messages:,} messages, {found.leases:,} leases "
            f"in {broker.recovery_seconds:.2f} s"
        )
        await told.wait()
        _say("stopping: finishing what was taken")
    _say("stopped")


def run(settings: Settings) -> None:
    """Run a broker in this process until it is told to stop."""
    logs.configure(log_format=settings.telemetry.log_format)
    uvloop.run(serve(settings))


def _telemetry(settings: TelemetrySettings) -> Telemetry:
    if settings.otlp_endpoint is None:
        return NoTelemetry()
    # Importing the SDK takes a third of a second, which only those pay who use it.
    from fila.telemetry.otel import OtelTelemetry  # noqa: PLC0415

    return OtelTelemetry(
        endpoint=settings.otlp_endpoint,
        service_name=settings.service_name,
        metrics_interval_ms=settings.metrics_interval_ms,
        service_version=fila.__version__,
    )


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
