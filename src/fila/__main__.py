"""The `fila` command, also as `python -m fila`. Ctrl-C ends it quietly even before it is loaded."""

import os
import signal
from collections.abc import Callable

EXIT_INTERRUPTED = 130


def main() -> None:
    """Run `fila`."""
    run(_fila)


def main_server() -> None:
    """Run `fila-server`."""
    run(_fila_server)


def run(load: Callable[[], Callable[[], None]]) -> None:
    """Load a command and run it; while there is nothing to undo, Ctrl-C ends the process on the spot."""
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heard:
        signal.signal(signal.SIGINT, _end)
    try:
        command = load()
        if heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command()
    except KeyboardInterrupt:
        _end()
    finally:
        if heard:
            signal.signal(signal.SIGINT, _end)


def _fila() -> Callable[[], None]:
    from fila.cli.main import main as command  # noqa: PLC0415

    return command


def _fila_server() -> Callable[[], None]:
    from fila.cli.server import main as command  # noqa: PLC0415

    return command


def _end(*_signal: object) -> None:
    os._exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
