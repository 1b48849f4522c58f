"""Errors on both sides of the wire: a FilaError as a gRPC status, and back."""

from typing import Any

import grpc

from fila import limits
from fila.errors import (
    Absence,
    Code,
    ConfigKeyNotFoundError,
    FilaError,
    InvalidArgumentError,
    LimitError,
    MessageNotFoundError,
    NotFoundError,
    QueueExistsError,
    QueueNotFoundError,
    RPCError,
    UnavailableError,
    UnimplementedError,
)
from fila.wire import handshake

# In the trailing metadata of a failed call, with the value "1": it certainly had no effect, so it is safe to repeat.
NOT_DONE_KEY = "fila-not-done"
# In the trailing metadata of every call that the broker itself has refused: gRPC and proxies answer with the same codes.
ERROR_KEY = "fila-error"

# What gRPC's asyncio client says when it writes to a call that has just ended; it hides the status that the call ended with.
_LOST = "Internal error from Core"

_STATUS: dict[int, grpc.StatusCode] = {status.value[0]: status for status in grpc.StatusCode}

_ERRORS: dict[int, type[FilaError]] = {
    Code.INVALID_ARGUMENT: InvalidArgumentError,
    Code.NOT_FOUND: NotFoundError,
    Code.ALREADY_EXISTS: QueueExistsError,
    Code.RESOURCE_EXHAUSTED: LimitError,
    Code.UNAVAILABLE: UnavailableError,
    Code.UNIMPLEMENTED: UnimplementedError,
}

# What ERROR_KEY says where the code does not tell it all.
_KIND_BY_ERROR: dict[type[FilaError], str] = {
    QueueNotFoundError: "queue-not-found",
    MessageNotFoundError: "message-not-found",
    ConfigKeyNotFoundError: "config-key-not-found",
}
_NOT_FOUND_BY_KIND: dict[str, type[NotFoundError]] = {
    "queue-not-found": QueueNotFoundError,
    "message-not-found": MessageNotFoundError,
    "config-key-not-found": ConfigKeyNotFoundError,
}


def status_of(error: FilaError) -> tuple[grpc.StatusCode, str]:
    """Return the status code and the details that tell a caller of an error."""
    return _STATUS[error.code], short_message(error)


def short_message(error: FilaError) -> str:
    """Return the error's text, at most as long as a status can carry."""
    message = error.message
    if len(message) <= limits.STATUS_CHARACTERS_MAX:
        return message
    return message[: limits.STATUS_CHARACTERS_MAX - 3] + "..."


def error_of(code: int, message: str, *, not_found: type[NotFoundError] = NotFoundError) -> FilaError:
    """Return the error that a status code stands for; the caller knows what NOT_FOUND is about."""
    if code == Code.NOT_FOUND:
        return not_found(message)
    kind = _ERRORS.get(code)
    if kind is not None:
        return kind(message)
    known = code in Code.__members__.values()
    return RPCError(message, Code(code) if known else Code.UNKNOWN)


def error_of_call(error: grpc.RpcError, *, not_found: type[NotFoundError] = NotFoundError) -> FilaError:
    """Return the error that a failed call stands for; `not_found` is for brokers that do not say what was not found."""
    status = error.code()
    if status is grpc.StatusCode.INTERNAL and error.details() == _LOST:
        return UnavailableError(
            "the connection to the broker was lost, or the broker ended the stream",
            absence=Absence.LOST,
        )
    details = error.details() or status.name
    if status is grpc.StatusCode.UNAVAILABLE:
        details = handshake.sentence_of(details) or details
    not_found = _NOT_FOUND_BY_KIND.get(kind_of(error) or "", not_found)
    failure = error_of(status.value[0], details, not_found=not_found)
    if failure.retryable:
        # Only the broker's own word counts: gRPC answers with the same codes, on both sides.
        failure.not_done = is_not_done(error)
    return failure


def is_not_done(error: grpc.RpcError) -> bool:
    """Say whether the broker has said of a failed call that it had no effect."""
    return _trailer(error, NOT_DONE_KEY) == "1"


def kind_of(error: grpc.RpcError) -> str | None:
    """Return what the broker calls the error; None if it was not the broker who refused the call."""
    return _trailer(error, ERROR_KEY)


def _trailer(error: grpc.RpcError, key: str) -> str | None:
    metadata: Any = error.trailing_metadata() or ()
    return next((str(value) for name, value in metadata if name == key), None)


def trailers_of(error: FilaError) -> tuple[tuple[str, str], ...]:
    """Return the trailing metadata that tells a caller what error it is, and whether the same call may be sent again."""
    kind = _KIND_BY_ERROR.get(type(error)) or error.code.name.lower().replace("_", "-")
    not_done = ((NOT_DONE_KEY, "1"),) if error.retryable and error.not_done else ()
    return ((ERROR_KEY, kind), *not_done)
