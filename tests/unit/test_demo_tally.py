"""The demo's counting: what was sent, what came, and how long it waited."""

from fila.demo.plan import NOISY, QUIET, Plan
from fila.demo.tally import Tally


def test_waits_are_those_of_what_was_delivered():
    """Median and longest of what came; what did not come yet counts for itself, from when it was sent."""
    tally = Tally("bolt", 3)
    tally.send(10.0)
    tally.send(12.0, count=2)
    tally.deliver(1500.0)
    tally.deliver(500.0)

    seen = tally.at(13.0)

    assert (seen.sent, seen.delivered, seen.median_wait_ms, seen.longest_wait_ms) == (3, 2, 1000.0, 1500.0)
    assert seen.waiting_ms == 1000.0
    assert not tally.complete


def test_all_that_was_planned_is_complete():
    """Then nothing waits."""
    tally = Tally("bolt", 1)
    tally.send(10.0)
    tally.deliver(1.0)

    assert tally.complete
    assert tally.at(99.0).waiting_ms is None


def test_quiet_tenant_sends_all_while_the_flood_is_worked_off():
    """Else there would be nothing to wait behind."""
    plan = Plan(6.0)

    assert plan.messages[QUIET] * plan.quiet_interval_seconds < plan.seconds
    assert plan.messages[NOISY] == 6 * 200
