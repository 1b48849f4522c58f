"""Tests with a broker, as a user writes them. They are never run: mypy and pyright read them."""

import asyncio
from typing import assert_type

import fila.testing
from fila import AsyncClient


def test_with_fixtures(fila_broker: fila.testing.Broker, fila_queue: str) -> None:
    """The fixtures are what the plugin says they are."""

    async def run() -> list[bytes]:
        async with AsyncClient(fila_broker.address) as client:
            await client.enqueue(fila_queue, payload=b"hello")
            fila_broker.restart()
            return [message.payload for message in await client.lease(fila_queue)]

    assert asyncio.run(run()) == [b"hello"]


def test_with_a_broker_of_its_own() -> None:
    """The context manager."""
    with fila.testing.broker(durability="fsync") as broker:
        assert_type(broker, fila.testing.Broker)
        assert_type(broker.create_queue("orders"), str)
        broker.stop()
        broker.start()


async def test_with_a_loop() -> None:
    """The same in a coroutine."""
    async with fila.testing.broker() as broker, AsyncClient(broker.address) as client:
        await client.create_queue("orders")
