"""`fila.testing`: what users' own tests stand on."""

import asyncio
import gc
import os
import socket
import subprocess
import sys
import tempfile
import threading

import pytest

import fila.testing
from fila import AsyncClient, Client
from fila.errors import ConfigError, StoreError

TIMEOUT_S = 120


async def put(address, queue, count=1):
    """Enqueue messages, in their order."""
    async with AsyncClient(address) as client:
        for number in range(count):
            await client.enqueue(queue, payload=b"%d" % number)


async def take(address, queue):
    """Lease everything that is ready, and return the payloads."""
    async with AsyncClient(address) as client:
        return [message.payload for message in await client.lease(queue, max_messages=100)]


def is_listening(address):
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=TIMEOUT_S).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.fixture
def temporary_dir(tmp_path, monkeypatch):
    """The directory that temporary directories are made in, of the test's own: what is left in it is seen."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_broker_is_real():
    """What goes in comes out, over gRPC."""
    with fila.testing.broker() as broker:
        broker.create_queue("orders")
        asyncio.run(put(broker.address, "orders", 3))

        assert asyncio.run(take(broker.address, "orders")) == [b"0", b"1", b"2"]


def test_broker_leaves_nothing_behind(temporary_dir):
    """Neither its directory nor its port nor a thread outlives the `with`."""
    # What an earlier test left in cycles keeps the thread of gRPC.
    gc.collect()
    threads = set(threading.enumerate())

    with fila.testing.broker() as broker:
        address = broker.address
        broker.create_queue("orders")
        assert len(list(temporary_dir.iterdir())) == 1
        assert is_listening(address)

    assert list(temporary_dir.iterdir()) == []
    assert not is_listening(address)
    assert set(threading.enumerate()) - threads == set()


def test_broker_leaves_nothing_behind_when_the_test_fails(temporary_dir):
    """Failing tests are what it is for."""
    broker = fila.testing.broker()
    addresses = []

    def failing_test():
        with broker:
            addresses.append(broker.address)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing_test()

    assert list(temporary_dir.iterdir()) == []
    assert not is_listening(addresses[0])


def test_broker_serves_a_test_without_a_loop():
    """The broker's loop is in a thread of its own: calls that block this one are answered, over a restart too."""
    with fila.testing.broker() as broker, Client(broker.address) as client:
        client.create_queue("orders")
        client.enqueue("orders", payload=b"before")
        broker.restart()
        client.enqueue("orders", payload=b"after")

        assert [message.payload for message in client.lease("orders", 2)] == [b"before", b"after"]


def test_broker_serves_a_test_that_has_a_loop():
    """`async with` does not hold up the loop of the test, and calls of this thread reach the broker meanwhile."""

    async def run():
        async with fila.testing.broker() as broker:
            broker.create_queue("orders")
            await put(broker.address, "orders")
            return await take(broker.address, "orders")

    assert asyncio.run(run()) == [b"0"]


def test_restart_keeps_data_and_address():
    """The same broker comes back: to a client it is a pause."""
    with fila.testing.broker() as broker:
        address = broker.address
        broker.create_queue("orders")
        for number in range(3):
            asyncio.run(put(address, "orders"))

            broker.restart()

            assert broker.address == address, number
        assert len(asyncio.run(take(address, "orders"))) == 3


def test_restart_is_what_a_client_reconnects_after():
    """Users try their own programs with it: a consumer that waits goes on with the broker that came back."""

    async def run():
        async with fila.testing.broker() as broker, AsyncClient(broker.address) as client:
            broker.create_queue("orders")
            async with await client.consume("orders") as consumer:
                waiting = asyncio.create_task(anext(consumer))
                await asyncio.to_thread(broker.restart)
                await client.enqueue("orders", payload=b"after")
                return (await waiting).payload

    assert asyncio.run(run()) == b"after"


def test_stopped_broker_cannot_be_reached_until_it_starts():
    """Whoever tests what happens without a broker has none."""
    with fila.testing.broker() as broker:
        broker.stop()
        broker.stop()

        assert not broker.is_running
        assert not is_listening(broker.address)
        with pytest.raises(RuntimeError, match="start it first"):
            broker.create_queue("orders")

        broker.start()
        broker.start()

        assert broker.is_running
        assert is_listening(broker.address)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a port be held that a server listens on")
def test_port_of_a_stopped_broker_is_nobody_elses():
    """Another test that takes a free port meanwhile must not get this one."""
    with fila.testing.broker() as broker:
        broker.stop()
        host, _, port = broker.address.rpartition(":")

        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((host, int(port)))

        broker.start()


def test_brokers_side_by_side_share_nothing():
    """Each has a port and a directory of its own, and both threads serve at once."""
    with fila.testing.broker() as one, fila.testing.broker() as two, fila.testing.broker() as three:
        brokers = [one, two, three]
        for broker in brokers:
            broker.create_queue("orders")

        async def use_all():
            await asyncio.gather(
                *[put(broker.address, "orders", count) for count, broker in enumerate(brokers, 1)]
            )
            return await asyncio.gather(*[take(broker.address, "orders") for broker in brokers])

        assert [len(taken) for taken in asyncio.run(use_all())] == [1, 2, 3]


