"""How a worker on asyncio ends, and what it says of a message whose handler ended in an unusual way."""

import asyncio

import pytest

from fila import AsyncClient, testing


@pytest.fixture(scope="module")
def broker():
    """One for all."""
    with testing.broker() as running:
        yield running


def with_client(body):
    """Run a test with a client and a queue of its own, of which it is told the name."""

    def test(broker):
        async def run():
            async with asyncio.timeout(30), AsyncClient(broker.address) as client:
                await client.create_queue(body.__name__)
                await body(client, body.__name__)

        asyncio.run(run())

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    return test


async def until(condition):
    """Wait for something that the broker does in its own time."""
    while not await condition():  # noqa: ASYNC110 - nobody tells a client what the broker does
        await asyncio.sleep(0.001)


async def fill(client, queue, count):
    async with client.producer(queue) as producer:
        for _ in range(count):
            producer.send(b"x")


@with_client
async def test_stop_is_bounded_where_every_handler_hangs(client, queue):
    """All slots are taken, which is usual under load: the worker still hears that it is to stop."""
    await fill(client, queue, 10)
    begun = []

    async def hang(_message):
        begun.append(1)
        await asyncio.Event().wait()

    worker = client.worker(queue, hang, concurrency=2, drain_seconds=0.2)
    working = asyncio.create_task(worker.run())
    while len(begun) < 2:  # noqa: ASYNC110 - the handlers count
        await asyncio.sleep(0.001)

    worker.stop()

    async with asyncio.timeout(5):
        await working
    messages = await client.lease(queue, 10, 5)
    assert [message.attempt_count for message in messages] == [0] * 10


@with_client
async def test_cancelled_worker_gives_back_what_it_had_begun(client, queue):
    """At once: it does not wait for its handlers as one that is told to stop does."""
    await fill(client, queue, 10)
    begun = asyncio.Event()

    async def hang(_message):
        begun.set()
        await asyncio.Event().wait()

    working = asyncio.create_task(client.worker(queue, hang, concurrency=2).run())
    await begun.wait()

    working.cancel()

    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await working
    messages = await client.lease(queue, 10, 5)
    assert [message.attempt_count for message in messages] == [0] * 10


@with_client
async def test_handler_that_is_cancelled_from_within_has_failed(client, queue):
    """A library that cancels its own work leaves a message that is tried again, and not one that is held for ever."""
    await fill(client, queue, 1)
    attempts = []

    async def give_up_once(message):
        attempts.append(message.attempt_count)
        if not message.attempt_count:
            raise asyncio.CancelledError

    async def is_done():
        stats = await client.stats(queue)
        return (stats.depth, stats.in_flight) == (0, 0)

    worker = client.worker(queue, give_up_once)
    working = asyncio.create_task(worker.run())
    await until(is_done)
    worker.stop()
    await working

    assert attempts == [0, 1]
