"""Errors that reach several callers."""

from copy import copy

from fila.errors import FilaError


def renamed(error: FilaError, message: str) -> FilaError:
    """Return an error of the same kind with another text."""
    same = copy(error)
    same.message = message
    same.args = (message,)
    return same


def again(error: FilaError) -> FilaError:
    """Return an equal error, for another caller to raise: an exception gathers the traceback of each raise."""
    return copy(error)
