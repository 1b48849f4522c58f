"""`python -m tests.integration.restarts --seed S --restarts N`: one run, one JSON line. `make soak SUITE=restarts` runs many."""

import argparse
import json
import tempfile
from pathlib import Path
from random import SystemRandom

from tests.integration.restarts.rounds import run


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1 << 32))
    parser.add_argument("--restarts", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fila-restarts-") as directory:
        report = run(Path(directory), options.seed, options.restarts)
    print(json.dumps(report))  # noqa: T201 - what the command is for


if __name__ == "__main__":
    main()
