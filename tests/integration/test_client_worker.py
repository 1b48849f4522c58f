"""The worker of both faces: what it says of a message, how it keeps it, and how it ends."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager
from functools import wraps

import pytest
from tests.integration.faces import FACES, client_of
from tests.integration.proxy import proxy_to

import fila.testing
from fila.errors import InvalidArgumentError, QueueNotFoundError, UnavailableError

TIMEOUT_SECONDS = 30


@pytest.fixture(scope="module")
def broker():
    """One for all."""
    with fila.testing.broker() as running:
        yield running


def with_client(body):
    """Run a test with each face, a client of it, and queues of its own."""

    @pytest.mark.parametrize("face", FACES)
    @wraps(body)
    def test(face, broker):
        async def run():
            async with asyncio.timeout(TIMEOUT_SECONDS), client_of(face, broker.address) as client:
                await client.create_queue("orders")
                await client.create_queue("hasty", visibility_timeout_ms=1000)
                try:
                    await body(client)
                finally:
                    await client.delete_queue("orders")
                    await client.delete_queue("hasty")

        asyncio.run(run())

    del test.__wrapped__
    return test


async def numbers(client, queue="orders"):
    stats = await client.stats(queue)
    return stats.depth + stats.delayed, stats.in_flight


async def until(condition):
    """Wait for something that the broker does in its own time."""
    while not await condition():  # noqa: ASYNC110 - nobody tells a client what the broker does
        await asyncio.sleep(0.001)


@asynccontextmanager
async def running(worker):
    """Run a worker, and stop it afterwards."""
    task = asyncio.create_task(worker.run())
    try:
        yield task
    finally:
        worker.stop()
        await task


@with_client
async def test_message_is_acked_when_its_handler_returns(client):
    """And each is handled once."""
    async with client.producer("orders") as producer:
        for number in range(200):
            producer.send(b"%d" % number)
    handled = []

    async def handle(message):
        handled.append(int(message.payload))

    async def is_empty():
        return await numbers(client) == (0, 0)

    async with running(client.worker("orders", handle)):
        await until(is_empty)

    assert sorted(handled) == list(range(200))


@with_client
async def test_message_is_nacked_with_the_text_of_the_error(client):
    """It comes again with an attempt, until it succeeds."""
    await client.enqueue("orders", None, b"x")
    attempts = []

    async def handle(message):
        attempts.append(message.attempt_count)
        if len(attempts) < 3:
            raise ValueError("no such customer")

    async def is_empty():
        return await numbers(client) == (0, 0)

    async with running(client.worker("orders", handle)):
        await until(is_empty)

    assert attempts == [0, 1, 2]


@pytest.mark.parametrize("face", FACES)
def test_broker_is_told_the_text_of_the_error(face, broker):
    """With its type, as in the last line of a traceback."""

    async def run():
        async with (
            asyncio.timeout(TIMEOUT_SECONDS),
            proxy_to(broker.address) as proxy,
            client_of(face, proxy.address) as client,
        ):
            await client.create_queue("orders")
            await client.enqueue("orders", None, b"x")
            proxy.heard = bytearray()

            async def handle(message):
                if not message.attempt_count:
                    raise ValueError("no such customer")

            async def is_empty():
                return await numbers(client) == (0, 0)

            async with running(client.worker("orders", handle)):
                await until(is_empty)
            await client.delete_queue("orders")
            assert b"ValueError: no such customer" in proxy.heard

    asyncio.run(run())


@with_client
async def test_at_most_so_many_handlers_run_at_once(client):
    """And as many do."""
    async with client.producer("orders") as producer:
        for _ in range(40):
            producer.send(b"x")
    now, most, done = 0, 0, 0
    may_end = asyncio.Event()

    async def handle(_message):
        nonlocal now, most, done
        now += 1
        most = max(most, now)
        if now == 4:
            may_end.set()
        await may_end.wait()
        await asyncio.sleep(0)
        now -= 1
        done += 1

    async def all_done():
        return done == 40

    async with running(client.worker("orders", handle, concurrency=4)):
        await until(all_done)

    assert most == 4


@with_client
async def test_lease_lives_while_the_handler_runs(client):
    """Also that of a neighbour that extended itself, and of what waits for its turn: nobody else gets any of them."""
    async with client.producer("hasty") as producer:
        for number in range(4):
            producer.send(b"%d" % number)
    handled, begun, may_end = [], [], asyncio.Event()

    async def handle(message):
        begun.append(message)
        if message.payload == b"0":
            await message.extend(600)
        await may_end.wait()
        handled.append((message.payload, message.attempt_count))

    async def both_begun():
        return len(begun) == 2

    async with running(client.worker("hasty", handle, concurrency=2)):
        await until(both_begun)
        # Much longer than the lease of any would last by itself.
        assert await client.lease("hasty", 10, wait_seconds=2.5) == []
        may_end.set()

        async def is_empty():
            return await numbers(client, "hasty") == (0, 0)

        await until(is_empty)

    assert sorted(handled) == [(b"%d" % number, 0) for number in range(4)]


@with_client
async def test_handler_may_settle_its_message_itself(client):
    """Then that counts, whether it returns or raises."""
    for payload in (b"nacked", b"acked", b"released"):
        await client.enqueue("orders", None, payload)
    seen = []

    async def handle(message):
        seen.append((message.payload, message.attempt_count))
        first = [payload for payload, _ in seen].count(message.payload) == 1
        if message.payload == b"nacked" and first:
            message.nack("not now")
        elif message.payload == b"released" and first:
            message.release()
        elif message.payload == b"acked":
            message.ack()
            raise ValueError("after the ack")

    async def is_empty():
        return await numbers(client) == (0, 0)

    async with running(client.worker("orders", handle, concurrency=1)):
        await until(is_empty)

    assert sorted(seen) == [
        (b"acked", 0),
        (b"nacked", 0),
        (b"nacked", 1),
        (b"released", 0),
        (b"released", 0),
    ]


@with_client
async def test_stop_lets_handlers_end_and_gives_the_rest_back(client):
    """What was begun is acked, what was not begun goes back at once and without an attempt."""
    async with client.producer("orders") as producer:
        for _ in range(20):
            producer.send(b"x")
    begun, may_end = [], asyncio.Event()

    async def handle(message):
        begun.append(message.id)
        await may_end.wait()

    async def two_begun():
        return len(begun) == 2

    async def given_back():
        return await numbers(client) == (18, 2)

    worker = client.worker("orders", handle, concurrency=2)
    task = asyncio.create_task(worker.run())
    await until(two_begun)

    worker.stop()
    await until(given_back)
    assert not task.done()
    may_end.set()
    await task

    assert await numbers(client) == (18, 0)
    assert len(begun) == 2
    assert {message.attempt_count for message in await client.lease("orders", 100)} == {0}


@with_client
async def test_handler_that_takes_too_long_to_end_loses_its_message(client):
    """After `drain_seconds` it goes back, and the worker ends."""
    await client.enqueue("orders", None, b"x")
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def handle(_message):
        begun.set()
        await may_end.wait()

    worker = client.worker("orders", handle, drain_seconds=0.1)
    task = asyncio.create_task(worker.run())
    await begun.wait()

    worker.stop()
    await task

    assert await numbers(client) == (1, 0)
    may_end.set()


@with_client
async def test_worker_of_a_missing_queue_says_so(client):
    """`run` raises it, and there is nothing to stop."""
    worker = client.worker("missing", _nothing)

    with pytest.raises(QueueNotFoundError, match="missing"):
        await worker.run()


@with_client
async def test_stopped_worker_does_not_begin(client):
    """Also where nothing had begun."""
    await client.enqueue("orders", None, b"x")
    worker = client.worker("orders", _nothing)

    worker.stop()
    await worker.run()

    assert await numbers(client) == (1, 0)


async def _nothing(_message):
    raise AssertionError("nothing should be handled")


@with_client
async def test_worker_that_cannot_work_is_refused(client):
    """Before it runs."""
    with pytest.raises(InvalidArgumentError, match="concurrency 0"):
        client.worker("orders", _nothing, concurrency=0)
    with pytest.raises(InvalidArgumentError, match="handler"):
        client.worker("orders", "no function")


@pytest.mark.parametrize("face", FACES)
def test_worker_sits_out_a_restart(face, tmp_path):
    """What it works on stays its own, and what comes later is handled."""

    async def run():
        with fila.testing.broker(data_dir=tmp_path / "data") as broker:
            async with asyncio.timeout(TIMEOUT_SECONDS), client_of(face, broker.address) as client:
                await client.create_queue("orders")
                await client.enqueue("orders", None, b"before")
                seen, begun, may_end = [], asyncio.Event(), asyncio.Event()

                async def handle(message):
                    seen.append((message.payload, message.attempt_count))
                    begun.set()
                    await may_end.wait()

                async def is_empty():
                    return await numbers(client) == (0, 0)

                async with running(client.worker("orders", handle)):
                    await begun.wait()
                    await asyncio.to_thread(broker.restart)
                    may_end.set()
                    await client.enqueue("orders", None, b"after")
                    await until(is_empty)

                assert seen == [(b"before", 0), (b"after", 0)]

    asyncio.run(run())


def test_nobody_there_at_the_start_is_an_error():
    """A worker is not the place to find out that the address is wrong by waiting for ever."""

    async def run():
        async with asyncio.timeout(TIMEOUT_SECONDS):
            for face in FACES:
                async with client_of(face, "127.0.0.1:1") as client:
                    with pytest.raises(UnavailableError):
                        await client.worker("orders", _nothing).run()

    asyncio.run(run())


PROGRAMS = {
    "async": """
