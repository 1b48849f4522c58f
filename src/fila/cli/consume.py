"""`fila consume`: print the messages of a queue, and with --ack take them out."""

import os
import sys
from typing import TYPE_CHECKING

import click

from fila.cli.completing import complete_queue
from fila.cli.connection import EXIT_LIMIT, Where, broker_options, complain, run_with_client
from fila.cli.ending import end_by
from fila.cli.looks import ForTerminal, Look, json_of, payload_of
from fila.cli.output import count_of, is_terminal, note
from fila.cli.progress import Progress
from fila.cli.sink import open_sink
from fila.limits import LOOK_MESSAGES_MAX, PRINT_PREFETCH_MESSAGES, VISIBILITY_TIMEOUT_MS_MIN

if TYPE_CHECKING:
    from fila.client.aio import AsyncClient
    from fila.client.consumer import Consumer
    from fila.client.messages import Message
    from fila.client.values import QueueStats

# How long nothing comes before the broker is asked whether anything waits.
QUIET_SECONDS = 0.2
# How often that is asked again while it says that something does: another consumer may be granted it at any moment.
QUIET_TIMES_MAX = 25
# The same while it says that something is leased: a slow disk may hold up what was leased to us.
TRAVEL_TIMES_MAX = 5
# A fraction of the shortest lease.
KEEP_SECONDS = VISIBILITY_TIMEOUT_MS_MIN / 1000 / 4


@click.command()
@click.argument("queue", shell_complete=complete_queue)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after N messages.")
@click.option(
    "--ack/--no-ack",
    default=False,
    show_default=True,
    help="Take each message out of the queue once it is printed, or give all back at the end.",
)
@click.option("--follow", is_flag=True, help="Wait for more when the queue is empty, until Ctrl-C.")
@click.option(
    "--wait",
    "wait_seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop when none has come for so long.  [default: when the queue is empty]",
)
@broker_options
@click.option(
    "--json", "as_json", is_flag=True, help="Print whole messages as JSON, one per line, not payloads."
)
@click.option("--raw", is_flag=True, help="Print payloads alone and as they are, also at a terminal.")
def consume(
    queue: str,
    *,
    count: int | None,
    ack: bool,
    follow: bool,
    wait_seconds: float | None,
    where: Where,
    as_json: bool,
    raw: bool,
) -> None:
    """Print the payloads of QUEUE's messages, one per line, and stop when the queue is empty.

    Without --ack it is a look: the messages stay in the queue, and other consumers get them when the command ends.
    With --ack each message is gone once it is printed. Into a pipe that is once its reader has taken it from the pipe,
    so `| head -n 3` takes three messages; on systems other than Linux, once it is in the pipe.

    At a terminal the fairness key stands before each payload, with the attempt from the second on, and control
    characters are escaped. Into a file or a pipe go the payloads alone, as they are.

    With --json each line is a message, which `fila enqueue --jsonl` takes. With --ack that is a move, not a copy.

    \b
    Example:
      fila consume orders --count 10
      fila consume orders --ack --follow
      fila consume orders --ack --json > moved.jsonl
    """  # noqa: D301
    _refuse_both(follow=follow, wait=wait_seconds is not None)
    _refuse_both(json=as_json, raw=raw)
    if count is not None and count > LOOK_MESSAGES_MAX and not ack:
        raise click.UsageError(
            f"Without --ack at most {LOOK_MESSAGES_MAX:,} messages can be held to look at."
        )
    printing = Printing(
        queue,
        count=count,
        ack=ack,
        follow=follow,
        wait_seconds=wait_seconds,
        look=_look(as_json=as_json, raw=raw),
    )
    try:
        if follow:
            _tell_of_pauses()
        # Whoever follows a queue wants to hear of it again when its broker is back.
        run_with_client(where, printing.run, reconnect_seconds=None if follow else 0.0)
    finally:
        if printing.printed and not ack:
            note(f"{count_of(printing.printed, 'message')} given back: --ack takes them out of the queue.")
    if printing.broken is not None:
        end_by(printing.broken)
    if printing.full:
        complain(
            f"Error: stopped after {LOOK_MESSAGES_MAX:,} messages, which is what one look may hold back from "
            "others: take them out with --ack, or say how many you want with --count."
        )
        sys.exit(EXIT_LIMIT)
    if not printing.printed:
        note(f"No message is ready in {queue}: --follow waits for one.")


