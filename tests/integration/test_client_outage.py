"""A broker that is away for longer than any call may take: what was worked on is settled all the same."""

import asyncio

from fila import AsyncClient, testing
from fila.client.messages import Settle

TIMEOUT_SECONDS = 0.5


async def away(broker):
    """Let the broker be away for longer than a call may take."""
    await asyncio.to_thread(broker.stop)
    await asyncio.sleep(3 * TIMEOUT_SECONDS)
    await asyncio.to_thread(broker.start)


def test_ack_outlives_an_outage_that_is_longer_than_a_call():
    """As long as its lease lives, the ack is said when the broker is back; nothing comes again."""

    async def run():
        async with testing.broker() as broker, asyncio.timeout(30):
            async with AsyncClient(broker.address, timeout_seconds=TIMEOUT_SECONDS) as client:
                await client.create_queue("orders", visibility_timeout_ms=20_000)
                for _ in range(2):
                    await client.enqueue("orders", None, b"x")
                async with client.consume("orders", prefetch=10) as consumer:
                    before, during = await anext(consumer), await anext(consumer)
                    # Unconfirmed when the broker goes, and said while it is away.
                    await before.ack()
                    going = asyncio.create_task(away(broker))
                    while consumer._subscription.core.generation == 0:  # noqa: ASYNC110 - nobody tells
                        await asyncio.sleep(0.001)
                    acked = during.ack()
                    await going
                    await acked.durable(timeout_seconds=20)
                stats = await client.stats("orders")
            assert (stats.depth, stats.in_flight) == (0, 0)

    asyncio.run(run())


def test_messages_released_by_id_keep_their_order_however_many_there_are():
    """More than one call takes: the newest go back first, so that the oldest stand in front."""

    async def run():
        async with testing.broker() as broker, AsyncClient(broker.address) as client:
            await client.create_queue("orders")
            async with client.producer("orders") as producer:
                for number in range(2_500):
                    producer.send(b"%d" % number)
            leased = [message for _ in range(3) for message in await client.lease("orders", 1_000)]

            errors = await client._settler.settle(
                ("orders", Settle.RELEASE, ""),
                [message.id for message in leased],
                [message.epoch for message in leased],
            )

            assert errors == [None] * 2_500
            again = [message for _ in range(3) for message in await client.lease("orders", 1_000)]
            assert [message.offset for message in again] == list(range(2_500))

    asyncio.run(run())
