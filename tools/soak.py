"""Run a suite of tests for long: `make soak SUITE=crash ARGS="--count 500"`, or for some minutes.

Prints one JSON line per run, with its counts and what repeats it; ends with exit code 1 at the first run that fails.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom

ROOT = Path(__file__).resolve().parent.parent
OUTPUT_CHARACTERS_MAX = 20_000

Counts = dict[str, object]


@dataclass(frozen=True, slots=True)
class Suite:
    """How a suite is run. `count` is how much is done unless told otherwise, `chunk` how much of it one run does."""

    help: str
    count: int
    chunk: int
    # From the size of a run and a random number to its command.
    command: Callable[[int, int], list[str]]
    # From what it printed to its counts.
    read: Callable[[str], Counts]


def last_line(output: str) -> Counts:
    """Return the JSON object that a run ended with."""
    found = json.loads(output.strip().rpartition("\n")[2])
    assert isinstance(found, dict)
    return found


def pytest_summary(output: str) -> Counts:
    """Return the counts of pytest's last line."""
    line = output.strip().rpartition("\n")[2]
    counts: Counts = {
        outcome: int(number) for number, outcome in re.findall(r"(\d+) (passed|failed|skipped|error)", line)
    }
    if not counts.get("passed"):
        raise ValueError(f"pytest ran nothing: {line!r}")
    return counts


def pytest_command(*arguments: str) -> Callable[[int, int], list[str]]:
    """Return what builds the command that runs some tests once."""
    return lambda _size, _seed: ["pytest", "-q", "--color=no", *arguments]


SUITES = {
    "simulation": Suite(
        "the core and the commit path under a virtual clock; a count is a seed",
        count=100_000,
        chunk=10_000,
        command=lambda size, seed: ["tests.simulation", "--start", str(seed), "--seeds", str(size)],
        read=last_line,
    ),
    "crash": Suite(
        "a real server under load, killed; a count is a kill",
        count=500,
        chunk=50,
        command=lambda size, seed: ["tests.integration.crash", "--seed", str(seed), "--kills", str(size)],
        read=last_line,
    ),
    "restarts": Suite(
        "a broker under producers and workers, stopped and killed in turn; a count is a restart",
        count=20,
        chunk=20,
        command=lambda size, seed: [
            *("tests.integration.restarts", "--seed", str(seed)),
            *("--restarts", str(size)),
        ],
        read=last_line,
    ),
    "loss": Suite(
        "clients whose connection is cut, closed, half-closed, silent or slow at any byte of any call; a count is a fault",
        count=50_000,
        chunk=2_500,
        command=lambda size, seed: ["tests.integration.loss", "--seed", str(seed), "--faults", str(size)],
        read=last_line,
    ),
    "faults": Suite(
        "disks that fail and fill up; a count is a run of all such tests",
        count=50,
        chunk=1,
        command=pytest_command(
            "tests/integration/test_store_faults.py", "tests/integration/test_full_disk.py"
        ),
        read=pytest_summary,
    ),
    "damage": Suite(
        "flipped bytes and torn files of a store; a count is a run of all such tests",
        count=20,
        chunk=1,
        command=pytest_command("tests/integration/test_store_damage.py"),
        read=pytest_summary,
    ),
}


def sizes(suite: Suite, count: int | None, minutes: float | None) -> Iterator[int]:
    """Yield the size of each run, until the count is reached or the time is over; with minutes alone there is no count."""
    deadline = None if minutes is None else time.monotonic() + minutes * 60
    left = count if count is not None else suite.count if minutes is None else None
    while left is None or left > 0:
        if deadline is not None and time.monotonic() >= deadline:
            return
        size = suite.chunk if left is None else min(suite.chunk, left)
        yield size
        left = None if left is None else left - size


def run(name: str, suite: Suite, size: int) -> bool:
    """Run once, print the line, and say whether all was well."""
    # A seed that no run has had, and that a person can type.
    seed = SystemRandom().randrange(1 << 32)
    command = suite.command(size, seed)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    ok = done.returncode == 0
    line: Counts = {"suite": name, "ok": ok, "count": size, "seconds": round(time.monotonic() - began, 1)}
    if ok:
        line |= suite.read(done.stdout)
    else:
        line["repeat"] = " ".join(["python", "-m", *command])
        sys.stderr.write((done.stdout + done.stderr)[-OUTPUT_CHARACTERS_MAX:])
    print(json.dumps(line), flush=True)
    return ok


def main() -> int:
    """Run the suite that was named."""
    parser = argparse.ArgumentParser(prog="tools/soak.py", description=__doc__)
    parser.add_argument("suite", nargs="?", choices=SUITES)
    parser.add_argument("--list", action="store_true", help="name the suites")
    parser.add_argument("--count", type=int, help="how much; see --list")
    parser.add_argument("--minutes", type=float, help="begin no run after so many")
    options = parser.parse_args()
    if options.list or options.suite is None:
        for name, suite in SUITES.items():
            print(f"{name:<12}{suite.help} (default {suite.count:,})")
        return 0 if options.list else 2
    suite = SUITES[options.suite]
    return (
        0
        if all(run(options.suite, suite, size) for size in sizes(suite, options.count, options.minutes))
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
