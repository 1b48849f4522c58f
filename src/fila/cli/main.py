"""The `fila` command: finds the subcommands, and loads only the one that runs."""

import click

from fila import __version__
from fila.cli.group import CommandGroup

COMMANDS: dict[str, tuple[str, str]] = {
    "server": ("fila.cli.server:server", "Start a broker."),
    "queue": ("fila.cli.queue:queue", "Create, delete, purge, list and inspect queues."),
    "enqueue": ("fila.cli.enqueue:enqueue", "Put messages into a queue."),
    "consume": ("fila.cli.consume:consume", "Print a queue's messages, and take them out with --ack."),
    "doctor": ("fila.cli.doctor:doctor", "Check disk, port, broker and versions."),
    "demo": ("fila.cli.demo:demo", "See a quiet tenant overtake a flood; needs no server."),
    "bench": ("fila.cli.bench:bench", "Measure a broker with named workloads."),
    "completion": ("fila.cli.completion:completion", "Print the completion script for a shell."),
    "help": ("fila.cli.help:help_", "Show the help of a command."),
    "version": ("fila.cli.help:version", "Print the version."),
}


@click.group(cls=CommandGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="fila %(version)s")
def main() -> None:
    """fila: a message broker that decides who is served next.

    \b
    Example:
      fila server
      fila queue create orders
      fila enqueue orders "hello" --key acme
      fila consume orders --ack

    \b
    Environment:
      FILA_ADDR      where the broker is, for the commands that have --addr
      FILA_CA_FILE   whom to trust over TLS, for the same commands
      NO_COLOR       no colours; FORCE_COLOR=1: colours without a terminal too

    \b
    Exit codes:
      0  done                        4  exists already
      1  failed                      5  a limit is reached
      2  wrong usage or settings     6  no broker, or it stops
      3  not found                   129, 130, 143  hung up, interrupted, terminated
                                     141  nobody reads the output any more
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
