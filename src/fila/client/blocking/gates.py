"""Waiting in a thread that Ctrl-C may interrupt.

KeyboardInterrupt comes in the main thread wherever the interpreter looks for signals: at the top of a function, when a
call of a C function returns, at a jump backwards. threading's Condition, Event and Semaphore, and the futures made of
them, are Python code around a lock: interrupted within, they leave it taken for ever, and the client's own thread waits
for it. So here

- a lock is a bare `threading.Lock` in a `with`: there the interpreter looks for no signal between taking the lock and
  what releases it;
- nobody waits while holding one: each wait is at a gate of its own, a second bare lock that somebody else releases;
- what is done under the lock changes the core in steps between which no signal is looked for, or which may be left
  half done.
"""

import threading
from collections import deque


def closed_gate() -> threading.Lock:
    """Return what `acquire` waits at until somebody releases it."""
    gate = threading.Lock()
    gate.acquire()
    return gate


class Bell:
    """Wakes all who wait for a change of what `lock` guards."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._gates: deque[threading.Lock] = deque()

    def gate(self) -> threading.Lock:
        """Return a gate that the next ring opens. To be called with the lock, and waited at without it."""
        gate = closed_gate()
        self._gates.append(gate)
        return gate

    def ring(self) -> None:
        """Wake all who wait."""
        # Under the lock, so that nobody is missed who has looked and is about to wait.
        with self._lock:
            while self._gates:
                self._gates.popleft().release()
