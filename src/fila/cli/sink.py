"""Where the messages that `fila consume` prints go: a terminal, a file, or a pipe, whose reader sets the pace."""

import asyncio
import errno
import fcntl
import os
import select
import stat
import struct
import sys
import termios
from contextlib import suppress
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

    def close(self) -> None:
        """End, without closing what is not ours."""


class Stream:
    """A terminal, a file, or what only looks like one."""

    async def write(self, data: bytes) -> None:
        """Write and flush: what was not written must not be taken out of the queue."""
        if sys.stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        sys.stdout.buffer.write(data)
        sys.stdout.flush()

    def close(self) -> None:
        """Leave it."""


class Pipe:
    """A pipe, which is never waited for in a way that stops all else: leases are kept while a reader takes its time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    async def write(self, data: bytes) -> None:
        """Write all of it into the pipe. Raises BrokenPipeError if the reader is gone."""
        view = memoryview(data)
        while view:
            # Where there is room, there is room for a page.
            await self._room()
            view = view[os.write(self._descriptor, view[:PIPE_BYTES]) :]

    def close(self) -> None:
        """Leave the pipe."""

    async def _room(self) -> int:
        """Wait until the pipe can be written to, or its reader is gone; return what poll says."""
        while not (events := self._poll.poll(TAKEN_SOON_MS)):
            loop = asyncio.get_running_loop()
            ready = asyncio.Event()
            loop.add_writer(self._descriptor, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_writer(self._descriptor)
        return events[0][1]


class PipeInStep(Pipe):
    """A pipe on Linux whose reader sets the pace: what lies in a pipe that closes is lost, so nothing is left there."""

    def __init__(self, descriptor: int) -> None:
        """Make the pipe small. Raises OSError if more than a page is in it already."""
        super().__init__(descriptor)
        self._size_before = fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ)
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    async def write(self, data: bytes) -> None:
        """Write, and wait until all of it is taken. Raises BrokenPipeError if the reader is gone before."""
        await super().write(data)
        while self._unread():
            if await self._room() & (select.POLLERR | select.POLLHUP) and self._unread():
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
            if self._unread():
                await asyncio.sleep(TAKEN_SECONDS)

    def close(self) -> None:
        """Give the pipe its size back: other programs may write to it after us."""
        with suppress(OSError):
            fcntl.fcntl(self._descriptor, fcntl.F_SETPIPE_SZ, self._size_before)

    def _unread(self) -> int:
        count = fcntl.ioctl(self._descriptor, termios.FIONREAD, bytes(4))
        return int(struct.unpack("i", count)[0])


def open_sink(*, in_step: bool) -> Sink:
    """Return what standard output is; `in_step` is wanted where what a reader did not take must not be gone."""
    try:
        descriptor = sys.stdout.fileno()
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return Stream()
    except (AttributeError, OSError):
        return Stream()
    if in_step and sys.platform == "linux":
        with suppress(OSError):
            return PipeInStep(descriptor)
    return Pipe(descriptor)
