"""The fairness laws, judged from what a client saw: the order of arrivals and services, and nothing of the broker.

The interval law: while two keys have something waiting, are in the round and keep their weights, what they were served
differs, each divided by its weight, by at most one quantum and one largest cost of each, again divided by its weight.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Arrival:
    """So many messages of a key were there before the next service."""

    key: str
    weight: int
    count: int


@dataclass(frozen=True, slots=True)
class Service:
    """One message of a key was delivered."""

    key: str
    cost: int = 1


Event = Arrival | Service


@dataclass(slots=True)
class _Backlog:
    """What is known of one key: it is in the round from its first service after having been empty."""

    weight: int
    waiting: int = 0
    in_round: bool = False


@dataclass(slots=True)
class _Interval:
    """How the difference of two keys moved while both were backlogged, times both weights to keep it whole."""

    difference: int = 0
    lowest: int = 0
    highest: int = 0


def count_law_violations(events: Sequence[Event], *, quantum: int = 1, cost_max: int = 1) -> int:
    """Return in how many longest common backlogs of two keys any interval breaks the law.

    The widest swing of the difference within a common backlog is that of its worst interval, so all are judged.
    """
    backlogs: dict[str, _Backlog] = {}
    intervals: dict[tuple[str, str], _Interval] = {}
    violations = 0

    def leave(key: str) -> int:
        pairs = [pair for pair in intervals if key in pair]
        return sum(_is_violated(pair, intervals.pop(pair), backlogs, quantum, cost_max) for pair in pairs)

    for event in events:
        backlog = backlogs.setdefault(event.key, _Backlog(weight=1))
        if isinstance(event, Arrival):
            if backlog.weight != event.weight:
                # The law holds while weights stay: a new weight begins new intervals.
                violations += leave(event.key)
                backlog.weight = event.weight
                if backlog.in_round:
                    _enter(event.key, backlogs, intervals)
            backlog.waiting += event.count
            continue
        backlog.waiting -= 1
        if backlog.in_round:
            _serve(event, backlogs, intervals)
        elif backlog.waiting:
            backlog.in_round = True
            _enter(event.key, backlogs, intervals)
        if not backlog.waiting:
            violations += leave(event.key)
            backlog.in_round = False
    return violations + sum(
        _is_violated(pair, interval, backlogs, quantum, cost_max) for pair, interval in intervals.items()
    )


def _enter(key: str, backlogs: Mapping[str, _Backlog], intervals: dict[tuple[str, str], _Interval]) -> None:
    for other, backlog in backlogs.items():
        if other != key and backlog.in_round:
            intervals[key, other] = _Interval()


def _serve(
    service: Service, backlogs: Mapping[str, _Backlog], intervals: Mapping[tuple[str, str], _Interval]
) -> None:
    key = service.key
    for other, backlog in backlogs.items():
        if other == key or not backlog.in_round:
            continue
        change = service.cost * backlog.weight
        interval = intervals.get((key, other))
        if interval is None:
            interval, change = intervals[other, key], -change
        interval.difference += change
        interval.lowest = min(interval.lowest, interval.difference)
        interval.highest = max(interval.highest, interval.difference)


def _is_violated(
    pair: tuple[str, str],
    interval: _Interval,
    backlogs: Mapping[str, _Backlog],
    quantum: int,
    cost_max: int,
) -> bool:
    first, second = (backlogs[key].weight for key in pair)
    allowed = quantum * first * second + cost_max * (first + second)
    return interval.highest - interval.lowest > allowed


def max_share_error(services: Sequence[str], weights: Mapping[str, int], *, after: int) -> float:
    """Return how far any key's share ever was from its due, from `after` services on.

    Only services of the keys in `weights` count; they must be backlogged throughout.
    """
    total_weight = sum(weights.values())
    due = {key: Fraction(weight, total_weight) for key, weight in weights.items()}
    served = dict.fromkeys(weights, 0)
    total = 0
    worst = 0.0
    for key in services:
        if key not in served:
            continue
        served[key] += 1
        total += 1
        if total >= after:
            worst = max(worst, *(abs(served[name] / total - float(due[name])) for name in served))
    return worst
