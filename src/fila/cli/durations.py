"""Times as people type them: 30s, 5m, 500ms."""

import re

import click

_MS_BY_UNIT = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}


class DurationMs(click.ParamType[int]):
    """A time within bounds, in milliseconds unless it has a unit."""

    name = "time"

    def __init__(self, minimum_ms: int, maximum_ms: int, shown_range: str) -> None:
        self._minimum_ms = minimum_ms
        self._maximum_ms = maximum_ms
        self._shown_range = shown_range

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return milliseconds."""
        matched = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*([a-z]*)", str(value).strip(), re.ASCII)
        if matched is None or matched[2] not in _MS_BY_UNIT:
            self.fail(f"{value!r} is no time: write 30s, 5m, 2h, or milliseconds such as 500ms.", param, ctx)
        milliseconds = float(matched[1]) * _MS_BY_UNIT[matched[2]]
        if not self._minimum_ms <= milliseconds <= self._maximum_ms:
            unit = "" if matched[2] else ", which is milliseconds,"
            self.fail(f"{value}{unit} is not within {self._shown_range}.", param, ctx)
        return round(milliseconds)
