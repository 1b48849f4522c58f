"""The simulation can fail: every planted bug is found, within a bounded number of seeds."""

import pytest
from tests.simulation.harness import run
from tests.simulation.planted import BUGS

from fila.sim.violation import Violation

SEEDS_MAX = 80


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_found(name):
    """Some seed complains, by a law or by an assertion of the code itself."""
    for seed in range(SEEDS_MAX):
        try:
            with BUGS[name]():
                run(seed)
        except (Violation, AssertionError):
            return

    pytest.fail(f"{SEEDS_MAX} seeds did not find the bug {name!r}")


def test_nothing_stays_planted():
    """After a planted bug the code is right again: the seeds that found bugs pass."""
    for bug in BUGS.values():
        with bug():
            pass

    run(0)


def test_there_are_enough():
    """At least twenty."""
    assert len(BUGS) >= 20
