"""Connecting, with the broker's answer played by the test."""

import asyncio

import pytest

from fila import AsyncClient
from fila.errors import FilaError, LimitError, UnavailableError


def connect(answer):
    """Connect to a broker that answers a list of queues with an error."""

    class Client(AsyncClient):
        async def list_queues(self):
            raise answer

    async def run():
        async with await Client.connect("localhost:1"):
            return True

    return asyncio.run(run())


def test_broker_with_too_many_queues_to_list_answers():
    """Connecting asks whether there is a broker, and there is one."""
    assert connect(LimitError("the list is longer than a frame"))


def test_broker_that_is_not_there_fails_the_connection():
    """Whoever connects wants to know before the first call."""
    error: FilaError = UnavailableError("failed to connect")

    with pytest.raises(UnavailableError):
        connect(error)
