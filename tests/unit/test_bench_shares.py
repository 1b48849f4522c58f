"""The law checker of the bench finds what breaks the law, and nothing else."""

import random

import pytest

from fila.bench.shares import Arrival, Service, count_law_violations, max_share_error


def round_robin(weights, rounds, *, per_turn=1):
    """Serve each key `weight` messages per round, in turns of `per_turn` rounds."""
    return [
        Service(key)
        for _ in range(rounds // per_turn)
        for key, weight in weights.items()
        for _ in range(weight * per_turn)
    ]


def backlog(weights, count):
    return [Arrival(key, weight, count) for key, weight in weights.items()]


WEIGHTS = {"a": 1, "b": 2, "c": 5}


def test_deficit_round_robin_keeps_the_interval_law():
    """Turns of one quantum are within the bound in every interval."""
    events = backlog(WEIGHTS, 1_000) + round_robin(WEIGHTS, 100)

    assert count_law_violations(events) == 0


def test_turns_of_four_quanta_break_the_interval_law():
    """Right in the long run is not enough: each of the three pairs is too far apart within a turn."""
    events = backlog(WEIGHTS, 1_000) + round_robin(WEIGHTS, 100, per_turn=4)

    assert count_law_violations(events) == 3


def test_a_key_that_is_passed_over_breaks_the_interval_law():
    """Plain turns give weights 1 and 5 the same service: a violation of each pair with unequal weights."""
    services = [Service(key) for _ in range(100) for key in WEIGHTS]

    assert count_law_violations(backlog(WEIGHTS, 1_000) + services) == 3


def test_one_swing_too_far_in_a_long_run_is_found():
    """One interval among thousands is enough."""
    fair = round_robin({"a": 1, "b": 1}, 500)
    spoilt = fair[:500] + [Service("a")] * 4 + [Service("b")] * 4 + fair[500:]
    arrivals = backlog({"a": 1, "b": 1}, 1_000)

    assert count_law_violations(arrivals + fair) == 0
    assert count_law_violations(arrivals + spoilt) == 1


def test_a_drained_key_is_owed_nothing():
    """While a key has nothing waiting, what others are served is not held against it."""
    events = [
        Arrival("a", 1, 100),
        Arrival("b", 1, 2),
        *[Service("a"), Service("b"), Service("a"), Service("b")],
        *[Service("a")] * 50,
        Arrival("b", 1, 2),
        *[Service("b"), Service("a"), Service("b")],
    ]

    assert count_law_violations(events) == 0


def test_a_new_weight_begins_a_new_interval():
    """The law binds while weights stay; after a change it binds by the new ones."""
    before = backlog({"a": 1, "b": 1}, 1_000) + round_robin({"a": 1, "b": 1}, 50)
    change = [Arrival("a", 3, 1)]

    assert count_law_violations(before + change + round_robin({"a": 3, "b": 1}, 50)) == 0
    assert count_law_violations(before + change + round_robin({"a": 1, "b": 1}, 50)) == 1


@pytest.mark.parametrize("seed", range(10))
def test_the_checker_agrees_with_the_law_as_it_is_written(seed):
    """Trying every interval of every pair one by one finds the same pairs."""
    draw = random.Random(seed)
    weights = {"a": 1, "b": 2, "c": 3}
    services = [
        Service(key) for key in draw.choices(list(weights), [weight + 1 for weight in weights.values()], k=60)
    ]

    assert count_law_violations(backlog(weights, 1_000) + services) == count_by_definition(weights, services)


def count_by_definition(weights, services):
    violations = 0
    keys = list(weights)
    for place, first in enumerate(keys):
        for second in keys[place + 1 :]:
            # Both are in the round after the first service of each.
            order = [service.key for service in services]
            begin = max(order.index(first), order.index(second)) + 1
            bound = 1 + 1 / weights[first] + 1 / weights[second]
            violations += any(
                abs(
                    order[start:end].count(first) / weights[first]
                    - order[start:end].count(second) / weights[second]
                )
                > bound + 1e-9
                for start in range(begin, len(order))
                for end in range(start, len(order) + 1)
            )
    return violations


def test_the_share_error_is_the_worst_after_the_start():
    """Early imbalance is forgiven, later imbalance is not, and other keys do not count."""
    weights = {"a": 1, "b": 1}
    even = ["a", "visitor", "b"] * 50

    assert max_share_error(["a", "a", *even], weights, after=2) == 0.5
    assert max_share_error(even, weights, after=100) == 0
    assert max_share_error(["a"] * 2 + even, weights, after=100) == pytest.approx(52 / 101 - 0.5)
