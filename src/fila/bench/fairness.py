"""The workload that asks who is served next, judged by the order in which messages come out.

The consumer grants credit only while no message is on its way in, so the order of arrivals and services is exact.
"""

import random
from collections.abc import Sequence
from typing import Any

from fila.bench.figures import Sample, median_or_none, ratio_or_none
from fila.bench.load import ProduceStream, SubscribeStream
from fila.bench.messages import build_batch, make_payloads
from fila.bench.operations import fill_and_drain, make_batches
from fila.bench.session import Figures, Session, baseline_figures, throughput_figures
from fila.bench.shares import Arrival, Event, Service, count_law_violations, max_share_error
from fila.bench.subject import Subject

STEADY_WEIGHTS = {f"steady-{weight}": weight for weight in range(1, 6)}
SHARES_AFTER = 1_000
VISITORS = 20
VISITOR_MESSAGES_MAX = 20
GRANT_MESSAGES_MAX = 100
BACKLOGGED_KEYS = 100
# A key whose turn is long: whole turns would let a lone message wait for all of it.
HEAVY_WEIGHT = 50
LONE_TRIALS = 20
SEED = 7


class OrderedQueue:
    """A queue of which every arrival and every service is seen in its order."""

    def __init__(self, subject: Subject, queue: str, payload_bytes: int) -> None:
        self.events: list[Event] = []
        self._payloads = make_payloads(payload_bytes)
        # A body, its size and the columns of a message of its own page: more than is needed, never less.
        self._message_bytes = payload_bytes + 64
        self._producer = ProduceStream(subject.channel(), queue)
        self._consumer = SubscribeStream(
            subject.channel(), queue, paused=True, on_delivery=self._record_services
        )

    async def arrive(self, key: str, *, weight: int, count: int) -> None:
        """Put in messages of one key and wait until they are taken."""
        batch = build_batch([self._payloads[0]] * count, [key] * count, weight)
        due = self._producer.sent + count
        await self._producer.send(batch)
        await self._producer.wait_until(lambda: self._producer.receipted >= due)
        self.events.append(Arrival(key, weight, count))

    async def serve(self, count: int) -> list[str]:
        """Let so many messages come out, which must be there; return their keys in order."""
        begin = len(self.events)
        due = self._consumer.delivered + count
        self._consumer.grant(count, count * self._message_bytes)
        await self._consumer.wait_until(lambda: self._consumer.delivered >= due)
        return [event.key for event in self.events[begin:]]

    async def close(self) -> None:
        """End both streams, once all acks are answered."""
        await self._consumer.wait_until(lambda: self._consumer.settled >= self._consumer.delivered)
        await self._producer.close()
        await self._consumer.close()

    def _record_services(self, delivery: Any) -> None:
        keys = delivery.keys
        index: Sequence[int] = delivery.key_index or [0] * len(delivery.sizes)
        self.events += [Service(keys[place]) for place in index]


async def run_fairness(session: Session) -> tuple[Figures, Figures]:
    """Shares and the interval law while keys come and go, a lone message, and what the discipline costs."""
    subject, parameters = session.broker, session.parameters
    shares = await observe_shares(subject, parameters.payload_bytes, services=20 * SHARES_AFTER // 4)
    lone = await observe_lone_messages(subject, parameters.payload_bytes)
    total, overheads = await compare_with_fifo(session)
    await session.wait_until_quiet()
    queue = await session.bare.create_queue()
    bare = await fill_and_drain(session.bare, queue, make_batches(parameters), parameters.messages or 0)
    figures: Figures = {
        **shares,
        "lone_message_wait": max(lone),
        "overhead_over_fifo": median_or_none(overheads),
        "overhead_over_fifo_pairs": overheads,
    }
    return figures | throughput_figures(total), baseline_figures(total, bare)


async def observe_shares(subject: Subject, payload_bytes: int, *, services: int) -> Figures:
    """Keep five keys backlogged while others come and go, and judge the order in which they are served."""
    draw = random.Random(SEED)
    name = await subject.create_queue()
    queue = OrderedQueue(subject, name, payload_bytes)
    total_weight = sum(STEADY_WEIGHTS.values())
    for key, weight in STEADY_WEIGHTS.items():
        # More than the key gets if nobody else is served, so that it stays backlogged.
        await queue.arrive(key, weight=weight, count=services * weight // total_weight + GRANT_MESSAGES_MAX)
    served: list[str] = []
    while len(served) < services:
        for _ in range(draw.randrange(3)):
            visitor = draw.randrange(VISITORS)
            count = draw.randint(1, VISITOR_MESSAGES_MAX)
            await queue.arrive(f"visitor-{visitor}", weight=visitor % 5 + 1, count=count)
        served += await queue.serve(min(draw.randint(1, GRANT_MESSAGES_MAX), services - len(served)))
    await queue.close()
    await subject.delete_queue(name)
    return {
        "max_share_error": max_share_error(served, STEADY_WEIGHTS, after=SHARES_AFTER),
        "law_violations": count_law_violations(queue.events),
        "services_judged": len(served),
    }


async def observe_lone_messages(subject: Subject, payload_bytes: int) -> list[int]:
    """Return how many messages came out before each of some lone ones, with 100 keys backlogged.

    When a lone message arrives nothing is leased out that has not been received, so all that comes before it counts.
    """
    draw = random.Random(SEED)
    name = await subject.create_queue()
    queue = OrderedQueue(subject, name, payload_bytes)
    between_max = 2 * HEAVY_WEIGHT
    for number in range(BACKLOGGED_KEYS):
        weight = HEAVY_WEIGHT if number == 0 else number % 5 + 1
        # All services of all trials could go to one key.
        backlog = LONE_TRIALS * between_max * weight // 100 + between_max
        await queue.arrive(f"key-{number}", weight=weight, count=backlog)
    # Every key has been new and is in the round now.
    await queue.serve(4 * BACKLOGGED_KEYS)
    waits = []
    for trial in range(LONE_TRIALS):
        await queue.serve(draw.randint(1, between_max))
        lone = f"lone-{trial}"
        await queue.arrive(lone, weight=1, count=1)
        wait = 0
        while (await queue.serve(1))[0] != lone:
            wait += 1
        waits.append(wait)
    await queue.close()
    await subject.delete_queue(name)
    return waits


async def compare_with_fifo(session: Session) -> tuple[Sample, list[float | None]]:
    """Measure produce, consume and ack under both disciplines, in pairs that change their order."""
    parameters = session.parameters
    messages = parameters.messages or 0
    total = Sample()
    overheads: list[float | None] = []
    for pair in range(parameters.repeat):
        samples = {}
        for discipline in ("drr", "fifo") if pair % 2 == 0 else ("fifo", "drr"):
            queue = await session.broker.create_queue(discipline=discipline)
            await session.wait_until_quiet()
            samples[discipline] = await fill_and_drain(
                session.broker, queue, make_batches(parameters), messages
            )
            await session.broker.delete_queue(queue)
        total.add(samples["drr"])
        ratio = ratio_or_none(samples["drr"].cpu_us_per_msg, samples["fifo"].cpu_us_per_msg)
        overheads.append(None if ratio is None else ratio - 1)
    return total, overheads
