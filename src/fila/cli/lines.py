"""Messages from a file or from standard input, one per line, without holding more than a line in memory."""

import asyncio
import base64
import binascii
import json
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import click

from fila.limits import BODY_BYTES_MAX, COST_MAX, LINE_BYTES_MAX, READ_BYTES, WEIGHT_MAX

STDIN = "-"


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that is to be enqueued."""

    payload: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    fairness_key: str | None = None
    weight: int | None = None
    cost: int | None = None


class LineError(Exception):
    """A line that is no message: the sentence says why, and does not name the line."""


# What makes a message of a line, and of what was given for all lines.
Format = Callable[[bytes, Draft], Draft]


def plain(line: bytes, given: Draft) -> Draft:
    """Take the line as the payload."""
    if len(line) > BODY_BYTES_MAX:
        raise LineError(f"is longer than the {BODY_BYTES_MAX:,} bytes that a message may have")
    return replace(given, payload=line)


def json_object(line: bytes, given: Draft) -> Draft:
    """Read a JSON object as `fila consume --json` prints it; what it does not say is as given for all."""
    try:
        value = json.loads(line)
    except ValueError as error:
        raise LineError(f"is no JSON: {getattr(error, 'msg', None) or error}") from None
    if not isinstance(value, dict):
        raise LineError('is no JSON object: write {"payload": "..."}')
    unknown = [name for name in value if name not in _KNOWN]
    if unknown:
        raise LineError(f"has {unknown[0]!r}, which is none of {', '.join(_TAKEN)}")
    key = _text(value, "fairness_key")
    return Draft(
        payload=_payload(value),
        headers={**given.headers, **_headers(value)},
        fairness_key=(_text(value, "key") if key is None else key) or given.fairness_key,
        weight=_number(value, "weight", WEIGHT_MAX) or given.weight,
        cost=_number(value, "cost", COST_MAX) or given.cost,
    )


_TAKEN = ("payload", "payload_base64", "headers", "fairness_key", "key", "weight", "cost")
# What `fila consume --json` says of a message besides, which the broker decides anew.
_DECIDED = ("id", "queue", "offset", "attempt_count", "enqueued_at", "leased_at", "throttle_keys")
_KNOWN = {*_TAKEN, *_DECIDED}


def _payload(value: dict[str, Any]) -> bytes:
    if ("payload" in value) == ("payload_base64" in value):
        raise LineError("needs one of payload and payload_base64")
    if "payload" in value:
        payload = value["payload"]
        if isinstance(payload, str):
            return _encoded(payload, "payload")
        raise LineError("has a payload that is no text: write it as a string, or bytes as payload_base64")
    try:
        return base64.b64decode(value["payload_base64"], validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise LineError("has a payload_base64 that is no base64") from None


def _headers(value: dict[str, Any]) -> dict[str, str]:
    headers = value.get("headers") or {}
    if not isinstance(headers, dict):
        raise LineError('has headers that are no object: write {"name": "value"}')
    for name, text in headers.items():
        if not isinstance(text, str):
            raise LineError(f"has a header {name!r} that is no text: write it in quotes")
        _encoded(name + text, "headers")
    return headers


def _text(value: dict[str, Any], name: str) -> str | None:
    text = value.get(name)
    if text is None:
        return None
    if not isinstance(text, str):
        raise LineError(f"has a {name} that is no text: write it in quotes")
    if not text:
        raise LineError(f"has an empty {name}: name a key, or leave it out")
    _encoded(text, name)
    return text


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise LineError(f"has half a character in {name}: a surrogate without its other half") from None


def _number(value: dict[str, Any], name: str, maximum: int) -> int | None:
    number = value.get(name)
    if number is None:
        return None
    # A JSON true is an int to Python.
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= maximum:
        raise LineError(f"has {name} {json.dumps(number)}, which is not a whole number from 1 to {maximum:,}")
    return number


# --- reading ------------------------------------------------------------------------------------------


class Source:
    """Bytes, of which it is known how many there will be, or not."""

    def __init__(
        self, read: Callable[[], "asyncio.Future[bytes] | Any"], *, name: str, total: int | None
    ) -> None:
        self._read = read
        self.name = name
        self.total = total
        self.seen = 0

    async def lines(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield lines with their numbers, from 1, without their ends. Empty ones are counted and passed over."""
        number = 0
        rest = b""
        while chunk := await self._read():
            self.seen += len(chunk)
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                number += 1
                if text := line.removesuffix(b"\r"):
                    yield number, text
            if len(rest) > LINE_BYTES_MAX:
                # Its reader says so: what is longer than this is no message in any form.
                break
        if text := rest.removesuffix(b"\r"):
            yield number + 1, text


@asynccontextmanager
async def open_source(path: str) -> AsyncIterator[Source]:
    """Open a file, or standard input for `-`. Raises click.BadParameter if that cannot be done."""
    if path != STDIN:
        with _opened(path) as file:
            yield _file_source(file, path)
        return
    stdin = sys.stdin.buffer
    try:
        descriptor = stdin.fileno()
    except OSError:
        yield _file_source(stdin, "standard input")
        return
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)):
        # A file, /dev/null and its like never keep anybody waiting, and cannot be waited for.
        yield _file_source(stdin, "standard input")
        return
    async with _stream(descriptor) as read:
        yield Source(read, name="standard input", total=None)


def _opened(path: str) -> IO[bytes]:
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise click.BadParameter(f"cannot read {path}: {error.strerror}", param_hint="--file") from error


def _file_source(file: IO[bytes], name: str) -> Source:
    async def read() -> bytes:
        return file.read(READ_BYTES)

    try:
        status = os.fstat(file.fileno())
        total = status.st_size if stat.S_ISREG(status.st_mode) else None
    except OSError:
        total = None
    return Source(read, name=name, total=total)


@asynccontextmanager
async def _stream(descriptor: int) -> AsyncIterator[Callable[[], Any]]:
    """Read a pipe or a terminal as it comes: what was sent before goes on meanwhile, and Ctrl-C is heard."""
    loop = asyncio.get_running_loop()
    blocking = os.get_blocking(descriptor)
    reader = asyncio.StreamReader(limit=READ_BYTES)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader),
        os.fdopen(descriptor, "rb", buffering=0, closefd=False),
    )
    try:
        yield lambda: reader.read(READ_BYTES)
    finally:
        transport.close()
        # A terminal is shared with the shell, which does not expect it to be otherwise.
        os.set_blocking(descriptor, blocking)
