"""`fila demo`: see a quiet tenant overtake a flood, on a broker that lives as long as the demo."""

import errno
import math
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from fila import limits
from fila.cli.connection import EXIT_FAILED, fail
from fila.cli.ending import EXIT_PIPE_CLOSED
from fila.errors import FilaError, LimitError, StoreError

if TYPE_CHECKING:
    from fila.demo.plan import Plan
    from fila.demo.tally import Frame

LOOPBACK = "127.0.0.1"


def _a_number(_context: click.Context, _parameter: click.Parameter, value: float) -> float:
    """Refuse what is within every range because it compares with nothing."""
    if math.isnan(value):
        raise click.BadParameter("nan is not a number of seconds.")
    return value


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.5, max=limits.DEMO_SECONDS_MAX),
    default=limits.DEMO_SECONDS_DEFAULT,
    show_default=True,
    callback=_a_number,
    metavar="S",
    help="How long the flood takes to be worked off.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the measurements as one JSON object.")
@click.pass_context
def demo(context: click.Context, *, seconds: float, as_json: bool) -> None:
    """Show how one tenant's flood delays another in first in, first out, and how fila does not.

    Starts a broker of its own in a temporary directory and removes it afterwards: no server is needed. All figures are
    measured in this run.

    \b
    Example:
      fila demo
      fila demo --seconds 5
      fila demo --json
    """  # noqa: D301
    program = _program(context.find_root().info_name or "fila")
    with _signals() as signalled:
        try:
            _play(seconds, program, as_json=as_json)
        except (LimitError, StoreError) as error:
            fail(LOOPBACK, type(error)(_with_place(error.message)))
        except FilaError as error:
            fail(LOOPBACK, error)
        except KeyboardInterrupt:
            if not signalled and sys.stdout.isatty():
                # The terminal has shown ^C below the frame: the prompt comes below that.
                click.echo()
            sys.exit(128 + (signalled[0] if signalled else signal.SIGINT))
        except OSError as error:
            _end(error)


def _play(seconds: float, program: str, *, as_json: bool) -> None:
    # gRPC logs what we say in a sentence of our own.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from fila.demo.plan import Plan
    from fila.demo.screen import can_redraw

    if can_redraw(sys.stdout, os.environ) and not as_json:
        _play_live(Plan(seconds), program)
    else:
        _play_plain(Plan(seconds), program, as_json=as_json)


def _play_live(plan: "Plan", program: str) -> None:
    from fila.demo import live, result
    from fila.demo.screen import Screen, canvas_of
    from fila.demo.session import play
    from fila.demo.text import characters

    screen = Screen(sys.stdout)

    def show(frame: "Frame") -> None:
        canvas = canvas_of(sys.stdout, os.environ)
        screen.draw(characters(live.lines_of(frame, canvas), canvas), canvas)

    frame = play(plan, show)
    canvas = canvas_of(sys.stdout, os.environ)
    screen.draw(characters(result.lines_of(frame, canvas, program), canvas), canvas)


def _play_plain(plan: "Plan", program: str, *, as_json: bool) -> None:
    from fila.cli.output import print_json
    from fila.demo import result
    from fila.demo.screen import canvas_of
    from fila.demo.session import play
    from fila.demo.text import characters

    if sys.stderr.isatty():
        click.echo(f"The demo takes about {plan.seconds + 1:.0f} s.", err=True)
    frame = play(plan, lambda _frame: None)
    if as_json:
        print_json(result.as_json(frame))
        return
    canvas = canvas_of(sys.stdout, os.environ)
    for line in characters(result.lines_of(frame, canvas, program), canvas):
        click.echo(line)


def _program(name: str) -> str:
    """Return what to type for `fila`, so that the commands shown work when they are copied."""
    typed = sys.argv[0]
    if name != Path(typed).name or os.sep not in typed:
        return name
    found = shutil.which(name)
    if found is not None and Path(found).resolve() == Path(typed).resolve():
        return name
    try:
        return str(Path(typed).absolute().relative_to(Path.cwd()))
    except ValueError:
        return typed


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Have SIGTERM and a closed terminal end the demo as Ctrl-C does; what came first is in the list."""
    came: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        signal.raise_signal(signal.SIGINT)

    # A shell starts what runs in the background with SIGINT ignored, and then the others would be too.
    before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler)}
    for number in (signal.SIGTERM, signal.SIGHUP):
        # `nohup` means it.
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, interrupt)
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(error: OSError) -> NoReturn:
    if error.errno not in {errno.EPIPE, errno.EIO}:
        fail(LOOPBACK, FilaError(_with_place(error.strerror or str(error))))
    # Nobody can read any more, as with `| head` or a closed terminal. Python would try to flush, and complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(EXIT_PIPE_CLOSED if error.errno == errno.EPIPE else EXIT_FAILED)


def _with_place(message: str) -> str:
    """Say where the data was to go: nobody has chosen the place, and it is most likely what is wrong."""
    return f"{message} (the demo keeps its data in the temporary directory; TMPDIR names another)"
