"""What the runtime configuration says of gates: its keys and values, checked and formatted, and the limit that each name has.

    throttle.NAME = RATE,BURST      or   throttle:NAME:rate = RATE and throttle:NAME:burst = BURST
    concurrency.NAME = N
    pause.NAME = true

A name that ends in `*` is a pattern: every name that begins like it has a gate of its own with these limits. The exact name wins
over the longest pattern. An empty value removes the entry.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fila import limits
from fila.core.gates.bucket import TOKEN
from fila.errors import InvalidArgumentError

TRUE = ("1", "true", "yes", "on")
FALSE = ("0", "false", "no", "off")


class Kind(StrEnum):
    """What a gate counts. In this order a message looks at its gates."""

    PAUSE = "pause"
    CONCURRENCY = "concurrency"
    RATE = "throttle"


@dataclass(frozen=True, slots=True)
class Rate:
    """Nanotokens a second, and how many may be there."""

    rate: int
    burst: int

    def __str__(self) -> str:
        return f"{number_text(self.rate)},{number_text(self.burst)}"


# A limit: of a rate, of a number in flight; or that it is closed.
Limit = Rate | int | bool


@dataclass(frozen=True, slots=True)
class Entry:
    """Which gate a key of the configuration is about; `part` is rate or burst where it has only one of them."""

    kind: Kind
    name: str
    part: str = ""


def read_key(key: str) -> Entry | None:
    """Return what a key is about, or None if it is not about gates. Raises InvalidArgumentError."""
    for kind in Kind:
        if key.startswith(kind + "."):
            return Entry(kind, _checked_name(key, key[len(kind) + 1 :]))
    head = Kind.RATE + ":"
    for part in ("rate", "burst"):
        if key.startswith(head) and key.endswith(":" + part):
            return Entry(Kind.RATE, _checked_name(key, key[len(head) : -len(part) - 1]), part)
    return None


def _checked_name(key: str, name: str) -> str:
    if not name:
        raise InvalidArgumentError(f"the configuration key {key!r} names no gate")
    return name


def read_value(entry: Entry, value: str) -> Limit:
    """Return the limit that a value stands for; for a part the nanotokens. Raises InvalidArgumentError."""
    if entry.kind is Kind.PAUSE:
        word = value.strip().lower()
        if word not in TRUE + FALSE:
            raise InvalidArgumentError(f"{value!r} is neither of {', '.join(TRUE)} nor of {', '.join(FALSE)}")
        return word in TRUE
    if entry.kind is Kind.CONCURRENCY:
        text = value.strip()
        if not (text.isascii() and text.isdigit()) or int(text) > limits.CONCURRENCY_MAX:
            raise InvalidArgumentError(f"{value!r} is no whole number from 0 to {limits.CONCURRENCY_MAX:,}")
        return int(text)
    if entry.part:
        return _nanotokens(value)
    parts = value.split(",")
    if len(parts) != 2:
        raise InvalidArgumentError(f"{value!r} is not a rate and a burst with a comma between")
    return rate_of(_nanotokens(parts[0]), _nanotokens(parts[1]))


def rate_of(rate: int, burst: int) -> Rate:
    """Return a rate limit; where anything passes at all, one message fits."""
    return Rate(rate, max(burst, TOKEN) if rate else burst)


def _nanotokens(text: str) -> int:
    try:
        number = float(text)
    except ValueError:
        raise InvalidArgumentError(f"{text!r} is no number") from None
    # Written so that what is not a number fails too.
    if not 0 <= number <= limits.THROTTLE_MAX:
        raise InvalidArgumentError(f"{text!r} is not a number from 0 to {limits.THROTTLE_MAX:,}")
    return round(number * TOKEN)


def number_text(nanotokens: int) -> str:
    """Write nanotokens as a number of tokens that reads back the same."""
    whole, rest = divmod(nanotokens, TOKEN)
    return f"{whole}.{rest:09}".rstrip("0") if rest else str(whole)


class Rules:
    """The limits by kind and name."""

    def __init__(self) -> None:
        self._exact: dict[tuple[Kind, str], Limit] = {}
        self._patterns: dict[tuple[Kind, str], Limit] = {}
        # The lengths of the patterns of a kind without their star, longest first.
        self._lengths: dict[Kind, list[int]] = {}
        # The rates and bursts that were set apart.
        self._parts: dict[tuple[str, str], int] = {}
        self._whole: dict[str, Limit] = {}

    def set(self, entry: Entry, limit: Limit | None) -> None:
        """Give the names that an entry is about another limit, or none."""
        if entry.kind is not Kind.RATE:
            self._put(entry.kind, entry.name, limit)
            return
        if not entry.part:
            _put_or_drop(self._whole, entry.name, limit)
        else:
            assert limit is None or isinstance(limit, int), "a part is a number"
            _put_or_drop(self._parts, (entry.name, entry.part), limit)
        rate = self._parts.get((entry.name, "rate"))
        apart = None
        if rate is not None:
            apart = rate_of(rate, self._parts.get((entry.name, "burst"), rate))
        self._put(Kind.RATE, entry.name, self._whole.get(entry.name, apart))

    def _put(self, kind: Kind, name: str, limit: Limit | None) -> None:
        if not name.endswith("*"):
            _put_or_drop(self._exact, (kind, name), limit)
            return
        _put_or_drop(self._patterns, (kind, name[:-1]), limit)
        lengths = {len(prefix) for other, prefix in self._patterns if other is kind}
        self._lengths[kind] = sorted(lengths, reverse=True)

    @property
    def has_rates(self) -> bool:
        """Whether any rate is limited."""
        return any(kind is Kind.RATE for kind, _ in (*self._exact, *self._patterns))

    def find(self, kind: Kind, name: str) -> Limit | None:
        """Return the limit of a name, or None."""
        limit = self._exact.get((kind, name))
        if limit is not None:
            return limit
        for length in self._lengths.get(kind, ()):
            if length <= len(name) and (limit := self._patterns.get((kind, name[:length]))) is not None:
                return limit
        return None


def _put_or_drop(table: dict[Any, Any], key: object, value: object) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
