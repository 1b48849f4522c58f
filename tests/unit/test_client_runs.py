"""Runs of leases: as short as the contract allows, and the same places."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fila.client.runs import RunsBuilder, read_runs
from fila.wire.v1.messages_pb2 import LeaseRuns


def built(*places):
    builder = RunsBuilder()
    for epoch, position in places:
        builder.add(epoch, position)
    return builder


def test_neighbours_in_order_are_one_run():
    """A consumer that acks in order sends one entry for a whole delivery."""
    message = built(*((7, position) for position in range(100))).message()

    assert message == LeaseRuns(epochs=[7], positions=[0], counts=[100])


def test_neighbours_out_of_order_are_joined():
    """Concurrent handlers finish in any order; what is joined is what they finished."""
    builder = built((7, 3), (7, 1), (8, 0), (7, 2), (7, 9))

    assert builder.runs() == [(7, 1, 3), (7, 9, 1), (8, 0, 1)]


def test_single_messages_need_no_counts():
    """One epoch stands for all runs, and a missing count is one message."""
    assert built((7, 1), (7, 3)).message() == LeaseRuns(epochs=[7], positions=[1, 3])


def test_places_of_several_deliveries_keep_their_epochs():
    """Epochs are parallel to positions as soon as there are two."""
    assert built((7, 1), (8, 0)).message() == LeaseRuns(epochs=[7, 8], positions=[1, 0])


def test_nothing_is_nothing():
    """An empty builder is false and says nothing."""
    assert not built()
    assert built().runs() == []
    assert built().message().ByteSize() == 0


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 40)), unique=True))
def test_runs_hold_exactly_the_places_that_were_added(places):
    """Nothing lost, nothing invented, whatever the order; and they survive the wire."""
    message = built(*places).message()

    expanded = [
        (epoch, place) for epoch, start, count in read_runs(message) for place in range(start, start + count)
    ]
    assert expanded == sorted(places)


@pytest.mark.parametrize(
    ("message", "runs"),
    [
        (LeaseRuns(), []),
        (LeaseRuns(epochs=[3, 4]), [(3, 0, 0), (4, 0, 0)]),
        (LeaseRuns(epochs=[3], positions=[5, 9]), [(3, 5, 1), (3, 9, 1)]),
        (LeaseRuns(epochs=[3, 4], positions=[5, 9], counts=[2, 3]), [(3, 5, 2), (4, 9, 3)]),
    ],
)
def test_every_form_of_the_contract_is_read(message, runs):
    """A count of 0 stands for the rest of the delivery."""
    assert read_runs(message) == runs
