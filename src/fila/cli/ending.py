"""How a command ends that does not end well: one sentence on standard error, an exit code, and never a traceback."""

import errno
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import click

from fila.cli.connection import EXIT_FAILED, complain
from fila.cli.group import EXIT_INTERRUPTED, wanted_colour

# What the shell says of a program that SIGPIPE ended: what others in a pipeline end with too.
EXIT_PIPE_CLOSED = 141


def run(work: Callable[[], Any]) -> NoReturn:
    """Do a command's work, and end the process."""
    try:
        code = work()
        # What cannot be written must be known before the end, where it would be a traceback.
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.ClickException as error:
        _show(error)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(EXIT_INTERRUPTED)
    except OSError as error:
        end_by(error)
    sys.exit(code if isinstance(code, int) else 0)


def end_by(error: OSError) -> NoReturn:
    """End the process for what the system has refused; what has no name was standard output."""
    _forget_output()
    if error.errno == errno.EPIPE:
        # `| head` has seen enough.
        sys.exit(EXIT_PIPE_CLOSED)
    what = f"cannot use {error.filename}" if error.filename else "cannot write the output"
    _say(f"{what}: {error.strerror or error}")
    sys.exit(EXIT_FAILED)


def _forget_output() -> None:
    """Leave what is still in the buffer: Python would try it again at the exit, and complain."""
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError):
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _show(error: click.ClickException) -> None:
    """Say it as click does, but for the colour, which is that of all errors."""
    context = getattr(error, "ctx", None)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return
    if isinstance(error, click.UsageError) and context is not None:
        click.echo(context.get_usage(), err=True)
        if context.command.get_help_option(context) is not None:
            click.echo(f"Try '{context.command_path} {context.help_option_names[0]}' for help.\n", err=True)
    _say(error.format_message())


def _say(sentence: str) -> None:
    """Complain where the command's own context, which knows of colour, is gone."""
    with click.Context(click.Command("fila"), color=wanted_colour(os.environ)):
        complain(f"Error: {sentence}")
