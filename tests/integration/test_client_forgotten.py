"""Programs that forget to close or to flush, and those that do not: Python's development mode tells them apart."""

import subprocess
import sys
import threading

import pytest

import fila.testing
from fila import Client
from fila.errors import ClosedError, FilaError

TIMEOUT_SECONDS = 30


@pytest.fixture(scope="module")
def broker():
    """One for all."""
    with fila.testing.broker() as running:
        yield running


@pytest.fixture
def client(broker):
    with Client(broker.address) as client:
        client.create_queue("orders")
        yield client
        client.delete_queue("orders")


def errors_of(program, broker):
    """Run a program in development mode, and return what it wrote to standard error."""
    process = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program, broker.address],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stderr


ASYNC = """
import asyncio, sys
from fila import AsyncClient

async def main():
{body}

asyncio.run(main())
"""

FORGOTTEN_FLUSH = ASYNC.format(
    body="""
    client = AsyncClient(sys.argv[1])
    producer = client.producer("orders")
    for _ in range(1000):
        producer.send(b"x")
"""
)

FORGOTTEN_FLUSH_IN_WORK = ASYNC.format(
    body="""
    client = AsyncClient(sys.argv[1])
    producer = client.producer("orders")
    await producer.send(b"x")
    for _ in range(1000):
        producer.send(b"x")
"""
)

FORGOTTEN_LOOP = """
import asyncio, sys
from fila import AsyncClient

async def main():
    client = AsyncClient(sys.argv[1])
    client.producer("orders").send(b"x")

loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
"""


@pytest.mark.parametrize(
    ("program", "count"),
    [(FORGOTTEN_FLUSH, 1000), (FORGOTTEN_FLUSH_IN_WORK, 1000), (FORGOTTEN_LOOP, 1)],
    ids=["at once", "in work", "without asyncio.run"],
)
def test_messages_that_nobody_waited_for_are_told_of(client, broker, program, count):
    """They are lost when the event loop ends: a line in the log says how many, and of which queue."""
    errors = errors_of(program, broker)

    told = [line for line in errors.splitlines() if line.startswith("messages of the producer of 'orders'")]
    assert len(told) == 1, errors
    assert f"have no receipt: {count};" in told[0]
    assert "was not closed" in errors


def test_client_that_was_not_closed_is_told_of(client, broker):
    """As a ResourceWarning, which development mode shows."""
    errors = errors_of(
        ASYNC.format(body="    await AsyncClient(sys.argv[1]).enqueue('orders', None, b'x')"), broker
    )

    assert "ResourceWarning: the client of" in errors
    assert "await its close()" in errors


CLEAN = {
    "async": ASYNC.format(
        body="""
    async with AsyncClient(sys.argv[1]) as client:
        async with client.producer("orders") as producer:
            for _ in range(1000):
                producer.send(b"x")
        other = client.producer("orders")
        other.send(b"x")
        async for message in client.consume("orders"):
            await message.ack()
            break
        async with client.consume("orders") as consumer:
            await anext(consumer)
        worker = client.worker("orders", lambda message: asyncio.sleep(0))
        asyncio.get_running_loop().call_later(0.05, worker.stop)
        await worker.run()
        client.producer("orders")
    AsyncClient(sys.argv[1]).producer("orders")
"""
    ),
    "sync": """
import sys, threading
from fila import Client

with Client(sys.argv[1]) as client:
    with client.producer("orders") as producer:
        for _ in range(1000):
            producer.send(b"x")
    client.producer("orders").send(b"x")
    for message in client.consume("orders"):
        message.ack()
        break
    worker = client.worker("orders", lambda message: None)
    threading.Timer(0.05, worker.stop).start()
    worker.run()
client = Client(sys.argv[1])
client.producer("orders").send(b"x")
consumer = client.consume("orders")
next(consumer)
""",
}


@pytest.mark.parametrize("program", CLEAN.values(), ids=CLEAN)
def test_program_that_closes_what_it_opens_hears_nothing(client, broker, program):
    """No warning, no task that was pending, no error that nobody looked at; the synchronous client closes itself."""
    assert errors_of(program, broker) == ""


def test_thread_that_waits_is_told_that_the_client_was_closed(client, broker):
    """With an error of ours, whatever it waits for."""
    other = Client(broker.address)
    raised = []
    waits = threading.Barrier(4)

    def wait(work):
        waits.wait(TIMEOUT_SECONDS)
        try:
            while True:
                work()
        except FilaError as error:
            raised.append(error)

    producer = other.producer("orders")
    works = [
        lambda: other.lease("orders", wait_seconds=0.01),
        lambda: other.enqueue("orders", None, b"x"),
        lambda: producer.send(b"x"),
    ]
    threads = [threading.Thread(target=wait, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    waits.wait(TIMEOUT_SECONDS)
    producer.send(b"x").result()

    other.close()
    for thread in threads:
        thread.join(TIMEOUT_SECONDS)

    assert len(raised) == 3
    assert all("closed" in str(error) for error in raised)
    with pytest.raises(ClosedError):
        other.list_queues()
