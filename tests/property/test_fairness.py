"""The disciplines against models that are slow and obviously right, through the core's own commands."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.naive import NaiveDrr, NaiveFifo, NaiveWfq

from fila import limits
from fila.core.commands import Attach, CreateQueue, Credit, Enqueue, PurgeQueue, SettleRuns
from fila.core.model import Action, Discipline, QueueSpec, Runs
from fila.core.scheduler import Scheduler

KEYS = ("a", "b", "c", "d", "e")
WEIGHTS = (1, 1, 2, 3, 10)
COSTS = (1, 1, 1, 2, 7)

messages = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(WEIGHTS), st.sampled_from(COSTS)),
    min_size=1,
    max_size=12,
)


def pushed(key: str, weight: int, count: int) -> list[tuple[str, int, int]]:
    """Return a batch of one key."""
    return [(key, weight, 1)] * count


events = st.lists(
    st.one_of(
        st.tuples(st.just("push"), messages),
        st.tuples(
            st.just("push"),
            st.builds(pushed, st.sampled_from(KEYS), st.sampled_from(WEIGHTS), st.integers(1, 40)),
        ),
        st.tuples(st.just("push of one key"), st.sampled_from(KEYS), st.integers(1, 20)),
        st.tuples(st.just("take"), st.integers(1, 9)),
        st.tuples(st.just("take"), st.integers(10, 60)),
        st.tuples(st.just("release"), st.integers(0, 50)),
        st.tuples(st.just("nack"), st.integers(0, 50)),
        st.tuples(st.just("take"), st.integers(1, 9)),
        st.tuples(st.just("purge")),
    ),
    min_size=8,
    max_size=40,
)
quanta = st.sampled_from((1, 300, 1_000, 2_500, 10_000))


class Driver:
    """A queue with one consumer, driven by events; what is delivered is remembered."""

    def __init__(self, discipline: Discipline, quantum: int) -> None:
        self.scheduler = Scheduler(now_ns=10**18, incarnation=1)
        self.keys: list[str] = []
        self.costs: list[int] = []
        self.failed: set[int] = set()
        # Leases in the order of delivery: (epoch, position, offset).
        self.held: list[tuple[int, int, int]] = []
        self.waiting = 0
        self.step(CreateQueue(1, QueueSpec("q", discipline, quantum, limits.VISIBILITY_TIMEOUT_MS_MAX)))
        self.step(Attach(1, 1, "q", 0, limits.CREDIT_BYTES_MAX))

    def step(self, command) -> list[int]:
        """Take a command and return what was delivered, by offset."""
        outcome = self.scheduler.step(10**18, [command])
        offsets = []
        for delivery in outcome.deliveries:
            for position, offset in enumerate(delivery.offsets):
                self.held.append((delivery.epoch, position, offset))
                offsets.append(offset)
        self.waiting -= len(offsets)
        return offsets

    def push(self, batch: list[tuple[str, int, int]], *, columns: bool) -> tuple[list[tuple], list[str]]:
        """Enqueue a batch; return it with offsets, and its keys in their order."""
        names = list(dict.fromkeys(key for key, _, _ in batch))
        numbered = [
            (key, len(self.keys) + place, weight, cost) for place, (key, weight, cost) in enumerate(batch)
        ]
        self.keys += [key for key, _, _ in batch]
        self.costs += [cost for _, _, cost in batch]
        self.waiting += len(batch)
        delivered = self.step(
            Enqueue(
                1,
                "q",
                [1] * len(batch),
                names,
                [names.index(key) for key, _, _ in batch] if columns else None,
                [weight for _, weight, _ in batch] if columns else None,
                [cost for _, _, cost in batch] if columns else None,
            )
        )
        assert delivered == [], "there was no credit"
        return numbered, names

    def settle(self, place: int, action: Action) -> int | None:
        """Settle one lease; return its offset, or None if there is none that may be settled so."""
        choices = [lease for lease in self.held if action is not Action.NACK or lease[2] not in self.failed]
        if not choices:
            return None
        lease = choices[place % len(choices)]
        self.held.remove(lease)
        epoch, position, offset = lease
        if action is Action.NACK:
            self.failed.add(offset)
        self.waiting += 1
        self.step(SettleRuns(1, 1, action, Runs((epoch,), (position,), (1,))))
        return offset


def drive(driver, event, model):
    """Let an event that is no take happen to both; False if it is a take."""
    if event[0] == "take":
        return False
    if event[0] == "push":
        model.push(*driver.push(event[1], columns=True))
    elif event[0] == "push of one key":
        model.push(*driver.push([(event[1], 1, 1)] * event[2], columns=False))
    elif event[0] == "release":
        offset = driver.settle(event[1], Action.RELEASE)
        if offset is not None:
            model.push_front(driver.keys[offset], offset, driver.costs[offset])
    elif event[0] == "nack":
        offset = driver.settle(event[1], Action.NACK)
        if offset is not None:
            model.push_back(driver.keys[offset], offset, driver.costs[offset])
    return True


@settings(max_examples=200, deadline=None)
@given(quantum=quanta, events=events)
def test_deficit_round_robin_is_what_a_round_at_a_time_would_do(quantum, events):
    """Skipped rounds, served laps and early visits change nothing in who is served next."""
    driver, model = Driver(Discipline.DRR, quantum), NaiveDrr(quantum)

    for event in events:
        if event[0] == "purge":
            driver.step(PurgeQueue(1, "q"))
            driver.waiting = 0
            weights = {name: key.weight for name, key in model.keys.items()}
            model = NaiveDrr(quantum)
            for name, weight in weights.items():
                model.key(name).weight = weight
        elif not drive(driver, event, model):
            count = min(event[1], driver.waiting)
            if count:
                assert driver.step(Credit(1, count, 0)) == [model.take() for _ in range(count)]


@settings(max_examples=150, deadline=None)
@given(events=events)
def test_weighted_fair_queueing_serves_the_smallest_start(events):
    """Each delivery is of a key whose start in virtual time nobody undercuts."""
    driver, model = Driver(Discipline.WFQ, 1), NaiveWfq()

    for event in events:
        if event[0] == "purge":
            continue
        if not drive(driver, event, model):
            count = min(event[1], driver.waiting)
            for offset in driver.step(Credit(1, count, 0)) if count else []:
                assert offset in model.may_take()
                model.take(offset)
            model.rest()


@settings(max_examples=100, deadline=None)
@given(events=events)
def test_first_in_first_out_is_one_lane(events):
    """The order of arrival, with what failed at the end and what was given back in front."""
    driver, model = Driver(Discipline.FIFO, 1), NaiveFifo()

    for event in events:
        if event[0] == "purge":
            driver.step(PurgeQueue(1, "q"))
            driver.waiting = 0
            model = NaiveFifo()
        elif not drive(driver, event, model):
            count = min(event[1], driver.waiting)
            if count:
                assert driver.step(Credit(1, count, 0)) == [model.take() for _ in range(count)]


@settings(max_examples=100, deadline=None)
@given(
    discipline=st.sampled_from(tuple(Discipline)),
    batch=st.lists(
        st.tuples(st.sampled_from(KEYS), st.sampled_from(WEIGHTS), st.sampled_from(COSTS)),
        min_size=1,
        max_size=80,
    ),
    cuts=st.lists(st.integers(1, 20)),
)
def test_how_credit_is_cut_changes_nothing(discipline, batch, cuts):
    """Many small credits are served the same messages in the same order as one large."""
    whole, parts = Driver(discipline, 1_000), Driver(discipline, 1_000)
    whole.push(batch, columns=True)
    parts.push(batch, columns=True)

    at_once = whole.step(Credit(1, len(batch), 0))
    bit_by_bit = [offset for cut in cuts for offset in parts.step(Credit(1, cut, 0))]

    assert sorted(at_once) == list(range(len(batch)))
    assert bit_by_bit == at_once[: len(bit_by_bit)]
