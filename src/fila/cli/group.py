"""Groups of commands: each is loaded when it is asked for, and a mistyped name gets a suggestion."""

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

import click

EXIT_INTERRUPTED = 130

T = TypeVar("T")

# A command's name, where it lives, and its line in the list.
CommandTable = Mapping[str, tuple[str, str]]


class CommandGroup(click.Group):
    """Loads a command when it runs; `--help` of the group loads none of them."""

    def __init__(self, *arguments: Any, table: CommandTable, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the table."""
        del ctx
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one."""
        del ctx
        if cmd_name not in self._table:
            return None
        module_name, _, attribute = self._table[cmd_name][0].partition(":")
        command = getattr(import_module(module_name), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without loading them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self._table.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which names are like the one that was given."""
        name = args[0]
        if name not in self._table and not ctx.resilient_parsing and not name.startswith("-"):
            close = similar(name, self._table)
            path = ctx.command_path
            end = f"did you mean `{path} {close}`?" if close else f"`{path} --help` lists them."
            raise click.UsageError(f"There is no command {name!r}: {end}", ctx=ctx)
        return super().resolve_command(ctx, args)

    def main(self, *arguments: Any, standalone_mode: bool = True, **options: Any) -> Any:
        """Run as a program: whatever goes wrong ends it with a sentence and an exit code."""
        parent: Callable[..., Any] = super().main
        work = partial(parent, *arguments, standalone_mode=False, **options)
        if not standalone_mode:
            return work()
        from fila.cli import ending

        return ending.run(work)

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """Decide on colour before anything can be said."""
        options.setdefault("color", wanted_colour(os.environ))
        return _told(partial(super().make_context, *arguments, **options))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        return _told(partial(super().invoke, ctx))


def _told(work: Callable[[], T]) -> T:
    """Work, and end the process on Ctrl-C or where the system refuses: click has other words and exit codes for both."""
    try:
        return work()
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            # The prompt comes below the ^C.
            click.echo(err=True)
        sys.exit(EXIT_INTERRUPTED)
    except OSError as error:
        from fila.cli import ending

        ending.end_by(error)


def similar(name: str, names: "Mapping[str, object] | list[str]") -> str | None:
    """Return the one of `names` that `name` was probably meant to be."""
    from difflib import get_close_matches

    by_folded = {each.casefold(): each for each in names}
    close = get_close_matches(name.casefold(), by_folded, n=1)
    return by_folded[close[0]] if close else None


def wanted_colour(environment: Mapping[str, str]) -> bool | None:
    """Return whether colour is wanted in any case, in none, or (None) where there is a terminal."""
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR", "0") not in {"", "0"}:
        return True
    return False if environment.get("TERM") == "dumb" else None
