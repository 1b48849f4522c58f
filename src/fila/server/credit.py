"""How much of a stream's credit the core has, and how much waits here.

The core sends as much as it has credit for, whether the client reads or not. So it is told of no more bytes than may wait
in the broker's memory for one stream; the rest follows as frames are written.
"""

from fila import limits
from fila.errors import InvalidArgumentError


class StreamCredit:
    """The credit of one Subscribe stream."""

    def __init__(self) -> None:
        # What the client has granted and no delivery has used.
        self._messages = 0
        self._bytes = 0
        # What of that the core does not know yet.
        self._kept_bytes = 0
        # What the core knows of, or is delivered and not yet written.
        self._out_bytes = 0
        self._stopped = False

    def stop(self) -> None:
        """Void what is not used yet: nothing more is wanted, and what is granted later does not count."""
        self._stopped = True
        self._messages = self._bytes = self._kept_bytes = 0

    def grant(self, messages: int, size: int) -> tuple[int, int]:
        """Add credit, and return what of it the core is to hear of now. Raises InvalidArgumentError beyond the bounds."""
        if self._stopped:
            return 0, 0
        if self._messages + messages > limits.CREDIT_MESSAGES_MAX:
            raise InvalidArgumentError(
                f"credit for {self._messages + messages:,} messages is more than {limits.CREDIT_MESSAGES_MAX:,}"
            )
        if self._bytes + size > limits.CREDIT_BYTES_MAX:
            raise InvalidArgumentError(
                f"credit for {self._bytes + size:,} bytes is more than {limits.CREDIT_BYTES_MAX:,}"
            )
        self._messages += messages
        self._bytes += size
        self._kept_bytes += size
        return messages, self._hand_over()

    def delivered(self, messages: int, size: int) -> None:
        """Count a delivery that the core has made."""
        self._messages -= messages
        self._bytes -= size

    def written(self, size: int) -> int:
        """Count a delivery that is written, and return how many more bytes the core is to hear of."""
        self._out_bytes -= size
        return self._hand_over() if self._kept_bytes else 0

    def _hand_over(self) -> int:
        size = min(self._kept_bytes, limits.STREAM_BYTES_MAX - self._out_bytes)
        if size <= 0:
            return 0
        self._kept_bytes -= size
        self._out_bytes += size
        return size
