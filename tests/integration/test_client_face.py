"""What users see of the client besides messages: reprs, names to import, queues that exist, event loops that end."""

import asyncio
import re
import warnings

import pytest
from tests.integration.faces import FACES, client_of

import fila
import fila.testing
from fila import AsyncClient, Client, ClosedError, FilaError
from fila.errors import (
    Code,
    InvalidArgumentError,
    MessageNotFoundError,
    QueueExistsError,
    QueueNotFoundError,
    RPCError,
)


@pytest.fixture(scope="module")
def broker():
    """One for all."""
    with fila.testing.broker() as running:
        yield running


def with_faces(broker, body):
    for face in FACES:

        async def run(face=face):
            async with asyncio.timeout(30), client_of(face, broker.address) as client:
                await client.create_queue("orders")
                try:
                    await body(client)
                finally:
                    await client.delete_queue("orders")

        asyncio.run(run())


# --- what is not there ---


def test_settling_in_a_queue_that_is_not_there_names_the_queue(broker):
    """A missing queue is another mistake than a lease that has ended, by whatever call it shows."""

    async def body(client):
        message_id = await client.enqueue("orders", None, b"x")
        for call in (
            lambda queue: client.ack(queue, message_id),
            lambda queue: client.nack(queue, message_id, "why"),
            lambda queue: client.extend(queue, message_id, 1),
        ):
            with pytest.raises(QueueNotFoundError, match="nope"):
                await call("nope")
            # It is there, and nobody has it leased.
            with pytest.raises(MessageNotFoundError):
                await call("orders")

    with_faces(broker, body)


def test_id_that_is_none_is_refused(broker):
    """As an argument, and not as a message that is gone."""

    async def body(client):
        with pytest.raises(InvalidArgumentError):
            await client.ack("orders", "nonsense")

    with_faces(broker, body)


def test_nack_takes_an_exception(broker):
    """By id and by message, leased and delivered: everyone writes it so."""

    async def body(client):
        await client.enqueue("orders", None, b"x")
        (leased,) = await client.lease("orders")
        await client.nack("orders", leased.id, ValueError("by id"))
        (leased,) = await client.lease("orders", wait_seconds=10)
        await leased.nack(ValueError("leased"))
        async with client.consume("orders") as consumer:
            delivered = await anext(consumer)
            assert delivered.attempt_count == 2
            await delivered.nack(ValueError("delivered")).durable()
            with pytest.raises(InvalidArgumentError, match="error is a str or an exception, not int"):
                (await anext(consumer)).nack(3)

    with_faces(broker, body)


# --- queues that exist ---


def test_queue_that_exists_is_no_error_where_that_is_said(broker):
    """A program may be run twice. What is there stays as it is."""

    async def body(client):
        await client.create_queue("orders", exist_ok=True, discipline="fifo")
        assert (await client.stats("orders")).discipline == "drr"
        with pytest.raises(QueueExistsError):
            await client.create_queue("orders")
        # Only what exists is forgiven.
        with pytest.raises(InvalidArgumentError):
            await client.create_queue("a b", exist_ok=True)

    with_faces(broker, body)


# --- event loops ---


def test_client_in_a_second_loop_says_what_to_do(broker):
    """It belongs to the first. No coroutine is left behind, and closing it is no error."""
    client = AsyncClient(broker.address)

    async def first():
        await client.create_queue("orders")
        # Both streams are open when the loop ends.
        await client.producer("orders").send(b"x")
        await anext(client.consume("orders"))

    asyncio.run(first())

    async def second():
        for use in (
            client.list_queues,
            lambda: client.enqueue("orders", None, b"x"),
            lambda: client.lease("orders"),
            lambda: anext(client.consume("orders")),
            lambda: client.producer("orders").send(b"x"),
        ):
            with pytest.raises(RPCError, match="make a client in each loop") as caught:
                await use()
            assert caught.value.code is Code.FAILED_PRECONDITION
        await client.close()
        with pytest.raises(ClosedError):
            await client.list_queues()
        async with AsyncClient(broker.address) as other:
            await other.delete_queue("orders")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(second())


def test_closed_client_is_not_worth_another_try():
    """A loop that tries again while errors are retryable ends."""
    client = Client("127.0.0.1:1")
    client.close()

    with pytest.raises(FilaError, match="closed") as caught:
        client.list_queues()

    assert (type(caught.value), caught.value.retryable) == (ClosedError, False)


# --- what it looks like ---


def test_everything_shows_what_it_is(broker):
    """With what tells it from others, and no address in memory."""
    shown = {}

    async def body(client):
        client = getattr(client, "_client", client)
        note = lambda name, thing: shown.setdefault(name, []).append(repr(thing))  # noqa: E731
        is_sync = isinstance(client, Client)

        async def wait(result):
            return result if is_sync else await result

        note("client", client)
        producer = client.producer("orders")
        receipt = producer.send(b"x", fairness_key="acme")
        note("receipt", receipt)
        note("producer", producer)
        await asyncio.to_thread(receipt.result) if is_sync else await receipt
        note("receipt", receipt)
        producer.send(b"y")
        await wait(producer.close()) if not is_sync else await asyncio.to_thread(producer.close)
        note("producer", producer)
        consumer = client.consume("orders")
        note("consumer", consumer)
        message = await asyncio.to_thread(next, consumer) if is_sync else await anext(consumer)
        note("message", message)
        settlement = message.ack()
        note("settlement", settlement)
        await asyncio.to_thread(settlement.durable) if is_sync else await settlement.durable()
        note("settlement", settlement)
        note("worker", client.worker("orders", lambda _: None))
        await asyncio.to_thread(consumer.close) if is_sync else await consumer.aclose()
        leased = await asyncio.to_thread(client.lease, "orders") if is_sync else await client.lease("orders")
        note("message", leased[0])
        settlement = await asyncio.to_thread(leased[0].ack) if is_sync else leased[0].ack()
        note("settlement", settlement)

    with_faces(broker, body)

    address = broker.address
    assert shown["client"] == [f"<AsyncClient {address}>", f"<Client {address}>"]
    assert shown["producer"] == [
        line.format(name)
        for name in ("Producer", "SyncProducer")
        for line in (
            "<{} of 'orders', messages without a receipt: 1>",
            "<{} of 'orders', failed: the producer of 'orders' is closed: make another>",
        )
    ]
    for line in shown["receipt"]:
        assert re.fullmatch(r"<(Sync)?Receipt of message 1, (not durable yet|[0-9a-f-]{36})>", line)
    assert shown["consumer"] == ["<Consumer of 'orders'>", "<SyncConsumer of 'orders'>"]
    for line in shown["message"]:
        assert re.fullmatch(r"<(Sync)?Message [0-9a-f-]{36} orders/[01] key='(acme|default)'>", line)
    for line in shown["settlement"]:
        assert re.fullmatch(r"<(Sync)?Settlement( of [0-9a-f-]{36})?, (not durable yet|durable)>", line)
    assert shown["worker"] == [
        f"<{name} of 'orders', at most 10 at once>" for name in ("Worker", "SyncWorker")
    ]
    assert [line.startswith("<Sync") for line in shown["message"]] == [False, False, True, True]


def test_broker_of_a_test_shows_where_it_is(broker):
    """Or that it is not running."""
    assert repr(broker) == f"<Broker at {broker.address}, running>"
    assert "not running" in repr(fila.testing.broker())


# --- names ---


@pytest.mark.parametrize("name", fila.__all__)
def test_every_name_that_is_promised_is_there(name):
    """Those that load on first use as well."""
    assert getattr(fila, name) is not None
    assert name in dir(fila)
