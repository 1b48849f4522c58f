"""What gates promise of rates and shares, measured in the core with a clock of its own."""

from collections import Counter

import pytest

from fila.core.commands import (
    Attach,
    CreateQueue,
    Credit,
    DeleteQueue,
    Enqueue,
    PurgeQueue,
    SetConfig,
    SettleRuns,
)
from fila.core.model import Action, Discipline, GateKeys, QueueSpec, Runs
from fila.core.scheduler import Scheduler
from fila.limits import SECOND_NS

START_NS = 10**18
TIMEOUT_MS = 10_000_000


class Bench:
    """A core with one queue and one consumer that takes everything."""

    def __init__(self, discipline=Discipline.DRR, **settings) -> None:
        self.scheduler = Scheduler(now_ns=START_NS, incarnation=1)
        self.now_ns = START_NS
        self.scheduler.step(
            START_NS,
            [
                CreateQueue(1, QueueSpec("q", discipline, visibility_timeout_ms=TIMEOUT_MS)),
                *[SetConfig(2, key, value) for key, value in settings["config"].items()],
            ],
        )

    def enqueue(self, keys, gates, *, weights=None, cost=1):
        """One message for each entry of `keys`, behind the same gates."""
        for begin in range(0, len(keys), 10_000):
            part = keys[begin : begin + 10_000]
            places = {key: place for place, key in enumerate(dict.fromkeys(part))}
            self.step(
                Enqueue(
                    3,
                    "q",
                    [1] * len(part),
                    list(places),
                    [places[key] for key in part],
                    None if weights is None else [weights[key] for key in part],
                    None if cost == 1 else [cost] * len(part),
                    [GateKeys(gates)],
                )
            )

    def step(self, *commands):
        """Return the keys of what is delivered."""
        outcome = self.scheduler.step(self.now_ns, list(commands))
        return [delivery.keys[place] for delivery in outcome.deliveries for place in delivery.key_index]

    def until(self, end_ns):
        """Let time pass, and return the keys of what is delivered meanwhile."""
        found = []
        while (wake_ns := self.scheduler.next_wake_ns()) is not None and wake_ns <= end_ns:
            self.now_ns = max(self.now_ns, wake_ns)
            found += self.step()
        self.now_ns = end_ns
        return found


