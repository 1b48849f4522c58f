"""What on_failure is given, and the verdicts that it returns."""

import pytest
from tests.unit.hooks.messages import failure, hooks

from fila import limits
from fila.hooks.policy import Fault, Verdicts


def judged(statements, *failures):
    """Run statements as on_failure of some failures."""
    source = f"function on_failure(msg, attempts)\n{statements}\nend"
    return hooks(on_failure=source).judge(failures or (failure(),))


def verdicts(statements, *failures):
    """Return retry and delay of each failure; none may have failed."""
    found = judged(statements, *failures)
    assert not found.errors, found.errors
    return list(zip(found.retries, found.delays_ms, strict=True))


def test_a_verdict_for_each_failure():
    """Retry after a delay, or the dead letter queue."""
    statements = """
    if attempts >= 3 then return {action = "dlq"} end
    return {action = "retry", delay_ms = 1000 * 2 ^ attempts}"""

    assert verdicts(statements, *(failure(attempts=number) for number in (1, 2, 3))) == [
        (True, 2000),
        (True, 4000),
        (False, -1),
    ]


def test_what_on_failure_is_given():
    """Headers, id, attempts, queue and error; attempts also as the second argument."""
    statements = """
    assert(msg.headers.tenant == "acme" and msg.id == "0190-id" and msg.queue == "orders")
    assert(msg.attempts == 4 and attempts == 4 and msg.error == "connection refused")
    return {action = "dlq"}"""

    assert verdicts(statements, failure(4, "connection refused", tenant="acme")) == [(False, -1)]


@pytest.mark.parametrize("statements", ["", "return {}", 'return {action = "retry"}'])
def test_what_is_left_open_is_the_queues_own_back_off(statements):
    """No delay is not a delay of 0."""
    assert verdicts(statements) == [(True, -1)]


def test_a_delay_of_nothing_is_at_once():
    """0 is said, and taken at its word."""
    assert verdicts("return {delay_ms = 0}") == [(True, 0)]


@pytest.mark.parametrize(
    "statements",
    [
        'return {action = "drop"}',
        "return {action = 1}",
        "return {delay_ms = -1}",
        "return {delay_ms = 0/0}",
        f"return {{delay_ms = {limits.DELAY_MS_MAX + 1}}}",
        'return "dlq"',
    ],
)
def test_verdicts_that_are_none_leave_it_to_the_back_off(statements):
    """An error of the script never loses a message and never dead-letters it."""
    found = judged(statements)

    assert found.errors[0].fault is Fault.RESULT
    assert (found.retries, found.delays_ms) == ([True], [-1])


def test_a_failing_verdict_leaves_the_others_alone():
    """Each failure is judged by itself."""
    found = judged("return {action = msg.headers.x:sub(1, 3)}", failure(x="dlq"), failure(), failure(x="dlq"))

    assert found.retries == [False, True, False]
    assert list(found.errors) == [1]
    assert (found.errors[1].fault, found.errors[1].line) == (Fault.SCRIPT, 2)


def test_many_failures_at_once():
    """A consumer that is lost may have held thousands."""
    failures = [failure(attempts=number) for number in range(1, 1001)]

    found = judged("return {delay_ms = attempts}", *failures)

    assert list(found.delays_ms) == list(range(1, 1001))
    assert found.decided == 1000


def test_long_errors_are_cut():
    """A consumer may say a megabyte of stack trace."""
    assert verdicts("return {delay_ms = #msg.error}", failure(text="é" * limits.MIB)) == [
        (True, limits.ERROR_BYTES_MAX)
    ]


def test_without_a_hook_everything_is_left_open():
    """A queue may have only the other one."""
    assert hooks("function on_enqueue() end").judge([failure()]) == Verdicts([True], [-1])
