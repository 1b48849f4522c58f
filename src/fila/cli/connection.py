"""What the commands that talk to a broker share: where it is, how one runs, and how it fails."""

import functools
import os
import shlex
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from fila.cli.group import EXIT_INTERRUPTED, similar
from fila.errors import Absence, Code, FilaError, OutcomeUnknownError, QueueNotFoundError, UnavailableError
from fila.limits import CALL_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from fila.client.aio import AsyncClient

T = TypeVar("T")

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_LIMIT = 5
EXIT_BY_SIGNAL = 128

DEFAULT_ADDR = "localhost:5555"
# How long to knock at an address, to tell a broker that is away from one that refuses.
KNOCK_SECONDS = 1.0

_EXIT_BY_CODE: dict[Code, int] = {
    Code.INVALID_ARGUMENT: EXIT_USAGE,
    Code.NOT_FOUND: 3,
    Code.ALREADY_EXISTS: 4,
    Code.RESOURCE_EXHAUSTED: EXIT_LIMIT,
    Code.UNAVAILABLE: 6,
    Code.DEADLINE_EXCEEDED: 6,
}

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, as is done where standard output is no terminal."
)


@dataclass(frozen=True, slots=True)
class Where:
    """Where a broker is, and whom to trust there."""

    addr: str = DEFAULT_ADDR
    ca_file: str | None = None


def broker_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command --addr and --ca-file, which it receives together as `where`."""

    @click.option(
        "--addr",
        envvar="FILA_ADDR",
        default=DEFAULT_ADDR,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT",
        help="Where the broker is; http:// before it is understood, https:// means TLS.",
    )
    @click.option(
        "--ca-file",
        envvar="FILA_CA_FILE",
        show_envvar=True,
        type=click.Path(dir_okay=False),
        help="Whose certificates to trust over TLS, as PEM.  [default: the system's]",
    )
    @functools.wraps(function)
    def command(*arguments: Any, addr: str, ca_file: str | None, **options: Any) -> Any:
        return function(*arguments, where=Where(addr, ca_file), **options)

    return command


class EndedBySignalError(BaseException):
    """SIGTERM or SIGHUP came: what KeyboardInterrupt is to SIGINT."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class SimilarQueueError(QueueNotFoundError):
    """There is no queue of that name, and the message says which one was probably meant."""


def run_with_client(
    where: Where, work: "Callable[[AsyncClient], Awaitable[T]]", *, reconnect_seconds: float | None = 0.0
) -> T:
    """Run a command's work with a client, and end the process with one sentence if it fails.

    A broker that vanishes is a failure, unless the command waits for it: `reconnect_seconds` long, None for ever.
    """
    import asyncio

    try:
        return asyncio.run(_with_client(where, work, reconnect_seconds))
    except FilaError as error:
        fail(where.addr, error)
    except KeyboardInterrupt:
        # Streams have been closed on the way here: no lease is left behind. The terminal stands behind its ^C.
        if sys.stderr.isatty():
            click.echo(err=True)
        sys.exit(EXIT_INTERRUPTED)
    except EndedBySignalError as ended:
        sys.exit(EXIT_BY_SIGNAL + ended.number)
    except BrokenPipeError:
        # `| head` has seen enough. What is still in the buffer must not be tried again at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)


async def _with_client(
    where: Where, work: "Callable[[AsyncClient], Awaitable[T]]", reconnect_seconds: float | None
) -> T:
    # gRPC logs what we say in a sentence of our own.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    import asyncio
    import signal

    task = asyncio.current_task()
    assert task is not None
    told: list[int] = []

    def end(number: int) -> None:
        told.append(number)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    try:
        async with make_client(where, reconnect_seconds=reconnect_seconds) as client:
            try:
                return await work(client)
            except QueueNotFoundError as error:
                raise await _named(client, error) from None
    except asyncio.CancelledError:
        if told:
            raise EndedBySignalError(told[0]) from None
        raise


