"""`fila server` as its operator sees it: what it says, how it starts, refuses to start, and stops."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import time
from contextlib import suppress

import grpc
import pytest
from tests.integration.server_process import ServerProcess

from fila import AsyncClient, assembly, limits
from fila.client.values import NewMessage
from fila.config import ServerSettings, Settings, StorageSettings
from fila.errors import FilaError, MessageNotFoundError, StoreError
from fila.wire.ids import message_id
from fila.wire.v1 import messages_pb2 as messages
from fila.wire.v1 import service_pb2 as service
from fila.wire.v1.service_pb2_grpc import FilaServiceStub

# How long a stop may take beyond what it grants its clients: a loaded machine is slow, a hanging stop is not this quick.
STOP_SLACK_SECONDS = 5
SAMPLE = """\
[server]
listen_addr = "0.0.0.0:5555"

[scheduler]
quantum = 1000

[lua]
default_timeout_ms = 10
circuit_breaker_threshold = 3

[telemetry]
otlp_endpoint = "http://localhost:4317"
"""


def start(directory, *arguments, **options):
    """Start a server with its data in `directory`/data, and wait until it serves."""
    server = ServerProcess(directory, *arguments, **options)
    try:
        return server.wait_until_ready()
    except BaseException:
        server.close()
        raise


def refused(directory, *arguments, **options):
    """Start a server that must not start, and return its exit code and the sentence that it says."""
    with ServerProcess(directory, *arguments, **options) as server:
        code = server.wait()
        assert not server.lines, "a server that refuses to start says nothing of serving"
        lines = server.errors.splitlines()
    # One line, whatever else: a traceback is no sentence.
    assert len(lines) == 1, lines
    assert lines[0].startswith("Error: ")
    return code, lines[0]


def with_client(server, body, **options):
    """Run a coroutine with a client of the server."""

    async def run():
        async with AsyncClient(server.address, **options) as client, asyncio.timeout(60):
            return await body(client)

    return asyncio.run(run())


def with_stub(server, body):
    """Run a coroutine with a stub of the server, and nothing of our client."""

    async def run():
        async with grpc.aio.insecure_channel(server.address) as channel, asyncio.timeout(60):
            return await body(FilaServiceStub(channel))

    return asyncio.run(run())


async def fill(client, queue, count, payload=b"x", key=None):
    for first in range(0, count, 1_000):
        batch = [NewMessage(payload, fairness_key=key) for _ in range(min(1_000, count - first))]
        assert not [result for result in await client.enqueue_batch(queue, batch) if result.error]


# --- start ----------------------------------------------------------------------------------------------


def test_server_says_where_it_listens_where_the_data_is_and_what_it_recovered(tmp_path):
    """Three lines on standard output, the same after a restart but for what was found."""

    async def use(client):
        await client.create_queue("one")
        await client.create_queue("two")
        await fill(client, "one", 1_200)
        # A lease that nobody settles outlives the server.
        assert len(await client.lease("one", 3)) == 3

    with start(tmp_path) as server:
        assert re.fullmatch(r"fila \S+ listens on 127\.0\.0\.1:\d+", server.lines[0])
        assert server.lines[1] == f"data in {tmp_path / 'data'} (durability fsync)"
        assert re.fullmatch(r"recovered 0 queues, 0 messages, 0 leases in [\d.]+ s", server.lines[2])
        with_client(server, use)
        server.terminate()
        assert server.wait() == 0
        assert server.lines[-1] == "stopped"
        assert server.errors == ""
    with start(tmp_path) as server:
        assert server.lines[2].startswith("recovered 2 queues, 1,200 messages, 3 leases in ")


def test_flag_beats_environment_which_beats_the_file(tmp_path):
    """Each names its own data directory; the one that counts is the one that exists afterwards."""
    config = tmp_path / "my.toml"
    config.write_text('[server]\nlisten_addr = "127.0.0.1:0"\n[storage]\ndata_dir = "from-file"\n')
    run = tmp_path / "run"
    environment = {"FILA_DATA_DIR": "from-environment"}

    for arguments, options, expected in (
        ((), {}, "from-file"),
        ((), {"environment": environment}, "from-environment"),
        (("--data-dir", "from-flag"), {"environment": environment}, "from-flag"),
    ):
        with start(run, "--config", config, *arguments, listen=None, **options) as server:
            assert server.lines[1].startswith(f"data in {run / expected} ")
        assert {path.name for path in run.iterdir() if path.is_dir()} == {expected}
        (run / expected).rename(tmp_path / expected)


def test_sample_configuration_starts_the_server_without_a_collector(tmp_path):
    """Sections of parts that are not there yet are known, and a collector that does not answer disturbs nobody."""
    (tmp_path / "fila.toml").write_text(SAMPLE)

    async def use(client):
        await client.create_queue("q")
        for _ in range(20):
            await client.enqueue("q")
        for message in await client.lease("q", 20):
            await message.ack()

    # The port of the sample may be taken on this machine.
    with start(tmp_path) as server:
        with_client(server, use)
        began = time.monotonic()
        server.terminate()
        assert server.wait() == 0, server.errors
        assert time.monotonic() - began < limits.DRAIN_TIMEOUT_MS / 1_000 + STOP_SLACK_SECONDS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[server]\nlisten_adr = 'x'\n",
            'Unknown key "listen_adr" in [server] in {}: did you mean "listen_addr"?',
        ),
        ("[storag]\n", 'Unknown section "storag" in {}: did you mean "storage"?'),
        ("[scheduler]\nquantum = 0\n", "[scheduler] quantum = 0 in {} must be a whole number from 1 to"),
        ("[storage]\ndurability = 'no'\n", '[storage] durability = "no" in {} must be "fsync" or "os"'),
        ("[server\n", "{} is not valid TOML"),
        ("[storage]\ndata_dir = ''\n", '[storage] data_dir = "" in {} must be the path of a directory'),
        ("[tls]\nserver_cert = 'x'\n", "does not encrypt connections: remove the setting"),
    ],
)
def test_wrong_setting_is_refused_in_one_sentence(tmp_path, text, expected):
    """It names the key, the file, and what is allowed or meant."""
    (tmp_path / "fila.toml").write_text(text)

    code, sentence = refused(tmp_path)

    assert code == 2
    assert expected.format("fila.toml") in sentence


def test_configuration_file_that_is_missing_is_refused(tmp_path):
    """Whoever names a file wants that one."""
    code, sentence = refused(tmp_path, "--config", "missing.toml")

    assert code == 2
    assert "Cannot read missing.toml: No such file or directory" in sentence


def test_empty_data_directory_is_refused(tmp_path):
    """An unset variable of a shell is no wish for the working directory."""
    code, sentence = refused(tmp_path, "--data-dir", "")

    assert code == 2
    assert '[storage] data_dir = "" in the command line must be the path of a directory' in sentence
    assert [path.name for path in tmp_path.iterdir()] == ["errors.txt"]


def test_second_server_on_the_same_data_is_refused(tmp_path):
    """The first one is not disturbed."""
    with start(tmp_path / "first", "--data-dir", tmp_path / "data") as server:
        code, sentence = refused(tmp_path / "second", "--data-dir", tmp_path / "data")

        assert code != 0
        assert f"{tmp_path / 'data'} is in use by another fila server: stop it, or name another" in sentence
        with_client(server, lambda client: client.create_queue("q"))


def test_taken_port_is_refused(tmp_path):
    """By name, with the remedy; and no data directory is made for a server that never served."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        code, sentence = refused(tmp_path, listen=address)

    assert code == 1
    assert f"cannot listen on {address}: is another server using port" in sentence
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("notahost.invalid:5602", "the host notahost.invalid is not known: set --listen (listen_addr)"),
        ("192.0.2.1:5602", "192.0.2.1 is no address of this machine: set --listen (listen_addr)"),
    ],
)
def test_address_that_is_not_of_this_machine_is_refused(tmp_path, address, expected):
    """The sentence blames the address, not a port that is free."""
    code, sentence = refused(tmp_path, listen=address)

    assert code == 1
    assert f"cannot listen on {address}: {expected}" in sentence


