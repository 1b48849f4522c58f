"""A thousand kinds of days, each with crashes, and a judge that knows only what clients know."""

import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from tests.simulation.__main__ import attempt
from tests.simulation.harness import COMMANDS_MIN, CRASHES_MIN, KINDS, run

SEEDS = int(os.environ.get("FILA_SIMULATION_SEEDS", "1000"))
TRACED = 6


@pytest.mark.slow
def test_no_law_is_broken_in_a_thousand_seeds():
    """Every seed ends with all it promised kept, and together they have seen every kind of crash."""
    counts: Counter[str] = Counter()

    with ProcessPoolExecutor(min(4, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        for seed, report in enumerate(pool.map(attempt, range(SEEDS), chunksize=8)):
            assert not isinstance(report, str), report
            counts.update(report.counts())
            assert report.commands >= COMMANDS_MIN, f"seed {seed} is too short"
            assert sum(report.crashes.values()) >= CRASHES_MIN, f"seed {seed} has too few crashes"

    assert all(counts[f"crash_{kind}"] for kind in KINDS), counts
    assert counts["delivered"] > SEEDS * COMMANDS_MIN / 4, "hardly anything happened"


def test_a_seed_is_one_trace_whatever_the_hash_seed():
    """The same seeds in processes with different hash seeds decide, deliver and store the same, to the byte."""
    script = (
        "from tests.simulation.harness import run\n"
        f"for seed in range({TRACED}): print(seed, run(seed, trace=True).digest)"
    )

    outputs = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("0", "4242")
    ]

    assert outputs[0] == outputs[1]
    assert len(set(outputs[0].split())) == 2 * TRACED, "traces of different seeds are the same"


def test_a_seed_repeats_itself():
    """A second run in the same process leaves the same trace: nothing outlives a run."""
    first, second = run(3, trace=True), run(3, trace=True)

    assert first == second
