"""The connection is lost at every step of every call and stream: cut, closed, half-closed, silent, delayed."""

import asyncio

import pytest
from tests.integration.loss import calls, first, streams
from tests.integration.loss.runner import runner, spread
from tests.integration.server_process import ServerProcess

# In each direction; `make soak SUITE=loss` loses it at any byte.
POINTS = 20


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A broker for all: what one client loses is nothing to the others."""
    with ServerProcess(tmp_path_factory.mktemp("loss"), "--durability", "os") as server:
        yield server.wait_until_ready().address
        server.terminate()
        assert server.wait() == 0, server.errors
        assert "Traceback" not in server.errors


@pytest.mark.parametrize("case", [*first.CASES, *calls.CASES, *streams.CASES], ids=lambda case: case.__name__)
def test_connection_is_lost_at_every_step(address, case):
    """The case's own law holds; nothing hangs, nothing is raised that has no type, and nothing is left behind."""

    async def run():
        async with runner(address) as losing:
            await losing.run(case, spread(POINTS))
            # A test whose faults come too late tries nothing.
            assert losing.struck >= losing.late

    asyncio.run(run())
