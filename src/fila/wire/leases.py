"""Runs of leases between the wire's form and the core's."""

from fila import limits
from fila.core.model import NO_RUNS, Runs
from fila.errors import InvalidArgumentError
from fila.wire.v1.messages_pb2 import LeaseRuns


def read_runs(message: LeaseRuns) -> Runs:
    """Return the runs that a client means. Raises InvalidArgumentError where the columns contradict each other.

    Counts stay numbers: what they span is looked at only where the lease is known.
    """
    positions = message.positions
    counts = message.counts
    epochs = message.epochs
    number = len(positions) or len(epochs)
    if not number and not counts:
        return NO_RUNS
    if number > limits.CREDIT_MESSAGES_MAX:
        raise InvalidArgumentError(
            f"{number:,} runs are more than the {limits.CREDIT_MESSAGES_MAX:,} leases of a stream"
        )
    if len(epochs) != number and len(epochs) != 1:
        raise InvalidArgumentError(f"there are {len(epochs):,} epochs for {number:,} runs")
    if counts and len(counts) != number:
        raise InvalidArgumentError(f"there are {len(counts):,} counts for {number:,} runs")
    if counts and not positions:
        raise InvalidArgumentError("the runs have counts, but no positions")
    if counts and not all(counts):
        raise InvalidArgumentError("a run has a count of 0")
    whole = tuple(epochs) if len(epochs) == number else (epochs[0],) * number
    if not positions:
        # In the core's runs a count of 0 reaches to the end of the delivery.
        zeros = (0,) * number
        return Runs(whole, zeros, zeros)
    return Runs(whole, tuple(positions), tuple(counts) if counts else (1,) * number)


def write_runs(runs: Runs) -> LeaseRuns:
    """Return the runs as the wire has them: whole deliveries as bare epochs."""
    if not any(runs.counts) and not any(runs.positions):
        return LeaseRuns(epochs=runs.epochs)
    return LeaseRuns(epochs=runs.epochs, positions=runs.positions, counts=runs.counts)
