"""`fila queue`: create, delete, purge, list and inspect queues."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from fila.cli.connection import addr_option, json_option, run_with_client
from fila.cli.output import print_fields, print_json, print_table, wants_json

if TYPE_CHECKING:
    from fila.client.aio import AsyncClient
    from fila.client.values import QueueInfo, QueueStats


@click.group()
def queue() -> None:
    """Create, delete, purge, list and inspect queues.

    \b
    Example:
      fila queue create orders --visibility-timeout 60000
      fila queue list
    """  # noqa: D301


@queue.command()
@click.argument("name")
@click.option(
    "--visibility-timeout",
    "visibility_timeout_ms",
    type=click.IntRange(min=1),
    metavar="MS",
    help="How long a consumer may work on a message before it is delivered again.  [default: 30000]",
)
@click.option(
    "--discipline",
    type=click.Choice(["drr", "wfq", "fifo"]),
    help="Who is served next: deficit round robin, weighted fair queueing, or first in first out.  [default: drr]",
)
@click.option(
    "--quantum", type=click.IntRange(min=1), metavar="UNITS", help="What a key of weight 1 earns per round."
)
@addr_option
def create(
    name: str, *, visibility_timeout_ms: int | None, discipline: str | None, quantum: int | None, addr: str
) -> None:
    """Create a queue. Prints nothing on standard output.

    \b
    Example:
      fila queue create orders --discipline wfq
    """  # noqa: D301

    async def work(client: "AsyncClient") -> None:
        await client.create_queue(
            name, visibility_timeout_ms=visibility_timeout_ms, discipline=discipline, quantum=quantum
        )

    run_with_client(addr, work)
    click.echo(f"Created queue {name}.", err=True)


@queue.command()
@click.argument("name")
@addr_option
def delete(name: str, *, addr: str) -> None:
    """Delete a queue and all its messages. Prints nothing on standard output.

    \b
    Example:
      fila queue delete orders
    """  # noqa: D301

    async def work(client: "AsyncClient") -> None:
        await client.delete_queue(name)

    run_with_client(addr, work)
    click.echo(f"Deleted queue {name}.", err=True)


@queue.command()
@click.argument("name")
@addr_option
@json_option
def purge(name: str, *, addr: str, as_json: bool) -> None:
    """Delete the waiting messages of a queue; those being worked on stay.

    \b
    Example:
      fila queue purge orders
    """  # noqa: D301

    async def work(client: "AsyncClient") -> int:
        return await client.purge_queue(name)

    purged = run_with_client(addr, work)
    if wants_json(asked=as_json):
        print_json({"queue": name, "purged": purged})
    else:
        click.echo(f"Purged {purged:,} messages.")


@queue.command("list")
@addr_option
@json_option
def list_(*, addr: str, as_json: bool) -> None:
    """List the queues.

    \b
    Example:
      fila queue list --json
    """  # noqa: D301

    async def work(client: "AsyncClient") -> "list[QueueInfo]":
        return await client.list_queues()

    queues = run_with_client(addr, work)
    if wants_json(asked=as_json):
        print_json([asdict(info) for info in queues])
    elif queues:
        rows = [(info.name, info.depth, info.in_flight, info.active_consumers) for info in queues]
        print_table(("name", "waiting", "in flight", "consumers"), rows)
    else:
        click.echo("There are no queues: create one with `fila queue create NAME`.")


@queue.command()
@click.argument("name")
@addr_option
@json_option
def inspect(name: str, *, addr: str, as_json: bool) -> None:
    """Show a queue's settings, numbers and fairness keys.

    \b
    Example:
      fila queue inspect orders
    """  # noqa: D301

    async def work(client: "AsyncClient") -> "QueueStats":
        return await client.stats(name)

    stats = run_with_client(addr, work)
    fields = {"name": name, **asdict(stats)}
    if wants_json(asked=as_json):
        print_json(fields)
        return
    del fields["keys"]
    print_fields(fields)
    if stats.keys:
        click.echo()
        rows = [(key.key, key.pending_count, key.weight, key.current_deficit) for key in stats.keys]
        print_table(("key", "waiting", "weight", "deficit"), rows)
