"""The real server as a child process: started, read, killed. Knows the command line and nothing of fila's own code."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

# Far beyond what anything here takes: a test that hangs ends with a word about the server.
TIMEOUT_S = 60
# The `fila` of the environment that the tests run in.
COMMAND = (sys.executable, "-m", "fila")


class ServerProcess:
    """`fila server` in a directory of its own, on a free port unless the arguments say otherwise."""

    def __init__(self, directory: Path, *arguments, listen="127.0.0.1:0", environment=None, command=COMMAND):
        directory.mkdir(parents=True, exist_ok=True)
        self._errors = directory / "errors.txt"
        own = {name: value for name, value in os.environ.items() if not name.startswith("FILA_")}
        where = () if listen is None else ("--listen", listen)
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*command, "server", *where, *map(str, arguments)],
                cwd=directory,
                env=own | (environment or {}),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.lines = []
        self.address = ""

    @property
    def pid(self):
        return self._process.pid

    @property
    def errors(self):
        """What it has written to standard error."""
        return self._errors.read_text(errors="replace")

    def wait_until_ready(self):
        """Return when it has said where it listens, where its data is and what it recovered."""
        while len(self.lines) < 3:
            line = self._process.stdout.readline()
            assert line, f"the server ended with {self._process.wait()} before it was ready: {self.errors}"
            self.lines.append(line.rstrip("\n"))
        self.address = re.search(r"listens on (\S+)", self.lines[0])[1]
        return self

    def kill(self):
        """End it as the kernel would: no handler runs, nothing is flushed."""
        self._process.kill()
        self.wait()

    def terminate(self):
        """Ask it to stop, and do not wait."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self):
        """Wait for its end, and return its exit code; `lines` then has all that it said."""
        output, _ = self._process.communicate(timeout=TIMEOUT_S)
        self.lines += output.splitlines()
        return self._process.returncode

    def close(self):
        """See to it that it has ended."""
        if self._process.poll() is None:
            self._process.kill()
        if not self._process.stdout.closed:
            self._process.communicate()

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()
