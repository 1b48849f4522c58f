"""`fila completion`: the script that lets a shell complete commands, options and the names of queues."""

import click

PROGRAM = "fila"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for a shell: bash, zsh or fish.

    With it, Tab completes commands, options and, where a broker answers, the names of queues.

    \b
    Example:
      eval "$(fila completion bash)"                                  # in ~/.bashrc
      eval "$(fila completion zsh)"                                   # in ~/.zshrc
      fila completion fish > ~/.config/fish/completions/fila.fish     # once
    """  # noqa: D301
    from click.shell_completion import get_completion_class

    from fila.cli.main import main

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(main, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source())
