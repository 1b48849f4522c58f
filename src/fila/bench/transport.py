"""How the two ends of a measurement are set up: event loop and channel options, the same for broker and bare server."""

import asyncio

import uvloop
from grpc import aio

from fila.wire.channel import CLIENT_OPTIONS

# Producers and consumers are different processes in life: each channel has its own connection.
_CHANNEL_OPTIONS = (*CLIENT_OPTIONS, ("grpc.use_local_subchannel_pool", 1))


def open_channel(address: str) -> aio.Channel:
    """Connect to a server."""
    return aio.insecure_channel(address, options=_CHANNEL_OPTIONS)


def open_runner() -> asyncio.Runner:
    """Return a runner on the event loop that the broker uses too."""
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)
