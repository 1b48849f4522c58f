"""A real server on a real disk that fills up: a small file system of its own, filled from within and from outside."""

import asyncio
import os
import shutil
import subprocess
from contextlib import asynccontextmanager

import pytest
from tests.integration.server_process import ServerProcess

from fila import AsyncClient, limits
from fila.client.values import NewMessage
from fila.errors import LimitError, MessageNotFoundError, OutcomeUnknownError, UnavailableError

# Room for some messages above what the broker keeps free.
ROOM_BYTES = 96 * limits.MIB
BODY = os.urandom(20_000)


@pytest.fixture
def disk(tmp_path):
    """A file system in memory; where this user may not mount one there is no test, but on the build machine there is."""
    path = tmp_path / "disk"
    path.mkdir()
    options = f"size={limits.DISK_FREE_BYTES_MIN + ROOM_BYTES}"
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", path],
            capture_output=True,
            text=True,
            check=False,
        )
        refusal = mounted.stderr if mounted.returncode else ""
    except FileNotFoundError as error:
        refusal = str(error)
    if refusal:
        if os.environ.get("CI") == "true":
            pytest.fail(f"no file system can be mounted here: {refusal}")
        pytest.skip(f"no file system can be mounted here: {refusal.strip()}")
    yield path
    subprocess.run(["umount", path], check=True)


@asynccontextmanager
async def serving(disk, tmp_path):
    """Run a server with its data on the disk, and a client of it with one queue."""
    with ServerProcess(tmp_path / "run", "--data-dir", disk / "data") as server:
        server.wait_until_ready()
        async with AsyncClient(server.address, reconnect_seconds=0) as client, asyncio.timeout(60):
            await client.create_queue("q", visibility_timeout_ms=1_000)
            yield client, server
        server.terminate()
        assert server.wait() == 0, server.errors


async def fill(client, count=50):
    """Enqueue a batch, and return the ids. Raises the first refusal."""
    results = await client.enqueue_batch("q", [NewMessage(BODY) for _ in range(count)])
    for result in results:
        if result.error is not None:
            raise result.error
    return [result.id for result in results]


async def fill_until_refused(client):
    ids = []
    while True:
        try:
            ids += await fill(client)
        except LimitError as refusal:
            return ids, refusal


def take_room(disk, leave_bytes):
    """Let somebody else's file take the disk, down to so many bytes; 0 takes all there is."""
    path = disk / "ballast"
    with path.open("wb") as file:
        if leave_bytes:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free - leave_bytes)
            return path
        file.truncate(shutil.disk_usage(disk).total)
    # Page by page: a file that fails as a whole takes nothing.
    step = limits.MIB
    position = 0
    with path.open("r+b", buffering=0) as file:
        while step >= 4096:
            try:
                os.posix_fallocate(file.fileno(), position, step)
                position += step
            except OSError:
                step //= 2
    return path


async def until(condition):
    """Wait for something that the broker does in its own time."""
    while not await condition():  # noqa: ASYNC110 - nobody tells a client
        await asyncio.sleep(0.02)


def taken(client):
    """Return a condition: the broker takes a message again."""

    async def condition():
        try:
            await client.enqueue("q", payload=b"again")
        except (LimitError, OutcomeUnknownError, UnavailableError):
            return False
        return True

    return condition


def test_full_disk_refuses_messages_while_consuming_goes_on(disk, tmp_path):
    """RESOURCE_EXHAUSTED names the cause; acks are taken; with room again messages are, by the same server."""

    async def body():
        async with serving(disk, tmp_path) as (client, server):
            await fill(client)
            ballast = take_room(disk, limits.DISK_FREE_BYTES_MIN - 8 * limits.MIB)

            ids, refusal = await fill_until_refused(client)

            assert len(ids) <= 50
            assert "the disk of the broker has less than 512 MiB left: make room" in refusal.message
            for message in await client.lease("q", 100):
                await message.ack()
            assert (await client.stats("q")).in_flight == 0
            ballast.unlink()
            await until(taken(client))
            assert "nearly full" in server.errors
            assert "has room again" in server.errors

    asyncio.run(body())


def test_consuming_makes_room_on_a_full_disk(disk, tmp_path):
    """What is finished is given back although nothing new comes: else a full broker would stay full for ever."""

    async def body():
        async with serving(disk, tmp_path) as (client, _):
            ids, _ = await fill_until_refused(client)
            async with client.consume("q") as consumer:
                for _ in ids:
                    message = await anext(consumer)
                    acked = message.ack()
                await acked

            await until(taken(client))
            assert shutil.disk_usage(disk).free > limits.DISK_FREE_BYTES_MIN

    asyncio.run(body())


def test_disk_without_a_byte_left_loses_nothing_and_needs_nobody(disk, tmp_path):
    """Writes fail: callers hear UNAVAILABLE with the cause, and with room the broker opens again by itself."""

    async def body():
        async with serving(disk, tmp_path) as (client, server):
            expected = {message_id for _ in range(10) for message_id in await fill(client)}
            ballast = take_room(disk, 0)
            acked, unknown = set(), set()
            causes = {await ack_until_unavailable(client, acked, unknown)}
            for _ in range(3):
                with pytest.raises((OutcomeUnknownError, UnavailableError)) as refusal:
                    await client.lease("q")
                causes.add(refusal.value.message)
            assert all("disk is full: make room" in cause for cause in causes), causes
            assert any("outcome is unknown" in cause for cause in causes), causes

            ballast.unlink()
            await until(taken(client))

            left = await consume_all(client)
            assert not acked & left
            assert expected - acked - unknown <= left
            assert "is open again" in server.errors

    asyncio.run(body())


async def ack_until_unavailable(client, acked, unknown):
    """Lease and ack; `acked` gets what was answered, `unknown` what was not. Return the text of the failure."""
    try:
        while messages := await client.lease("q", 5):
            for message in messages:
                unknown.add(message.id)
                await message.ack()
                unknown.discard(message.id)
                acked.add(message.id)
    except (OutcomeUnknownError, UnavailableError) as failure:
        return failure.message
    raise AssertionError("the disk never failed")


async def consume_all(client):
    """Consume and ack until the queue is empty, and return the ids."""
    seen = set()

    async def empty():
        stats = await client.stats("q")
        return not (stats.depth or stats.in_flight)

    async def consume():
        async for message in client.consume("q"):
            seen.add(message.id)
            try:
                await message.ack()
            except MessageNotFoundError:
                continue

    consuming = asyncio.create_task(consume())
    await until(empty)
    consuming.cancel()
    await asyncio.gather(consuming, return_exceptions=True)
    return seen
