"""What a message carries that has failed, and when it is tried again."""

from fila import limits


class Attempt:
    """What a failed message carries until it is finished."""

    __slots__ = ("count", "due_ns")

    def __init__(self, count: int, due_ns: int) -> None:
        self.count = count
        self.due_ns = due_ns


def backoff_ms(attempts: int) -> int:
    """Return how long a message waits after its n-th failure: not at all, then longer and longer."""
    if attempts <= 1:
        return 0
    doublings = min(attempts - 2, 30)
    return min(limits.RETRY_BACKOFF_MS_FIRST << doublings, limits.RETRY_BACKOFF_MS_MAX)
