"""An event loop in a thread of its own, and the ways into it from other threads."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast
from weakref import WeakSet

from fila.client.blocking.gates import Bell, closed_gate
from fila.errors import ClosedError, Code, FilaError, RPCError

T = TypeVar("T")


class Answer(Generic[T]):
    """What a coroutine in the loop returns to a thread; its methods are for the loop, but for `wait`.

    A future of concurrent.futures would do, if an interrupt could not leave its lock taken: see `gates`.
    """

    __slots__ = ("_error", "_gate", "_is_given_up", "_task", "_value", "_work", "is_done")

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work: Coroutine[Any, Any, T] | None = work
        self._gate = closed_gate()
        self._task: asyncio.Task[T] | None = None
        self._is_given_up = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self.is_done = False

    def wait(self) -> T:
        """Wait for it, and return or raise what it does."""
        self._gate.acquire()
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    def begin(self) -> None:
        """Run it."""
        work, self._work = self._work, None
        if work is None or self._is_given_up:
            if work is not None:
                work.close()
            return
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(self._take)

    def cancel(self) -> None:
        """Nobody waits any more."""
        self._is_given_up = True
        if self._task is not None:
            self._task.cancel()

    def fail(self, error: FilaError) -> None:
        """There is no loop any more."""
        if not self.is_done:
            if self._work is not None:
                self._work.close()
            self._error = error
            self._open()

    def _take(self, task: "asyncio.Task[T]") -> None:
        # It must not die in the other thread: Python drops an interrupt that comes within the callbacks of that.
        self._task = None
        if self.is_done:
            return
        if task.cancelled():
            # gRPC cancels the calls of a channel that is closed.
            self._error = _closed()
        else:
            self._error = task.exception()
            if self._error is None:
                self._value = task.result()
        self._open()

    def _open(self) -> None:
        self.is_done = True
        self._gate.release()


class Portal:
    """Runs coroutines and functions in its loop, on behalf of threads that have none."""

    def __init__(self, name: str, *, timeout_seconds: float) -> None:
        # How long whoever waits for a confirmation does so unless told otherwise.
        self.timeout_seconds = timeout_seconds
        self._process = os.getpid()
        self._closed = False
        # A fork copies neither the thread nor what it has promised.
        self.is_foreign = False
        self._answers: set[Answer[Any]] = set()
        self._lock = threading.Lock()
        self._bells: WeakSet[Bell] = WeakSet()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _portals.add(self)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_cancel_all())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()
            # Whoever comes from now on finds the loop closed; these came before, too late to be heard.
            while self._answers:
                self._answers.pop().fail(_closed())
            with self._lock:
                bells = list(self._bells)
            for bell in bells:
                bell.ring()

    def bell(self, lock: threading.Lock) -> Bell:
        """Return a bell that also rings when the loop ends: whoever waits at it has to `check`."""
        bell = Bell(lock)
        with self._lock:
            self._bells.add(bell)
        return bell

    def check(self) -> None:
        """Raise an error that says what to do, where the loop cannot be reached."""
        if self.is_foreign:
            raise RPCError(
                f"this client was made in process {self._process}, and a fork shares no connection: "
                "fork before the first client connects, or start processes with the method 'spawn'",
                Code.FAILED_PRECONDITION,
            )
        if self._closed:
            raise _closed()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and return what it returns. An interrupt cancels it."""
        assert not self.is_current_thread, "the loop would wait for itself"
        answer = self.start(work)
        try:
            return answer.wait()
        except BaseException:
            if not answer.is_done:
                self.post(answer.cancel)
            raise

    def ask(self, function: Callable[[], T]) -> T:
        """Call a function in the loop and return what it returns."""

        async def call() -> T:
            return function()

        return self.run(call())

    def start(self, work: Coroutine[Any, Any, T]) -> Answer[T]:
        """Run a coroutine in the loop, without waiting for it."""
        try:
            self.check()
        except BaseException:
            work.close()
            raise
        answer = Answer(work)
        self._answers.add(answer)
        try:
            self._loop.call_soon_threadsafe(self._begin, answer)
        except RuntimeError:
            self._answers.discard(answer)
            work.close()
            raise _closed() from None
        return answer

    def _begin(self, answer: Answer[Any]) -> None:
        # From here on it ends with its task, at the latest when the loop does.
        answer.begin()
        self._answers.discard(answer)

    def post(self, function: Callable[[], object]) -> None:
        """Call a function in the loop, soon; nothing happens if there is no loop any more."""
        if not self.is_foreign:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(function)

    @property
    def is_closed(self) -> bool:
        """Whether the loop has ended, or is about to."""
        return self._closed

    @property
    def is_current_thread(self) -> bool:
        """Whether who asks is in the loop's own thread."""
        return threading.current_thread() is self._thread

    def close_after(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a last coroutine, then end the loop; to be called in its own thread."""
        self._closed = True

        def begin() -> None:
            self._last = self._loop.create_task(work)
            self._last.add_done_callback(lambda _: self._loop.stop())

        self._loop.call_soon(begin)

    def close(self) -> None:
        """End the loop and its thread."""
        if self._closed or self.is_foreign:
            return
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


async def _cancel_all() -> None:
    """Cancel what is left in the loop, as asyncio.run does."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _closed() -> ClosedError:
    return ClosedError("the client is closed: make another")


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
            try:
                self._portal.post(self._run)
            except BaseException:
                # Interrupted, and perhaps not posted: the next one posts.
                self._is_posted = False
                raise

    def _run(self) -> None:
        # First, so that what comes meanwhile is posted anew.
        self._is_posted = False
        self._function()


_portals: "WeakSet[Portal]" = WeakSet()


def _after_fork() -> None:
    for portal in list(_portals):
        portal.is_foreign = True


os.register_at_fork(after_in_child=_after_fork)
