"""The circuit breaker: closed, open, half-open, and what leads from one to the other."""

from hypothesis import given
from hypothesis import strategies as st

from fila.hooks.breaker import Breaker
from fila.hooks.policy import BreakerState
from fila.limits import MS_NS

COOLDOWN_NS = 10_000 * MS_NS


def opened():
    breaker = Breaker(3, 10_000)
    breaker.record(0, failures_in_row=3, any_success=False)
    return breaker


def test_three_failures_in_a_row_open_it():
    """Two do not, whatever was before."""
    breaker = Breaker(3, 10_000)

    breaker.record(0, failures_in_row=2, any_success=True)
    assert breaker.state(0) is BreakerState.CLOSED
    breaker.record(0, failures_in_row=3, any_success=False)

    assert breaker.state(0) is BreakerState.OPEN


def test_a_success_forgets_failures():
    """They have to come in a row."""
    breaker = Breaker(3, 10_000)

    breaker.record(0, failures_in_row=2, any_success=False)
    breaker.record(0, failures_in_row=0, any_success=True)

    assert breaker.failures_in_row() == 0


def test_it_is_half_open_after_its_time_and_not_before():
    """To the nanosecond."""
    breaker = opened()

    assert breaker.state(COOLDOWN_NS - 1) is BreakerState.OPEN
    assert breaker.state(COOLDOWN_NS) is BreakerState.HALF_OPEN


def test_half_open_a_success_closes_it():
    """With all three failures to go again."""
    breaker = opened()

    breaker.record(COOLDOWN_NS, failures_in_row=0, any_success=True)

    assert breaker.state(COOLDOWN_NS) is BreakerState.CLOSED
    assert breaker.failures_in_row() == 0


def test_half_open_one_failure_opens_it_for_the_whole_time_again():
    """One is enough, and the time begins anew."""
    breaker = opened()

    failures = breaker.failures_in_row() + 1
    breaker.record(COOLDOWN_NS, failures_in_row=failures, any_success=False)

    assert breaker.state(2 * COOLDOWN_NS - 1) is BreakerState.OPEN
    assert breaker.state(2 * COOLDOWN_NS) is BreakerState.HALF_OPEN


def test_half_open_what_says_nothing_changes_nothing():
    """A message that cannot be read is neither a success nor a failure of the script."""
    breaker = opened()

    breaker.record(COOLDOWN_NS, failures_in_row=breaker.failures_in_row(), any_success=False)

    assert breaker.state(COOLDOWN_NS) is BreakerState.HALF_OPEN


@given(st.integers(1, 5), st.lists(st.tuples(st.booleans(), st.integers(0, 4_000)), max_size=60))
def test_the_breaker_is_the_plain_rule(threshold, history):
    """Against a model that counts one message at a time."""
    breaker = Breaker(threshold, 10_000)
    now_ms, in_row, open_until_ms = 0, 0, None
    for succeeds, pause_ms in history:
        now_ms += pause_ms
        if open_until_ms is not None and now_ms < open_until_ms:
            assert breaker.state(now_ms * MS_NS) is BreakerState.OPEN
            continue
        half_open = open_until_ms is not None
        assert breaker.state(now_ms * MS_NS) is (BreakerState.HALF_OPEN if half_open else BreakerState.CLOSED)

        failures = 0 if succeeds else breaker.failures_in_row() + 1
        breaker.record(now_ms * MS_NS, failures_in_row=failures, any_success=succeeds)

        in_row = 0 if succeeds else in_row + 1
        open_until_ms = now_ms + 10_000 if (half_open and not succeeds) or in_row >= threshold else None
        if open_until_ms is not None:
            in_row = 0
