"""`python -m tests.integration.crash --seed S --kills N`: one run, one JSON line. `make soak SUITE=crash` runs many."""

import argparse
import json
import tempfile
from pathlib import Path
from random import SystemRandom

from tests.integration.crash.rounds import run


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1 << 32))
    parser.add_argument("--kills", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fila-crash-") as directory:
        report = run(Path(directory), options.seed, options.kills)
    print(json.dumps(report))  # noqa: T201 - what the command is for


if __name__ == "__main__":
    main()
