"""Acks that came when their leases had ended: told to the log, and not one by one."""

import asyncio
import logging

from fila import limits

logger = logging.getLogger("fila.client")


class LateAcks:
    """Logs the first at once, and those that follow within a while together."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, count: int) -> None:
        """Take note of some."""
        self._count += count
        if self._timer is None:
            self._log()

    def close(self) -> None:
        """Log what is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._tell()

    def _log(self) -> None:
        self._timer = None
        if self._count:
            self._tell()
            self._timer = asyncio.get_running_loop().call_later(limits.LATE_ACKS_LOG_SECONDS, self._log)

    def _tell(self) -> None:
        if not self._count:
            return
        logger.warning(
            "acks of %r came too late: %d. Their leases had ended, so the messages are delivered again; to keep leases, "
            "use a worker, extend(), or a longer visibility timeout",
            self._queue,
            self._count,
        )
        self._count = 0
