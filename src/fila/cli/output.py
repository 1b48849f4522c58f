"""What commands print: a table for people, JSON for programs."""

import json
import sys
from collections.abc import Sequence
from typing import Any

import click


def wants_json(*, asked: bool) -> bool:
    """JSON when asked for, and when nobody is watching."""
    return asked or not sys.stdout.isatty()


def print_json(value: Any) -> None:
    """Print one value on one line."""
    click.echo(json.dumps(value, ensure_ascii=False))


def print_table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under titles; numbers stand on the right."""
    cells = [[_text(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    numeric = [
        all(isinstance(row[place], int) for row in rows) and bool(rows) for place in range(len(titles))
    ]
    for line in ([title.upper() for title in titles], *cells):
        padded = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ]
        click.echo("  ".join(padded).rstrip())


def print_fields(fields: dict[str, object]) -> None:
    """Print one thing, a line for each of its fields."""
    width = max(map(len, fields))
    for name, value in fields.items():
        click.echo(f"{name.ljust(width)}  {_text(value)}")


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
