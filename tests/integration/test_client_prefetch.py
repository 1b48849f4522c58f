"""What the plain loop leases ahead, against a real broker: enough not to wait, and not what others should have."""

import asyncio
import time
from contextlib import asynccontextmanager

from fila import AsyncClient, testing

SLOW_SECONDS = 0.02


@asynccontextmanager
async def queue_of(acme_messages, **options):
    """Run a broker with a queue that one tenant has flooded."""
    async with testing.broker() as broker, AsyncClient(broker.address) as client:
        await client.create_queue("orders", **options)
        async with client.producer("orders") as producer:
            for number in range(acme_messages):
                producer.send(b"%d" % number, fairness_key="acme")
        yield client


def test_late_message_overtakes_what_a_slow_loop_has_leased_ahead():
    """It waits for the moment's work that is leased ahead, not for the flood."""

    async def run():
        async with queue_of(1_000) as client, asyncio.timeout(30):
            before = 0
            async with client.consume("orders") as consumer:
                async for message in consumer:
                    await asyncio.sleep(SLOW_SECONDS)
                    await message.ack()
                    before += 1
                    if before == 20:
                        await client.enqueue("orders", None, b"", fairness_key="bolt")
                    if message.fairness_key == "bolt":
                        break
            # A tenth of a second ahead is five of these, and the deliveries on the way; the flood was a thousand.
            assert before < 40

    asyncio.run(run())


def test_two_slow_loops_share_the_work():
    """The second begins when the first is at work, and finds as much to do."""

    async def run():
        handled = {"first": 0, "second": 0}

        async def work(client, name):
            async with client.consume("orders") as consumer:
                async for message in consumer:
                    await asyncio.sleep(SLOW_SECONDS)
                    await message.ack()
                    handled[name] += 1

        async with queue_of(1_000) as client, asyncio.timeout(30):
            first = asyncio.create_task(work(client, "first"))
            while handled["first"] < 20:  # noqa: ASYNC110 - it is another task that counts
                await asyncio.sleep(SLOW_SECONDS)
            second = asyncio.create_task(work(client, "second"))
            while handled["second"] < 20:  # noqa: ASYNC110
                await asyncio.sleep(SLOW_SECONDS)
            assert handled["first"] < 70
            first.cancel()
            second.cancel()
            await asyncio.gather(first, second, return_exceptions=True)

    asyncio.run(run())


def test_what_waits_too_long_goes_back_without_an_attempt():
    """A loop that has become slow keeps nothing from others, and what it never began has not failed."""

    async def run():
        async with queue_of(500, visibility_timeout_ms=2_000) as client, asyncio.timeout(30):
            async with client.consume("orders") as consumer:
                for _ in range(100):
                    await (await anext(consumer)).ack()
                stuck = await anext(consumer)
                began = time.monotonic()
                while (await client.stats("orders")).in_flight > 1:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.01)
                assert time.monotonic() - began < 1.9
                await stuck.ack()
                left = [await anext(consumer) for _ in range(399)]
                assert all(message.attempt_count == 0 for message in left)
                await asyncio.gather(*(message.ack().durable() for message in left))
            assert (await client.stats("orders")).depth == 0

    asyncio.run(run())
