"""The named workloads: what each runs with, and one run of it from the start of the servers to its report."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from grpc import aio

from fila.bench import client, fairness, scale, throughput
from fila.bench.parameters import Parameters
from fila.bench.process import ServerProcess, find_listener, measure_fsync_ms
from fila.bench.report import Report
from fila.bench.session import Figures, Session, bare_process, broker_process
from fila.bench.subject import Subject
from fila.bench.transport import open_runner
from fila.client.address import parse
from fila.client.reach import failure_of
from fila.errors import InvalidArgumentError
from fila.wire.status import error_of_call

Run = Callable[[Session], Awaitable[tuple[Figures, Figures]]]

_USUAL = Parameters(messages=None, seconds=5.0, payload_bytes=1024, keys=50, batch=100, repeat=3)
_QUICK_QUIET_LIMIT_S = 0.1


@dataclass(frozen=True, slots=True)
class Workload:
    """A load with a name: what it asks, its defaults, and how many messages are enough for a quick look."""

    summary: str
    run: Run
    defaults: Parameters
    quick_messages: int | None = None
    quick_seconds: float = 0.3


WORKLOADS = {
    "produce": Workload("one producer, batches in flight", throughput.run_produce, _USUAL),
    "consume": Workload(
        "drain a backlog, every message acked",
        throughput.run_consume,
        replace(_USUAL, messages=200_000),
        quick_messages=3_000,
    ),
    "both": Workload(
        "produce, consume and ack at once",
        throughput.run_both,
        replace(_USUAL, seconds=20.0, repeat=2),
        quick_seconds=0.5,
    ),
    "unary": Workload("64 Enqueue calls in flight", throughput.run_unary, _USUAL),
    "latency": Workload(
        "one message at a time, enqueue to delivered",
        throughput.run_latency,
        replace(_USUAL, messages=2_000, repeat=2),
        quick_messages=50,
    ),
    "keys": Workload(
        "100,000 fairness keys against 10",
        scale.run_keys,
        replace(_USUAL, messages=200_000, keys=100_000),
        quick_messages=3_000,
    ),
    "queues": Workload(
        "10,000 queues with one message each",
        scale.run_queues,
        replace(_USUAL, messages=10_000, repeat=1),
        quick_messages=100,
    ),
    "fairness": Workload(
        "shares, the interval law, a lone message, and what fairness costs",
        fairness.run_fairness,
        replace(_USUAL, messages=100_000, repeat=5),
        quick_messages=2_000,
    ),
    "backlog": Workload(
        "memory and restart with 2,000,000 messages of 100 B",
        scale.run_backlog,
        replace(_USUAL, messages=2_000_000, payload_bytes=100, repeat=1),
        quick_messages=5_000,
    ),
    "client": Workload(
        "what the client costs: producer, async and sync loop",
        client.run_client,
        replace(_USUAL, messages=100_000, repeat=5),
        quick_messages=1_000,
    ),
}


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user asked for; None leaves the workload's own default."""

    addr: str | None = None
    data_dir: Path | None = None
    messages: int | None = None
    seconds: float | None = None
    payload_bytes: int | None = None
    keys: int | None = None
    batch: int | None = None
    repeat: int | None = None
    quick: bool = False
    prepared: bool = False


def choose_parameters(name: str, choices: Choices) -> Parameters:
    """Return what a workload runs with. Raises InvalidArgumentError for a name that is none."""
    workload = WORKLOADS.get(name)
    if workload is None:
        raise InvalidArgumentError(f"there is no workload {name!r}; there are {', '.join(WORKLOADS)}")
    parameters = workload.defaults
    if choices.quick:
        parameters = replace(
            parameters,
            messages=workload.quick_messages,
            seconds=workload.quick_seconds,
            keys=min(parameters.keys, workload.quick_messages or parameters.keys),
            repeat=1,
            quiet_limit_s=_QUICK_QUIET_LIMIT_S,
        )
    asked = {
        field: getattr(choices, field)
        for field in ("messages", "seconds", "payload_bytes", "keys", "batch", "repeat")
        if getattr(choices, field) is not None
    }
    if choices.seconds is not None and choices.messages is None and workload.defaults.messages is not None:
        raise InvalidArgumentError(f"{name} ends after a number of messages: give --messages, not --seconds")
    return replace(parameters, prepared=choices.prepared, **asked)


def run_workload(name: str, choices: Choices) -> Report:
    """Run a workload against a running broker or one of its own, and against the bare server.

    Raises FilaError where a server cannot be reached or refuses, and KeyboardInterrupt when it is told to stop, once the
    servers that it has started are gone.
    """
    parameters = choose_parameters(name, choices)
    with open_runner() as runner:
        try:
            return runner.run(_run(name, parameters, choices))
        except asyncio.CancelledError as error:
            raise KeyboardInterrupt from error
        except aio.AioRpcError as error:
            if choices.addr is None:
                raise error_of_call(error) from error
            raise failure_of(error, parse(choices.addr)) from error


async def _run(name: str, parameters: Parameters, choices: Choices) -> Report:
    processes: list[ServerProcess] = []
    subjects: list[Subject] = []
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    try:
        bare = _started(bare_process(choices.data_dir), processes)
        subjects.append(bare)
        if choices.addr is None:
            broker = _started(broker_process(choices.data_dir), processes)
        else:
            broker = Subject(choices.addr, pid=find_listener(choices.addr))
        subjects.append(broker)
        fsync_ms = measure_fsync_ms(_data_dir(broker, choices))
        session = Session(broker=broker, bare=bare, parameters=parameters, data_parent_dir=choices.data_dir)
        results, baseline = await WORKLOADS[name].run(session)
        return Report(name, parameters, results, baseline, fsync_ms)
    finally:
        try:
            for subject in subjects:
                await subject.close()
        finally:
            # Whatever a broker that is not ours answers to the last: the servers that were started here end here.
            for process in processes:
                process.remove()


def _started(process: ServerProcess, processes: list[ServerProcess]) -> Subject:
    # Noted before it starts: a server that fails to start leaves a directory behind, too.
    processes.append(process)
    return Subject.start(process)


def _data_dir(broker: Subject, choices: Choices) -> Path:
    if broker.process is not None:
        return broker.process.directory / "data"
    return choices.data_dir or Path()
