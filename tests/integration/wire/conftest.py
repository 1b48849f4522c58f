"""A real server on a free port, and the generated stubs to talk to it. Tests are coroutines on one loop."""

import asyncio
import inspect
from contextlib import AsyncExitStack

import grpc
import pytest
import uvloop
from tests.integration.wire.calls import Wire

from fila import assembly
from fila.config import ServerSettings, Settings, StorageSettings


@pytest.fixture(scope="session")
def runner():
    """One loop for all: gRPC binds its poller to the loop that it first sees."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run coroutine tests on the loop of the server."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def bounded():
        # A test that waits for what never comes says where it waits.
        async with asyncio.timeout(60):
            await pyfuncitem.obj(**arguments)

    pyfuncitem.funcargs["runner"].run(bounded())
    return True


@pytest.fixture
def settings(tmp_path):
    return Settings(
        server=ServerSettings(listen_addr="127.0.0.1:0"), storage=StorageSettings(data_dir=tmp_path / "data")
    )


@pytest.fixture
def wire(runner, settings):
    """A server of its own for each test, and a channel to it."""
    stack = AsyncExitStack()

    async def start():
        server = await stack.enter_async_context(assembly.running(settings))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.address))
        return Wire(server.address, channel, stack)

    yield runner.run(start())
    runner.run(stack.aclose())


@pytest.fixture(autouse=True)
def _loop(runner):
    """Every test here has the loop, whether it names it or not."""
