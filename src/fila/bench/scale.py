"""The workloads that ask what much of something costs: many keys, many queues, a long backlog, and a restart with it."""

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fila import limits
from fila.bench.figures import Sample, median_or_none, ratio_or_none
from fila.bench.load import PRODUCE_BATCHES_IN_FLIGHT, ProduceStream, SubscribeStream
from fila.bench.messages import Batch
from fila.bench.operations import enqueue_each, fill, fill_and_drain, make_source, take_each
from fila.bench.parameters import Parameters
from fila.bench.session import Figures, Session, baseline_figures, throughput_figures
from fila.bench.subject import Subject

FEW_KEYS = 10
SHUFFLE_SEED = 7
# Fills write buffers and caches: what they take belongs to the base, not to the messages.
WARM_UP_PAYLOAD_BYTES = 1024
MEGABYTE = 1_000_000


async def run_keys(session: Session) -> tuple[Figures, Figures]:
    """Produce, consume and ack over many keys and over few, in pairs; keys in turn, and drawn at random."""
    parameters = session.parameters
    messages = parameters.messages or 0
    total = Sample()
    ratios: dict[str, list[float | None]] = {"cost_ratio": [], "cost_ratio_random": []}

    async def measure(subject: Subject, keys: int, shuffle_seed: int | None) -> Sample:
        queue = await subject.create_queue()
        await session.wait_until_quiet()
        source = make_source(parameters, keys=keys, shuffle_seed=shuffle_seed)
        sample = await fill_and_drain(subject, queue, source.batches(parameters.batch), messages)
        await subject.delete_queue(queue)
        return sample

    for pair in range(parameters.repeat):
        for name, shuffle_seed in (("cost_ratio", None), ("cost_ratio_random", SHUFFLE_SEED)):
            samples = {}
            order = (FEW_KEYS, parameters.keys)
            for keys in order if pair % 2 == 0 else reversed(order):
                samples[keys] = await measure(session.broker, keys, shuffle_seed)
            many, few = samples[parameters.keys], samples[FEW_KEYS]
            ratios[name].append(ratio_or_none(many.cpu_us_per_msg, few.cpu_us_per_msg))
            if shuffle_seed is None:
                total.add(many)
    bare = await measure(session.bare, parameters.keys, None)
    figures: Figures = {name: median_or_none(values) for name, values in ratios.items()}
    return figures | throughput_figures(total), baseline_figures(total, bare)


@dataclass(slots=True)
class _Spread:
    """The same calls spread over all queues and on one queue: one stretch of each kind of call."""

    all_queues: Sample
    one_queue: Sample


