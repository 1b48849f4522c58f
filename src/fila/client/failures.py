"""Errors that reach several callers."""

from fila.errors import FilaError, RPCError


def renamed(error: FilaError, message: str) -> FilaError:
    """Return an error of the same kind with another text."""
    if isinstance(error, RPCError):
        return RPCError(message, error.code)
    return type(error)(message)


def again(error: FilaError) -> FilaError:
    """Return an equal error, for another caller to raise: an exception gathers the traceback of each raise."""
    return renamed(error, error.message)
