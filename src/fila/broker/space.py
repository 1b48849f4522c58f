"""Room on the disk: how much there is, and giving back what finished messages took."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from fila import limits
from fila.core.outcome import DropQueue, DropRange, Write
from fila.errors import StoreError
from fila.storage import keys
from fila.storage.store import Store

logger = logging.getLogger(__name__)

# By queue number what was dropped of it: offsets from the first to before the second, or None for all it had.
Drops = dict[int, tuple[int, int] | None]


class Space:
    """The disk under one store. `full` says whether to take no more messages; `fail` hears of an engine that broke."""

    def __init__(self, free_bytes_min: int, fail: Callable[[StoreError], None]) -> None:
        self._free_bytes_min = free_bytes_min
        self._fail = fail
        self._compactor = ThreadPoolExecutor(1, thread_name_prefix="fila-compact")
        self._store: Store | None = None
        self._reclaim_handle: asyncio.TimerHandle | None = None
        # What is dropped and not yet given back, and whether the compactor is at work.
        self._due: Drops = {}
        self._compacting = False
        self.full = False

    def open(self, store: Store, free_bytes: int) -> None:
        """Look after this opening of the store."""
        self._loop = asyncio.get_running_loop()
        self._store = store
        self.full = False
        self.note(free_bytes)
        self._compact()

    def close(self) -> None:
        """Leave the store alone: it has failed, or is about to be closed."""
        self._store = None
        if self._reclaim_handle is not None:
            self._reclaim_handle.cancel()
            self._reclaim_handle = None

    async def stop(self) -> None:
        """End, once the store is closed: that also ends a compaction."""
        self._compactor.shutdown(wait=False, cancel_futures=True)
        await self._loop.run_in_executor(None, self._compactor.shutdown)

    # --- how much there is ------------------------------------------------------------------------------

    def look(self) -> None:
        """See how much room there is now. If that cannot be seen, what was seen last counts."""
        if self._store is not None:
            self.note(seen_free_bytes(self._store))

    def note(self, free_bytes: int | None) -> None:
        """Take what was seen; None is nothing."""
        if free_bytes is None or self._store is None:
            return
        full = free_bytes < self._free_bytes_min
        if full == self.full:
            return
        self.full = full
        if full:
            logger.error("the disk is nearly full: no more messages are taken until there is room")
            self._reclaim_later()
        else:
            logger.info("the disk has room again: messages are taken")

    # --- giving back ------------------------------------------------------------------------------------

    def dropped(self, writes: Sequence[Write]) -> None:
        """Give back what these writes dropped, now that they are durable, without haste."""
        due = self._due
        for write in writes:
            if type(write) is DropQueue:
                due[write.number] = None
            elif type(write) is DropRange:
                # What lies between two drops of a queue is little: it is rewritten with them.
                span = due.get(write.queue, (write.first, write.end))
                if span is None:
                    continue
                due[write.queue] = (min(span[0], write.first), max(span[1], write.end))
        self._compact()

    def _compact(self) -> None:
        if self._store is None or self._compacting or not self._due:
            return
        store, due, self._due = self._store, self._due, {}
        self._compacting = True

        def done(result: "asyncio.Future[None]") -> None:
            self._compacting = False
            if not result.cancelled() and (error := result.exception()) is not None:
                # It is tried again with the next drop, when room is short, or when the store is opened again.
                self._due = {**due, **self._due}
                if self._store is store:
                    logger.warning("the space of what was deleted or purged is not given back yet: %s", error)
                    return
                # Else the store was closed under it, which is how a compaction ends at a stop: nothing is wrong.
            self._compact()

        self._loop.run_in_executor(self._compactor, _compact, store, due).add_done_callback(done)

    def _reclaim_later(self) -> None:
        """While room is short, have the store give back what finished messages took."""
        if self._reclaim_handle is not None:
            self._reclaim_handle.cancel()
        self._reclaim_handle = self._loop.call_later(limits.RECLAIM_INTERVAL_MS / 1_000, self._reclaim_now)

    def _reclaim_now(self) -> None:
        self._reclaim_handle = None
        if not self.full or self._store is None:
            return
        self._reclaim_later()
        try:
            self._store.reclaim()
        except StoreError as error:
            self._fail(error)
            return
        self._compact()
        self.look()


def seen_free_bytes(store: Store) -> int | None:
    """Return how much room a store has, or None if that cannot be seen: no reason to do anything but go on."""
    try:
        return store.free_bytes()
    except StoreError as error:
        logger.warning("cannot see how much room the disk has: %s", error)
        return None


def _compact(store: Store, drops: Drops) -> None:
    for queue, span in drops.items():
        ranges = keys.queue_ranges(queue) if span is None else keys.offset_ranges(queue, *span)
        for family, first, end in ranges:
            store.compact(family, first, end)
