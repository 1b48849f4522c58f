"""What the workloads are put together from: fill a queue, drain it, call one by one.

Each is the same for the broker and the bare server and returns what it measured.
"""

import asyncio
import itertools
import time
from collections.abc import Iterable, Iterator
from typing import Any

from fila.bench.figures import Sample
from fila.bench.load import PRODUCE_BATCHES_IN_FLIGHT, ProduceStream, SubscribeStream
from fila.bench.messages import Batch, MessageSource
from fila.bench.parameters import AHEAD_MESSAGES_MAX, Parameters
from fila.bench.subject import Subject
from fila.errors import UnavailableError
from fila.wire.v1 import service_pb2

UNARY_IN_FLIGHT = 64
PREPARED_BATCHES = 64
WARM_UP_SHARE = 0.1
WARM_UP_S_MAX = 2.0


def make_source(
    parameters: Parameters, *, keys: int | None = None, shuffle_seed: int | None = None
) -> MessageSource:
    """Return the messages of a workload."""
    return MessageSource(
        payload_bytes=parameters.payload_bytes, keys=keys or parameters.keys, shuffle_seed=shuffle_seed
    )


def make_batches(parameters: Parameters) -> Iterator[Batch]:
    """Return the batches of a workload: built as they are sent, or made before."""
    batches = make_source(parameters).batches(parameters.batch)
    if parameters.prepared:
        return itertools.cycle(list(itertools.islice(batches, PREPARED_BATCHES)))
    return batches


async def fill(
    subject: Subject,
    queue: str,
    batches: Iterator[Batch],
    messages: int,
    *,
    batches_in_flight: int = PRODUCE_BATCHES_IN_FLIGHT,
) -> Sample:
    """Produce so many messages and wait for their receipts."""
    stream = ProduceStream(subject.channel(), queue, batches_in_flight=batches_in_flight)
    with subject.measured() as sample:
        await stream.send_all(batches, messages=messages)
        sample.messages = stream.receipted
    sample.latencies_s = stream.receipt_times_s
    await stream.close()
    return sample


async def fill_for(subject: Subject, queue: str, batches: Iterator[Batch], seconds: float) -> Sample:
    """Produce for so long, after a warm-up that is not counted."""
    stream = ProduceStream(subject.channel(), queue)
    await stream.send_all(batches, seconds=min(seconds * WARM_UP_SHARE, WARM_UP_S_MAX))
    warm, warm_batches = stream.receipted, len(stream.receipt_times_s)
    with subject.measured() as sample:
        await stream.send_all(batches, seconds=seconds)
        sample.messages = stream.receipted - warm
    sample.latencies_s = stream.receipt_times_s[warm_batches:]
    await stream.close()
    return sample


async def drain(subject: Subject, queue: str, messages: int) -> Sample:
    """Consume and ack so many messages, to the answer to the last ack."""
    with subject.measured() as sample:
        stream = SubscribeStream(subject.channel(), queue)
        await stream.wait_until(lambda: stream.settled >= messages)
        sample.messages = stream.settled
    sample.latencies_s = stream.settle_times_s
    await stream.close()
    return sample


async def fill_and_drain(subject: Subject, queue: str, batches: Iterator[Batch], messages: int) -> Sample:
    """Produce, then consume and ack; a message counts once."""
    sample = await fill(subject, queue, batches, messages)
    filled = sample.messages
    sample.add(await drain(subject, queue, filled))
    sample.messages = filled
    return sample


async def pass_through(subject: Subject, queue: str, batches: Iterator[Batch], seconds: float) -> Sample:
    """Produce and consume at once; a message counts when its ack is answered."""
    producer = ProduceStream(subject.channel(), queue)
    consumer = SubscribeStream(subject.channel(), queue)
    consumer.on_settled = producer.wake
    warm_up_s = min(seconds * WARM_UP_SHARE, WARM_UP_S_MAX)
    sending = asyncio.create_task(
        producer.send_all(
            batches,
            # Beyond the end of the measured stretch, so that the load is whole to its last moment.
            seconds=warm_up_s + seconds + WARM_UP_SHARE,
            gate=lambda: producer.sent - consumer.settled < AHEAD_MESSAGES_MAX,
        )
    )
    await asyncio.wait({sending}, timeout=warm_up_s)
    settled_before, receipts_before = consumer.settled, len(producer.receipt_times_s)
    with subject.measured() as sample:
        await asyncio.wait({sending}, timeout=seconds)
        sample.messages = consumer.settled - settled_before
        receipts = len(producer.receipt_times_s)
    sample.latencies_s = producer.receipt_times_s[receipts_before:receipts]
    await sending
    await consumer.wait_until(lambda: consumer.settled >= producer.sent)
    await producer.close()
    await consumer.close()
    return sample


async def enqueue_each(
    stub: Any, queues: Iterable[str], source: MessageSource, *, seconds: float | None = None
) -> list[float]:
    """Call Enqueue once for each name, 64 at a time; return how long each call took."""
    waiting = iter(queues)
    end_s = None if seconds is None else time.perf_counter() + seconds
    times_s: list[float] = []

    async def enqueue_some() -> None:
        for queue in waiting:
            start_s = time.perf_counter()
            if end_s is not None and start_s >= end_s:
                return
            request = service_pb2.EnqueueRequest(
                queue=queue, payload=source.next_payload(), fairness_key=source.next_key()
            )
            await stub.Enqueue(request)
            times_s.append(time.perf_counter() - start_s)

    async with asyncio.TaskGroup() as group:
        for _ in range(UNARY_IN_FLIGHT):
            group.create_task(enqueue_some())
    return times_s


async def take_each(stub: Any, queues: Iterable[str]) -> int:
    """Lease one message of each name and ack it, 64 at a time; return how many there were."""
    waiting = iter(queues)
    taken = 0

    async def take_some() -> None:
        nonlocal taken
        for queue in waiting:
            response = await stub.Lease(service_pb2.LeaseRequest(queue=queue, max_messages=1, wait_ms=1_000))
            if not response.messages:
                raise UnavailableError(f"queue {queue} gave no message, and one was enqueued")
            message = response.messages[0]
            answer = await stub.AckBatch(
                service_pb2.AckBatchRequest(
                    queue=queue, message_ids=[message.id], lease_epochs=[message.metadata.lease_epoch]
                )
            )
            if answer.results[0].error_code:
                raise UnavailableError(f"the ack of {message.id} was refused: {answer.results[0].error}")
            taken += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(UNARY_IN_FLIGHT):
            group.create_task(take_some())
    return taken
