"""The synchronous client: the same cores and streams, on an event loop in a thread of its own."""

from fila.client.blocking.client import Client

__all__ = ["Client"]
