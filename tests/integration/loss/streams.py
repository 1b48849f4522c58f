"""Streams whose connection is lost, and what must hold then: the loop goes on by itself."""

import asyncio

from fila.client.values import NewMessage
from fila.errors import MessageNotFoundError, OutcomeUnknownError

KEYS = ("acme", "umbrella", "initech")
MESSAGES = 60


async def _send(scene, producer):
    """Send in small and large batches, and wait for a receipt now and then."""
    receipts = []
    for number in range(MESSAGES):
        await producer.room()
        receipts.append(
            producer.send(b"%d " % number + bytes(20 * (number % 7)), fairness_key=KEYS[number % len(KEYS)])
        )
        if number % 5 == 4:
            await asyncio.sleep(0)
        if number % 20 == 19:
            await asyncio.wait([asyncio.ensure_future(_resolved(receipts[-1]))])
    return receipts


async def _resolved(receipt):
    try:
        return await receipt
    except OutcomeUnknownError as error:
        return error


def _number(message):
    return int(message.payload.split()[0])


async def producer(scene):
    """Nothing that has a receipt is lost, every message has one, and the first copies are in order within each key."""
    scene.begin()
    async with scene.client.producer(scene.queue) as producer:
        receipts = await _send(scene, producer)
        await producer.flush()
        ids = [await receipt for receipt in receipts]

    stored = await scene.stored()
    assert not set(ids) - {message.id for message in stored}
    assert {message.id: _number(message) for message in stored if message.id in set(ids)} == {
        message_id: number for number, message_id in enumerate(ids)
    }
    for key in KEYS:
        first = list(dict.fromkeys(_number(message) for message in stored if message.fairness_key == key))
        assert first == sorted(first)
    if scene.goes_on:
        assert len(stored) == MESSAGES


async def producer_that_does_not_repeat(scene):
    """No message is there twice; those in doubt say so, and all others are there."""
    scene.begin()
    producer = scene.client.producer(scene.queue, repeat=False)
    receipts = await _send(scene, producer)
    outcomes = [await _resolved(receipt) for receipt in receipts]
    await producer.abort()

    stored = [_number(message) for message in await scene.stored()]
    assert stored == sorted(set(stored))
    certain = {number for number, outcome in enumerate(outcomes) if isinstance(outcome, str)}
    assert certain <= set(stored)
    if scene.goes_on:
        assert len(certain) == MESSAGES


class _Tally:
    """Which messages were acked for good: none of them may come again."""

    def __init__(self):
        self.durable = set()
        self.tasks = set()

    def see(self, message):
        assert message.id not in self.durable, f"{message!r} was acked, and came back"

    def settle(self, message, settlement):
        task = asyncio.ensure_future(self._wait(message.id, settlement))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _wait(self, message_id, settlement):
        try:
            await settlement.durable()
        except MessageNotFoundError:
            return
        self.durable.add(message_id)


async def _preload(scene):
    results = await scene.direct.enqueue_batch(
        scene.queue,
        [NewMessage(b"%d" % number, fairness_key=KEYS[number % len(KEYS)]) for number in range(MESSAGES)],
    )
    return {result.id for result in results}


async def consumer(scene):
    """Every message comes until it is acked, what was acked for good never comes back, and the loop goes on."""
    ids, tally = await _preload(scene), _Tally()
    scene.begin()
    async with scene.client.consume(scene.queue, prefetch=8) as consumer:

        async def stop_when_done():
            await scene.until(lambda: _true(tally.durable == ids))
            consumer.stop()

        stopping = asyncio.create_task(stop_when_done())
        hand = []
        async for message in consumer:
            tally.see(message)
            hand.append(message)
            # Some are acked at once, some stay in hand for a while.
            while len(hand) > len(ids - tally.durable) % 4:
                await _ack(hand.pop(0), tally)
        await stopping
    assert not tally.tasks
    assert await scene.numbers() == (0, 0)


async def _ack(message, tally):
    try:
        settlement = message.ack()
    except MessageNotFoundError:
        return
    await settlement
    tally.settle(message, settlement)


async def _true(value):
    return value


async def subscribing(scene):
    """Whoever waits for the subscription has it in the end, and the first message."""
    await scene.direct.enqueue(scene.queue, None, b"x")
    scene.begin()
    consumer = await scene.client.consume(scene.queue, prefetch=1)
    async with consumer:
        message = await anext(consumer)
        while True:
            try:
                await message.ack().durable()
                break
            except MessageNotFoundError:
                message = await anext(consumer)
    assert await scene.numbers() == (0, 0)


async def waiting_consumer(scene):
    """One that waits for a message gets the next, whenever its connection was lost."""
    scene.begin()
    async with scene.client.consume(scene.queue) as consumer:
        waiting = asyncio.ensure_future(anext(consumer))

        async def attached():
            return (await scene.direct.stats(scene.queue)).active_consumers == 1

        await scene.until(attached)
        await scene.direct.enqueue(scene.queue, None, b"x")
        assert (await waiting).payload == b"x"


async def closing_consumer(scene):
    """One that ends while it holds messages leaves nothing leased: given back by itself or by the broker."""
    await _preload(scene)
    consumer = scene.client.consume(scene.queue, prefetch=20)
    for _ in range(5):
        await anext(consumer)
    scene.begin()
    await consumer.aclose()

    async def given_back():
        return (await scene.numbers())[1] == 0

    await scene.until(given_back)
    assert len(await scene.stored()) == MESSAGES


async def worker(scene):
    """Every message is handled until its ack holds; the worker goes on, and ends when it is told to."""
    await _preload(scene)
    handled = set()

    async def handle(message):
        await asyncio.sleep(0)
        handled.add(_number(message))
        if _number(message) % 10 == 3 and not message.attempt_count:
            raise ValueError("the first attempt fails")

    scene.begin()
    worker = scene.client.worker(scene.queue, handle, concurrency=4)
    running = asyncio.create_task(worker.run())

    async def is_empty():
        return running.done() or await scene.numbers() == (0, 0)

    await scene.until(is_empty)
    worker.stop()
    await running
    # Whatever is delayed after a failed attempt, or was given back at the end.
    assert handled == set(range(MESSAGES))
    assert await scene.numbers() == (0, 0)


CASES = (
    producer,
    producer_that_does_not_repeat,
    subscribing,
    consumer,
    waiting_consumer,
    closing_consumer,
    worker,
)