@pytest.mark.parametrize(("rate", "burst"), [(100, 10), (5_000, 50)])
@pytest.mark.parametrize("cost", [1, 3])
def test_a_saturated_rate_gate_delivers_its_limit(rate, burst, cost):
    """98 to 100 % over 10 s after the first burst, counted in cost."""
    bench = Bench(config={"throttle.x": f"{rate},{burst}"})
    bench.enqueue(["a"] * ((rate * 11 + burst) // cost), ("x",), cost=cost)

    first = bench.step(Attach(4, 1, "q", 10**9, 10**12))
    then = bench.until(START_NS + 10 * SECOND_NS)

    assert len(first) == burst // cost
    assert 0.98 <= len(then) * cost / (rate * 10) <= 1 + burst % cost


@pytest.mark.parametrize("discipline", [Discipline.DRR, Discipline.WFQ])
def test_a_thousand_tenants_behind_one_gate(discipline):
    """Shares as the weights within 0.01 of due, and a lone message of a new tenant passes within 3 deliveries."""
    weights = {f"tenant-{number}": 1 + number % 10 for number in range(1_000)}
    bench = Bench(discipline, config={"throttle.provider": "500,10"})
    bench.enqueue(
        [key for key, weight in weights.items() for _ in range(3 * weight)], ("provider",), weights=weights
    )

    bench.step(Attach(4, 1, "q", 10**9, 10**12))
    served = Counter(bench.until(START_NS + 22 * SECOND_NS))

    total, of_weights = served.total(), sum(weights.values())
    assert total > 10_000
    assert max(abs(served[key] / total - weight / of_weights) for key, weight in weights.items()) < 0.01
    assert all(served[key] for key in weights)
    for number in range(20 if discipline is Discipline.DRR else 0):
        bench.enqueue([f"new-{number}"], ("provider",))
        deliveries = bench.until(bench.now_ns + SECOND_NS // 20)
        assert f"new-{number}" in deliveries[:3]


def test_messages_of_closed_gates_are_not_looked_at():
    """However many keys wait at closed gates, what is free is taken without touching them."""
    bench = Bench(config={"throttle.t:*": "0,0", "throttle.t:open": "1e9,1e9"})
    count = 3_000
    bench.enqueue([f"k{number}" for number in range(10)], ("t:closed",))
    for number in range(count):
        bench.enqueue([f"k{number}"], (f"t:{number}",))
    bench.enqueue(["open"] * 1_000, ("t:open",))
    bench.step(Attach(4, 1, "q", 1, 10**12))
    holding = bench.scheduler._queues["q"].holding
    looked = Counter()
    holding._closed, closed = (
        lambda lane, cost: looked.update(["free"]) or closed(lane, cost),
        holding._closed,
    )
    keeper = bench.scheduler._keeper
    keeper._serve, serve = lambda gate: looked.update(["gate"]) or serve(gate), keeper._serve

    for _ in range(9):
        assert bench.step(Credit(1, 100, 10**6)) == ["open"] * 100

    assert looked["free"] == 900
    assert looked["gate"] < 50


def test_a_shared_gate_serves_queues_in_turn():
    """Two queues get half each, whatever they have waiting and however their messages cost."""
    bench = Bench(config={"throttle.x": "100,10"})
    bench.enqueue(["a"] * 2_000, ("x",))
    bench.step(CreateQueue(5, QueueSpec("r", visibility_timeout_ms=TIMEOUT_MS)))
    bench.step(Enqueue(6, "r", [1] * 500, ["b"], None, None, [4] * 500, [GateKeys(("x",))]))
    bench.step(Attach(7, 1, "q", 10**9, 10**12), Attach(8, 2, "r", 10**9, 10**12))

    served = Counter(bench.until(START_NS + 10 * SECOND_NS))

    assert abs(served["a"] - 4 * served["b"]) <= 10 + 8
    assert served["a"] + 4 * served["b"] >= 980


@pytest.mark.parametrize("end", ["ack", "purge", "delete"])
@pytest.mark.parametrize("discipline", list(Discipline))
def test_nothing_is_left_of_gates_that_nobody_uses(end, discipline):
    """When the messages are gone, so are lanes, sets of gates, slots, and buckets that are full again."""
    bench = Bench(discipline, config={"throttle.*": "1000,5", "concurrency.*": "7"})
    for number in range(50):
        gates = [GateKeys((f"a{number}", "shared"), (f"b{number % 3}",)), GateKeys(("unused",)), GateKeys()]
        bench.step(
            Enqueue(3, "q", [1] * 4, ["x", f"k{number}"], [0, 1, 1, 1], None, None, gates, [0, 0, 2, 2])
        )
    scheduler = bench.scheduler
    if end == "ack":
        outcome = scheduler.step(START_NS, [Attach(4, 1, "q", 10, 10**9)])
        for _ in range(1_000):
            while outcome.deliveries:
                epochs = tuple(delivery.epoch for delivery in outcome.deliveries)
                settled = SettleRuns(5, 1, Action.ACK, Runs(epochs, (0,) * len(epochs), (0,) * len(epochs)))
                outcome = scheduler.step(bench.now_ns, [settled, Credit(1, 10, 10**6)])
            bench.now_ns = max(bench.now_ns, scheduler.next_wake_ns() or 0)
            outcome = scheduler.step(bench.now_ns, [])
    else:
        bench.step(PurgeQueue(4, "q") if end == "purge" else DeleteQueue(4, "q"))

    keeper = scheduler._keeper
    assert scheduler._usage.messages == scheduler._usage.lanes == 0
    assert keeper._sets == keeper._users == keeper.in_flight == {}
    bench.now_ns += 10 * SECOND_NS
    scheduler.step(bench.now_ns, [])
    keeper._sweep()
    assert keeper._gates == {}
