"""Two tenants share a queue: one with two hundred messages, one that comes later with three.

Start a broker with `make run`, then: .venv/bin/python examples/fair_tenants.py [HOST:PORT]
"""

import asyncio
import sys

from fila import AsyncClient

QUEUE = "fair-tenants"


async def main(addr: str) -> None:
    """Fill the queue, then drain it and say when each tenant was served."""
    async with AsyncClient(addr) as client:
        await client.create_queue(QUEUE, exist_ok=True)
        await client.purge_queue(QUEUE)

        async with client.producer(QUEUE) as producer:
            for number in range(200):
                producer.send(b"big job %d" % number, fairness_key="big")
            for number in range(3):
                producer.send(b"small job %d" % number, fairness_key="small")

        served = []
        # Small deliveries, so that the order in which this loop sees messages is that of the broker's decisions.
        async with client.consume(QUEUE, prefetch=10) as messages:
            async for message in messages:
                served.append(message.fairness_key)
                await message.ack()
                if len(served) == 203:
                    break

    places = [place for place, key in enumerate(served, start=1) if key == "small"]
    print(f"small was served at places {places} of {len(served):,}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:5555"))
