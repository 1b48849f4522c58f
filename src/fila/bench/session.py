"""One run of the bench: the broker, the bare server beside it, and the results of a workload in the making."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from fila.bench.figures import Sample, percentile, ratio_or_none
from fila.bench.parameters import Parameters
from fila.bench.process import ServerProcess
from fila.bench.subject import Subject

Figure = float | int | None
Figures = dict[str, object]
Measure = Callable[[Subject], Awaitable[Sample]]


@dataclass(frozen=True, slots=True)
class Session:
    """What a workload is given."""

    broker: Subject
    bare: Subject
    parameters: Parameters
    data_parent_dir: Path | None

    def start_broker(self) -> Subject:
        """Start another broker on empty data, or return the one that is there if it is not ours to start."""
        if self.broker.process is None:
            return self.broker
        return Subject.start(broker_process(self.data_parent_dir))

    async def wait_until_quiet(self) -> None:
        """Wait until both servers have finished what the last load left behind."""
        for subject in (self.broker, self.bare):
            await subject.wait_until_quiet(limit_s=self.parameters.quiet_limit_s)

    async def measure_both(self, measure: Measure) -> tuple[Sample, Sample]:
        """Measure broker and bare server in turn, as often as asked, each on a new queue; return both sums."""
        sums = {id(subject): Sample() for subject in (self.broker, self.bare)}
        for turn in range(self.parameters.repeat):
            # Whatever drifts on the machine hits both: each goes first every other time.
            order = (self.broker, self.bare) if turn % 2 == 0 else (self.bare, self.broker)
            for subject in order:
                await self.wait_until_quiet()
                sums[id(subject)].add(await measure(subject))
        return sums[id(self.broker)], sums[id(self.bare)]


def broker_process(parent_dir: Path | None) -> ServerProcess:
    """Return a broker with its default configuration, not yet started."""
    return ServerProcess("fila", "server", parent_dir=parent_dir)


def bare_process(parent_dir: Path | None) -> ServerProcess:
    """Return the server to compare with, not yet started."""
    return ServerProcess("fila.bench.bare", parent_dir=parent_dir)


def throughput_figures(sample: Sample) -> Figures:
    """Return the figures that every workload reports."""
    figures: Figures = {
        "messages": sample.messages,
        "seconds": sample.seconds,
        "msgs_per_s": sample.msgs_per_s,
        "broker_cpu_us_per_msg": sample.cpu_us_per_msg,
    }
    if sample.latencies_s:
        figures |= latency_figures(sample.latencies_s)
    return figures


def latency_figures(latencies_s: list[float], *, prefix: str = "") -> Figures:
    """Return median and 99th percentile."""
    return {
        f"{prefix}p50_ms": percentile(latencies_s, 50) * 1e3,
        f"{prefix}p99_ms": percentile(latencies_s, 99) * 1e3,
    }


def baseline_figures(broker: Sample, bare: Sample) -> Figures:
    """Return what the bare server did, and which part of it the broker did."""
    figures: Figures = {
        "msgs_per_s": bare.msgs_per_s,
        "ratio": ratio_or_none(broker.msgs_per_s, bare.msgs_per_s),
        "server_cpu_us_per_msg": bare.cpu_us_per_msg,
    }
    if bare.latencies_s:
        figures |= latency_figures(bare.latencies_s)
    return figures
