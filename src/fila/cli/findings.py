"""What `fila doctor` finds out about this machine: disk, port, limits, versions. Each check gives findings, none fails."""

import errno
import os
import resource
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import fila
from fila import limits
from fila.cli.output import duration, size

# Enough for a p99 that is not the one slow sync, and still within a second on a slow disk.
FSYNC_TIMES = 100
FSYNC_SECONDS_MAX = 1.0
# What one commit of small messages writes.
FSYNC_BYTES = 4 * limits.KIB
# Beyond this every producer that waits for its answer feels the disk.
FSYNC_SLOW_SECONDS = 0.02
# Under it a sync has not reached a disk, whatever the system says.
FSYNC_HOLLOW_SECONDS = 20e-6
# File systems whose contents do not outlive the machine, or whose syncs and locks are those of another machine.
FLEETING = {"tmpfs", "ramfs", "overlay"}
REMOTE = {"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p"}
# The engine's files, and a descriptor for each connection.
OPEN_FILES_MIN = 4096
PACKAGES = ("grpcio", "protobuf", "rocksdict", "click", "uvloop")


class Mark(StrEnum):
    """How a finding is to be taken."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report: what was looked at, how it is, what was seen, and the remedy where there is one."""

    check: str
    mark: Mark
    detail: str
    # The numbers in the detail, for programs.
    values: Mapping[str, int | float | str] = field(default_factory=dict)


# --- versions and limits ------------------------------------------------------------------------------


def versions() -> list[Finding]:
    """Name what one is asked for in a report of a bug."""
    python = f"{sys.implementation.name} {sys.version.split()[0]}"
    by_package = {package: _version(package) for package in PACKAGES}
    present = {package: number for package, number in by_package.items() if number is not None}
    values = {"fila": fila.__version__, "python": sys.version.split()[0]}
    found = [
        Finding("fila", Mark.OK, f"{fila.__version__} on {python}, {_system()}", values),
        Finding(
            "packages", Mark.OK, ", ".join(f"{name} {number}" for name, number in present.items()), present
        ),
    ]
    missing = [package for package in PACKAGES if package not in present]
    if missing:
        found.append(Finding("packages", Mark.FAIL, f"{', '.join(missing)} missing: install fila again"))
    return found


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _system() -> str:
    system = os.uname()
    return f"{system.sysname} {system.release} {system.machine}"


