"""Handlers that cannot work, and workers that are to end at once."""

import asyncio
import functools
import signal
import subprocess
import sys
import threading

import pytest

import fila.testing
from fila import AsyncClient, Client
from fila.errors import InvalidArgumentError

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
        client.enqueue("orders", None, b"x")
        yield client
        client.delete_queue("orders")


def numbers(client):
    stats = client.stats("orders")
    return stats.depth + stats.delayed, stats.in_flight


async def coroutine_function(_message):
    raise AssertionError("nobody awaits it")


class Handler:
    async def __call__(self, message):
        await coroutine_function(message)

    async def method(self, message):
        await coroutine_function(message)


def generator(_message):
    yield


async def asynchronous_generator(_message):
    yield


@pytest.mark.parametrize(
    "handler",
    [
        coroutine_function,
        functools.partial(functools.partial(coroutine_function)),
        Handler(),
        Handler().method,
        generator,
        asynchronous_generator,
    ],
    ids=["function", "partial", "object", "method", "generator", "asynchronous generator"],
)
def test_handler_that_a_thread_could_not_run_is_refused(client, handler):
    """At once: what it returns would never run, and its message would be acked."""
    with pytest.raises(InvalidArgumentError, match="AsyncClient"):
        client.worker("orders", handler)


@pytest.mark.parametrize("handler", [print, generator, asynchronous_generator])
def test_handler_that_cannot_be_awaited_is_refused(handler):
    """As far as it can be told before it is called."""
    with pytest.raises(InvalidArgumentError, match="async def"):
        AsyncClient("127.0.0.1:1").worker("orders", handler)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "handler",
    [lambda message: coroutine_function(message), lambda message: generator(message)],  # noqa: PLW0108
    ids=["coroutine", "generator"],
)
def test_message_whose_handler_did_not_run_is_not_acked(client, handler):
    """It is nacked, and the worker ends with the reason: it would be so with every message."""
    with pytest.raises(InvalidArgumentError, match="nobody runs"):
        client.worker("orders", handler).run()

    (message,) = client.lease("orders", wait_seconds=TIMEOUT_SECONDS)
    assert message.attempt_count == 1


def test_handler_that_returns_nothing_to_await_ends_its_worker(client, broker):
    """With the reason, and once."""
    calls = []

    def handle(message):
        calls.append(message)

    async def run():
        async with AsyncClient(broker.address) as other:
            await other.worker("orders", handle).run()

    with pytest.raises(InvalidArgumentError, match="async def"):
        asyncio.run(asyncio.wait_for(run(), TIMEOUT_SECONDS))

    assert len(calls) == 1
    assert sum(numbers(client)) == 1


def test_cancelled_worker_cancels_its_handlers(client, broker):
    """At once, whatever `drain_seconds` says: the message goes back without an attempt."""
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def handle(_message):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def run():
        async with AsyncClient(broker.address) as other:
            task = asyncio.create_task(other.worker("orders", handle, drain_seconds=3600).run())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert cancelled.is_set()

    asyncio.run(asyncio.wait_for(run(), TIMEOUT_SECONDS))

    (message,) = client.lease("orders")
    assert message.attempt_count == 0


def test_drain_is_bounded_where_every_thread_is_at_work(client):
    """None of them can say that nothing more is taken."""
    begun, may_end = threading.Event(), threading.Event()

    def handle(_message):
        begun.set()
        may_end.wait(TIMEOUT_SECONDS)

    worker = client.worker("orders", handle, concurrency=1, drain_seconds=0.1)
    running = threading.Thread(target=worker.run)
    running.start()
    assert begun.wait(TIMEOUT_SECONDS)

    worker.stop()
    running.join(TIMEOUT_SECONDS)

    assert not running.is_alive()
    assert numbers(client) == (1, 0)
    may_end.set()


PROGRAMS = {
    "async": """
import asyncio, os, sys
from fila import AsyncClient

async def handle(message):
    os.write(1, b"begun\\n")
    await asyncio.Event().wait()

async def main():
    async with AsyncClient(sys.argv[1]) as client:
        await client.worker("orders", handle, drain_seconds=3600).run()

asyncio.run(main())
""",
    "sync": """
import os, sys, threading
from fila import Client

def handle(message):
    os.write(1, b"begun\\n")
    threading.Event().wait()

with Client(sys.argv[1]) as client:
    client.worker("orders", handle, drain_seconds=3600).run()
""",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_second_interrupt_waits_for_nobody(client, broker, program):
    """Not for a handler that never ends either; its message goes back without an attempt."""
    with client.producer("orders") as producer:
        for _ in range(9):
            producer.send(b"x")
    with subprocess.Popen(
        [sys.executable, "-c", program, broker.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert [process.stdout.readline() for _ in range(10)] == ["begun\n"] * 10
            client.enqueue("orders", None, b"last")
            process.send_signal(signal.SIGINT)
            pause = threading.Event()
            while client.stats("orders").active_consumers and numbers(client) != (1, 10):
                pause.wait(0.005)
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
        finally:
            process.kill()

    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert numbers(client) == (11, 0)
    assert {message.attempt_count for message in client.lease("orders", 100)} == {0}
