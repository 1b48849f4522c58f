"""Lines of text with ink on them: measured without it, cut to a width, turned into characters at the end."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum


class Ink(Enum):
    """How a piece of text is to look, as the numbers of ANSI's SGR."""

    PLAIN = ""
    TITLE = "1"
    FAINT = "2"
    NOISY = "33"
    QUIET = "36"
    BAD = "1;31"
    GOOD = "1;32"


@dataclass(frozen=True, slots=True)
class Canvas:
    """What can be drawn on: columns and rows, and whether it takes colour and block characters."""

    width: int
    height: int
    colour: bool
    blocks: bool


Span = tuple[str, Ink]
Line = tuple[Span, ...]

# Delivered, waiting, and eighths of a column from one to seven.
FULL, SHADE = "█", "░"
EIGHTHS = "▏▎▍▌▋▊▉"
ASCII_FULL, ASCII_SHADE, ASCII_SLIVER = "#", "-", "|"
BLOCKS = FULL + SHADE + EIGHTHS


def plain(text: str = "") -> Line:
    """Return a line without ink."""
    return ((text, Ink.PLAIN),)


def width_of(line: Line) -> int:
    """Return how many columns a line takes: every character of the demo takes one."""
    return sum(len(text) for text, _ in line)


def padded(line: Line, width: int) -> Line:
    """Fill a line up to a width."""
    return (*line, (" " * max(0, width - width_of(line)), Ink.PLAIN))


def cut(line: Line, width: int) -> Line:
    """Drop what is beyond a width: a line that wraps would move all below it."""
    spans: list[Span] = []
    for text, ink in line:
        spans.append((text[: max(0, width)], ink))
        width -= len(text)
    return tuple(spans)


def characters(lines: Iterable[Line], canvas: Canvas) -> list[str]:
    """Return the lines as they are written."""
    return [_inked(line, colour=canvas.colour).rstrip() for line in lines]


def progress_bar(done: int, under_way: int, whole: int, width: int, ink: Ink, canvas: Canvas) -> Line:
    """Return a bar of what is done and what waits; what has not come yet is empty."""
    done_columns = done * width // whole
    # Rounded up, so that what has only begun to wait is seen.
    waiting_columns = -(-(done + under_way) * width // whole) - done_columns if under_way else 0
    full, shade = (FULL, SHADE) if canvas.blocks else (ASCII_FULL, ASCII_SHADE)
    return padded(
        ((full * done_columns, ink), (shade * waiting_columns, ink)),
        width,
    )


def length_bar(value: float, largest: float, width: int, ink: Ink, canvas: Canvas) -> Line:
    """Return a bar as long as the value; the smallest is a sliver."""
    if value <= 0 or largest <= 0:
        return ()
    eighths = max(1, round(value / largest * width * 8))
    whole, rest = divmod(eighths, 8)
    if canvas.blocks:
        return ((FULL * whole + (EIGHTHS[rest - 1] if rest else ""), ink),)
    return ((ASCII_FULL * whole or ASCII_SLIVER, ink),)


def duration(milliseconds: float) -> str:
    """Return a time as people say it."""
    if milliseconds < 999.5:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds / 1000:.1f} s"


def columns(left: Sequence[Line], right: Sequence[Line], width: int) -> list[Line]:
    """Put two blocks of the same height side by side, the left one so wide."""
    return [(*padded(one, width), *other) for one, other in zip(left, right, strict=True)]


def _inked(line: Line, *, colour: bool) -> str:
    return "".join(
        f"\x1b[{ink.value}m{text}\x1b[0m" if colour and ink.value and text.strip() else text
        for text, ink in line
    )
