"""How the two ends of a measurement are set up: event loop and channel options, the same for broker and bare server."""

import asyncio

import uvloop
from grpc import aio

from fila import limits

# Those of fila's own client.
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", limits.FRAME_BYTES_MAX),
    ("grpc.max_send_message_length", limits.FRAME_BYTES_MAX),
    # Producers and consumers are different processes in life: each channel has its own connection.
    ("grpc.use_local_subchannel_pool", 1),
)

# Those of fila's own server.
SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", limits.FRAME_BYTES_MAX),
    ("grpc.max_send_message_length", limits.FRAME_BYTES_MAX),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)


def open_channel(address: str) -> aio.Channel:
    """Connect to a server."""
    return aio.insecure_channel(address, options=CHANNEL_OPTIONS)


def open_runner() -> asyncio.Runner:
    """Return a runner on the event loop that the broker uses too."""
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)
