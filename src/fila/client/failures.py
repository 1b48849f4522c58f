"""Errors that reach several callers."""

from fila.errors import FilaError, RPCError


def again(error: FilaError) -> FilaError:
    """Return an equal error, for another caller to raise: an exception gathers the traceback of each raise."""
    if isinstance(error, RPCError):
        return RPCError(error.message, error.code)
    return type(error)(error.message)
