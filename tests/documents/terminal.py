"""Run what a document shows, as somebody at a terminal would, and compare what comes out with what is shown."""

import os
import pty
import re
import select
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic

# Far beyond what anything in a document takes.
TIMEOUT_S = 60

ID = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
# What differs from run to run, and what stands for it when texts are compared.
_MASKS = [
    (ID, "<id>"),
    (r"\d{4}-\d\d-\d\dT[\d:]+(?:\.\d+)?(?:Z|\+00:00)", "<time>"),
    (r'"lease_epoch": "\d+"', '"lease_epoch": "<epoch>"'),
    (r"\d+(?:\.\d+)? (ms|s)\b", r"<number> \1"),
    (r"data in \S+", "data in <directory>"),
    (r"(?:127\.0\.0\.1|localhost):\d+", "<address>"),
]


def masked(text: str) -> str:
    """Replace what differs from run to run."""
    for pattern, mark in _MASKS:
        text = re.sub(pattern, mark, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def agrees(seen: str, shown: str) -> bool:
    """Whether an output is the one shown; a line `...` stands for any number of lines."""
    parts = [re.escape(part) for part in re.split(r"^\.\.\.$", masked(shown), flags=re.MULTILINE)]
    return re.fullmatch("(?:.*)".join(parts), masked(seen), re.DOTALL) is not None


def run_in_terminal(
    script: str,
    directory: Path,
    environment: Mapping[str, str],
    *,
    is_complete: Callable[[str], bool] | None = None,
) -> str:
    """Run a script of the shell, and return what its reader sees; raises AssertionError where it fails.

    With `is_complete` it is interrupted, as by Ctrl-C, once its output is.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["bash", "-eu", "-o", "pipefail", "-c", script],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        process_group=0,
    )
    os.close(theirs)
    deadline = monotonic() + TIMEOUT_S
    seen = ""
    interrupted = False
    try:
        while True:
            ready, _, _ = select.select([ours], [], [], max(0.0, deadline - monotonic()))
            assert ready, f"no end within {TIMEOUT_S} s; so far: {seen}"
            chunk = _read(ours)
            if not chunk:
                break
            seen += chunk.decode().replace("\r\n", "\n")
            if is_complete is not None and not interrupted and is_complete(seen):
                interrupted = True
                os.killpg(process.pid, signal.SIGINT)
        code = process.wait(TIMEOUT_S)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert interrupted or code == 0, f"exit code {code}: {seen}"
    return seen


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:
        # How Linux says that the other side is closed.
        return b""
