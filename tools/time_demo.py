"""Measure what a newcomer waits for: a fresh clone of HEAD, and `make demo` in it, to its end. One JSON line.

Packages come from wherever pip finds them: with a warm cache the whole must stay under two minutes, the demo under one.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOTAL_SECONDS_MAX = 120.0
DEMO_SECONDS_MAX = 60.0


def seconds_of(*command: str, directory: Path) -> float:
    """Run a command as a newcomer's shell would, and return how long it took."""
    # Not the environment of the checkout that this runs in.
    inherited = ("VIRTUAL_ENV", "PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in inherited}
    start_s = time.perf_counter()
    subprocess.run(command, cwd=directory, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start_s


def main() -> int:
    """Clone, set up, run; fail where a bar is missed."""
    with tempfile.TemporaryDirectory(prefix="fila-clone-") as name:
        directory = Path(name)
        clone_s = seconds_of("git", "clone", "--quiet", str(ROOT), "fila", directory=directory)
        # What `make demo` does first, by itself: so the demo's own time is known.
        install_s = seconds_of("make", "install", directory=directory / "fila")
        demo_s = seconds_of("make", "demo", directory=directory / "fila")
    total_s = clone_s + install_s + demo_s
    reached = total_s < TOTAL_SECONDS_MAX and demo_s <= DEMO_SECONDS_MAX
    figures = {"clone_s": clone_s, "install_s": install_s, "demo_s": demo_s, "total_s": total_s}
    print(json.dumps({each: round(value, 1) for each, value in figures.items()} | {"reached": reached}))
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
