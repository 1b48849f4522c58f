"""`python -m tests.integration.loss --seed S --faults N`: so many faults at random bytes, one JSON line. `make soak SUITE=loss` runs many."""

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from random import Random, SystemRandom

from tests.integration.loss import calls, first, streams
from tests.integration.loss.runner import at_random, runner
from tests.integration.server_process import ServerProcess

CASES = (*first.CASES, *calls.CASES, *streams.CASES)


async def lose(address, seed, faults):
    """Lose connections in all cases, as often in each."""
    random, per_case = Random(seed), max(1, faults // len(CASES))
    async with runner(address) as losing:
        for case in CASES:
            await losing.run(case, at_random(random, per_case))
        return {"seed": seed, "struck": losing.struck, "late": losing.late}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1 << 32))
    parser.add_argument("--faults", type=int, default=1_000)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="fila-loss-") as directory,
        ServerProcess(Path(directory), "--durability", "os") as server,
    ):
        report = asyncio.run(lose(server.wait_until_ready().address, options.seed, options.faults))
        server.terminate()
        report["exit_code"] = server.wait()
    print(json.dumps(report))  # noqa: T201 - what the command is for


if __name__ == "__main__":
    main()
