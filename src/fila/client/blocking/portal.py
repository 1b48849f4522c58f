"""An event loop in a thread of its own, and the ways into it from other threads."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakSet

from fila.errors import Code, RPCError, UnavailableError

T = TypeVar("T")


class Portal:
    """Runs coroutines and functions in its loop, on behalf of threads that have none."""

    def __init__(self, name: str) -> None:
        self._process = os.getpid()
        self._closed = False
        # A fork copies neither the thread nor what it has promised.
        self.is_foreign = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _portals.add(self)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def check(self) -> None:
        """Raise an error that says what to do, where the loop cannot be reached."""
        if self.is_foreign:
            raise RPCError(
                f"this client was made in process {self._process}, and a fork shares no connection: "
                "fork before the first client connects, or start processes with the method 'spawn'",
                Code.FAILED_PRECONDITION,
            )
        if self._closed:
            raise UnavailableError("the client is closed")

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and return what it returns. An interrupt cancels it."""
        assert threading.current_thread() is not self._thread, "the loop would wait for itself"
        try:
            self.check()
        except BaseException:
            work.close()
            raise
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def ask(self, function: Callable[[], T]) -> T:
        """Call a function in the loop and return what it returns."""

        async def call() -> T:
            return function()

        return self.run(call())

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine in the loop, without waiting for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def post(self, function: Callable[[], object]) -> None:
        """Call a function in the loop, soon; nothing happens if there is no loop any more."""
        if not self.is_foreign:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """End the loop and its thread."""
        if self._closed or self.is_foreign:
            return
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class Poster:
    """Posts one function again and again, at most once until it runs: a post costs a system call."""

    __slots__ = ("_function", "_is_posted", "_portal")

    def __init__(self, portal: Portal, function: Callable[[], None]) -> None:
        self._portal = portal
        self._function = function
        self._is_posted = False

    def __call__(self) -> None:
        """See to it that the function runs after this."""
        if not self._is_posted:
            self._is_posted = True
            self._portal.post(self._run)

    def _run(self) -> None:
        # First, so that what comes meanwhile is posted anew.
        self._is_posted = False
        self._function()


_portals: "WeakSet[Portal]" = WeakSet()


def _after_fork() -> None:
    for portal in list(_portals):
        portal.is_foreign = True


os.register_at_fork(after_in_child=_after_fork)
