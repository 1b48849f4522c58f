"""`fila server`, which is also `fila-server`: start a broker and keep it running until it is told to stop."""

import os
import sys
from functools import partial
from pathlib import Path

import click

from fila import config
from fila.cli.connection import EXIT_FAILED, EXIT_USAGE, complain
from fila.errors import ConfigError, FilaError


def with_host(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Take a port alone for one of this machine's own."""
    if value is not None and value.removeprefix(":").isdecimal():
        return f"127.0.0.1:{value.removeprefix(':')}"
    return value


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="The settings file.  [default: fila.toml here, else /etc/fila/fila.toml, else none]",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    callback=with_host,
    help="Where to listen; a port alone is one of 127.0.0.1.  [env: FILA_LISTEN_ADDR; default: 127.0.0.1:5555]",
)
@click.option(
    "--data-dir",
    metavar="PATH",
    help="Where the messages are kept.  [env: FILA_DATA_DIR; default: data]",
)
@click.option(
    "--durability",
    type=click.Choice(["fsync", "os"]),
    help="Whether a message counts as kept on disk or in the system's cache.  [default: fsync]",
)
def server(
    *, config_path: Path | None, listen: str | None, data_dir: str | None, durability: str | None
) -> None:
    """Start a broker. It stops on SIGTERM and SIGINT, when what was taken is durable.

    \b
    Example:
      fila server
      fila server --listen 0.0.0.0:5555 --data-dir /var/lib/fila
    """  # noqa: D301
    try:
        settings = config.load(
            config_path=config_path,
            environment=os.environ,
            overrides={
                "server.listen_addr": listen,
                "storage.data_dir": data_dir,
                "storage.durability": durability,
            },
        )
    except ConfigError as error:
        _fail(error.message, EXIT_USAGE)
        return
    try:
        _run(settings)
    except FilaError as error:
        _fail(error.message, EXIT_FAILED)
    except OSError as error:
        _fail(f"{error.strerror or error}", EXIT_FAILED)


def _run(settings: config.Settings) -> None:
    # gRPC logs what we say in a sentence of our own.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from fila import assembly

    assembly.run(settings)


def _fail(sentence: str, exit_code: int) -> None:
    complain(f"Error: {sentence}")
    sys.exit(exit_code)


def main() -> None:
    """Run as `fila-server`."""
    from fila.cli import ending

    ending.run(partial(server.main, prog_name="fila-server", standalone_mode=False))
