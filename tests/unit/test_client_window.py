"""How much a consumer leases ahead of its loop."""

import pytest

from fila import limits
from fila.client.window import Window


def test_window_begins_with_one_message_and_doubles_at_most():
    """A quick moment proves little."""
    window = Window(1_000, fixed=False)

    sizes = []
    for _ in range(12):
        sizes.append(window.size)
        window.worked_off(window.size, 0.0)

    assert sizes == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_000, 1_000]


@pytest.mark.parametrize(("seconds_each", "size"), [(0.001, 100), (0.01, 10), (0.05, 2), (0.3, 0), (10.0, 0)])
def test_window_is_a_moment_of_work(seconds_each, size):
    """Slow work is leased when the loop asks for it, and nothing ahead."""
    window = Window(1_000, fixed=False)
    for _ in range(20):
        count = max(1, window.size)
        window.worked_off(count, count * seconds_each)

    assert window.size == size


def test_window_grows_again_when_the_work_is_quick_again():
    """From nothing."""
    window = Window(1_000, fixed=False)
    window.stalled()
    assert window.size == 0

    window.worked_off(1, 0.0001)
    window.worked_off(2, 0.0002)

    assert window.size == 4


def test_fixed_window_stays():
    """Who asks for a number gets it, whatever the pace."""
    window = Window(50, fixed=True)

    window.worked_off(50, 100.0)
    window.stalled()

    assert (window.size, window.stale_seconds) == (50, None)
    assert Window(50, fixed=False).stale_seconds == limits.WINDOW_STALE_SECONDS
