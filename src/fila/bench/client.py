"""The workload that asks what the client costs whoever uses it as the documentation says.

Every program runs in a process of its own that does nothing else, so its processor time is that of the client. Programs that are
compared take turns on backlogs of the same kind.
"""

import asyncio
import json
import statistics
import sys
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from dataclasses import dataclass, field

from fila.bench.figures import Sample
from fila.bench.operations import fill, make_batches
from fila.bench.session import Figures, Session, baseline_figures, throughput_figures
from fila.bench.subject import Subject
from fila.errors import RPCError

ERROR_CHARACTERS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Program:
    """A program of `fila.bench.programs`, and how it is run."""

    name: str
    uvloop: bool = False

    @property
    def consumes(self) -> bool:
        """Whether it needs a backlog."""
        return self.name != "produce"


PRODUCE, PRODUCE_UVLOOP = Program("produce"), Program("produce", uvloop=True)
LOOP, LOOP_UVLOOP = Program("loop"), Program("loop", uvloop=True)
# On the broker's event loop, as in the other workloads.
RAW = Program("raw", uvloop=True)
SYNC_LOOP = Program("sync-loop")
PROGRAMS = (PRODUCE, PRODUCE_UVLOOP, RAW, LOOP, SYNC_LOOP, LOOP_UVLOOP)


@dataclass(frozen=True, slots=True)
class Turn:
    """What a program used, and what it cost the server."""

    program: Sample
    server: Sample


@dataclass(slots=True)
class Turns:
    """All turns of a program, in order."""

    programs: list[Sample] = field(default_factory=list)
    server: Sample = field(default_factory=Sample)

    def add(self, turn: Turn) -> None:
        """Add one."""
        self.programs.append(turn.program)
        # The rate is the program's; until it has begun, the server waits.
        turn.server.seconds = turn.program.seconds
        self.server.add(turn.server)

    @property
    def cpu_us_per_msg(self) -> float:
        """What a message costs the program's process: the median of the turns."""
        return statistics.median((sample.cpu_us_per_msg or 0.0) for sample in self.programs)

    @property
    def rates(self) -> list[float]:
        """Messages per second, turn by turn."""
        return [sample.msgs_per_s for sample in self.programs]


async def run_client(session: Session) -> tuple[Figures, Figures]:
    """The producer, the loop over messages with and without asyncio, and the bench's own consumer beside it."""
    turns = {program: Turns() for program in PROGRAMS}
    bare = Turns()
    for number in range(session.parameters.repeat):
        # Whatever drifts on the machine hits all: each goes first at times.
        start = number % len(PROGRAMS)
        for program in (*PROGRAMS[start:], *PROGRAMS[:start]):
            turns[program].add(await _take_turn(session, session.broker, program))
        bare.add(await _take_turn(session, session.bare, LOOP))
    ratios = _ratios(turns[LOOP].rates, turns[RAW].rates)
    sync_ratios = _ratios(turns[SYNC_LOOP].rates, turns[LOOP].rates)
    figures: Figures = {
        "producer_cpu_us_per_msg": turns[PRODUCE].cpu_us_per_msg,
        "producer_msgs_per_s": statistics.median(turns[PRODUCE].rates),
        "loop_cpu_us_per_msg": turns[LOOP].cpu_us_per_msg,
        "loop_ratio": statistics.median(ratios),
        "loop_ratio_turns": ratios,
        "sync_cpu_us_per_msg": turns[SYNC_LOOP].cpu_us_per_msg,
        "sync_ratio": statistics.median(sync_ratios),
        "sync_ratio_turns": sync_ratios,
        "raw_cpu_us_per_msg": turns[RAW].cpu_us_per_msg,
        "raw_msgs_per_s": statistics.median(turns[RAW].rates),
        "uvloop_producer_cpu_us_per_msg": turns[PRODUCE_UVLOOP].cpu_us_per_msg,
        "uvloop_loop_cpu_us_per_msg": turns[LOOP_UVLOOP].cpu_us_per_msg,
    }
    results = throughput_figures(turns[LOOP].server) | figures
    baseline = baseline_figures(turns[LOOP].server, bare.server)
    return results, baseline | {"loop_cpu_us_per_msg": bare.cpu_us_per_msg}


def _ratios(dividends: Sequence[float], divisors: Sequence[float]) -> list[float]:
    return [dividend / divisor for dividend, divisor in zip(dividends, divisors, strict=True)]


async def _take_turn(session: Session, subject: Subject, program: Program) -> Turn:
    """Run a program once, on a queue of its own with a backlog if it needs one."""
    parameters = session.parameters
    messages = parameters.messages or 0
    queue = await subject.create_queue()
    if program.consumes:
        filled = await fill(subject, queue, make_batches(parameters), messages)
        messages = filled.messages
    await session.wait_until_quiet()
    with subject.measured() as server:
        used = await _run(program, subject.address, queue, messages, parameters.payload_bytes)
    server.messages = used.messages
    await subject.delete_queue(queue)
    return Turn(used, server)


async def _run(program: Program, address: str, queue: str, messages: int, payload_bytes: int) -> Sample:
    """Run a program in a process of its own; raises RPCError with its output if it fails."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fila.bench.programs", program.name),
        *("--addr", address, "--queue", queue),
        *("--messages", str(messages), "--payload-bytes", str(payload_bytes)),
        *(("--uvloop",) if program.uvloop else ()),
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RPCError(
            f"the program {program.name!r} failed: {errors.decode(errors='replace')[-ERROR_CHARACTERS_MAX:]}"
        )
    return Sample(**json.loads(output))