def make_client(
    where: Where,
    *,
    timeout_seconds: float = CALL_TIMEOUT_SECONDS,
    reconnect_seconds: float | None = 0.0,
) -> "AsyncClient":
    """Return a client that is not connected yet. Loads gRPC."""
    from fila.client.aio import AsyncClient

    return AsyncClient(
        where.addr,
        timeout_seconds=timeout_seconds,
        reconnect_seconds=reconnect_seconds,
        ca_file=where.ca_file,
    )


async def _named(client: "AsyncClient", error: QueueNotFoundError) -> QueueNotFoundError:
    """Return the error with the queue that was probably meant, if there is one like it."""
    wanted = _wanted_queue()
    if wanted is None:
        return error
    try:
        names = [info.name for info in await client.list_queues()]
    except FilaError:
        # The list is a courtesy: what happened first is what is told.
        return error
    close = similar(wanted, names)
    if close is None:
        return error
    return SimilarQueueError(f"there is no queue {wanted!r}: did you mean {close!r}?")


def _wanted_queue() -> str | None:
    """Return the queue that the running command was given."""
    parameters = getattr(click.get_current_context(silent=True), "params", {})
    wanted = parameters.get("queue") or parameters.get("name")
    return wanted if isinstance(wanted, str) else None


def fail(addr: str, error: FilaError) -> NoReturn:
    """End the process with one sentence that has a remedy, and the exit code of the error."""
    complain(_sentence(addr, error))
    sys.exit(exit_code(error))


def complain(sentence: str) -> None:
    """Print a sentence on standard error, its first word in red where there is a terminal."""
    rest = sentence.removeprefix("Error: ")
    head = click.style("Error: ", fg="red", bold=True) if rest != sentence else ""
    click.echo(head + rest, err=True)


def exit_code(error: FilaError) -> int:
    """Return the exit code that tells the kind of an error."""
    return _EXIT_BY_CODE.get(error.code, EXIT_FAILED)


def _sentence(addr: str, error: FilaError) -> str:
    absence = error.absence if isinstance(error, UnavailableError) else None
    if isinstance(error, OutcomeUnknownError) or absence is Absence.LOST:
        return f"The broker at {addr} has gone: try again when it is back; what it had not answered may be done or not."
    if absence is Absence.NOBODY:
        return f"No broker answers at {addr}: start one with `{_start_command(addr)}`, or say where it is with --addr."
    if absence in {Absence.NO_NAME, Absence.NO_BROKER}:
        # The name does not resolve, or what answers there is something else: the client's sentence says which.
        return f"Error: {error.message}; --addr says where the broker is."
    if error.code is Code.DEADLINE_EXCEEDED:
        return (
            f"The broker at {addr} did not answer in time: try again, and if that does not help, see its log."
        )
    if isinstance(error, QueueNotFoundError) and not isinstance(error, SimilarQueueError):
        name = shlex.quote(_wanted_queue() or "NAME")
        return f"Error: {error.message} (`fila queue create {name}`; `fila queue list` shows those there are)"
    return f"Error: {error.message}"


def answers(addr: str) -> bool:
    """Return whether anybody listens at an address."""
    import socket

    try:
        host, port = host_and_port(addr)
        with socket.create_connection((host, port), timeout=KNOCK_SECONDS):
            return True
    except (OSError, FilaError, UnicodeError):
        return False


def host_and_port(addr: str) -> tuple[str, int]:
    """Take an address of a client apart; raises InvalidArgumentError if it is none."""
    from fila.client import address

    host, _, port = address.parse(addr).target.rpartition(":")
    return host.strip("[]"), int(port)


def _start_command(addr: str) -> str:
    """Return the command that starts a broker there, as far as that can be done from here."""
    try:
        host, port = host_and_port(addr)
    except FilaError:
        return "fila server"
    if port != 5555 and host in {"localhost", "127.0.0.1", "::1"}:
        shown = "[::1]" if host == "::1" else "127.0.0.1"
        return f"fila server --listen {shown}:{port}"
    return "fila server"
