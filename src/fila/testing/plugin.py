"""The fixtures that pytest finds by itself. It is loaded in every run of pytest: it must not load the broker."""

import re
from collections.abc import Iterator
from itertools import count

import pytest

from fila.testing.hosting import Broker

_numbers = count(1)


@pytest.fixture(scope="session")
def fila_broker() -> Iterator[Broker]:
    """A real fila broker for the whole session; `fila_broker.address` is what clients connect to."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def fila_queue(fila_broker: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new queue on `fila_broker`, named after the test and deleted after it."""
    from fila.errors import QueueNotFoundError  # noqa: PLC0415

    # A test before this one may have stopped the broker, to see what its program does then.
    fila_broker.start()
    words = re.sub(r"[^A-Za-z0-9_]+", "-", request.node.name).strip("-")[:100]
    name = fila_broker.create_queue(f"{words}-{next(_numbers)}")
    yield name
    fila_broker.start()
    try:
        fila_broker.delete_queue(name)
    except QueueNotFoundError:
        # The test has deleted it itself.
        return
