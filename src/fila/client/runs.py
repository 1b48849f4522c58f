"""Leases of one stream as runs: neighbours become one entry, and a frame says each epoch once if it can."""

from fila.wire.v1.messages_pb2 import LeaseRuns


class RunsBuilder:
    """Collects places in deliveries and writes them as LeaseRuns.

    Places that come in order cost a comparison each; those that do not are sorted once, when the runs are taken.
    A place must not be added twice.
    """

    __slots__ = ("_count", "_epoch", "_ordered", "_runs", "_start")

    def __init__(self) -> None:
        self._runs: list[tuple[int, int, int]] = []
        self._epoch = 0
        self._start = 0
        self._count = 0
        self._ordered = True

    def __bool__(self) -> bool:
        return self._count > 0

    def add(self, epoch: int, position: int, count: int = 1) -> None:
        """Add `count` places of one delivery."""
        if epoch == self._epoch and position == self._start + self._count and self._count:
            self._count += count
            return
        if self._count:
            # No call: an interrupt of the thread that settles could leave the run here and below.
            self._runs += ((self._epoch, self._start, self._count),)
            if (epoch, position) < (self._epoch, self._start):
                self._ordered = False
        self._epoch, self._start, self._count = epoch, position, count

    def runs(self) -> list[tuple[int, int, int]]:
        """Return (epoch, position, count) of each run, in order, neighbours joined."""
        if not self._count:
            return []
        runs = [*self._runs, (self._epoch, self._start, self._count)]
        if self._ordered:
            return runs
        runs.sort()
        joined: list[tuple[int, int, int]] = []
        epoch, start, count = runs[0]
        for next_epoch, next_start, next_count in runs[1:]:
            if next_epoch == epoch and next_start == start + count:
                count += next_count
            else:
                joined.append((epoch, start, count))
                epoch, start, count = next_epoch, next_start, next_count
        joined.append((epoch, start, count))
        return joined

    def message(self) -> LeaseRuns:
        """Return the runs as they go on the wire, in the shortest of the forms that the contract allows."""
        runs = self.runs()
        epochs, positions, counts = zip(*runs, strict=True) if runs else ((), (), ())
        # One epoch stands for all runs.
        if len(set(epochs)) == 1:
            epochs = epochs[:1]
        return LeaseRuns(
            epochs=epochs, positions=positions, counts=() if all(count == 1 for count in counts) else counts
        )


def read_runs(runs: LeaseRuns) -> list[tuple[int, int, int]]:
    """Return (epoch, position, count) of each run; a count of 0 means the delivery from there to its end."""
    epochs, positions, counts = list(runs.epochs), list(runs.positions), list(runs.counts)
    length = max(len(epochs), len(positions))
    if len(epochs) == 1:
        epochs *= length
    if not positions:
        return [(epoch, 0, 0) for epoch in epochs]
    return list(zip(epochs, positions, counts or [1] * length, strict=True))
