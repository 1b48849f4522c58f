"""Waiting between attempts: longer each time, bounded, and never in step with others."""

import pytest

from fila import limits
from fila.client.backoff import Backoff


@pytest.mark.parametrize(("draw", "share"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_delay_doubles_up_to_its_bound(draw, share):
    """Between half and all of it is left to chance."""
    backoff = Backoff(lambda: draw)

    delays_ms = [round(backoff.next_seconds() * 1000 / share, 6) for _ in range(10)]

    expected = [min(limits.RECONNECT_MS_FIRST * 2**number, limits.RECONNECT_MS_MAX) for number in range(10)]
    assert delays_ms == expected
    assert delays_ms[-1] == limits.RECONNECT_MS_MAX


def test_success_begins_anew():
    """The next failure is a new one."""
    backoff = Backoff(lambda: 1.0)
    first = backoff.next_seconds()
    backoff.next_seconds()

    backoff.reset()

    assert backoff.next_seconds() == first


def test_two_clients_do_not_come_back_at_once():
    """Left to itself, it draws."""
    one, other = ([Backoff().next_seconds() for _ in range(20)] for _ in range(2))

    assert one != other
    assert len(set(one)) > 1