def test_start_that_fails_gives_the_port_back(tmp_path):
    """A program that holds a broker can try again when its data directory is mended."""
    data = tmp_path / "data"
    data.write_text("")
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    settings = Settings(ServerSettings(address), StorageSettings(data))

    async def run():
        with pytest.raises(StoreError):
            async with assembly.running(settings):
                pass
        data.unlink()
        async with assembly.running(settings) as broker:
            return broker.address

    assert asyncio.run(run()) == address


def test_logs_are_json_where_that_is_asked_for(tmp_path):
    """`log_format` reaches the log: every line on standard error is an object."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        (tmp_path / "fila.toml").write_text(
            f'[telemetry]\nlog_format = "json"\notlp_endpoint = "{endpoint}"\n'
        )
        with start(tmp_path) as server:
            server.terminate()
            assert server.wait() == 0
            lines = [json.loads(line) for line in server.errors.splitlines()]

    assert [line["message"] for line in lines] == [
        f"telemetry cannot be sent to {endpoint}: the broker works on without it"
    ]


def test_data_directory_that_cannot_be_made_is_refused(tmp_path):
    """A file stands where a directory would have to be."""
    (tmp_path / "file").write_text("")

    for path in (tmp_path / "file" / "data", tmp_path / "file"):
        code, sentence = refused(tmp_path, "--data-dir", path)

        assert code != 0
        assert str(path) in sentence
        assert "name another one" in sentence


def test_data_directory_that_cannot_be_written_is_refused(tmp_path):
    """Neither by rights nor on a read-only file system."""
    data = tmp_path / "data"
    data.mkdir()
    if os.geteuid():
        data.chmod(0o500)
    else:
        # No right is denied to root; a file system that is read-only denies it to all.
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", data], check=False)
        if mounted.returncode:
            assert os.environ.get("CI") != "true", "no file system can be mounted here"
            pytest.skip("no file system can be mounted here")
    try:
        code, sentence = refused(tmp_path)
    finally:
        if os.geteuid():
            data.chmod(0o700)
        else:
            subprocess.run(["umount", data], check=True)

    assert code != 0
    assert f"{data}" in sentence or "data directory data" in sentence
    assert "name another one" in sentence


# --- stop -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_under_load_drains_keeps_what_is_begun_and_gives_the_rest_back(tmp_path, number):
    """It exits 0; all that was answered is there; what was in hand is acked afterwards, the rest comes at once and unharmed."""
    answered, acked, held = [], set(), set()

    async def produce(client):
        while True:
            answered.append(await client.enqueue("q", payload=b"x" * 100))

    async def consume(client):
        async with client.consume("q", prefetch=50) as consumer:
            async for message in consumer:
                if message.offset % 2:
                    held.add(message.id)
                    continue
                await message.ack().durable()
                acked.add(message.id)

    async def use(client):
        await client.create_queue("q")
        load = [asyncio.create_task(work(client)) for work in [produce] * 8 + [consume]]
        while len(acked) < 20 or len(answered) < 200:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        os.kill(server.pid, number)
        began = time.monotonic()
        for result in await asyncio.gather(*load, return_exceptions=True):
            assert isinstance(result, FilaError), result
        assert await asyncio.to_thread(server.wait) == 0, server.errors
        return time.monotonic() - began

    with start(tmp_path) as server:
        # A client that gives up at once: what the broker does is to be seen.
        seconds = with_client(server, use, reconnect_seconds=0)
    assert seconds < limits.DRAIN_TIMEOUT_MS / 1_000 + STOP_SLACK_SECONDS
    assert server.lines[-2:] == ["stopping: finishing what was taken", "stopped"]

    async def look(client):
        before = await client.stats("q")
        left = {}
        while batch := await client.lease("q", limits.LEASE_MESSAGES_MAX):
            left |= {message.id: message.attempt_count for message in batch}
        kept = held - set(left)
        # No other lease is left that would have to expire.
        assert (before.in_flight, before.delayed) == (len(kept), 0)
        for held_id in kept:
            await client.ack("q", held_id)
        return left, kept

    with start(tmp_path) as server:
        left, kept = with_client(server, look)
    assert not set(left) & acked
    assert set(answered) - acked <= set(left) | kept
    assert kept
    assert set(left.values()) == {0}


def test_stop_ends_calls_that_wait_for_messages(tmp_path):
    """Nobody has to be connected to anything for a server to stop, nor to let go first."""

    async def use(client):
        await client.create_queue("q")
        waiting = [
            asyncio.ensure_future(client.lease("q", wait_seconds=50)),
            asyncio.ensure_future(anext(client.consume("q"))),
        ]
        while (await client.stats("q")).active_consumers < 2:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        began = time.monotonic()
        server.terminate()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(result, FilaError) for result in results), results
        assert await asyncio.to_thread(server.wait) == 0
        return time.monotonic() - began

    with start(tmp_path) as server:
        assert (
            with_client(server, use, reconnect_seconds=0)
            < limits.DRAIN_TIMEOUT_MS / 1_000 + STOP_SLACK_SECONDS
        )


def test_killed_broker_keeps_leases_for_those_who_ask_by_epoch(tmp_path):
    """What was delivered before a kill is acked or released afterwards, by id and epoch; what was acked twice says so."""
    begun, buffered = slice(0, 3), slice(3, 10)

    async def work(stub):
        stream = stub.Subscribe()
        await stream.write(service.SubscribeRequest(queue="q", credit_messages=10, credit_bytes=1_000))
        number = (await stream.read()).subscribed.queue_number
        delivery = (await stream.read()).delivery
        (time_ms,) = delivery.enqueued_at_ms
        ids = [message_id(number, offset, time_ms) for offset in range(10)]
        ack = messages.LeaseRuns(epochs=[delivery.epoch], positions=[0])
        await stream.write(service.SubscribeRequest(sequence=1, ack=ack))
        assert (await stream.read()).settled.sequence == 1
        server.kill()
        return ids, delivery.epoch

    async def settle(stub):
        named = {"queue": "q", "message_ids": ids[begun], "lease_epochs": [epoch] * 3}
        acked = (await stub.AckBatch(service.AckBatchRequest(**named))).results
        named = {"queue": "q", "message_ids": ids[buffered], "lease_epochs": [epoch] * 7}
        released = (await stub.ReleaseBatch(service.ReleaseBatchRequest(**named))).results
        left = (await stub.Lease(service.LeaseRequest(queue="q", max_messages=100))).messages
        return acked, released, left

    with start(tmp_path) as server:
        with_client(server, lambda client: client.create_queue("q"))
        with_client(server, lambda client: fill(client, "q", 10))
        ids, epoch = with_stub(server, work)
    with start(tmp_path) as server:
        acked, released, left = with_stub(server, settle)

    assert [(bool(result.error_code), result.finished) for result in acked] == [
        (True, True),
        (False, False),
        (False, False),
    ]
    assert [result.error_code for result in released] == [0] * 7
    assert [(message.id, message.metadata.attempt_count) for message in left] == [
        (i, 0) for i in ids[buffered]
    ]


def test_stop_does_not_wait_for_the_room_of_a_deleted_queue(tmp_path):
    """Giving room back may take minutes: a stop ends it, and the directory opens as it should."""

    async def use(client):
        await client.create_queue("q")
        async with client.producer("q") as producer:
            for _ in range(40_000):
                await producer.room()
                producer.send(bytes(2_000))
        await client.delete_queue("q")
        server.terminate()
        assert await asyncio.to_thread(server.wait) == 0, server.errors

    with start(tmp_path) as server:
        with_client(server, use)
    with start(tmp_path) as server:
        assert server.lines[2].startswith("recovered 0 queues, 0 messages, 0 leases ")


# --- at work --------------------------------------------------------------------------------------------


def test_leases_expire_on_time_under_steady_load(tmp_path):
    """A broker that is never idle looks at its deadlines all the same."""

    async def load(client):
        while True:
            await client.enqueue("busy", payload=b"x")
            for message in await client.lease("busy", 10):
                await message.ack()

    async def use(client):
        await client.create_queue("busy")
        await client.create_queue("q", visibility_timeout_ms=1_000)
        work = [asyncio.create_task(load(client)) for _ in range(8)]
        await fill(client, "q", 3)
        first = await client.lease("q", 3)
        again = []
        while len(again) < 3:
            again += await client.lease("q", 3, wait_seconds=5)
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        return first, again

    with start(tmp_path) as server:
        first, again = with_client(server, use)
    late = max(message.leased_at for message in again) - first[0].lease_expires_at
    assert {message.attempt_count for message in again} == {1}
    assert -0.002 <= late.total_seconds() < 0.25


def tables_size(path):
    """Return what the tables of a data directory take; its log has a size of its own, and files come and go meanwhile."""
    total = 0
    for file in path.glob("*.sst"):
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


def test_deleted_queue_is_gone_from_disk_and_stalls_nobody(tmp_path):
    """200,000 messages go at once; others do not notice; a queue of that name begins anew, also after a restart."""
    count = 200_000
    payload = os.urandom(250)
    waits = []

    async def work_elsewhere(client):
        while True:
            began = time.monotonic()
            await client.enqueue("other", payload=b"x")
            waits.append(time.monotonic() - began)

    async def use(client):
        await client.create_queue("other")
        await client.create_queue("q")
        async with client.producer("q") as producer:
            for number in range(count):
                await producer.room()
                producer.send(payload, fairness_key=f"key-{number % 50}")
        (leased,) = await client.lease("q")
        full = tables_size(tmp_path / "data")
        assert full > count * len(payload) // 2
        work = asyncio.create_task(work_elsewhere(client))

        await client.delete_queue("q")
        await client.create_queue("q")

        with pytest.raises(MessageNotFoundError):
            await leased.ack()
        stats = await client.stats("q")
        assert (stats.depth, stats.in_flight, stats.next_offset) == (0, 0, 0)
        assert await client.lease("q") == []
        while tables_size(tmp_path / "data") > full // 4:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await client.enqueue("q", payload=b"new")

    async def look(client):
        assert [message.payload for message in await client.lease("q", 10)] == [b"new"]

    with start(tmp_path) as server:
        with_client(server, use)
        server.kill()
    assert max(waits) < 1.0, max(waits)
    with start(tmp_path) as server:
        assert server.lines[2].startswith("recovered 2 queues, ")
        with_client(server, look)
