"""Gates by themselves: what a bucket lets through, and what the configuration says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fila.core.gates.bucket import TOKEN, Bucket
from fila.core.gates.rules import Kind, Rate, Rules, read_key, read_value
from fila.errors import InvalidArgumentError
from fila.limits import SECOND_NS

START_NS = 10**18
unhurried = settings(deadline=None, max_examples=200)
rates = st.integers(1, 20_000 * TOKEN) | st.sampled_from([TOKEN // 3, TOKEN, 100 * TOKEN, 5_000 * TOKEN])
bursts = st.integers(TOKEN, 200 * TOKEN)
spans = st.lists(st.integers(0, SECOND_NS) | st.integers(0, 1_000), max_size=40)


@unhurried
@given(rates, bursts, spans, st.integers(-100 * TOKEN, 200 * TOKEN))
def test_splitting_an_interval_changes_nothing(rate, burst, pieces, tokens):
    """However often a bucket is looked at, it has the same tokens at the end."""
    often, once = (Bucket(rate, burst, tokens, START_NS) for _ in range(2))
    now_ns = START_NS

    for span_ns in pieces:
        now_ns += span_ns
        often.refill(now_ns)
    once.refill(now_ns)

    assert (often.tokens, often._carry) == (once.tokens, once._carry)


@unhurried
@given(
    rates | st.just(0),
    bursts,
    st.lists(st.tuples(st.integers(0, SECOND_NS // 10), st.integers(1, 300)), max_size=80),
)
def test_never_more_than_burst_and_rate_and_one_cost(rate, burst, tries):
    """In no interval passes more than the burst, the rate times its length, and one largest cost."""
    bucket = Bucket(rate, burst, burst, START_NS)
    now_ns = START_NS
    passed: list[tuple[int, int]] = []

    for span_ns, cost in tries:
        now_ns += span_ns
        bucket.refill(now_ns)
        while bucket.admits(cost, 0):
            bucket.take(cost)
            passed.append((now_ns, cost))

    dearest = max((cost for _, cost in passed), default=0)
    for begin in range(len(passed)):
        total = 0
        for at_ns, cost in passed[begin:]:
            total += cost
            span_ns = at_ns - passed[begin][0]
            assert total * TOKEN <= burst + -(-rate * span_ns // SECOND_NS) + dearest * TOKEN


@unhurried
@given(st.integers(TOKEN, 20_000 * TOKEN), bursts, st.integers(1, 3))
def test_saturated_is_98_to_100_per_cent(rate, burst, cost):
    """Whoever takes at the moment the bucket names loses nothing."""
    bucket = Bucket(rate, burst, 0, START_NS)
    passed = count = 0
    now_ns = START_NS
    while count < 300:
        now_ns = bucket.admits_at_ns(cost)
        bucket.refill(now_ns)
        assert bucket.admits(cost, 0)
        bucket.take(cost)
        passed += cost
        count += 1

    due = rate * (now_ns - START_NS) // SECOND_NS
    assert due * 0.98 <= passed * TOKEN <= due + max(0, cost * TOKEN - burst)


@unhurried
@given(rates, bursts, st.integers(1, 300), st.integers(-1_000 * TOKEN, 200 * TOKEN))
def test_the_moment_is_the_first(rate, burst, cost, tokens):
    """A message may pass when the bucket says, and not a nanosecond before."""
    bucket = Bucket(rate, burst, tokens, START_NS)
    at_ns = bucket.admits_at_ns(cost)
    if at_ns > START_NS:
        bucket.refill(at_ns - 1)
        assert not bucket.admits(cost, 0)

    bucket.refill(at_ns)

    assert bucket.admits(cost, 0)


def test_rate_0_lets_the_burst_through_and_then_nothing():
    """Nothing comes after it, ever."""
    bucket = Bucket(0, 3 * TOKEN, 3 * TOKEN, START_NS)

    for _ in range(3):
        assert bucket.admits(1, 0)
        bucket.take(1)
    bucket.refill(START_NS + 10**15)

    assert not bucket.admits(1, 0)
    assert bucket.admits_at_ns(1) is None
    assert not Bucket(0, 0, 0, START_NS).admits(1, 0)
    assert Bucket(0, 0, 0, START_NS).admits_at_ns(1) is None


def test_a_message_dearer_than_the_burst_leaves_a_debt():
    """It passes at a full bucket, and what follows waits until it is paid."""
    bucket = Bucket(TOKEN, 5 * TOKEN, 5 * TOKEN, START_NS)

    assert bucket.admits(20, 0)
    bucket.take(20)

    assert bucket.tokens == -15 * TOKEN
    assert bucket.admits_at_ns(1) == START_NS + 16 * SECOND_NS


@given(st.integers(0, 10**9 * TOKEN), st.integers(0, 10**9 * TOKEN))
def test_a_rate_reads_back(rate, burst):
    """What is written is what is read, but for a burst below one message."""
    written = Rate(rate, max(burst, TOKEN) if rate else burst)

    found = read_value(read_key("throttle.x"), str(written))
    assert abs(found.rate - written.rate) <= written.rate >> 50
    assert abs(found.burst - written.burst) <= written.burst >> 50


@pytest.mark.parametrize("value", ["", "1", "1,2,3", "x,1", "1,-1", "-1,1", "nan,1", "1,inf", "1e30,1"])
def test_a_bad_rate_is_refused(value):
    """Two finite numbers, at least 0."""
    with pytest.raises(InvalidArgumentError):
        read_value(read_key("throttle.x"), value)


@pytest.mark.parametrize(
    ("key", "value"), [("concurrency.x", "-1"), ("concurrency.x", "2.5"), ("pause.x", "maybe")]
)
def test_other_bad_values_are_refused(key, value):
    """A whole number; yes or no."""
    with pytest.raises(InvalidArgumentError):
        read_value(read_key(key), value)


def test_a_key_that_names_no_gate_is_refused():
    """And one about something else is not looked at."""
    with pytest.raises(InvalidArgumentError):
        read_key("throttle.")
    assert read_key("color") is None
    assert read_key("throttle:a:b:rate").name == "a:b"


def test_the_exact_name_wins_over_the_longest_pattern():
    """And the longest pattern over the others."""
    rules = Rules()
    for name, value in (("*", "1,1"), ("tenant:*", "2,2"), ("tenant:a*", "3,3"), ("tenant:abc", "4,4")):
        entry = read_key(f"throttle.{name}")
        rules.set(entry, read_value(entry, value))

    found = [
        rules.find(Kind.RATE, name).rate // TOKEN for name in ("other", "tenant:x", "tenant:ab", "tenant:abc")
    ]

    assert found == [1, 2, 3, 4]
    rules.set(read_key("throttle.tenant:abc"), None)
    assert rules.find(Kind.RATE, "tenant:abc").rate == 3 * TOKEN
    assert rules.find(Kind.CONCURRENCY, "tenant:abc") is None


def test_rate_and_burst_may_be_set_apart():
    """Alone a rate has a burst of a second; the other form wins."""
    rules = Rules()
    rules.set(read_key("throttle:a:burst"), 7 * TOKEN)
    assert rules.find(Kind.RATE, "a") is None

    rules.set(read_key("throttle:a:rate"), 5 * TOKEN)
    assert rules.find(Kind.RATE, "a") == Rate(5 * TOKEN, 7 * TOKEN)
    rules.set(read_key("throttle:a:burst"), None)
    assert rules.find(Kind.RATE, "a") == Rate(5 * TOKEN, 5 * TOKEN)
    rules.set(read_key("throttle.a"), Rate(TOKEN, TOKEN))
    assert rules.find(Kind.RATE, "a") == Rate(TOKEN, TOKEN)
