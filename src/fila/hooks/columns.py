"""Cuts a batch into calls, takes their flat answers apart and joins them into the columns of the batch."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fila import limits
from fila.hooks.lua import describe
from fila.hooks.policy import Failure, Fault, HookError, KeyLists, Routings, Verdicts

_PROBLEM_VALUES: Final = 4
_NO_LISTS: Final = KeyLists()
_NO_ERRORS: Final[Mapping[int, HookError]] = {}


class RouteBatch:
    """Messages on their way through `on_enqueue`, some at a call."""

    # Where an answer says how many failures in a row it ends with, and what scripts took.
    failures_in_row_at: Final = 6
    seconds_at: Final = 10

    __slots__ = ("_bodies", "_offset", "_parts", "_sizes", "count", "done", "errors")

    def __init__(self, bodies: bytes, sizes: Sequence[int]) -> None:
        self.count = len(sizes)
        self.done = 0
        self.errors: dict[int, HookError] = {}
        self._bodies = bodies
        self._sizes = sizes
        self._offset = 0
        self._parts: list[Routings] = []

    def next_call(self, count_max: int) -> tuple[bytes, Sequence[Any], int, int]:
        """Return what the next call is given: bodies, arguments, what these take, the number of messages."""
        count = min(count_max, self.count - self.done, limits.HOOK_CALL_MESSAGES_MAX)
        if count == self.count and len(self._bodies) <= limits.HOOK_CALL_BYTES_MAX:
            return self._bodies, self._sizes, 0, count
        count = messages_of_call(self._sizes[self.done : self.done + count])
        sizes = self._sizes[self.done : self.done + count]
        return self._bodies[self._offset : self._offset + sum(sizes)], sizes, 0, count

    def take(self, hook: str, answer: tuple[Any, ...]) -> Mapping[int, HookError]:
        """Take in what `route_columns` of driver.lua returned; return its problems."""
        base = self.done
        routings, place = read_routings(answer)
        self._add(routings)
        return read_problems(hook, answer[place:], base) if place < len(answer) else _NO_ERRORS

    def skip(self) -> None:
        """Leave the next message with the defaults."""
        self._add(Routings(1, decided=1))

    def build(self) -> Routings:
        """Return the columns: whoever was not decided has the defaults."""
        if len(self._parts) == 1 and self.done == self.count and not self.errors:
            return self._parts[0]
        if self.done < self.count:
            self._parts.append(Routings(self.count - self.done))
        return join_routings(self._parts, errors=self.errors, decided=self.done)

    def _add(self, routings: Routings) -> None:
        self._parts.append(routings)
        if routings.count < self.count:
            self._offset += sum(self._sizes[self.done : self.done + routings.count])
        self.done += routings.count


class JudgeBatch:
    """Failures on their way through `on_failure`, some at a call."""

    failures_in_row_at: Final = 3
    seconds_at: Final = 4

    __slots__ = ("_delays_ms", "_failures", "_retries", "count", "done", "errors")

    def __init__(self, failures: Sequence[Failure]) -> None:
        self.count = len(failures)
        self.done = 0
        self.errors: dict[int, HookError] = {}
        self._failures = failures
        self._retries: list[bool] = []
        self._delays_ms: list[int] = []

    def next_call(self, count_max: int) -> tuple[bytes, Sequence[Any], int, int]:
        """Return what the next call is given: bodies, arguments, what these take, the number of failures."""
        count = min(count_max, self.count - self.done, limits.HOOK_CALL_MESSAGES_MAX)
        failures = self._failures[self.done : self.done + count]
        failures = failures[: messages_of_call([len(each.body) for each in failures])]
        columns: list[Any] = []
        text_bytes = 0
        for each in failures:
            identifier = each.id.encode()
            error = each.error.encode("utf-8", "replace")[: limits.ERROR_BYTES_MAX]
            columns += (len(each.body), identifier, each.attempts, error)
            text_bytes += len(error) + len(identifier)
        return b"".join([each.body for each in failures]), columns, text_bytes, len(failures)

    def take(self, hook: str, answer: tuple[Any, ...]) -> Mapping[int, HookError]:
        """Take in what `judge_columns` of driver.lua returned; return its problems."""
        done, base = answer[1], self.done
        self._retries.extend(answer[5 : 5 + done])
        self._delays_ms.extend(answer[5 + done : 5 + 2 * done])
        self.done += done
        return read_problems(hook, answer[5 + 2 * done :], base)

    def skip(self) -> None:
        """Leave the next failure to the queue's back-off."""
        self._retries.append(True)
        self._delays_ms.append(-1)
        self.done += 1

    def build(self) -> Verdicts:
        """Return the columns: whoever was not decided has the defaults."""
        missing = self.count - self.done
        return Verdicts(
            retries=self._retries + [True] * missing,
            delays_ms=self._delays_ms + [-1] * missing,
            errors=self.errors,
            decided=self.done,
        )


