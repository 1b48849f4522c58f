"""A command at a pseudo-terminal of some width: what it shows, and keys that are pressed."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from time import monotonic

# Far beyond what any command takes.
TIMEOUT_S = 60
CTRL_C = b"\x03"
# What could change what is tried.
_LEFT_OUT = ("FILA_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")


class Terminal:
    """A terminal with one command in it."""

    def __init__(self, arguments, *, columns=80, environment=None, redirect=None):
        own = {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)}
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._process = subprocess.Popen(
            # The terminal that the leader of a session opens first belongs to it, so that Ctrl-C reaches the command as it
            # does in life. Opened here, between fork and exec, it would meet what gRPC does and logs at a fork.
            ["sh", "-c", 'exec "$@" <>"$0"', os.ttyname(theirs), *arguments],
            env=own | {"TERM": "xterm-256color"} | (environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=redirect or theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.raw = ""

    @property
    def text(self):
        """What was shown, line by line."""
        return self.raw.replace("\r\n", "\n")

    def read_until(self, wanted):
        """Wait until something has been shown."""
        while wanted not in self.raw:
            assert self._read(), f"it ended without {wanted!r}: {self.raw!r}"
        return self

    def press(self, keys):
        """Press keys."""
        os.write(self._ours, keys)

    def end(self):
        """Wait for the end of the command, and return its exit code."""
        while self._read():
            pass
        return self._process.wait(TIMEOUT_S)

    def _read(self):
        deadline = monotonic() + TIMEOUT_S
        ready, _, _ = select.select([self._ours], [], [], max(0.0, deadline - monotonic()))
        assert ready, f"nothing for {TIMEOUT_S} s; so far: {self.raw!r}"
        try:
            chunk = os.read(self._ours, 65_536)
        except OSError:
            # How Linux says that the other side is closed.
            return False
        self.raw += chunk.decode(errors="replace")
        return bool(chunk)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._ours)


def fila_at_terminal(*arguments, **options):
    """Run `fila` at a terminal to its end, and return what was shown and the exit code."""
    with Terminal([sys.executable, "-m", "fila", *map(str, arguments)], **options) as terminal:
        code = terminal.end()
        return terminal.text, code
