"""Where the messages that `fila consume` prints go: a terminal, a file, or a pipe, whose reader sets the pace."""

import asyncio
import errno
import os
import select
import stat
import struct
import sys
from typing import Protocol

# With room for one page, Linux says that a pipe can be written to when all that was written is taken out again.
PIPE_BYTES = 4096
# A reader that waits takes a line within microseconds: this is cheaper than to ask the loop.
TAKEN_SOON_MS = 1
# How often a pipe is looked at that has room and is not empty.
TAKEN_SECONDS = 0.001


class Sink(Protocol):
    """Takes one message after the other."""

    async def write(self, data: bytes) -> None:
        """Write all of it, and return when whoever reads can have it. Raises OSError if that cannot be."""


class Stream:
    """A terminal, a file, or what only looks like one."""

    async def write(self, data: bytes) -> None:
        """Write and flush: what was not written must not be taken out of the queue."""
        sys.stdout.buffer.write(data)
        sys.stdout.flush()


class Pipe:
    """A pipe on Linux. A message counts as written when its reader has it: what lies in a pipe that closes is lost."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    async def write(self, data: bytes) -> None:
        """Write, and wait until all of it is taken. Raises BrokenPipeError if the reader is gone before."""
        view = memoryview(data)
        while view:
            # What others have left in it goes first. A page at a time never blocks, so leases are kept meanwhile.
            await self._taken()
            view = view[os.write(self._descriptor, view[:PIPE_BYTES]) :]
        await self._taken()

    async def _taken(self) -> None:
        while self._unread():
            if not (events := self._poll.poll(TAKEN_SOON_MS)):
                await self._ready()
            elif events[0][1] & (select.POLLERR | select.POLLHUP) and self._unread():
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            elif self._unread():
                await asyncio.sleep(TAKEN_SECONDS)

    async def _ready(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_writer(self._descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_writer(self._descriptor)

    def _unread(self) -> int:
        import fcntl
        import termios

        count = fcntl.ioctl(self._descriptor, termios.FIONREAD, bytes(4))
        return int(struct.unpack("i", count)[0])


def open_sink() -> Sink:
    """Return what standard output is."""
    try:
        descriptor = sys.stdout.fileno()
        if sys.platform == "linux" and stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            import fcntl

            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            return Pipe(descriptor)
    except OSError:
        # No descriptor, or a pipe that holds more than a page already: it is written to as a file is.
        return Stream()
    return Stream()
