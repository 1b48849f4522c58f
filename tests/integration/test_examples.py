"""The examples run against a real broker and do what they say."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.server_process import ServerProcess

from fila import AsyncClient

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def addr(tmp_path_factory):
    """Where a broker is."""
    with ServerProcess(tmp_path_factory.mktemp("broker")) as server:
        yield server.wait_until_ready().address


def run(name, *arguments):
    """Run an example to its end and return what it prints."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_example_is_tried():
    """An example that nobody runs does not stay true."""
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"fair_tenants.py", "worker.py"}


def test_a_small_tenant_is_served_among_the_first(addr):
    """Three messages behind two hundred are served in turn with them; and a second run finds the queue usable."""
    for _ in range(2):
        places = re.fullmatch(
            r"small was served at places \[(\d+), (\d+), (\d+)\] of 203\n", run("fair_tenants.py", addr)
        )

        assert places, "another line"
        assert int(places[3]) <= 20


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_works_retries_and_stops_cleanly(addr, number):
    """Every message is handled once, one that fails is tried again, and nothing stays leased after the stop."""
    queue = f"work-{number.name}"
    texts = [*(f"job {place}" for place in range(20)), "flaky"]

    async def fill():
        async with AsyncClient(addr) as client:
            await client.create_queue(queue)
            for text in texts:
                await client.enqueue(queue, payload=text.encode(), fairness_key="acme")

    async def stats():
        async with AsyncClient(addr) as client:
            return await client.stats(queue)

    asyncio.run(fill())
    worker = subprocess.Popen(
        [sys.executable, EXAMPLES / "worker.py", queue, addr],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        lines = [worker.stdout.readline() for _ in range(1 + len(texts))]
        worker.send_signal(number)
        output, errors = worker.communicate(timeout=TIMEOUT_S)
    finally:
        worker.kill()
        worker.communicate()

    assert lines[0] == f"working on {queue}\n"
    assert sorted(lines[1:]) == sorted(
        f"acme: {text} (attempt {2 if text == 'flaky' else 1})\n" for text in texts
    )
    assert (worker.returncode, output) == (0, "stopped\n")
    # Of the handler that failed once, the traceback; nothing else.
    assert errors.count("Traceback") == 1
    assert errors.endswith("RuntimeError: try again\n")
    after = asyncio.run(stats())
    assert (after.depth, after.in_flight) == (0, 0)
