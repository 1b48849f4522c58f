"""Runs of leases as the wire has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fila import limits
from fila.core.model import Runs
from fila.errors import InvalidArgumentError
from fila.wire.leases import read_runs, write_runs
from fila.wire.v1.messages_pb2 import LeaseRuns


def test_an_epoch_alone_is_its_whole_delivery():
    """Without positions and counts, each epoch stands for all its messages."""
    assert read_runs(LeaseRuns(epochs=[5, 6])) == Runs((5, 6), (0, 0), (0, 0))


def test_one_epoch_stands_for_all_runs():
    """A delivery settled in pieces names its epoch once."""
    runs = read_runs(LeaseRuns(epochs=[5], positions=[0, 10], counts=[3, 2]))

    assert runs == Runs((5, 5), (0, 10), (3, 2))


def test_without_counts_each_run_is_one_message():
    """Positions alone are single messages."""
    assert read_runs(LeaseRuns(epochs=[5, 6], positions=[3, 4])) == Runs((5, 6), (3, 4), (1, 1))


def test_nothing_is_nothing():
    """An empty message settles nothing and is no error."""
    assert read_runs(LeaseRuns()) == Runs((), (), ())


@pytest.mark.parametrize(
    "runs",
    [
        LeaseRuns(epochs=[1, 2], positions=[1]),
        LeaseRuns(epochs=[1, 2], positions=[1, 2, 3]),
        LeaseRuns(positions=[1]),
        LeaseRuns(counts=[1]),
        LeaseRuns(epochs=[1], counts=[1]),
        LeaseRuns(epochs=[1], positions=[1, 2], counts=[1]),
        LeaseRuns(epochs=[1], positions=[1, 2], counts=[1, 0]),
        LeaseRuns(epochs=[1], positions=range(limits.CREDIT_MESSAGES_MAX + 1)),
    ],
)
def test_columns_that_contradict_each_other_are_refused(runs):
    """Nothing is guessed about which lease was meant."""
    with pytest.raises(InvalidArgumentError):
        read_runs(runs)


def test_the_largest_numbers_are_only_numbers():
    """A run of 2^32 - 1 messages at 2^32 - 1 of delivery 2^64 - 1 takes no more memory than any other."""
    largest = 2**32 - 1

    runs = read_runs(LeaseRuns(epochs=[2**64 - 1], positions=[largest], counts=[largest]))

    assert runs == Runs((2**64 - 1,), (largest,), (largest,))


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 999), st.integers(1, 999)), max_size=20))
def test_runs_survive_the_way_there_and_back(runs):
    """What the broker refuses is what the client named."""
    columns = Runs(*zip(*runs, strict=True)) if runs else Runs((), (), ())

    assert read_runs(write_runs(columns)) == columns