def _refuse_both(**given: bool) -> None:
    if all(given.values()):
        raise click.UsageError(f"Give either {' or '.join(f'--{name}' for name in given)}.")


def _look(*, as_json: bool, raw: bool) -> Look:
    if as_json:
        return json_of
    if raw or not is_terminal():
        return payload_of
    return ForTerminal(coloured=click.get_current_context().color is not False)


class Printing:
    """The messages of a queue on their way to standard output."""

    def __init__(
        self,
        queue: str,
        *,
        count: int | None,
        ack: bool,
        follow: bool,
        wait_seconds: float | None,
        look: Look,
    ) -> None:
        self._queue = queue
        self._count = count
        self._ack = ack
        self._follow = follow
        self._wait_seconds = wait_seconds
        self._look = look
        self._sink = open_sink(in_step=ack)
        # What is looked at and not acked: dropped, it could not be given back.
        self._held: list[Message] = []
        self.printed = 0
        # Whether a look ended because it may hold no more.
        self.full = False
        # Why nothing more can be printed.
        self.broken: OSError | None = None

    async def run(self, client: "AsyncClient") -> None:
        """Print until there is a reason to stop. What is not acked goes back."""
        import asyncio

        # A queue that is not there is told before anything else, and with it that the broker answers.
        ready = _ready(await client.stats(self._queue))
        wanted = None if self._follow else min(ready, self._count or ready)
        # What is looked at stays leased, and counts: all of it must be within the prefetch.
        most = PRINT_PREFETCH_MESSAGES if self._ack else LOOK_MESSAGES_MAX
        prefetch = min(self._count or most, most)
        # Where the messages themselves are to be seen, they are the progress.
        with Progress("consumed", shown=_goes_to_file()) as progress:
            async with client.consume(self._queue, prefetch=prefetch) as consumer:
                keeping = asyncio.create_task(_keep_leases(consumer))
                try:
                    while not self._enough():
                        message = await self._next(client, consumer)
                        if message is None:
                            break
                        if not await self._show(message):
                            break
                        progress.update(self.printed, self.printed / wanted if wanted else None)
                finally:
                    keeping.cancel()
                    self._sink.close()

    def _enough(self) -> bool:
        self.full = len(self._held) >= LOOK_MESSAGES_MAX and self.printed != self._count
        return self.full or self.printed == self._count

    async def _next(self, client: "AsyncClient", consumer: "Consumer") -> "Message | None":
        """Wait for a message as long as is wanted."""
        import asyncio

        patience = self._wait_seconds or (None if self._follow else QUIET_SECONDS)
        for times in range(1, QUIET_TIMES_MAX + 1):
            try:
                async with asyncio.timeout(patience):
                    return await anext(consumer, None)
            except TimeoutError:
                if self._wait_seconds is not None:
                    return None
                stats = await client.stats(self._queue)
                # Leased and not here: it may be on its way to us, or with somebody else for as long as they like.
                coming = stats.in_flight > len(self._held) and times < TRAVEL_TIMES_MAX
                if not (_ready(stats) or coming):
                    return None
        return None

    async def _show(self, message: "Message") -> bool:
        """Print a message, and ack only then; return whether it could be printed."""
        try:
            await self._sink.write(self._look(message) + b"\n")
        except OSError as error:
            self.broken = error
            self._held.append(message)
            return False
        self.printed += 1
        if self._ack:
            await message.ack()
        else:
            self._held.append(message)
        return True


async def _keep_leases(consumer: "Consumer") -> None:
    """Keep alive what is looked at: run out, it would come again and again."""
    import asyncio

    while True:
        await asyncio.sleep(KEEP_SECONDS)
        consumer.keep_alive()


def _tell_of_pauses() -> None:
    """Have the client say on standard error that the broker is away, and that it is back."""
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("fila.client")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def _ready(stats: "QueueStats") -> int:
    return stats.depth - stats.delayed


def _goes_to_file() -> bool:
    import stat

    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (AttributeError, OSError):
        return False
