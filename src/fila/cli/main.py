"""The `fila` command: finds the subcommands, and loads only the one that runs."""

from importlib import import_module

import click

from fila import __version__

# Name, where it lives, and its line in the list: `fila --help` loads none of them.
COMMANDS: dict[str, tuple[str, str]] = {
    "server": ("fila.cli.server:server", "Start a broker."),
    "queue": ("fila.cli.queue:queue", "Create, delete, purge, list and inspect queues."),
    "enqueue": ("fila.cli.enqueue:enqueue", "Put a message into a queue."),
    "consume": ("fila.cli.consume:consume", "Take messages out of a queue and print them."),
    "demo": ("fila.cli.demo:demo", "See a quiet tenant overtake a flood; needs no server."),
    "bench": ("fila.cli.bench:bench", "Measure a broker with named workloads."),
}


class LazyGroup(click.Group):
    """Loads a subcommand when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module_name, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module_name), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without loading them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="fila %(version)s")
def main() -> None:
    """fila: a message broker that decides who is served next.

    \b
    Example:
      fila server
      fila queue create orders
      fila enqueue orders "hello" --key acme
      fila consume orders --count 1

    Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 not found, 4 exists already, 5 a limit is
    reached, 6 the broker cannot be reached or stops, 130 interrupted, 143 terminated.
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
