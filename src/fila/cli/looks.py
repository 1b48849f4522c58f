"""How a message looks: its payload alone, JSON, or with its key for somebody at a terminal."""

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from fila.cli.output import GAP, json_line, printable, text_width

if TYPE_CHECKING:
    from fila.client.messages import Message

# Keys of most tenants fit; a longer one moves its own line only.
KEY_WIDTH_MAX = 24

# What is printed of a message, without the end of its line.
Look = Callable[["Message"], bytes]


def payload_of(message: "Message") -> bytes:
    """Return the payload as it is."""
    return message.payload


def json_of(message: "Message") -> bytes:
    """Return all of a message as JSON on one line."""
    return json_line(as_dict(message)).encode()


class ForTerminal:
    """Payloads with their keys before them, dim; what could command the terminal is escaped."""

    def __init__(self, *, coloured: bool) -> None:
        self._coloured = coloured
        self._width = 0

    def __call__(self, message: "Message") -> bytes:
        key = printable(message.fairness_key)
        width = text_width(key)
        self._width = max(self._width, min(width, KEY_WIDTH_MAX))
        head = key + " " * max(0, self._width - width)
        if message.attempt_count:
            head += f"{GAP}attempt {message.attempt_count + 1}"
        if self._coloured:
            head = click.style(head, dim=True)
        text = message.payload.decode(errors="backslashreplace")
        # A tab harms nobody.
        return (head + GAP + "\t".join(map(printable, text.split("\t")))).encode()


def as_dict(message: "Message") -> dict[str, Any]:
    """Return all of a message as JSON has it; `fila enqueue --jsonl` reads it."""
    value: dict[str, Any] = {
        "id": message.id,
        "queue": message.queue,
        "offset": message.offset,
        "fairness_key": message.fairness_key,
        "weight": message.weight,
        "attempt_count": message.attempt_count,
        "enqueued_at": message.enqueued_at.isoformat(),
        "leased_at": message.leased_at.isoformat(),
        "headers": dict(message.headers),
    }
    try:
        value["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        value["payload_base64"] = base64.b64encode(message.payload).decode()
    return value
