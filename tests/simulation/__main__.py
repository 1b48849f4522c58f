"""Run many seeds: `python -m tests.simulation --seeds 1000000 --start 0 --processes 2`.

Prints one JSON line with counts; on a broken law, the seed, the law and the command that repeats it, and exit code 1.
"""

import argparse
import json
import sys
import time
import traceback
from collections import Counter
from multiprocessing import Pool

from tests.simulation.harness import Report, run


def attempt(seed: int) -> Report | str:
    """Run a seed; return its report, or how it failed."""
    try:
        return run(seed)
    except Exception:  # noqa: BLE001 - whatever it is, the seed must be named
        return f"seed {seed}: repeat it with python -m tests.simulation --start {seed} --seeds 1\n{traceback.format_exc()}"


def main() -> int:
    """Run the seeds asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first")
    parser.add_argument("--processes", type=int, default=2, help="how many at once")
    parser.add_argument("--failures", type=int, default=10, help="stop after so many")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    failed: list[int] = []
    begin = time.monotonic()
    seeds = range(options.start, options.start + options.seeds)
    with Pool(options.processes) as pool:
        for seed, report in zip(seeds, pool.imap(attempt, seeds, chunksize=8), strict=True):
            if isinstance(report, str):
                failed.append(seed)
                sys.stderr.write(report)
                if len(failed) >= options.failures:
                    pool.terminate()
                    break
                continue
            counts.update(report.counts())
    summary = {
        "suite": "simulation",
        "start": options.start,
        "seeds": options.seeds,
        "failed": failed,
        **counts,
        "seconds": round(time.monotonic() - begin, 1),
    }
    sys.stdout.write(json.dumps(summary) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
