"""`fila enqueue`: put a message into a queue, or as many as a file has lines."""

import asyncio
import shlex
import sys
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import click

from fila import limits
from fila.cli.completing import complete_queue
from fila.cli.connection import (
    EXIT_USAGE,
    Where,
    broker_options,
    complain,
    exit_code,
    json_option,
    run_with_client,
)
from fila.cli.lines import STDIN, Draft, Format, LineError, Source, json_object, open_source, plain
from fila.cli.output import count_of, print_json, wants_json
from fila.cli.progress import Progress
from fila.errors import FilaError, OutcomeUnknownError, QueueNotFoundError, UnavailableError

if TYPE_CHECKING:
    from fila.client.aio import AsyncClient
    from fila.client.producer import Producer, Receipt


def refuse_empty(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse a key that is empty: most likely it is a variable that is not set, and not the key `default`."""
    if value == "":
        raise click.BadParameter("the key is empty: name a key, or leave --key out for the key `default`.")
    return value


@click.command()
@click.argument("queue", shell_complete=complete_queue)
@click.argument("payload", required=False)
@click.option(
    "--header", "header_texts", multiple=True, metavar="NAME=VALUE", help="A header; may be repeated."
)
@click.option(
    "--key",
    "fairness_key",
    metavar="KEY",
    callback=refuse_empty,
    help="Whom the message belongs to.  [default: default]",
)
@click.option(
    "--weight",
    type=click.IntRange(1, limits.WEIGHT_MAX),
    metavar="N",
    help="The share of its key.  [default: 1]",
)
@click.option(
    "--cost",
    type=click.IntRange(1, limits.COST_MAX),
    metavar="N",
    help="What it takes of that share.  [default: 1]",
)
@click.option(
    "--file",
    "file_path",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Read the payload from a file, or from standard input with -.",
)
@click.option(
    "--lines", "as_lines", is_flag=True, help="Make each line a message; empty lines are passed over."
)
@click.option("--jsonl", "as_objects", is_flag=True, help="Make each line, a JSON object, a message.")
@broker_options
@json_option
def enqueue(
    queue: str,
    payload: str | None,
    *,
    header_texts: Sequence[str],
    fairness_key: str | None,
    weight: int | None,
    cost: int | None,
    file_path: str | None,
    as_lines: bool,
    as_objects: bool,
    where: Where,
    as_json: bool,
) -> None:
    """Put a message into QUEUE and print its id once it is durable; or many, and print how many.

    PAYLOAD is the message. With - it is read from standard input, with --file from a file. --lines and --jsonl read
    standard input unless --file says otherwise.

    --jsonl takes what `fila consume --json` prints: objects with payload or payload_base64, and if wanted headers,
    key, weight and cost. What an object does not say is as the options say.

    A line that is no message ends the command, with its number; the lines before it are enqueued, none after it.

    \b
    Example:
      fila enqueue orders "hello" --key acme --header trace=1f3a
      fila enqueue orders --file order.json
      fila enqueue orders --lines < jobs.txt
      fila enqueue orders --jsonl --file backup.jsonl
    """  # noqa: D301
    if as_lines and as_objects:
        raise click.UsageError("Give either --lines or --jsonl.")
    given = Draft(b"", dict(map(_header, header_texts)), fairness_key, weight, cost)
    if as_lines or as_objects:
        if payload not in {None, STDIN} or (payload and file_path):
            raise click.UsageError("--lines and --jsonl read a file or standard input: leave PAYLOAD out.")
        _enqueue_many(
            where, queue, file_path or STDIN, json_object if as_objects else plain, given, as_json=as_json
        )
        return
    path = STDIN if payload == STDIN else file_path
    if (payload is None and path is None) or (payload is not None and file_path is not None):
        raise click.UsageError("Give either a PAYLOAD or --file; - as PAYLOAD reads standard input.")
    # An argument that is no UTF-8 comes with surrogates: its bytes are meant.
    body = _read(path) if path is not None else str(payload).encode("utf-8", "surrogateescape")

    async def work(client: "AsyncClient") -> str:
        return await client.enqueue(
            queue, given.headers, body, fairness_key=fairness_key, weight=weight, cost=cost
        )

    message_id = run_with_client(where, work)
    if wants_json(asked=as_json):
        print_json({"id": message_id})
    else:
        click.echo(message_id)


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
    return name, value


def _read(path: str) -> bytes:
    """Read a whole payload. Beyond the bound of a message there is nothing worth reading."""
    try:
        with click.open_file(path, "rb") as file:
            payload = bytes(file.read(limits.BODY_BYTES_MAX + 1))
    except OSError as error:
        raise click.BadParameter(f"cannot read {path}: {error.strerror}", param_hint="--file") from error
    if len(payload) > limits.BODY_BYTES_MAX:
        # Nobody knows how many more: the rest was not read.
        raise click.UsageError(
            f"the payload has more than the {limits.BODY_BYTES_MAX:,} bytes that a message may have: put it elsewhere, "
            "and its place into the message."
        )
    return payload


def _enqueue_many(where: Where, queue: str, path: str, take: Format, given: Draft, *, as_json: bool) -> None:
    loading = Loading(queue, path, take, given)
    try:
        run_with_client(where, loading.run)
    finally:
        # Also where it ended early: what is in the queue is in the queue.
        if loading.complete or loading.enqueued or loading.interrupted:
            if wants_json(asked=as_json):
                print_json({"queue": queue, "enqueued": loading.enqueued})
            else:
                click.echo(f"Enqueued {count_of(loading.enqueued, 'message')}.")


class Loading:
    """The lines of a source on their way into a queue: each is followed until its receipt is there."""

    def __init__(self, queue: str, path: str, take: Format, given: Draft) -> None:
        self._queue = queue
        self._path = path
        self._take = take
        self._given = given
        # Line numbers and receipts of what was sent and not yet looked at, in order.
        self._sent: deque[tuple[int, Receipt]] = deque()
        # The first line that the broker did not take, and why; how many after it it did take.
        self._failed: tuple[int, FilaError] | None = None
        self._enqueued_after = 0
        self.enqueued = 0
        self.complete = False
        self.interrupted = False

    async def run(self, client: "AsyncClient") -> None:
        """Send all lines, and wait until they are durable. Ends the process where a line is the reason that it cannot."""
        # Also nothing can only be enqueued where there is a queue.
        await client.stats(self._queue)
        try:
            await self._run(client)
        except asyncio.CancelledError:
            self.interrupted = True
            raise

    async def _run(self, client: "AsyncClient") -> None:
        async with open_source(self._path) as source:
            # A line goes out once: what became of it when the broker vanishes is said, not guessed.
            producer = client.producer(self._queue, repeat=False)
            try:
                with Progress("enqueued") as progress:
                    trouble = await self._send_all(producer, source, progress)
            finally:
                await producer.abort()
        trouble = self._failed or trouble
        if trouble is None:
            self.complete = True
            return
        number, error = trouble
        if isinstance(error, UnavailableError | OutcomeUnknownError):
            raise error
        if isinstance(error, QueueNotFoundError):
            # Deleted meanwhile. Which message met that first is nothing to know.
            raise QueueNotFoundError(f"there is no queue {self._queue!r}: create it first")
        self._refuse(number, error, source.name)

    async def _send_all(
        self, producer: "Producer", source: Source, progress: Progress
    ) -> tuple[int, LineError | FilaError] | None:
        """Send until the end, or until something is wrong: then return the line and what it is."""
        number = 0
        try:
            async for number, line in source.lines():
                await producer.room()
                draft = self._take(line, self._given)
                receipt = producer.send(
                    draft.payload,
                    draft.headers,
                    fairness_key=draft.fairness_key,
                    weight=draft.weight,
                    cost=draft.cost,
                )
                self._sent.append((number, receipt))
                await self._look(only_done=True)
                if self._failed is not None:
                    break
                progress.update(self.enqueued, source.seen / source.total if source.total else None)
        except (LineError, FilaError) as error:
            return number, error
        finally:
            # Also after Ctrl-C: what was sent is counted, not left open.
            await self._look()
        return None

    async def _look(self, *, only_done: bool = False) -> None:
        """Count what is durable, and note the first that will not be."""
        while self._sent and (self._sent[0][1].done or not only_done):
            number, receipt = self._sent.popleft()
            try:
                await receipt
            except FilaError as error:
                self._failed = self._failed or (number, error)
            else:
                self.enqueued += 1
                self._enqueued_after += self._failed is not None

    def _refuse(self, number: int, error: LineError | FilaError, name: str) -> NoReturn:
        is_line = isinstance(error, LineError)
        wrong = f"{error}" if is_line else f"was not taken: {error}"
        done = f"{count_of(self.enqueued, 'message')} {'was' if self.enqueued == 1 else 'were'} enqueued"
        if self._enqueued_after:
            order = f"{self._enqueued_after:,} of them from lines after it"
        elif name == self._path:
            order = f"none from it on: mend it, and go on with `tail -n +{number} {shlex.quote(name)}`"
        else:
            order = "none from it on"
        complain(f"Error: line {number:,} of {name} {wrong}. {done}, {order}.")
        sys.exit(exit_code(error) if isinstance(error, FilaError) else EXIT_USAGE)
