"""A program with asyncio as a user writes it. It is never run: mypy and pyright read it, as strictly as they can."""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import assert_type

from fila import (
    AsyncClient,
    ClosedError,
    Consumer,
    Discipline,
    EnqueueResult,
    FilaClient,
    FilaError,
    Message,
    NewMessage,
    OutcomeUnknownError,
    Producer,
    QueueInfo,
    QueueNotFoundError,
    QueueStats,
    Receipt,
    RPCError,
    Settlement,
    UnavailableError,
    Worker,
)


async def connect() -> None:
    """The three ways to a client."""
    client = await FilaClient.connect("localhost:5555")
    assert_type(client, AsyncClient)
    await client.close()
    async with AsyncClient() as first, AsyncClient(addr="https://broker:443", timeout_seconds=5.0) as second:
        assert_type(first, AsyncClient)
        assert_type(await second.list_queues(), list[QueueInfo])
    async with AsyncClient("https://broker", reconnect_seconds=10.0, ca_file="authority.pem"):
        pass


async def produce(client: AsyncClient) -> None:
    """One message, several, and a stream of them."""
    assert_type(await client.enqueue("orders", {"tenant": "acme"}, b"hello"), str)
    await client.enqueue("orders", payload=b"hello", fairness_key="acme", weight=2, cost=3)
    results = await client.enqueue_batch("orders", [NewMessage(b"a"), NewMessage(b"b", {"n": "1"})])
    assert_type(results, list[EnqueueResult])
    for result in results:
        assert_type(result.error, FilaError | None)
    async with client.producer("orders", repeat=False) as producer:
        receipt = producer.send(b"hello", {"tenant": "acme"}, fairness_key="acme")
        await producer.room()
        await producer.flush()
        assert_type(await receipt, str)


async def consume(client: AsyncClient) -> None:
    """The loop, the consumer with a name, and single messages."""
    async for message in client.consume("orders", prefetch=10):
        assert_type(message, Message)
        assert_type(message.id, str)
        assert_type(message.headers, Mapping[str, str])
        assert_type(message.payload, bytes)
        assert_type(message.attempt_count, int)
        assert_type(message.throttle_keys, tuple[str, ...])
        assert_type(message.enqueued_at, datetime)
        await message.extend(60)
        await message.ack()
        break
    consumer = await client.consume("orders")
    async with consumer:
        async for message in consumer:
            await message.nack("not today")
            await message.ack().durable()
    for message in await client.lease("orders", max_messages=5, wait_seconds=1):
        await client.extend("orders", message.id, 30)
        await client.ack("orders", message.id)
        await client.nack("orders", message.id, "why")


async def send(producer: Producer) -> Receipt:
    """The parts of a program have names for what they are given."""
    await producer.room()
    return producer.send(b"hello")


async def settle(consumer: Consumer) -> Settlement:
    """Whatever failed is a reason as it is."""
    message = await anext(consumer)
    try:
        return message.ack()
    except FilaError as error:
        return message.nack(error)


async def handle(message: Message) -> None:
    """What a worker calls."""
    await asyncio.sleep(len(message.payload))


async def work(client: AsyncClient) -> None:
    """A worker until it is told to stop."""
    worker = client.worker("orders", handle, concurrency=10)
    assert_type(worker, Worker)
    await worker.run()


async def administer(client: AsyncClient) -> None:
    """Queues."""
    await client.create_queue("orders", visibility_timeout_ms=60_000, discipline="drr", quantum=1000)
    discipline: Discipline = "wfq"
    await client.create_queue("orders", discipline=discipline, exist_ok=True)
    # A checker finds it: else this comment would be one error too many.
    await client.create_queue("orders", discipline="lifo")  # type: ignore[arg-type]
    stats = await client.stats("orders")
    assert_type(stats, QueueStats)
    assert_type({key.key: key.pending_count for key in stats.keys}, dict[str, int])
    assert_type(await client.purge_queue("orders"), int)
    await client.delete_queue("orders")


async def fail(client: AsyncClient) -> str:
    """Errors, from the most exact one to the root."""
    try:
        return await client.enqueue("orders")
    except QueueNotFoundError as error:
        return error.message
    except OutcomeUnknownError as error:
        return f"perhaps: {error.message}"
    except ClosedError as error:
        return f"never: {error.message}"
    except UnavailableError as error:
        return "later" if error.retryable else "never"
    except RPCError as error:
        return error.code.name
    except FilaError as error:
        return str(error.code)
