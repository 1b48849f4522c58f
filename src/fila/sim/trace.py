"""The record of a run: what happened, line by line, and one hash of it all.

Two runs of one seed must have the same hash whatever the process, and `PYTHONHASHSEED`, they ran in.
"""

import hashlib


class Trace:
    """Hashes every line; keeps the last `keep` of them for whoever reads a failure."""

    def __init__(self, keep: int = 0) -> None:
        self._hash = hashlib.sha256()
        self._keep = keep
        self.lines: list[str] = []

    def add(self, *parts: object) -> None:
        """Add a line. Whatever is passed is recorded by its `repr`, so it must not show addresses in memory."""
        line = " ".join(part if isinstance(part, str) else repr(part) for part in parts)
        self._hash.update(line.encode("utf-8", "surrogatepass") + b"\n")
        if self._keep:
            self.lines.append(line)
            if len(self.lines) > 2 * self._keep:
                del self.lines[: -self._keep]

    def digest(self) -> str:
        """Return the hash of all lines so far."""
        return self._hash.hexdigest()
