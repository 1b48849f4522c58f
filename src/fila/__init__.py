"""fila: a message broker that decides who is served next.

The client's names load on first use, so that importing the core, in a simulation or on a Spark executor,
loads no gRPC.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fila.client.aio import AsyncClient

__all__ = ["AsyncClient", "__version__"]

__version__ = "0.1.0"

_HOME_BY_NAME = {"AsyncClient": "fila.client.aio"}


def __getattr__(name: str) -> object:
    """Load the client when one of its names is first asked for."""
    home = _HOME_BY_NAME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    """List the lazy names too, for completion."""
    return sorted({*globals(), *_HOME_BY_NAME})
