"""`fila enqueue`: put a message into a queue."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fila import limits
from fila.cli.connection import addr_option, json_option, run_with_client
from fila.cli.output import print_json, wants_json

if TYPE_CHECKING:
    from fila.client.aio import AsyncClient


@click.command()
@click.argument("queue")
@click.argument("payload", required=False)
@click.option(
    "--header", "header_texts", multiple=True, metavar="NAME=VALUE", help="A header; may be repeated."
)
@click.option("--key", "fairness_key", metavar="KEY", help="Whom the message belongs to.  [default: default]")
@click.option(
    "--weight", type=click.IntRange(1, limits.WEIGHT_MAX), help="The share of its key.  [default: 1]"
)
@click.option(
    "--cost", type=click.IntRange(1, limits.COST_MAX), help="What it takes of that share.  [default: 1]"
)
@click.option(
    "--file",
    "file_path",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Read the payload from a file, or from standard input with -.",
)
@addr_option
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
    addr: str,
    as_json: bool,
) -> None:
    """Put one message into QUEUE and print its id once it is durable.

    \b
    Example:
      fila enqueue orders "hello" --key acme --header trace=1f3a
      fila enqueue orders --file order.json
    """  # noqa: D301
    headers = dict(map(_header, header_texts))
    body = _payload(payload, file_path)

    async def work(client: "AsyncClient") -> str:
        return await client.enqueue(queue, headers, body, fairness_key=fairness_key, weight=weight, cost=cost)

    message_id = run_with_client(addr, work)
    if wants_json(asked=as_json):
        print_json({"id": message_id})
    else:
        click.echo(message_id)


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
    return name, value


def _payload(payload: str | None, file_path: str | None) -> bytes:
    if (payload is None) == (file_path is None):
        raise click.UsageError("Give either a PAYLOAD or --file.")
    if file_path == "-":
        return sys.stdin.buffer.read()
    if file_path is not None:
        try:
            return Path(file_path).read_bytes()
        except OSError as error:
            raise click.BadParameter(
                f"cannot read {file_path}: {error.strerror}", param_hint="--file"
            ) from error
    assert payload is not None
    # An argument that is no UTF-8 comes with surrogates: its bytes are meant.
    return payload.encode("utf-8", "surrogateescape")
