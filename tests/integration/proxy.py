"""A proxy between a client and a broker that breaks the connection on command, to the byte.

It carries bytes and knows nothing of what they mean.
"""

import asyncio
import socket
import struct
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum

# How long a connection is silent before it goes on, or is given up.
SILENCE_SECONDS = 0.15
# Closing with it sends RST: what the other side has not read is lost.
RESET = struct.pack("ii", 1, 0)


class Direction(Enum):
    """Which way bytes go."""

    TO_BROKER = "to the broker"
    TO_CLIENT = "to the client"


class Kind(Enum):
    """What happens to the connection."""

    RESET = "reset"
    CLOSE = "close"
    # One direction ends; what comes the other way is still carried.
    HALF_CLOSE = "half-close"
    # Silence, and then a reset: a machine that vanished.
    STALL = "stall"
    # Silence, and then it goes on.
    DELAY = "delay"


@dataclass(frozen=True, slots=True)
class Fault:
    """Happens once, when so many bytes have gone one way."""

    kind: Kind
    direction: Direction
    after_bytes: int


class _Link:
    """One connection of a client, and the one to the broker behind it."""

    def __init__(self, writers):
        self.writers = writers
        self._speaks = asyncio.Event()
        self._speaks.set()

    async def turn(self):
        """Wait while the connection is silent."""
        await self._speaks.wait()

    async def be_silent(self):
        self._speaks.clear()
        await asyncio.sleep(SILENCE_SECONDS)
        self._speaks.set()

    def reset(self):
        for writer in self.writers:
            with suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()

    def close(self):
        for writer in self.writers:
            writer.close()


class Proxy:
    """Listens at `address`, and carries what comes to the broker and back."""

    def __init__(self, broker_address):
        self._host, _, port = broker_address.rpartition(":")
        self._port = int(port)
        self.address = ""
        # Since `arm`.
        self.carried = dict.fromkeys(Direction, 0)
        self._fault = None
        self.has_struck = False
        # What went to the broker, for whoever sets it to an empty bytearray.
        self.heard = None
        self._links = {}

    def arm(self, fault=None):
        """Count bytes from here on, and let the fault happen when its time comes."""
        self.carried = dict.fromkeys(Direction, 0)
        self._fault = fault
        self.has_struck = False

    def reset_all(self):
        """Break all connections at once; new ones are taken."""
        for link in self._links.values():
            link.reset()

    async def serve(self, reader, writer):
        task = asyncio.current_task()
        try:
            broker_reader, broker_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        link = self._links[task] = _Link((writer, broker_writer))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._carry(link, Direction.TO_BROKER, reader, broker_writer))
                group.create_task(self._carry(link, Direction.TO_CLIENT, broker_reader, writer))
        finally:
            link.close()
            for each in link.writers:
                with suppress(OSError):
                    await each.wait_closed()
            del self._links[task]

    async def _carry(self, link, direction, reader, writer):
        with suppress(OSError):
            while chunk := await reader.read(64 * 1024):
                await link.turn()
                fault = self._fault
                room = len(chunk) + 1
                if fault is not None and fault.direction is direction:
                    room = fault.after_bytes - self.carried[direction]
                self.carried[direction] += len(chunk)
                if self.heard is not None and direction is Direction.TO_BROKER:
                    self.heard += chunk
                writer.write(chunk[:room])
                await writer.drain()
                if len(chunk) >= room:
                    self._fault, self.has_struck = None, True
                    if not await self._strike(fault.kind, link, writer):
                        return
                    writer.write(chunk[room:])
        link.close()

    async def _strike(self, kind, link, writer):
        """Let it happen; return whether the connection lives on."""
        if kind is Kind.RESET:
            link.reset()
        elif kind is Kind.CLOSE:
            link.close()
        elif kind is Kind.HALF_CLOSE:
            with suppress(OSError):
                writer.write_eof()
        else:
            await link.be_silent()
            if kind is Kind.DELAY:
                return True
            link.reset()
        return False

    async def end(self):
        self.reset_all()
        if self._links:
            await asyncio.wait(self._links)


@asynccontextmanager
async def proxy_to(broker_address):
    """Run a proxy before a broker."""
    proxy = Proxy(broker_address)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.end()
