"""fila: a message broker that decides who is served next.

The client's names load on first use, so that importing the core, in a simulation or on a Spark executor,
loads no gRPC.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from fila.errors import (
    ClosedError,
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
    from fila.client.blocking.consumer import SyncConsumer
    from fila.client.blocking.producer import SyncProducer, SyncReceipt
    from fila.client.blocking.worker import SyncWorker
    from fila.client.consumer import Consumer
    from fila.client.messages import Message, Settlement, SyncMessage, SyncSettlement
    from fila.client.producer import Producer, Receipt
    from fila.client.values import Discipline, EnqueueResult, KeyStats, NewMessage, QueueInfo, QueueStats
    from fila.client.worker import Worker

__all__ = [
    "AsyncClient",
    "Client",
    "ClosedError",
    "Code",
    "Consumer",
    "Discipline",
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
    "Producer",
    "QueueExistsError",
    "QueueInfo",
    "QueueNotFoundError",
    "QueueStats",
    "RPCError",
    "Receipt",
    "Settlement",
    "SyncConsumer",
    "SyncMessage",
    "SyncProducer",
    "SyncReceipt",
    "SyncSettlement",
    "SyncWorker",
    "UnavailableError",
    "Worker",
    "__version__",
]

__version__ = "0.1.0"

_HOME_BY_NAME = {
    "AsyncClient": ("fila.client.aio", "AsyncClient"),
    "FilaClient": ("fila.client.aio", "AsyncClient"),
    "Client": ("fila.client.blocking", "Client"),
    "Consumer": ("fila.client.consumer", "Consumer"),
    "Message": ("fila.client.messages", "Message"),
    "Producer": ("fila.client.producer", "Producer"),
    "Receipt": ("fila.client.producer", "Receipt"),
    "Settlement": ("fila.client.messages", "Settlement"),
    "SyncConsumer": ("fila.client.blocking.consumer", "SyncConsumer"),
    "SyncMessage": ("fila.client.messages", "SyncMessage"),
    "SyncProducer": ("fila.client.blocking.producer", "SyncProducer"),
    "SyncReceipt": ("fila.client.blocking.producer", "SyncReceipt"),
    "SyncSettlement": ("fila.client.messages", "SyncSettlement"),
    "SyncWorker": ("fila.client.blocking.worker", "SyncWorker"),
    "Worker": ("fila.client.worker", "Worker"),
    "Discipline": ("fila.client.values", "Discipline"),
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
