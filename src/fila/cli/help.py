"""`fila help` and `fila version`: what --help and --version say, for those who try the words."""

from collections.abc import Sequence

import click

from fila import __version__


@click.command("help")
@click.argument("command", nargs=-1)
@click.pass_context
def help_(context: click.Context, command: Sequence[str]) -> None:
    """Show the help of a command, as --help after it does.

    \b
    Example:
      fila help
      fila help queue create
    """  # noqa: D301
    from fila.cli.group import CommandGroup

    parent = context.parent
    assert parent is not None
    shown: click.Command = parent.command
    for name in command:
        if not isinstance(shown, CommandGroup):
            raise click.UsageError(f"`{parent.command_path}` has no commands of its own.", ctx=parent)
        _, found, _ = shown.resolve_command(parent, [name])
        assert found is not None
        shown = found
        parent = click.Context(shown, info_name=name, parent=parent, **shown.context_settings)
    click.echo(shown.get_help(parent))


@click.command()
def version() -> None:
    """Print the version, as --version does.

    \b
    Example:
      fila version
    """  # noqa: D301
    click.echo(f"fila {__version__}")
