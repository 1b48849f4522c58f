"""What commands print: tables for people, JSON for programs. Knows widths and colours, nothing of messages."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import click

# Columns of words give way down to this, when a table is wider than its terminal.
COLUMN_WIDTH_MIN = 12
GAP = "  "


@dataclass(frozen=True, slots=True)
class Cell:
    """A value with a look of its own."""

    value: object
    colour: str | None = None
    dim: bool = False
    bold: bool = False


def wants_json(*, asked: bool) -> bool:
    """JSON when asked for, and when nobody is watching."""
    return asked or not is_terminal()


def print_json(value: Any) -> None:
    """Print one value: on one line for programs, indented for people who asked for it."""
    click.echo(_harmless(json.dumps(value, ensure_ascii=False, indent=2 if is_terminal() else None)))


def json_line(value: Any) -> str:
    """Return one of many values as a line of its own, without its end."""
    return _harmless(json.dumps(value, ensure_ascii=False))


def print_table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under titles; numbers stand on the right, and words give way where the terminal is narrow."""
    table = [[_cell(value) for value in row] for row in rows]
    texts = [[_text(cell.value) for cell in row] for row in table]
    numeric = [
        all(isinstance(row[place].value, int) for row in table) and bool(table)
        for place in range(len(titles))
    ]
    widths = [max(map(text_width, column)) for column in zip(titles, *texts, strict=True)]
    widths = _fitted(widths, numeric, terminal_width())
    heads = [Cell(title.upper(), bold=True) for title in titles]
    for line in (heads, *table):
        parts = [
            _padded(cell, width, right=right)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        click.echo(_without_end(GAP.join(parts)))


def print_fields(fields: dict[str, object]) -> None:
    """Print one thing, a line for each of its fields."""
    width = max(map(len, fields))
    for name, value in fields.items():
        cell = _cell(value)
        text = _styled(_text(cell.value), cell)
        click.echo(f"{click.style(name.ljust(width), dim=True)}{GAP}{text}")


def note(text: str) -> None:
    """Tell a person on standard error what a program need not know."""
    if sys.stderr.isatty():
        click.secho(text, err=True, dim=True)


def count_of(number: int, noun: str) -> str:
    """Return a number with its noun: 1 message, 2,000 messages."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a time as people say it: 250 µs, 1.5 ms, 30 s, 5 min, 2 h."""
    if seconds < 0.0009995:
        return f"{seconds * 1_000_000:.3g} µs"
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    for length, unit in ((3600, "h"), (60, "min")):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:,.1f}".removesuffix(".0") + " s"


def size(count: float) -> str:
    """Return a number of bytes as people say it."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        del units[0]
    digits = 0 if count >= 100 or count == int(count) else 1
    return f"{count:,.{digits}f} {units[0]}"


def printable(text: str) -> str:
    """Return text that cannot command a terminal: what is no character to be seen is escaped."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def _harmless(text: str) -> str:
    """Return JSON that cannot command a terminal, and means the same."""
    if text.isprintable() or not is_terminal():
        return text
    return "".join(
        character if character.isprintable() or character == "\n" else json.dumps(character)[1:-1]
        for character in text
    )


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def text_width(text: str) -> int:
    """Return how many columns a terminal takes for a text."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0
        if unicodedata.combining(character) or unicodedata.category(character) in {"Mn", "Me", "Cf"}
        else 2
        if unicodedata.east_asian_width(character) in "WF"
        else 1
        for character in text
    )


def shortened(text: str, width: int) -> str:
    """Return the beginning of a text that fits, and a mark where it was cut."""
    if text_width(text) <= width:
        return text
    kept = ""
    for character in text:
        if text_width(kept + character) > width - 1:
            break
        kept += character
    return kept + "…"


def terminal_width(stream: IO[str] | None = None) -> int | None:
    """Return the columns of the terminal that a stream (standard output) goes to, None if it goes elsewhere."""
    stream = stream or sys.stdout
    if not stream.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns


def _fitted(widths: list[int], numeric: list[bool], room: int | None) -> list[int]:
    if room is None:
        return widths
    widths = list(widths)
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - room
    while excess > 0:
        words = [
            place for place, right in enumerate(numeric) if not right and widths[place] > COLUMN_WIDTH_MIN
        ]
        if not words:
            break
        widest = max(words, key=lambda place: widths[place])
        widths[widest] -= 1
        excess -= 1
    return widths


def _cell(value: object) -> Cell:
    return value if isinstance(value, Cell) else Cell(value)


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def _styled(text: str, cell: Cell) -> str:
    if cell.colour is None and not cell.dim and not cell.bold:
        return text
    return click.style(text, fg=cell.colour, dim=cell.dim or None, bold=cell.bold or None)


def _padded(cell: Cell, width: int, *, right: bool) -> str:
    text = shortened(_text(cell.value), width)
    space = " " * (width - text_width(text))
    styled = _styled(text, cell)
    return space + styled if right else styled + space


def _without_end(line: str) -> str:
    return re.sub(r" +$", "", line)
