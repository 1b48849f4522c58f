"""Hosts a broker in a thread of this process. What a broker needs is imported when the first one starts."""

import gc
import shutil
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeVar

if TYPE_CHECKING:
    from fila.client.aio import AsyncClient

T = TypeVar("T")

_HOST = "127.0.0.1"


def broker(*, durability: Literal["fsync", "os"] = "os", data_dir: Path | None = None) -> "Broker":
    """Return a broker for `with` or `async with`: it runs within, and leaves nothing behind.

    With durability "os" it does not wait for the disk: what it has confirmed survives `restart`, and only a power
    loss would not be survived, of which there is none in tests. The temporary directory is where `tempfile` makes them; a
    `data_dir` of your own is used as it is, and stays.
    """
    return Broker(durability=durability, data_dir=data_dir)


class Broker:
    """A broker of one's own; `with` starts and ends it. Its methods are for one thread at a time."""

    def __init__(self, *, durability: Literal["fsync", "os"] = "os", data_dir: Path | None = None) -> None:
        self._durability = durability
        self._data_dir = data_dir
        self._temporary_dir: Path | None = None
        self._port: _Port | None = None
        self._serving: _Serving | None = None

    def __repr__(self) -> str:
        where = f"at {self._port.address}" if self._port is not None else "of one's own"
        return f"<Broker {where}, {'running' if self.is_running else 'not running'}>"

    @property
    def address(self) -> str:
        """Where it listens, as clients take it. It stays the same over `stop` and `restart`."""
        if self._port is None:
            raise RuntimeError("the broker has not been started: use it in a with statement")
        return self._port.address

    @property
    def is_running(self) -> bool:
        """Whether it can be reached."""
        return self._serving is not None

    def start(self) -> None:
        """Start, and return when it can be reached; where it runs already, do nothing.

        Raises StoreError if the data directory cannot be used.
        """
        if self._serving is not None:
            return
        if self._data_dir is None and self._temporary_dir is None:
            self._temporary_dir = Path(tempfile.mkdtemp(prefix="fila-testing-"))
        if self._port is None:
            self._port = _Port()
        directory = self._data_dir or self._temporary_dir
        assert directory is not None
        serving = _Serving(self._port.listen_addr, directory, self._durability)
        self._port.address = serving.address
        self._serving = serving

    def stop(self) -> None:
        """Stop as a broker does on SIGTERM: what it has taken is kept, and its clients wait for it to come back."""
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.stop()

    def restart(self) -> None:
        """Stop and start with the same data at the same address, as in an upgrade, to try what your program makes of it."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, give the port back and remove the temporary directory; `with` does it."""
        try:
            self.stop()
        finally:
            if self._port is not None:
                self._port.give_back()
                self._port = None
            if self._temporary_dir is not None:
                shutil.rmtree(self._temporary_dir)
                self._temporary_dir = None
            # The thread of gRPC ends with the last of its objects, and those are in cycles.
            gc.collect()

    def create_queue(self, name: str) -> str:
        """Create a queue and return its name, also where the test itself has no client."""
        self._ask(lambda client: client.create_queue(name))
        return name

    def delete_queue(self, name: str) -> None:
        """Delete a queue and its messages."""
        self._ask(lambda client: client.delete_queue(name))

    def _ask(self, work: "Callable[[AsyncClient], Awaitable[T]]") -> T:
        if self._serving is None:
            raise RuntimeError("the broker is not running: start it first")
        return self._serving.ask(work)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        import asyncio  # noqa: PLC0415

        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        import asyncio  # noqa: PLC0415

        await asyncio.to_thread(self.close)


class _Port:
    """A free port, which nobody else gets while the broker is stopped."""

    def __init__(self) -> None:
        self._held: socket.socket | None = None
        self.address = ""
        # Elsewhere a second socket could not listen on a port that is bound already.
        if sys.platform == "linux":
            self._held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._held.bind((_HOST, 0))
            self.address = f"{_HOST}:{self._held.getsockname()[1]}"

    @property
    def listen_addr(self) -> str:
        return self.address or f"{_HOST}:0"

    def give_back(self) -> None:
        if self._held is not None:
            self._held.close()


class _Serving:
    """One run of a broker, from a start to a stop, in a thread with a loop of its own."""

    def __init__(self, listen_addr: str, data_dir: Path, durability: Literal["fsync", "os"]) -> None:
        self._started: Future[str] = Future()
        self._ended: Future[None] = Future()
        self._thread = Thread(
            target=self._run,
            args=(listen_addr, data_dir, durability),
            name=f"fila broker at {listen_addr}",
            # Whoever forgets to stop it shall not wait for ever at the end of the process.
            daemon=True,
        )
        self._thread.start()
        try:
            self.address = self._started.result()
        except BaseException:
            self._thread.join()
            raise

    def stop(self) -> None:
        """Stop, and raise what went wrong on the way."""
        self._loop.call_soon_threadsafe(self._told.set)
        self._thread.join()
        self._ended.result()

    def ask(self, work: "Callable[[AsyncClient], Awaitable[T]]") -> T:
        """Do something with a client of the broker's own, for callers that have no loop."""
        import asyncio  # noqa: PLC0415

        from fila.client.aio import AsyncClient  # noqa: PLC0415

        async def with_client() -> T:
            async with AsyncClient(self.address) as client:
                return await work(client)

        return asyncio.run_coroutine_threadsafe(with_client(), self._loop).result()

    def _run(self, listen_addr: str, data_dir: Path, durability: Literal["fsync", "os"]) -> None:
        try:
            self._serve(listen_addr, data_dir, durability)
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits for it
            (self._ended if self._started.done() else self._started).set_exception(error)
        else:
            self._ended.set_result(None)

    def _serve(self, listen_addr: str, data_dir: Path, durability: Literal["fsync", "os"]) -> None:
        import asyncio  # noqa: PLC0415

        import uvloop  # noqa: PLC0415

        from fila import assembly, config  # noqa: PLC0415

        settings = config.Settings(
            server=config.ServerSettings(listen_addr=listen_addr),
            storage=config.StorageSettings(data_dir=data_dir, durability=durability),
        )

        async def serve() -> None:
            self._loop, self._told = asyncio.get_running_loop(), asyncio.Event()
            async with assembly.running(settings) as running:
                self._started.set_result(running.address)
                await self._told.wait()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve())
