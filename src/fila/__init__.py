"""fila: a message broker that decides who is served next.

The client's names load on first use, so that importing the core, in a simulation or on a Spark executor,
loads no gRPC.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from fila.errors import (
    Code,
    FilaError,
    InvalidArgumentError,
    LimitError,
    MessageNotFoundError,
    NotFoundError,
    OutcomeUnknownError,
    QueueExistsError,
    QueueNotFoundError,
    RPCError,
    UnavailableError,
)

if TYPE_CHECKING:
    from fila.client.aio import AsyncClient
    from fila.client.aio import AsyncClient as FilaClient
    from fila.client.blocking import Client
    from fila.client.messages import Message, SyncMessage
    from fila.client.values import EnqueueResult, KeyStats, NewMessage, QueueInfo, QueueStats

__all__ = [
    "AsyncClient",
    "Client",
    "Code",
    "EnqueueResult",
    "FilaClient",
    "FilaError",
    "InvalidArgumentError",
    "KeyStats",
    "LimitError",
    "Message",
    "MessageNotFoundError",
    "NewMessage",
    "NotFoundError",
    "OutcomeUnknownError",
    "QueueExistsError",
    "QueueInfo",
    "QueueNotFoundError",
    "QueueStats",
    "RPCError",
    "SyncMessage",
    "UnavailableError",
    "__version__",
]

__version__ = "0.1.0"

_HOME_BY_NAME = {
    "AsyncClient": ("fila.client.aio", "AsyncClient"),
    "FilaClient": ("fila.client.aio", "AsyncClient"),
    "Client": ("fila.client.blocking", "Client"),
    "Message": ("fila.client.messages", "Message"),
    "SyncMessage": ("fila.client.messages", "SyncMessage"),
    "EnqueueResult": ("fila.client.values", "EnqueueResult"),
    "KeyStats": ("fila.client.values", "KeyStats"),
    "NewMessage": ("fila.client.values", "NewMessage"),
    "QueueInfo": ("fila.client.values", "QueueInfo"),
    "QueueStats": ("fila.client.values", "QueueStats"),
}


def __getattr__(name: str) -> object:
    """Load the client when one of its names is first asked for."""
    if name not in _HOME_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, attribute = _HOME_BY_NAME[name]
    return getattr(import_module(home), attribute)


def __dir__() -> list[str]:
    """List the lazy names too, for completion."""
    return sorted({*globals(), *_HOME_BY_NAME})
