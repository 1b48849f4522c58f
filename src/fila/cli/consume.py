"""`fila consume`: take messages out of a queue and print them."""

import asyncio
import base64
import sys
from typing import TYPE_CHECKING, Any

import click

from fila.cli.connection import addr_option, run_with_client
from fila.cli.output import print_json
from fila.limits import PRINT_PREFETCH_MESSAGES

if TYPE_CHECKING:
    from fila.client.aio import AsyncClient
    from fila.client.messages import Message


@click.command()
@click.argument("queue")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after N messages.")
@click.option(
    "--ack/--no-ack", default=True, help="Ack each message once it is printed, or give it back at the end."
)
@click.option(
    "--wait",
    "wait_seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop when none has come for so long.",
)
@addr_option
@click.option("--json", "as_json", is_flag=True, help="Print whole messages as JSON, not payloads.")
def consume(
    queue: str, *, count: int | None, ack: bool, wait_seconds: float | None, addr: str, as_json: bool
) -> None:
    """Print the payloads of QUEUE's messages, or with --json whole messages, one per line.

    Goes on until it is interrupted, unless --count or --wait ends it.

    \b
    Example:
      fila consume orders --count 10 --json
      fila consume orders --wait 1 --no-ack
    """  # noqa: D301

    async def work(client: "AsyncClient") -> None:
        await _consume(client, queue, count=count, ack=ack, wait_seconds=wait_seconds, as_json=as_json)

    run_with_client(addr, work)


async def _consume(
    client: "AsyncClient",
    queue: str,
    *,
    count: int | None,
    ack: bool,
    wait_seconds: float | None,
    as_json: bool,
) -> None:
    printed = 0
    prefetch = min(count or PRINT_PREFETCH_MESSAGES, PRINT_PREFETCH_MESSAGES)
    async with client.consume(queue, prefetch=prefetch) as consumer:
        messages = aiter(consumer)
        while count is None or printed < count:
            try:
                async with asyncio.timeout(wait_seconds):
                    message = await anext(messages)
            except TimeoutError:
                return
            _print(message, as_json=as_json)
            printed += 1
            if ack:
                await message.ack()


def _print(message: "Message", *, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(message))
    else:
        # The payload is bytes: what it is shown as is up to the terminal.
        sys.stdout.buffer.write(message.payload + b"\n")
    # Before the ack: what was not seen must not be gone.
    sys.stdout.flush()


def _as_json(message: "Message") -> dict[str, Any]:
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
