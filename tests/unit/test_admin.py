"""What FilaAdmin answers beside what the core says."""

import asyncio

import pytest

from fila import limits
from fila.core.model import QueueSpec, QueueStats
from fila.errors import LimitError
from fila.server.admin import Admin
from fila.wire.v1.admin_pb2 import ListQueuesRequest, ListQueuesResponse


class ListingBroker:
    """Has queues with the longest names."""

    def __init__(self, count):
        names = (f"{number:0{limits.QUEUE_NAME_BYTES_MAX}}" for number in range(count))
        self._queues = tuple(
            QueueStats(number, QueueSpec(name), 0, 0, 0, 0, 0, 0) for number, name in enumerate(names, 1)
        )

    async def ask(self, build):
        return self._queues


def list_queues(count):
    return asyncio.run(Admin(ListingBroker(count), quantum_default=1).list_queues(ListQueuesRequest()))


def test_list_that_fits_a_frame_is_whole():
    """Up to the bound of a frame all queues are listed."""
    count = limits.FRAME_BYTES_MAX // (limits.QUEUE_NAME_BYTES_MAX + 10)

    assert len(ListQueuesResponse.FromString(list_queues(count)).queues) == count


def test_list_that_fits_no_frame_is_refused_with_its_reason():
    """A frame that gRPC would break off says nothing of what is wrong."""
    with pytest.raises(LimitError, match="list of 100,000 queues"):
        list_queues(limits.QUEUES_MAX)