def messages_of_call(sizes: Sequence[int]) -> int:
    """Return how many of these messages one call takes: a large one is alone."""
    total = 0
    for number, size in enumerate(sizes):
        total += size
        if total > limits.HOOK_CALL_BYTES_MAX:
            return max(1, number)
    return len(sizes)


def read_problems(hook: str, flat: Sequence[Any], base: int) -> dict[int, HookError]:
    """Read number, fault, line and text of each message that failed; `base` is the place of the call's first."""
    problems = {}
    for start in range(0, len(flat), _PROBLEM_VALUES):
        number, fault, line, what = flat[start : start + _PROBLEM_VALUES]
        text, named_line = describe(hook, what, line)
        problems[base + number - 1] = HookError(Fault(fault.decode()), text, named_line)
    return problems


def read_routings(answer: tuple[Any, ...]) -> tuple[Routings, int]:
    """Read the columns of one call, and where they end."""
    _, done, key_count, gate_values, pool_values, _, _, has_weights, has_costs, has_delays, _ = answer[:11]
    place = 11
    index = weights = costs = delays = None
    if key_count > 1:
        index = answer[place : place + done]
        place += done
    if has_weights:
        weights = answer[place : place + done]
        place += done
    if has_costs:
        costs = answer[place : place + done]
        place += done
    if has_delays:
        delays = answer[place : place + done]
        place += done
    keys = [key.decode() for key in answer[place : place + key_count]]
    place += key_count
    gates = pools = _NO_LISTS
    if gate_values:
        gates = _read_lists(answer, place, done, gate_values)
        place += done + gate_values
    if pool_values:
        pools = _read_lists(answer, place, done, pool_values)
        place += done + pool_values
    return Routings(done, keys, index, weights, costs, delays, gates, pools, _NO_ERRORS, done), place


def _read_lists(answer: tuple[Any, ...], place: int, done: int, values: int) -> KeyLists:
    start = place + done
    end = start + values
    lists = []
    while start < end:
        stop = start + 1 + answer[start]
        keys = [key.decode() for key in answer[start + 1 : stop]]
        # A gate named twice is one gate.
        lists.append(tuple(keys) if len(keys) == 1 else tuple(dict.fromkeys(keys)))
        start = stop
    return KeyLists(lists, answer[place : place + done])


def join_routings(parts: Sequence[Routings], *, errors: Mapping[int, HookError], decided: int) -> Routings:
    """Join the columns of neighbouring messages."""
    places: dict[str, int] = {}
    key_index: list[int] = []
    for part in parts:
        moved = [places.setdefault(key, len(places)) for key in part.keys]
        key_index += [moved[place] for place in part.key_index] if part.key_index else moved[:1] * part.count
    return Routings(
        count=len(key_index),
        keys=list(places),
        key_index=key_index if len(places) > 1 else None,
        weights=_join_numbers([(part.weights, part.count) for part in parts]),
        costs=_join_numbers([(part.costs, part.count) for part in parts]),
        delays_ms=_join_numbers([(part.delays_ms, part.count) for part in parts]),
        throttle_keys=_join_lists([(part.throttle_keys, part.count) for part in parts]),
        concurrency_keys=_join_lists([(part.concurrency_keys, part.count) for part in parts]),
        errors=errors,
        decided=decided,
    )


def _join_numbers(columns: Sequence[tuple[Sequence[int] | None, int]]) -> list[int] | None:
    if all(column is None for column, _ in columns):
        return None
    return [number for column, count in columns for number in (column or [0] * count)]


def _join_lists(columns: Sequence[tuple[KeyLists, int]]) -> KeyLists:
    numbers: dict[tuple[str, ...], int] = {}
    index: list[int] = []
    for column, count in columns:
        moved = [0, *(numbers.setdefault(keys, len(numbers) + 1) for keys in column.lists)]
        index += [moved[number] for number in column.index] if column.index else [0] * count
    return KeyLists(list(numbers), index) if numbers else _NO_LISTS
