"""A broker that is there and says nothing: everything that waits for it has an end."""

import asyncio
import os
import signal
import time
from contextlib import contextmanager, suppress

import pytest
from tests.integration.server_process import ServerProcess

from fila import AsyncClient, Client
from fila.errors import InvalidArgumentError, OutcomeUnknownError

# Far more than anything here takes, and far less than what is to be shown not to be waited for.
TIMEOUT_SECONDS = 8
SHORT_SECONDS = 0.3


@pytest.fixture
def server(tmp_path):
    with ServerProcess(tmp_path) as server:
        yield server.wait_until_ready()


@contextmanager
def silent(server):
    """It is stopped as with Ctrl-Z: connections stay, nothing is answered."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def run(work):
    async def bounded():
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await work

    asyncio.run(bounded())


def test_ack_is_waited_for_as_long_as_any_call(server):
    """`durable` takes the client's timeout, or its own; the ack arrives all the same."""

    async def work():
        async with AsyncClient(server.address, timeout_seconds=SHORT_SECONDS) as client:
            await client.create_queue("orders")
            for _ in range(2):
                await client.enqueue("orders", None, b"x")
            consumer = client.consume("orders")
            first, second = await anext(consumer), await anext(consumer)
            with silent(server):
                for settlement, seconds in ((first.ack(), None), (second.ack(), 0.1)):
                    with pytest.raises(
                        OutcomeUnknownError, match=f"within {seconds or SHORT_SECONDS} seconds"
                    ):
                        await settlement.durable(seconds)
            await consumer.aclose()
            assert (await client.stats("orders")).depth == 0

    run(work())


def test_ack_of_a_thread_is_waited_for_as_long_as_any_call(server):
    """The same for the synchronous client."""
    with Client(server.address, timeout_seconds=SHORT_SECONDS) as client:
        client.create_queue("orders")
        client.enqueue("orders", None, b"x")
        with client.consume("orders") as consumer:
            message = next(consumer)
            with silent(server), pytest.raises(OutcomeUnknownError):
                message.ack().durable()
        assert client.stats("orders").depth == 0


def test_message_without_a_receipt_fails_in_time(server):
    """Also where its stream is open: it is in doubt, and what is sent afterwards arrives."""

    async def work():
        async with AsyncClient(server.address) as client:
            await client.create_queue("orders")
            async with client.producer("orders", delivery_seconds=SHORT_SECONDS) as producer:
                await producer.send(b"before")
                with silent(server):
                    lost = producer.send(b"lost")
                    with pytest.raises(OutcomeUnknownError, match=r"no receipt within 0\.3 seconds"):
                        await lost
                    with pytest.raises(OutcomeUnknownError):
                        await producer.flush()
                # Its stream was cut, the next one is for what follows.
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    while True:
                        try:
                            await producer.send(b"after")
                            break
                        except OutcomeUnknownError:
                            await asyncio.sleep(0)
                with suppress(OutcomeUnknownError):
                    await producer.flush()
            payloads = [message.payload for message in await client.lease("orders", 10)]
            assert payloads[0] == b"before"
            assert b"after" in payloads

    run(work())


def test_flush_and_result_take_a_time(server):
    """They give up waiting, the producer does not give up."""

    async def work():
        async with AsyncClient(server.address) as client:
            await client.create_queue("orders")
            async with client.producer("orders") as producer:
                await producer.send(b"x")
                with silent(server):
                    receipt = producer.send(b"y")
                    with pytest.raises(OutcomeUnknownError, match="1 messages"):
                        await producer.flush(SHORT_SECONDS)
                assert await receipt

    run(work())
    with Client(server.address) as client, client.producer("orders") as producer:
        producer.send(b"x").result()
        with silent(server):
            receipt = producer.send(b"y")
            with pytest.raises(OutcomeUnknownError):
                receipt.result(SHORT_SECONDS)
            with pytest.raises(OutcomeUnknownError):
                producer.flush(SHORT_SECONDS)
        assert receipt.result()


def test_close_is_bounded_however_many_streams_there_are(server):
    """By the client's timeout, for all of them together."""

    async def work():
        client = AsyncClient(server.address, timeout_seconds=1)
        for number in range(5):
            queue = f"orders-{number}"
            await client.create_queue(queue)
            await client.enqueue(queue, None, b"x")
            consumer = client.consume(queue)
            (await anext(consumer)).ack()
            producer = client.producer(queue)
            await producer.send(b"x")
            producer.send(b"y")
        with silent(server):
            began = time.monotonic()
            with pytest.raises(OutcomeUnknownError):
                await client.close()
            assert time.monotonic() - began < 3
        # Nothing of ours is left behind.
        assert not [task for task in asyncio.all_tasks() if "/fila/client/" in repr(task)]

    run(work())


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_delivery_needs_time(seconds):
    """None at all would fail every message."""
    with pytest.raises(InvalidArgumentError, match="delivery_seconds"):
        AsyncClient("127.0.0.1:1").producer("orders", delivery_seconds=seconds)
