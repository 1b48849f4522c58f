"""What the commands that talk to a broker share: where it is, how one runs, and how it fails."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click

from fila.errors import Code, FilaError, QueueNotFoundError

if TYPE_CHECKING:
    from fila.client.aio import AsyncClient

T = TypeVar("T")

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143

_EXIT_BY_CODE: dict[Code, int] = {
    Code.INVALID_ARGUMENT: EXIT_USAGE,
    Code.NOT_FOUND: 3,
    Code.ALREADY_EXISTS: 4,
    Code.RESOURCE_EXHAUSTED: 5,
    Code.UNAVAILABLE: 6,
    Code.DEADLINE_EXCEEDED: 6,
}

addr_option = click.option(
    "--addr",
    envvar="FILA_ADDR",
    default="localhost:5555",
    show_default=True,
    show_envvar=True,
    metavar="HOST:PORT",
    help="Where the broker is; http://HOST:PORT is understood too.",
)
# What gRPC says of an address where nobody answers, or that is none.
_ABSENT = ("failed to connect", "errors resolving", "DNS resolution failed")
# What it says of a broker that was there a moment ago.
_GONE = (
    "Socket closed",
    "Stream removed",
    "Connection reset",
    "recvmsg",
    "GOAWAY",
    "connection to the broker was lost",
)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, as is done where standard output is no terminal."
)


class Terminated(BaseException):
    """SIGTERM came: what KeyboardInterrupt is to SIGINT."""


def run_with_client(addr: str, work: "Callable[[AsyncClient], Awaitable[T]]") -> T:
    """Run a command's work with a client, and end the process with one sentence if it fails."""
    try:
        return asyncio.run(_with_client(addr, work))
    except FilaError as error:
        fail(addr, error)
    except KeyboardInterrupt:
        # Streams have been closed on the way here: no lease is left behind.
        sys.exit(EXIT_INTERRUPTED)
    except Terminated:
        sys.exit(EXIT_TERMINATED)
    except BrokenPipeError:
        # `| head` has seen enough.
        sys.stderr.close()
        sys.exit(EXIT_FAILED)


async def _with_client(addr: str, work: "Callable[[AsyncClient], Awaitable[T]]") -> T:
    # gRPC logs what we say in a sentence of our own.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from fila.client.aio import AsyncClient

    task = asyncio.current_task()
    assert task is not None
    told = asyncio.Event()

    def terminate() -> None:
        told.set()
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        async with AsyncClient(addr) as client:
            return await work(client)
    except asyncio.CancelledError:
        if told.is_set():
            raise Terminated from None
        raise


def fail(addr: str, error: FilaError) -> NoReturn:
    """End the process with one sentence that has a remedy, and the exit code of the error."""
    if error.code is Code.UNAVAILABLE and any(sign in error.message for sign in _ABSENT):
        sentence = (
            f"No broker answers at {addr}: start one with `fila server`, or say where it is with --addr."
        )
    elif error.code is Code.UNAVAILABLE and any(sign in error.message for sign in _GONE):
        sentence = f"The broker at {addr} has gone: try again when it is back; what it had not answered may be done or not."
    elif error.code is Code.DEADLINE_EXCEEDED:
        sentence = (
            f"The broker at {addr} did not answer in time: try again, and if that does not help, see its log."
        )
    elif isinstance(error, QueueNotFoundError):
        sentence = (
            f"Error: {error.message} (`fila queue create NAME`; `fila queue list` shows those there are)"
        )
    else:
        sentence = f"Error: {error.message}"
    click.echo(sentence, err=True)
    sys.exit(_EXIT_BY_CODE.get(error.code, EXIT_FAILED))
