"""A real broker for your own tests, in the process of the test.

    import fila.testing
    from fila import Client

    def test_orders() -> None:
        with fila.testing.broker() as broker, Client(broker.address) as client:
            client.create_queue("orders")
            ...

It listens on a free port and keeps its data in a temporary directory; both are gone afterwards. It runs in a thread, so it serves
tests with and without asyncio alike, and any number of brokers run side by side. With pytest there is no need for even this: the
fixture `fila_broker` is a broker for the whole session, and `fila_queue` the name of a new queue on it for each test. Where plugins
are not loaded by themselves, `pytest_plugins = ["fila.testing.plugin"]` in a conftest.py loads them.
"""

from fila.testing.hosting import Broker, broker

__all__ = ["Broker", "broker"]
