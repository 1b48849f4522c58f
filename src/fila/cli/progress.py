"""How far long work has come, on standard error where that is a terminal."""

import sys
import time
from types import TracebackType
from typing import Self

import click

from fila.cli.output import count_of, terminal_width

# What is done sooner needs no bar.
SILENT_SECONDS = 0.3
# Often enough to look alive.
DRAW_INTERVAL_SECONDS = 0.1
BAR_WIDTH_MAX = 30


class Progress:
    """A bar where the end is known, else a count; both with a rate. Drawn on one line, which is gone at the end."""

    def __init__(self, label: str, *, shown: bool = True) -> None:
        self._label = label
        self._width = terminal_width(sys.stderr) if shown else None
        self._begun = time.monotonic()
        self._next = self._begun + SILENT_SECONDS
        self._drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clear()

    def clear(self) -> None:
        """Take the line away."""
        if self._drawn:
            click.echo("\r\x1b[K", nl=False, err=True, color=True)
            self._drawn = False

    def update(self, count: int, share: float | None = None) -> None:
        """Say how many are done, and which share of all that is."""
        now = time.monotonic()
        if self._width is None or now < self._next:
            return
        self._next = now + DRAW_INTERVAL_SECONDS
        self._drawn = True
        line = self.line(count, share, now - self._begun)
        click.echo(f"\r{line}\x1b[K", nl=False, err=True, color=True)

    def line(self, count: int, share: float | None, seconds: float) -> str:
        """Return what is shown."""
        text = f"{self._label} {count_of(count, 'message')}, {count / seconds:,.0f}/s"
        room = min(BAR_WIDTH_MAX, (self._width or 0) - len(text) - 8)
        if share is None or room < 5:
            return text[: max(0, (self._width or 0) - 1)]
        share = min(1.0, share)
        full = int(share * room)
        # Dim where nothing is yet, so that it can be told apart without colour as well.
        return f"{'━' * full}{'╌' * (room - full)} {share:4.0%}  {text}"
