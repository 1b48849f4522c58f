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


def settings_in(directory):
    return Settings(
        server=ServerSettings(listen_addr="127.0.0.1:0"), storage=StorageSettings(data_dir=directory / "data")
    )


@pytest.fixture(scope="session")
def shared_server(runner, tmp_path_factory):
    """One server for all tests: whatever a test does to it, the next one must find it sound."""
    stack = AsyncExitStack()
    running = assembly.running(settings_in(tmp_path_factory.mktemp("wire")))
    yield runner.run(stack.enter_async_context(running))
    runner.run(stack.aclose())


@pytest.fixture
def wire(runner, shared_server):
    """A connection of the test's own; its queues are deleted afterwards."""
    stack = AsyncExitStack()

    async def connect():
        channel = grpc.aio.insecure_channel(
            shared_server.address, options=[("grpc.use_local_subchannel_pool", 1)]
        )
        return Wire(shared_server.address, await stack.enter_async_context(channel), stack)

    wire = runner.run(connect())
    yield wire
    runner.run(wire.delete_all())
    runner.run(stack.aclose())


@pytest.fixture
def start_server(runner, tmp_path):
    """Start servers of the test's own, one after the other on the same data; `stop` stops one, its clients stay."""
    stack = AsyncExitStack()

    async def start():
        serving = AsyncExitStack()
        server = await serving.enter_async_context(assembly.running(settings_in(tmp_path)))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.address))
        stack.push_async_callback(serving.aclose)
        wire = Wire(server.address, channel, stack)
        wire.stop = serving.aclose
        return wire

    yield start
    runner.run(stack.aclose())


@pytest.fixture(autouse=True)
def _loop(runner):
    """Every test here has the loop, whether it names it or not."""
