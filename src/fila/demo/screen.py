"""A part of the terminal that is drawn over in place.

It changes no mode of the terminal: however the process ends, there is nothing to put right.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import TextIO

from fila.demo.text import BLOCKS, Canvas

# What is written to a pipe or a file is as wide as a terminal's usual width.
PLAIN_WIDTH = 80
_UP = "\x1b[{}A\r"
_CLEAR_TO_END_OF_LINE = "\x1b[K"
_CLEAR_BELOW = "\x1b[J"
_HOME = "\x1b[H"


def can_redraw(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether the stream is a terminal that can move its cursor."""
    return stream.isatty() and environment.get("TERM", "") not in {"", "dumb"}


def canvas_of(stream: TextIO, environment: Mapping[str, str]) -> Canvas:
    """Return what can be drawn now: terminals change their size, and may be told to show no colour."""
    terminal = stream.isatty()
    size = shutil.get_terminal_size() if terminal else os.terminal_size((PLAIN_WIDTH, 1000))
    return Canvas(
        # A terminal may wrap when its last column is written.
        width=max(1, size.columns - 1) if terminal else size.columns,
        height=size.lines,
        colour=can_redraw(stream, environment) and not environment.get("NO_COLOR"),
        blocks=_can_encode(BLOCKS, stream.encoding),
    )


class Screen:
    """Draws lines over those that it drew before."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rows = 0
        self._size: tuple[int, int] | None = None

    def draw(self, lines: Sequence[str], canvas: Canvas) -> None:
        """Replace what is shown. One write, so that no half of it is seen."""
        size = (canvas.width, canvas.height)
        if self._size not in {None, size}:
            # Terminals wrap old lines anew, each in its own way: nobody knows where the frame begins now.
            begin = _HOME + _CLEAR_BELOW
        else:
            begin = _UP.format(self._rows) if self._rows else ""
        text = "".join(f"{line}{_CLEAR_TO_END_OF_LINE}\n" for line in lines)
        self._stream.write(begin + text + _CLEAR_BELOW)
        self._stream.flush()
        self._rows, self._size = len(lines), size


def _can_encode(text: str, encoding: str | None) -> bool:
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
