"""The workloads that ask how much goes through one queue, and how long a message takes."""

import itertools
import time
from collections.abc import Awaitable, Callable

from fila.bench.figures import Sample
from fila.bench.load import ProduceStream, SubscribeStream
from fila.bench.operations import (
    WARM_UP_S_MAX,
    WARM_UP_SHARE,
    drain,
    enqueue_each,
    fill,
    fill_for,
    make_batches,
    make_source,
    pass_through,
)
from fila.bench.session import Figures, Session, baseline_figures, latency_figures, throughput_figures
from fila.bench.subject import Subject
from fila.wire.v1 import service_pb2


async def run_produce(session: Session) -> tuple[Figures, Figures]:
    """One producer, batches in flight; the latencies are from sending a batch to its receipt."""
    parameters = session.parameters

    async def measure(subject: Subject, queue: str) -> Sample:
        batches = make_batches(parameters)
        if parameters.messages is None:
            return await fill_for(subject, queue, batches, parameters.seconds)
        return await fill(subject, queue, batches, parameters.messages)

    return await _compare(session, measure)


async def run_consume(session: Session) -> tuple[Figures, Figures]:
    """One consumer drains a backlog; the latencies are from sending acks to their answer."""
    parameters = session.parameters
    messages = parameters.messages or 0

    async def measure(subject: Subject, queue: str) -> Sample:
        filled = await fill(subject, queue, make_batches(parameters), messages)
        await session.wait_until_quiet()
        return await drain(subject, queue, filled.messages)

    return await _compare(session, measure)


async def run_both(session: Session) -> tuple[Figures, Figures]:
    """A producer and a consumer at once; the latencies are from sending a batch to its receipt."""
    parameters = session.parameters

    async def measure(subject: Subject, queue: str) -> Sample:
        return await pass_through(subject, queue, make_batches(parameters), parameters.seconds)

    return await _compare(session, measure)


async def run_unary(session: Session) -> tuple[Figures, Figures]:
    """64 Enqueue calls in flight; the latencies are those of the calls."""
    parameters = session.parameters

    async def measure(subject: Subject, queue: str) -> Sample:
        stub, source = subject.stub(), make_source(parameters)
        warm_up_s = min(parameters.seconds * WARM_UP_SHARE, WARM_UP_S_MAX)
        await enqueue_each(stub, itertools.repeat(queue), source, seconds=warm_up_s)
        with subject.measured() as sample:
            if parameters.messages is None:
                times_s = await enqueue_each(
                    stub, itertools.repeat(queue), source, seconds=parameters.seconds
                )
            else:
                times_s = await enqueue_each(stub, itertools.repeat(queue, parameters.messages), source)
            sample.messages = len(times_s)
        sample.latencies_s = times_s
        return sample

    return await _compare(session, measure)


async def run_latency(session: Session) -> tuple[Figures, Figures]:
    """One message at a time, from sending it to its delivery: on a Produce stream, and by Enqueue calls."""
    parameters = session.parameters
    messages = parameters.messages or 0
    by_call: dict[str, list[float]] = {session.broker.address: [], session.bare.address: []}

    async def measure(subject: Subject) -> Sample:
        queue = await subject.create_queue()
        consumer = SubscribeStream(subject.channel(), queue)
        producer = ProduceStream(subject.channel(), queue)
        stub, source = subject.stub(), make_source(parameters)
        batches = source.batches(1)

        async def pass_one(*, by_stream: bool) -> float:
            delivered = consumer.delivered + 1
            start_s = time.perf_counter()
            if by_stream:
                await producer.send(next(batches))
            else:
                await stub.Enqueue(service_pb2.EnqueueRequest(queue=queue, payload=source.next_payload()))
            await consumer.wait_until(lambda: consumer.delivered >= delivered)
            taken_s = consumer.delivered_at_s - start_s
            # One at a time: the next message finds the broker idle.
            await consumer.wait_until(lambda: consumer.settled >= delivered)
            return taken_s

        warm_up = max(1, int(messages * WARM_UP_SHARE))
        for _ in range(warm_up):
            await pass_one(by_stream=True)
            await pass_one(by_stream=False)
        with subject.measured() as sample:
            sample.latencies_s = [await pass_one(by_stream=True) for _ in range(messages)]
            sample.messages = messages
        by_call[subject.address] += [await pass_one(by_stream=False) for _ in range(messages)]
        await producer.close()
        await consumer.close()
        await subject.delete_queue(queue)
        return sample

    broker, bare = await session.measure_both(measure)
    results = throughput_figures(broker) | latency_figures(by_call[session.broker.address], prefix="enqueue_")
    return results, baseline_figures(broker, bare) | latency_figures(
        by_call[session.bare.address], prefix="enqueue_"
    )


async def _compare(
    session: Session, measure: Callable[[Subject, str], Awaitable[Sample]]
) -> tuple[Figures, Figures]:
    """Measure both servers, each time on a queue of its own, and return what the broker did and what the bare server."""

    async def measure_on_queue(subject: Subject) -> Sample:
        queue = await subject.create_queue()
        sample = await measure(subject, queue)
        await subject.delete_queue(queue)
        return sample

    broker, bare = await session.measure_both(measure_on_queue)
    return throughput_figures(broker), baseline_figures(broker, bare)