def open_files() -> Finding:
    """A broker out of descriptors takes no connection and opens no file."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return Finding("open files", Mark.OK, "no limit", {"limit": "unlimited"})
    if soft < OPEN_FILES_MIN:
        return Finding(
            "open files",
            Mark.WARN,
            f"limit {soft:,}: set it to {OPEN_FILES_MIN:,} or more for many connections (`ulimit -n {OPEN_FILES_MIN}`)",
            {"limit": soft},
        )
    return Finding("open files", Mark.OK, f"limit {soft:,}", {"limit": soft})


# --- the disk -----------------------------------------------------------------------------------------


def disk(data_dir: Path) -> list[Finding]:
    """Try the data directory, or where it would be made: nothing is left there."""
    path = data_dir.absolute()
    place = _existing(path)
    found = [_writable(path, place)]
    if found[0].mark is Mark.FAIL:
        return found
    return [*found, _file_system(place), _free(place), fsync(place)]


def _existing(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if os.path.lexists(each))


def _writable(path: Path, place: Path) -> Finding:
    check = "data directory"
    values = {"path": str(path)}
    if not place.is_dir():
        return Finding(check, Mark.FAIL, f"{place} is no directory: move it away, or set --data-dir", values)
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"fila")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return Finding(check, Mark.FAIL, f"{place} is full: make room", values)
        return Finding(
            check,
            Mark.FAIL,
            f"{place} cannot be written: {error.strerror}; change its permissions, or set --data-dir",
            values,
        )
    if place == path:
        return Finding(check, Mark.OK, f"{path} can be written", values)
    return Finding(check, Mark.OK, f"{path} is not there yet, and can be made in {place}", values)


def _file_system(place: Path) -> Finding:
    kind, device, mount = mounted(place)
    check = "file system"
    values = {"kind": kind, "device": device, "mount": mount}
    if kind in REMOTE:
        remedy = "syncs and locks are up to another machine; use a local disk"
        return Finding(check, Mark.WARN, f"{kind} ({device}): {remedy}", values)
    if kind in FLEETING:
        remedy = "does not outlive the machine or container; mount a disk for data that must"
        return Finding(check, Mark.WARN, f"{kind} on {mount}: {remedy}", values)
    return Finding(
        check, Mark.OK, f"{kind} on {mount} ({device})" if kind else "not known on this system", values
    )


def mounted(place: Path) -> tuple[str, str, str]:
    """Return kind, device and mount point of the file system under a directory; empty where that cannot be seen."""
    try:
        table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
        number = place.stat().st_dev
    except OSError:
        return "", "", ""
    wanted = f"{os.major(number)}:{os.minor(number)}"
    resolved = place.resolve()
    best = ("", "", "")
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        mount = fields[4].replace("\\040", " ")
        # Later mounts hide earlier ones; of several with one device the longest is the one.
        if resolved.is_relative_to(mount) and len(mount) >= len(best[2]) and len(rest) >= 2:
            best = (rest[0], rest[1], mount)
            if fields[2] == wanted and mount == str(resolved):
                break
    return best


def _free(place: Path) -> Finding:
    status = os.statvfs(place)
    free = status.f_bavail * status.f_frsize
    total = status.f_blocks * status.f_frsize
    reserve = limits.DISK_FREE_BYTES_MIN
    seen = f"{size(free)} of {size(total)}"
    values = {"free_bytes": free, "total_bytes": total, "reserve_bytes": reserve}
    limit = f"{seen}: a broker takes no message below {size(reserve)}"
    if free < reserve:
        return Finding("free space", Mark.FAIL, f"{limit}; make room", values)
    return (
        Finding("free space", Mark.WARN, limit, values)
        if free < 4 * reserve
        else Finding("free space", Mark.OK, seen, values)
    )


def fsync(place: Path) -> Finding:
    """Time what every answer of the broker waits for."""
    seconds: list[float] = []
    block = b"\0" * FSYNC_BYTES
    try:
        with tempfile.TemporaryFile(dir=place, buffering=0) as file:
            end = time.perf_counter() + FSYNC_SECONDS_MAX
            while len(seconds) < FSYNC_TIMES and (time.perf_counter() < end or len(seconds) < 2):
                file.write(block)
                begun = time.perf_counter()
                sync(file.fileno())
                seconds.append(time.perf_counter() - begun)
    except OSError as error:
        return Finding(
            "fsync", Mark.FAIL, f"{error.strerror or error}: this disk cannot keep what it is told to"
        )
    median = statistics.median(seconds)
    p99 = statistics.quantiles(seconds, n=100, method="inclusive")[98]
    seen = f"median {duration(median)}, p99 {duration(p99)} ({len(seconds)} times {size(FSYNC_BYTES)})"
    values = {"median_seconds": median, "p99_seconds": p99, "times": len(seconds)}
    if median > FSYNC_SLOW_SECONDS:
        return Finding(
            "fsync",
            Mark.WARN,
            f"{seen}: slow; every enqueue and ack waits for one. Use a faster disk",
            values,
        )
    if median < FSYNC_HOLLOW_SECONDS:
        return Finding(
            "fsync",
            Mark.WARN,
            f"{seen}: too quick for a disk; a power loss may take what was answered",
            values,
        )
    return Finding("fsync", Mark.OK, seen, values)


def sync(descriptor: int) -> None:
    """Make a file durable as the store does."""
    getattr(os, "fdatasync", os.fsync)(descriptor)


# --- the port -----------------------------------------------------------------------------------------


def port(listen_addr: str) -> tuple[Finding, bool]:
    """Try to take the port that a broker would listen on; return also whether somebody has it."""
    host, _, number = listen_addr.rpartition(":")
    host = host.strip("[]")
    values: dict[str, int | float | str] = {"host": host, "port": int(number)}
    try:
        found = socket.getaddrinfo(host, int(number), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        sentence = f"{host} is no address: set --listen to one of this machine"
        return Finding("port", Mark.FAIL, sentence, values), False
    for family, kind, protocol, _, where in found:
        try:
            with socket.socket(family, kind, protocol) as trial:
                # As gRPC does: a connection that ended a moment ago does not hold the port.
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(where)
                trial.listen()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return Finding("port", Mark.OK, f"{listen_addr} is in use", values), True
            sentence = f"{listen_addr}: {error.strerror}; set --listen to another"
            return Finding("port", Mark.FAIL, sentence, values), False
    return Finding("port", Mark.OK, f"{listen_addr} is free", values), False


def listener(port: int) -> str:
    """Return who listens on a port, as the end of a name; empty where this user may not see it."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(link.readlink()) in sockets:
                process = link.parent.parent
                name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
                return f" ({name}, process {process.name})"
        except OSError:
            continue
    return ""


def _listening(port: int) -> list[str]:
    """Return the inodes of the sockets that listen on a port."""
    inodes = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            # 0A is LISTEN.
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.append(fields[9])
    return inodes
