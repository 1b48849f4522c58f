"""Workers and the signals that end a process: the first one asks to finish, the second is nobody's business but the system's."""

import asyncio
import functools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_NUMBERS = (signal.SIGTERM, signal.SIGINT)

# Whom to tell. A process has one handler for a signal, and may have several workers.
_stops: list[Callable[[], object]] = []
# What stood there before, for as long as ours does.
_before: dict[signal.Signals, Any] = {}


@contextmanager
def stopping_on_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` on SIGTERM or SIGINT, in the main thread, at any point of it.

    A program that handles one of them itself keeps it, and outside of the main thread nothing is handled.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if not _stops:
        _install()
    _stops.append(stop)
    try:
        yield
    finally:
        _stops.remove(stop)
        if not _stops:
            _restore()


def _install() -> None:
    for number in _NUMBERS:
        handler = signal.getsignal(number)
        if _is_default(handler):
            _before[number] = handler
            signal.signal(number, _told)


def _restore() -> None:
    for number, handler in _before.items():
        if signal.getsignal(number) is _told:
            signal.signal(number, handler)
    _before.clear()


def _told(_number: int, _frame: FrameType | None) -> None:
    # Whoever signals again does not want to wait.
    _restore()
    for stop in _stops:
        stop()


def _is_default(handler: Any) -> bool:
    """Whether nobody but Python, or asyncio.run, has decided what a signal does."""
    if handler in (signal.SIG_DFL, signal.default_int_handler):
        return True
    return isinstance(handler, functools.partial) and isinstance(
        getattr(handler.func, "__self__", None), asyncio.Runner
    )
