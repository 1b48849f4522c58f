"""`fila queue`: create, delete, purge, list and inspect queues."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from fila import limits
from fila.cli.completing import complete_queue
from fila.cli.connection import Where, broker_options, json_option, run_with_client
from fila.cli.durations import DurationMs
from fila.cli.group import CommandGroup
from fila.cli.output import Cell, count_of, duration, print_fields, print_json, print_table, wants_json

if TYPE_CHECKING:
    from fila.client.aio import AsyncClient
    from fila.client.values import Discipline, KeyStats, QueueInfo, QueueStats

# What fits on a screen; --json shows all.
KEYS_SHOWN_MAX = 20

HOME = "fila.cli.queue"
COMMANDS: dict[str, tuple[str, str]] = {
    "create": (f"{HOME}:create", "Create a queue."),
    "delete": (f"{HOME}:delete", "Delete a queue and all its messages."),
    "purge": (f"{HOME}:purge", "Delete the waiting messages of a queue."),
    "list": (f"{HOME}:list_", "List the queues."),
    "inspect": (f"{HOME}:inspect", "Show a queue's settings, numbers and fairness keys."),
}


@click.group(cls=CommandGroup, table=COMMANDS)
def queue() -> None:
    """Create, delete, purge, list and inspect queues.

    \b
    Example:
      fila queue create orders --visibility-timeout 1m
      fila queue list
    """  # noqa: D301


@click.command()
@click.argument("name")
@click.option(
    "--visibility-timeout",
    "visibility_timeout_ms",
    type=DurationMs(limits.VISIBILITY_TIMEOUT_MS_MIN, limits.VISIBILITY_TIMEOUT_MS_MAX, "1 s to 12 h"),
    metavar="TIME",
    help="How long a consumer may work on a message before it is delivered again: 1s to 12h; a number alone is "
    "milliseconds.  [default: 30s]",
)
@click.option(
    "--discipline",
    type=click.Choice(["drr", "wfq", "fifo"]),
    help="Who is served next: deficit round robin, weighted fair queueing, or first in first out.  [default: drr]",
)
@click.option(
    "--quantum", type=click.IntRange(min=1), metavar="UNITS", help="What a key of weight 1 earns per round."
)
@broker_options
@json_option
def create(
    name: str,
    *,
    visibility_timeout_ms: int | None,
    discipline: "Discipline | None",
    quantum: int | None,
    where: Where,
    as_json: bool,
) -> None:
    """Create a queue.

    \b
    Example:
      fila queue create orders --discipline wfq
    """  # noqa: D301

    async def work(client: "AsyncClient") -> None:
        await client.create_queue(
            name, visibility_timeout_ms=visibility_timeout_ms, discipline=discipline, quantum=quantum
        )

    run_with_client(where, work)
    _confirm(name, "created", as_json=as_json)


@click.command()
@click.argument("name", shell_complete=complete_queue)
@broker_options
@json_option
def delete(name: str, *, where: Where, as_json: bool) -> None:
    """Delete a queue and all its messages.

    \b
    Example:
      fila queue delete orders
    """  # noqa: D301

    async def work(client: "AsyncClient") -> None:
        await client.delete_queue(name)

    run_with_client(where, work)
    _confirm(name, "deleted", as_json=as_json)


@click.command()
@click.argument("name", shell_complete=complete_queue)
@broker_options
@json_option
def purge(name: str, *, where: Where, as_json: bool) -> None:
    """Delete the waiting messages of a queue; those being worked on stay.

    \b
    Example:
      fila queue purge orders
    """  # noqa: D301

    async def work(client: "AsyncClient") -> int:
        return await client.purge_queue(name)

    purged = run_with_client(where, work)
    if wants_json(asked=as_json):
        print_json({"queue": name, "purged": purged})
    else:
        click.echo(f"Purged {count_of(purged, 'message')}.")


@click.command("list")
@broker_options
@json_option
def list_(*, where: Where, as_json: bool) -> None:
    """List the queues.

    \b
    Example:
      fila queue list --json
    """  # noqa: D301

    async def work(client: "AsyncClient") -> "list[QueueInfo]":
        return await client.list_queues()

    queues = run_with_client(where, work)
    if wants_json(asked=as_json):
        print_json([_queue_json(info) for info in queues])
    elif queues:
        print_table(("name", "waiting", "in flight", "consumers"), [_queue_row(info) for info in queues])
    else:
        click.echo("There are no queues: create one with `fila queue create NAME`.")


@click.command()
@click.argument("name", shell_complete=complete_queue)
@broker_options
@json_option
def inspect(name: str, *, where: Where, as_json: bool) -> None:
    """Show a queue's settings, numbers and fairness keys.

    \b
    Example:
      fila queue inspect orders
      fila queue inspect orders --json
    """  # noqa: D301

    async def work(client: "AsyncClient") -> "QueueStats":
        return await client.stats(name)

    stats = run_with_client(where, work)
    if wants_json(asked=as_json):
        print_json(_stats_json(name, stats))
        return
    print_fields(_fields(name, stats))
    if stats.keys:
        click.echo()
        _print_keys(stats.keys)


def _confirm(name: str, done: str, *, as_json: bool) -> None:
    if wants_json(asked=as_json):
        print_json({"queue": name, done: True})
    else:
        click.echo(f"{done.capitalize()} queue {name}.")


def _queue_json(info: "QueueInfo") -> dict[str, object]:
    """Name things as the table and the glossary do; on the wire some have other names."""
    return {
        "name": info.name,
        "waiting": info.depth,
        "in_flight": info.in_flight,
        "consumers": info.active_consumers,
    }


def _stats_json(name: str, stats: "QueueStats") -> dict[str, object]:
    return {
        "name": name,
        "discipline": stats.discipline,
        "quantum": stats.quantum,
        "visibility_timeout_ms": stats.visibility_timeout_ms,
        "waiting": stats.depth,
        "delayed": stats.delayed,
        "in_flight": stats.in_flight,
        "consumers": stats.active_consumers,
        "fairness_keys": stats.active_fairness_keys,
        "messages_so_far": stats.next_offset,
        "queue_number": stats.queue_number,
        "keys": [
            {
                "key": key.key,
                "waiting": key.pending_count,
                "weight": key.weight,
                "deficit": key.current_deficit,
            }
            for key in stats.keys
        ],
    }


def _number(value: int, colour: str | None = None) -> Cell:
    """Nothing is dim: what is there stands out."""
    return Cell(value, colour=colour if value else None, dim=not value)


def _queue_row(info: "QueueInfo") -> Sequence[object]:
    # Messages that wait for nobody are what one looks for in this list.
    idle = info.depth and not info.active_consumers
    return (
        Cell(info.name, bold=True),
        _number(info.depth, "yellow" if idle else "green"),
        _number(info.in_flight, "cyan"),
        _number(info.active_consumers),
    )


def _fields(name: str, stats: "QueueStats") -> dict[str, object]:
    return {
        "name": Cell(name, bold=True),
        "discipline": stats.discipline,
        "quantum": stats.quantum,
        "visibility timeout": duration(stats.visibility_timeout_ms / 1000),
        "waiting": _number(stats.depth, "green" if stats.active_consumers else "yellow"),
        "  for a retry": _number(stats.delayed, "red"),
        "in flight": _number(stats.in_flight, "cyan"),
        "consumers": _number(stats.active_consumers),
        "fairness keys": _number(stats.active_fairness_keys),
        "messages so far": _number(stats.next_offset),
    }


def _print_keys(keys: "Sequence[KeyStats]") -> None:
    longest_first = sorted(keys, key=lambda stats: (-stats.pending_count, stats.key))
    rows = [
        (
            Cell(stats.key, bold=True),
            _number(stats.pending_count),
            stats.weight,
            _number(stats.current_deficit),
        )
        for stats in longest_first[:KEYS_SHOWN_MAX]
    ]
    print_table(("key", "waiting", "weight", "deficit"), rows)
    left = len(keys) - KEYS_SHOWN_MAX
    if left > 0:
        click.secho(f"and {count_of(left, 'key')} more: --json shows them", dim=True)
