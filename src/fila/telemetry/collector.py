"""Whether telemetry arrives: one line in the log when it ceases to, and one when it does again."""

import logging
import socket
import threading
from typing import Final
from urllib.parse import urlsplit

logger = logging.getLogger(__name__)

# What an endpoint without a port means.
OTLP_PORT: Final = 4317


class Collector:
    """What is known of the other end. Exports report from threads of their own."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        # A collector may take metrics and refuse spans: they are told apart, or each export would contradict the one before.
        self._failing: set[str] = set()

    def report(self, signal: str, *, arrived: bool) -> None:
        """Take the result of an export of "metrics" or "spans"."""
        with self._lock:
            worked = not self._failing
            if arrived:
                self._failing.discard(signal)
            else:
                self._failing.add(signal)
            works = not self._failing
        if worked and not works:
            logger.warning("telemetry cannot be sent to %s: the broker works on without it", self._endpoint)
        elif works and not worked:
            logger.info("telemetry is sent to %s again", self._endpoint)

    def is_reachable(self, timeout_s: float) -> bool:
        """Say whether something listens there."""
        parts = urlsplit(self._endpoint)
        try:
            with socket.create_connection((parts.hostname or "", parts.port or OTLP_PORT), timeout_s):
                return True
        except OSError:
            return False
