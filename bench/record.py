"""Measure all workloads, or those named, and keep the results with the machine and the commit that they belong to.

    python bench/record.py                    measures all
    python bench/record.py produce consume    measures these and keeps the others
    python bench/record.py --quick            sees that it works; what it writes means nothing

Writes bench/results.json and, from it, docs/benchmarks.md.
"""

# ruff: noqa: INP001, S603, T201  (a script: prints, and runs git and our own command)

import datetime as dt
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from document import render

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results.json"
DOCUMENT = ROOT / "docs" / "benchmarks.md"
WORKLOADS = (
    "produce",
    "consume",
    "both",
    "unary",
    "latency",
    "keys",
    "queues",
    "fairness",
    "backlog",
    "client",
)


def describe_machine() -> dict[str, Any]:
    """Say what the figures were measured on, without naming the machine."""
    cpu_lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in cpu_lines if line.startswith("model name")]
    memory_kb = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory_kb / 1e6),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "filesystem": _output("stat", "--file-system", "--format=%T", str(ROOT)),
    }


def describe_commit() -> str:
    """Name the commit, and say so if what was measured is not all in it."""
    changed = _output("git", "status", "--porcelain", "--", "src", "proto", "constraints.txt")
    return _output("git", "rev-parse", "--short=12", "HEAD") + (" with changes" if changed else "")


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Measure, one workload at a time, keeping each result as soon as it is there."""
    options = [argument for argument in sys.argv[1:] if argument.startswith("-")]
    names = [argument for argument in sys.argv[1:] if not argument.startswith("-")] or list(WORKLOADS)
    kept: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names:
        print(f"{name} ...", file=sys.stderr)
        finished = subprocess.run(
            [sys.executable, "-m", "fila", "bench", name, "--json", *options],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        kept[name] = {
            "commit": describe_commit(),
            "machine": describe_machine(),
            "measured_at": dt.datetime.now(dt.UTC).date().isoformat(),
            "report": json.loads(finished.stdout),
        }
        ordered = {known: kept[known] for known in WORKLOADS if known in kept}
        RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
        DOCUMENT.parent.mkdir(exist_ok=True)
        DOCUMENT.write_text(render(ordered))


if __name__ == "__main__":
    main()