import asyncio, os, sys
from fila import AsyncClient

async def handle(message):
    os.write(1, b"begun\\n")
    await asyncio.to_thread(sys.stdin.readline)
    os.write(1, b"ended\\n")

async def main():
    async with AsyncClient(sys.argv[1]) as client:
        await client.worker("letters", handle, concurrency=2).run()
    os.write(1, b"stopped\\n")

asyncio.run(main())
""",
    "sync": """
import os, sys
from fila import Client

def handle(message):
    os.write(1, b"begun\\n")
    sys.stdin.readline()
    os.write(1, b"ended\\n")

with Client(sys.argv[1]) as client:
    client.worker("letters", handle, concurrency=2).run()
os.write(1, b"stopped\\n")
""",
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_signal_drains_a_worker(broker, program, number):
    """Handlers end and are acked, what was not begun goes back without an attempt, and the program ends well."""
    from fila import Client

    with Client(broker.address) as client:
        client.create_queue("letters")
        with client.producer("letters") as producer:
            for _ in range(20):
                producer.send(b"x")
        process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", program, broker.address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert [process.stdout.readline(), process.stdout.readline()] == ["begun\n"] * 2
            process.send_signal(number)
            pause = threading.Event()
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while (stats := client.stats("letters")).in_flight != 2 and time.monotonic() < deadline:
                pause.wait(0.005)
            if stats.in_flight != 2:
                # Its threads say where they are.
                process.send_signal(signal.SIGABRT)
                pytest.fail(f"{stats}\n{process.communicate()}")
            assert stats.depth == 18
            output, errors = process.communicate("\n\n", timeout=TIMEOUT_SECONDS)
        finally:
            process.kill()
            process.wait()

        assert (process.returncode, output, errors) == (0, "ended\nended\nstopped\n", "")
        messages = client.lease("letters", 100)
        assert [message.attempt_count for message in messages] == [0] * 18
        client.delete_queue("letters")
