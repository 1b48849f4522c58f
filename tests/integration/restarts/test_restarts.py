"""A broker is stopped and killed under ten producers and ten workers, and nobody in their programs notices."""

from random import SystemRandom

import pytest
from tests.integration.restarts.rounds import run

RESTARTS = 4
# What a killed broker had on its way to a worker comes back after this long: far longer than a restart, not to be waited for at the end.
VISIBILITY_TIMEOUT_MS = 8_000


@pytest.mark.crash
@pytest.mark.slow
def test_a_restart_is_a_pause(tmp_path):
    """No exception reaches user code, nothing is logged as an error, nothing acknowledged is lost, nothing acked comes back."""
    seed = SystemRandom().randrange(1 << 32)
    report = run(tmp_path, seed, restarts=RESTARTS, visibility_timeout_ms=VISIBILITY_TIMEOUT_MS)

    # The last one is when all is done: to see that it is so on the disk.
    assert report["restarts"] == {"SIGTERM": RESTARTS // 2, "SIGKILL": RESTARTS // 2 + 1}
    messages = report["messages"]
    # A test that never got far enough to lose anything would pass.
    assert messages["acknowledged"] > 500 * RESTARTS
    assert messages["held_over_a_restart"] > 0
    # Nothing is handed out twice but what a handler gave back.
    assert messages["handed_again"] == messages["failed_on_purpose"] > 0
