"""A real server under load, killed with SIGKILL at random moments and restarted on the same data."""

from random import SystemRandom

import pytest
from tests.integration.crash.rounds import run

KILLS = 30


@pytest.mark.crash
@pytest.mark.slow
def test_no_kill_loses_what_was_acknowledged_or_brings_back_what_was_acked(tmp_path):
    """Whatever was answered holds over every kill: messages, acks, attempts, epochs, offsets, leases and their deadlines."""
    report = run(tmp_path, seed=SystemRandom().randrange(1 << 32), kills=KILLS)

    assert sum(report["kills"].values()) == KILLS
    # A test that never got far enough to lose anything would pass.
    assert report["messages"]["enqueued"] > 100 * KILLS
    assert report["messages"]["acked"] > 50 * KILLS
