"""What one frame may settle: a small frame must not be long work."""

import asyncio

import pytest

from fila import limits
from fila.errors import InvalidArgumentError
from fila.server.settling import Settling
from fila.wire.v1.messages_pb2 import LeaseRuns
from fila.wire.v1.service_pb2 import ExtendRuns, NackRuns, SubscribeRequest


class CountingBroker:
    """Takes commands, and answers none."""

    def __init__(self):
        self.commands = []

    def expect(self, reply):
        return 1

    def submit(self, command, bodies=b""):
        self.commands.append(command)


@pytest.fixture
def broker():
    """A broker that counts."""
    return CountingBroker()


@pytest.fixture
def settling(broker):
    """The settling of its consumer."""
    return Settling(broker, 7, asyncio.Event())


def frame_of(nacks, extends):
    return SubscribeRequest(
        sequence=1,
        nack=[NackRuns(runs=LeaseRuns(epochs=[1 + epoch])) for epoch in range(nacks)],
        extend=[
            ExtendRuns(runs=LeaseRuns(epochs=[1 + nacks + epoch]), timeout_ms=1) for epoch in range(extends)
        ],
    )


def test_frame_may_have_so_many_actions(broker, settling):
    """Up to the bound each nack and each extension becomes a command."""
    settling.take(frame_of(limits.SETTLE_ACTIONS_MAX - 1, 1))

    assert len(broker.commands) == limits.SETTLE_ACTIONS_MAX


def test_frame_with_more_actions_is_refused_whole(broker, settling):
    """Each is a command: hundreds of thousands in two megabytes would stop everybody for seconds."""
    with pytest.raises(InvalidArgumentError, match="nacks and extensions"):
        settling.take(frame_of(limits.SETTLE_ACTIONS_MAX, 1))

    assert not broker.commands
    assert not settling.owed


def test_whole_deliveries_of_all_actions_count_together(broker, settling):
    """A delivery is at least one lease: no stream has more of them than leases."""
    half = limits.CREDIT_MESSAGES_MAX // 2
    request = SubscribeRequest(
        sequence=1,
        ack=LeaseRuns(epochs=range(1, 1 + half)),
        release=LeaseRuns(epochs=range(1 + half, 2 + 2 * half)),
    )

    with pytest.raises(InvalidArgumentError, match="leases of a stream"):
        settling.take(request)

    assert not broker.commands


def test_whole_deliveries_and_messages_count_together(broker, settling):
    """Bare epochs beside counted runs do not pass for nothing."""
    request = SubscribeRequest(
        sequence=1,
        ack=LeaseRuns(epochs=[1], positions=[0], counts=[limits.CREDIT_MESSAGES_MAX]),
        release=LeaseRuns(epochs=[2]),
    )

    with pytest.raises(InvalidArgumentError, match="leases of a stream"):
        settling.take(request)

    assert not broker.commands