def test_data_directory_of_ones_own_stays(tmp_path):
    """What a broker has left there can be looked at, and taken up by the next one."""
    with fila.testing.broker(data_dir=tmp_path / "data", durability="fsync") as broker:
        broker.create_queue("orders")
        asyncio.run(put(broker.address, "orders"))

    with fila.testing.broker(data_dir=tmp_path / "data") as broker:
        assert asyncio.run(take(broker.address, "orders")) == [b"0"]


def test_broker_that_cannot_start_says_why(tmp_path):
    """The error of its thread reaches the test, and a second try may succeed."""
    (tmp_path / "data").write_text("a file where the directory should be")
    broker = fila.testing.broker(data_dir=tmp_path / "data")

    with pytest.raises((StoreError, ConfigError)), broker:
        pass

    (tmp_path / "data").unlink()
    with broker:
        assert broker.is_running


def test_broker_that_was_not_started_has_no_address():
    """A forgotten `with` is told of."""
    with pytest.raises(RuntimeError, match="with statement"):
        _ = fila.testing.broker().address


# --- as pytest's plugin -------------------------------------------------------------------------------

USERS_TESTS = """
import asyncio

import fila.testing
from fila import AsyncClient

seen = []


async def there_and_back(address, queue):
    async with AsyncClient(address) as client:
        await client.enqueue(queue, payload=b"hello")
        return [message.payload for message in await client.lease(queue, max_messages=10)]


def test_a_queue_of_its_own(fila_broker, fila_queue):
    seen.append((fila_broker.address, fila_queue))
    assert asyncio.run(there_and_back(fila_broker.address, fila_queue)) == [b"hello"]


def test_another_queue_on_the_same_broker(fila_broker: fila.testing.Broker, fila_queue: str):
    assert fila_queue.startswith("test_another_queue")
    assert seen[0][0] == fila_broker.address and seen[0][1] != fila_queue
    assert asyncio.run(there_and_back(fila_broker.address, fila_queue)) == [b"hello"]


def test_restart_in_the_middle(fila_broker, fila_queue):
    fila_broker.restart()
    assert asyncio.run(there_and_back(fila_broker.address, fila_queue)) == [b"hello"]


def test_deletes_its_queue(fila_broker, fila_queue):
    fila_broker.delete_queue(fila_queue)


def test_leaves_the_broker_stopped(fila_broker, fila_queue):
    fila_broker.stop()


def test_stops_the_broker_without_a_queue(fila_broker):
    fila_broker.stop()


def test_after_those_that_left_it_stopped(fila_broker, fila_queue):
    assert asyncio.run(there_and_back(fila_broker.address, fila_queue)) == [b"hello"]


def test_queues_are_gone_after_their_tests(fila_broker):
    async def names():
        async with AsyncClient(fila_broker.address) as client:
            return [queue.name for queue in await client.list_queues()]

    assert asyncio.run(names()) == []
"""


def start_pytest(directory, tests, *arguments):
    """Start a user's pytest in a directory of hers, with warnings as errors and temporary files in view."""
    directory.mkdir()
    (directory / "tmp").mkdir()
    (directory / "test_mine.py").write_text(tests)
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *arguments],
        cwd=directory,
        env={**os.environ, "TMPDIR": str(directory / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def outcome_of(process):
    """Wait for a user's pytest, and return the exit code with what it said."""
    output, _ = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, output


def test_fixtures_serve_a_users_tests(tmp_path):
    """One broker, a queue for each test, whatever the tests before did to them; without a line in conftest.py."""
    code, output = outcome_of(start_pytest(tmp_path / "mine", USERS_TESTS))

    assert code == 0, output
    assert "8 passed" in output
    assert list((tmp_path / "mine" / "tmp").glob("fila-*")) == []


def test_fixtures_serve_processes_side_by_side(tmp_path):
    """As pytest-xdist runs them: each process has a broker of its own."""
    processes = [start_pytest(tmp_path / f"mine{number}", USERS_TESTS) for number in range(3)]

    outcomes = [outcome_of(process) for process in processes]

    assert [code for code, _ in outcomes] == [0, 0, 0], outcomes


def test_plugin_loads_nothing_for_those_who_do_not_use_it(tmp_path):
    """Every run of pytest loads the plugin where fila is installed: that must cost no one anything."""
    tests = """
import sys

def test_not_of_fila():
    assert "fila.testing.plugin" in sys.modules
    heavy = {"grpc", "google.protobuf", "rocksdict", "uvloop", "asyncio", "fila.assembly", "fila.client"}
    assert heavy & set(sys.modules) == set()
"""
    code, output = outcome_of(start_pytest(tmp_path / "mine", tests))

    assert code == 0, output