async def run_queues(session: Session) -> tuple[Figures, Figures]:
    """One message in each of many queues, by calls that name their queue; the same calls to one queue beside it.

    The calls to the one queue are measured in two halves, before and after those to all.
    """
    subject, parameters = session.broker, session.parameters
    count = parameters.messages or 0
    names = subject.queue_names(count)
    single = await subject.create_queue()
    spread = _Spread(Sample(), Sample())
    halves = (count - count // 2, count // 2)

    spread.one_queue.add(await _enqueue(session, subject, itertools.repeat(single, halves[0])))
    await session.wait_until_quiet()
    base_bytes = subject.resident_bytes()
    await subject.create_queues(names)
    spread.all_queues.add(await _enqueue(session, subject, names))
    await session.wait_until_quiet()
    full_bytes = subject.resident_bytes()
    spread.one_queue.add(await _enqueue(session, subject, itertools.repeat(single, halves[1])))

    restart_s = await _restart_s(subject, names[-1])

    spread.one_queue.add(await _take(session, subject, itertools.repeat(single, halves[0])))
    spread.all_queues.add(await _take(session, subject, names))
    spread.one_queue.add(await _take(session, subject, itertools.repeat(single, halves[1])))
    frames = await _produce_frames(session, subject, single, names)

    for sample in (spread.all_queues, spread.one_queue):
        # Enqueued and taken, and counted once.
        sample.messages = count
    bare = await _enqueue(session, session.bare, session.bare.queue_names(count))
    bare.add(await _take(session, session.bare, session.bare.queue_names(count)))
    bare.messages = count
    per_queue_bytes = None if base_bytes is None or full_bytes is None else (full_bytes - base_bytes) / count
    figures: Figures = {
        "rss_kb_per_queue": None if per_queue_bytes is None else per_queue_bytes / 1000,
        "cost_ratio": ratio_or_none(spread.all_queues.cpu_us_per_msg, spread.one_queue.cpu_us_per_msg),
        "cost_ratio_frames": ratio_or_none(frames.all_queues.cpu_us_per_msg, frames.one_queue.cpu_us_per_msg),
        "restart_s": restart_s,
        "one_queue_cpu_us_per_msg": spread.one_queue.cpu_us_per_msg,
    }
    return figures | throughput_figures(spread.all_queues), baseline_figures(spread.all_queues, bare)


async def _enqueue(session: Session, subject: Subject, names: Iterable[str]) -> Sample:
    await session.wait_until_quiet()
    stub, source = subject.stub(), make_source(session.parameters)
    with subject.measured() as sample:
        sample.latencies_s = await enqueue_each(stub, names, source)
        sample.messages = len(sample.latencies_s)
    return sample


async def _take(session: Session, subject: Subject, names: Iterable[str]) -> Sample:
    await session.wait_until_quiet()
    stub = subject.stub()
    with subject.measured() as sample:
        sample.messages = await take_each(stub, names)
    return sample


async def _produce_frames(session: Session, subject: Subject, single: str, names: Sequence[str]) -> _Spread:
    """Send frames of one message that each name their queue, to one queue and to all, half by half."""
    batches = make_source(session.parameters).batches(1)
    spread = _Spread(Sample(), Sample())
    middle = len(names) // 2
    for part in (names[:middle], names[middle:]):
        for sample, queues in ((spread.one_queue, [single] * len(part)), (spread.all_queues, part)):
            await session.wait_until_quiet()
            stream = ProduceStream(subject.channel(), single)
            with subject.measured() as measured:
                for queue in queues:
                    await stream.send(next(batches), queue=queue)
                await stream.wait_until(lambda stream=stream: stream.receipted >= stream.sent)  # type: ignore[misc]
                measured.messages = stream.receipted
            sample.add(measured)
            await stream.close()
    return spread


async def _restart_s(subject: Subject, queue: str) -> float | None:
    """Restart the server and return the time from its start to the first delivery; the message is given back."""
    if subject.process is None:
        return None
    started_at_s = await subject.restart()
    stream = SubscribeStream(subject.channel(), queue, paused=True, ack=False)
    stream.grant(1, 16 * MEGABYTE)
    await stream.wait_until(lambda: stream.delivered > 0)
    restart_s = stream.delivered_at_s - started_at_s
    await stream.close()
    return restart_s


async def run_backlog(session: Session) -> tuple[Figures, Figures]:
    """A long backlog produced in batches, and again one by one: what it takes in memory and at a restart.

    The figures are those of the worse of the two; each has a broker of its own.
    """
    parameters = session.parameters
    messages = parameters.messages or 0
    variants: dict[str, Figures] = {}
    total = Sample()
    for name, batch in ((f"batches_of_{parameters.batch}", parameters.batch), ("one_by_one", 1)):
        async with _broker_for(session) as subject:
            figures, sample = await _observe_backlog(session, subject, messages, batch)
        variants[name] = figures
        if batch == parameters.batch:
            total = sample
    queue = await session.bare.create_queue()
    await session.wait_until_quiet()
    bare = await fill(session.bare, queue, make_source(parameters).batches(parameters.batch), messages)
    worst: Figures = {
        figure: _worst(variants.values(), figure)
        for figure in ("rss_base_mb", "rss_bytes_per_msg", "restart_s_per_million")
    }
    return worst | {"variants": variants} | throughput_figures(total), baseline_figures(total, bare)


@asynccontextmanager
async def _broker_for(session: Session) -> Any:
    subject = session.start_broker()
    try:
        yield subject
    finally:
        await subject.close()
        if subject is not session.broker and subject.process is not None:
            subject.process.remove()


def _worst(variants: Iterable[Figures], figure: str) -> float | None:
    values = [variant[figure] for variant in variants]
    known = [value for value in values if isinstance(value, float)]
    return max(known) if len(known) == len(values) else None


async def _observe_backlog(
    session: Session, subject: Subject, messages: int, batch: int
) -> tuple[Figures, Sample]:
    parameters = session.parameters
    fresh_bytes = subject.resident_bytes()
    await _warm_up(session, subject)
    base_bytes = subject.resident_bytes()
    queue = await subject.create_queue()
    batches: Iterator[Batch] = make_source(parameters).batches(batch)
    # One by one, as many as the broker takes: so small, they cost nothing to keep.
    in_flight = limits.PRODUCE_BATCHES_IN_FLIGHT_MAX if batch == 1 else PRODUCE_BATCHES_IN_FLIGHT
    sample = await fill(subject, queue, batches, messages, batches_in_flight=in_flight)
    await subject.wait_until_quiet(limit_s=parameters.quiet_limit_s)
    full_bytes = subject.resident_bytes()
    stopping_at_s = time.perf_counter()
    restart_s = await _restart_s(subject, queue)
    restarted_bytes = subject.resident_bytes()
    whole_s = time.perf_counter() - stopping_at_s
    await subject.delete_queue(queue)
    per_message = None if base_bytes is None or full_bytes is None else (full_bytes - base_bytes) / messages
    return {
        "rss_base_mb": _megabytes(base_bytes),
        "rss_bytes_per_msg": per_message,
        "restart_s_per_million": None if restart_s is None else restart_s / (messages / 1e6),
        "rss_fresh_mb": _megabytes(fresh_bytes),
        "rss_full_mb": _megabytes(full_bytes),
        "rss_restarted_mb": None if restart_s is None else _megabytes(restarted_bytes),
        "restart_s": restart_s,
        "stop_and_restart_s": None if restart_s is None else whole_s,
        "msgs_per_s": sample.msgs_per_s,
        "broker_cpu_us_per_msg": sample.cpu_us_per_msg,
    }, sample


async def _warm_up(session: Session, subject: Subject) -> None:
    parameters = session.parameters
    messages = min(parameters.messages or 0, 200_000)
    warm = Parameters(
        messages=messages,
        seconds=0.0,
        payload_bytes=WARM_UP_PAYLOAD_BYTES,
        keys=parameters.keys,
        batch=parameters.batch,
        repeat=1,
    )
    queue = await subject.create_queue()
    await fill_and_drain(subject, queue, make_source(warm).batches(warm.batch), messages)
    await subject.delete_queue(queue)
    await subject.wait_until_quiet(limit_s=parameters.quiet_limit_s)


def _megabytes(size_bytes: int | None) -> float | None:
    return None if size_bytes is None else size_bytes / MEGABYTE
