"""Servers as child processes, read from outside: processor time and memory of the whole tree, and restarts.

A broker runs `fila server` with its default configuration in an empty directory; only the port is chosen.
Everything is read from /proc, so measuring costs the server nothing.
"""

import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fila.errors import UnavailableError

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
FSYNC_APPENDS = 100
FSYNC_BYTES = 4096

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# From the kernel's posix-timers: the clock of a process counts what all its threads have used.
_CPUCLOCK_SCHED = 2


class ServerProcess:
    """A server of ours, started in a directory of its own and reachable at `address`."""

    def __init__(self, *arguments: str, parent_dir: Path | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="fila-bench-", dir=parent_dir))
        self.address = f"127.0.0.1:{_free_port()}"
        self._command = [sys.executable, "-m", *arguments, "--listen", self.address]
        self._process: subprocess.Popen[bytes] | None = None
        self.started_at_s = 0.0

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it without waiting."""
        # Settings of the caller's environment would not be the default configuration.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FILA_")}
        with (self.directory / "output.txt").open("ab") as output:
            self.started_at_s = time.perf_counter()
            self._process = subprocess.Popen(
                self._command, cwd=self.directory, env=environment, stdout=output, stderr=output
            )

    def wait_until_listening(self) -> None:
        """Return when the port answers. Raises UnavailableError with the server's output if it ends before."""
        host, _, port = self.address.rpartition(":")
        deadline_s = time.perf_counter() + START_TIMEOUT_S
        while time.perf_counter() < deadline_s:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            try:
                socket.create_connection((host, int(port)), timeout=1.0).close()
            except OSError:
                time.sleep(0.002)
            else:
                return
        output = (self.directory / "output.txt").read_text(errors="replace")
        raise UnavailableError(f"the server under measurement did not start: {output.strip()[-2000:]}")

    def stop(self) -> None:
        """End it in order, or by force if that takes too long."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        self._process = None

    def remove(self) -> None:
        """End it and delete its directory."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def process_tree(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    tree = [pid]
    for parent in tree:
        try:
            threads = list(Path(f"/proc/{parent}/task").iterdir())
            tree += [int(child) for thread in threads for child in (thread / "children").read_text().split()]
        except FileNotFoundError:
            # It has ended since; what it used is counted with its parent.
            continue
    return tree


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process, its descendants, and those of them that have ended."""
    total_s = 0.0
    for member in process_tree(pid):
        try:
            total_s += time.clock_gettime(~member << 3 | _CPUCLOCK_SCHED)
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        # The children that it has waited for, in ticks: fields 16 and 17, counted from 1, the name being the second.
        total_s += (int(fields[13]) + int(fields[14])) / _TICKS_PER_S
    return total_s


def resident_bytes(pid: int) -> int:
    """Return the memory that a process and its descendants hold."""
    pages = 0
    for member in process_tree(pid):
        try:
            pages += int(Path(f"/proc/{member}/statm").read_text().split()[1])
        except FileNotFoundError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


def find_listener(address: str) -> int | None:
    """Return the process of this machine that listens at an address, if it may be seen."""
    host, _, port = address.rpartition(":")
    if host not in {"127.0.0.1", "localhost", "[::1]", "0.0.0.0"}:  # noqa: S104  (compared, not bound)
        return None
    listening = "0A"
    sockets = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == listening and int(fields[1].rpartition(":")[2], 16) == int(port):
                sockets.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(entry.readlink()) in sockets for entry in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:
            # Another user's, or gone.
            continue
    return None


def measure_fsync_ms(directory: Path) -> float:
    """Return the median of 100 appends of 4 KiB, each with fdatasync, in a directory."""
    # The port of a broker answers before its store is there.
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / ".fsync-probe"
    block = os.urandom(FSYNC_BYTES)
    times_s = []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for _ in range(FSYNC_APPENDS):
            start_s = time.perf_counter()
            os.write(descriptor, block)
            os.fdatasync(descriptor)
            times_s.append(time.perf_counter() - start_s)
    finally:
        os.close(descriptor)
        path.unlink()
    return statistics.median(times_s) * 1e3
