"""A program without asyncio as a user writes it. It is never run: mypy and pyright read it, as strictly as they can."""

import time
from collections.abc import Mapping
from typing import assert_type

from fila import (
    Client,
    EnqueueResult,
    NewMessage,
    QueueInfo,
    QueueStats,
    SyncConsumer,
    SyncMessage,
    SyncProducer,
    SyncReceipt,
    SyncSettlement,
    SyncWorker,
    UnavailableError,
)


def connect() -> None:
    """The ways to a client."""
    client = Client.connect("localhost:5555")
    assert_type(client, Client)
    client.close()
    with (
        Client() as first,
        Client(addr="https://broker:443", timeout_seconds=5.0, ca_file="authority.pem") as second,
    ):
        assert_type(first, Client)
        assert_type(second.list_queues(), list[QueueInfo])


def produce(client: Client) -> None:
    """One message, several, and a stream of them."""
    assert_type(client.enqueue("orders", {"tenant": "acme"}, b"hello", fairness_key="acme", weight=2), str)
    assert_type(client.enqueue_batch("orders", [NewMessage(b"a")]), list[EnqueueResult])
    with client.producer("orders") as producer:
        receipt = producer.send(b"hello", {"tenant": "acme"}, fairness_key="acme")
        producer.flush()
        assert_type(receipt.result(), str)


def consume(client: Client) -> None:
    """The loop, the consumer with a name, and single messages."""
    for message in client.consume("orders", prefetch=10):
        assert_type(message, SyncMessage)
        assert_type(message.headers, Mapping[str, str])
        assert_type(message.payload, bytes)
        message.extend(60)
        message.ack()
        break
    with client.consume("orders") as consumer:
        for message in consumer:
            message.nack("not today")
            message.ack().durable()
    for message in client.lease("orders", max_messages=5, wait_seconds=1):
        client.extend("orders", message.id, 30)
        client.ack("orders", message.id)
        client.nack("orders", message.id, "why")


def send(producer: SyncProducer) -> SyncReceipt:
    """The parts of a program have names for what they are given."""
    return producer.send(b"hello")


def settle(consumer: SyncConsumer) -> SyncSettlement:
    """Whatever failed is a reason as it is."""
    message = next(consumer)
    try:
        return message.ack()
    except UnavailableError as error:
        return message.nack(error)


def handle(message: SyncMessage) -> None:
    """What a worker calls, in one of its threads."""
    time.sleep(len(message.payload))


def work(client: Client) -> None:
    """A worker until it is told to stop."""
    worker = client.worker("orders", handle, concurrency=10)
    assert_type(worker, SyncWorker)
    worker.run()


def administer(client: Client) -> None:
    """Queues."""
    client.create_queue("orders", visibility_timeout_ms=60_000, discipline="fifo", exist_ok=True)
    try:
        assert_type(client.stats("orders"), QueueStats)
    except UnavailableError as error:
        assert_type(error.retryable, bool)
    assert_type(client.purge_queue("orders"), int)
    client.delete_queue("orders")
