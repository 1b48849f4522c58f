"""What can go wrong, as callers see it.

Few types, each telling the caller what to do: `code` is stable, `retryable` says whether the same
call may succeed later, and the message names the offending value. The numbers of `code` are those
of gRPC, so that an error means the same on both sides of the wire.
"""

from enum import IntEnum, StrEnum


class Code(IntEnum):
    """The kind of a failure, by its gRPC number."""

    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Absence(StrEnum):
    """Why no broker answered, where that was found out on this side of the wire."""

    NOBODY = "nobody answers at the address"
    NO_NAME = "the address names no machine"
    NO_BROKER = "what answers is no broker"
    NO_TLS = "the connection could not be encrypted"
    LOST = "the connection broke"


class FilaError(Exception):
    """The root of every error that fila raises on purpose."""

    code: Code = Code.INTERNAL
    retryable: bool = False
    # Whether what was asked certainly had no effect: to ask again cannot do it twice.
    not_done: bool = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidArgumentError(FilaError):
    """The request itself is wrong: change it."""

    code = Code.INVALID_ARGUMENT
    not_done = True


class NotFoundError(FilaError):
    """What the request names does not exist."""

    code = Code.NOT_FOUND
    not_done = True


class QueueNotFoundError(NotFoundError):
    """There is no queue of that name: create it, or correct the name."""


class ConfigKeyNotFoundError(NotFoundError):
    """The runtime configuration has no such key: set it, or correct the name."""


class MessageNotFoundError(NotFoundError):
    """The message is not leased under this id and epoch: its lease has ended; drop the result.

    `finished`: it was acked before, or purged. Whoever sends an ack again may take that as success.
    """

    def __init__(self, message: str, *, finished: bool = False) -> None:
        super().__init__(message)
        self.finished = finished


class QueueExistsError(FilaError):
    """A queue of that name exists: use it, or delete it first."""

    code = Code.ALREADY_EXISTS
    not_done = True


class LimitError(FilaError):
    """A limit is reached; the message says which: wait until there is room."""

    code = Code.RESOURCE_EXHAUSTED
    retryable = True
    not_done = True


class UnavailableError(FilaError):
    """No broker can answer now: nobody is there, or it stops, or its disk fails. It is safe to try again.

    A call that may not be repeated, and may have been done, raises OutcomeUnknownError instead.
    """

    code = Code.UNAVAILABLE
    retryable = True

    def __init__(self, message: str, *, not_done: bool = False, absence: Absence | None = None) -> None:
        super().__init__(message)
        # Without it, the outcome is unknown.
        self.not_done = not_done
        # None: it is the broker's own word.
        self.absence = absence


class OutcomeUnknownError(FilaError):
    """The connection was lost, or time ran out, before the answer: it may be done or not. Look before you repeat it.

    It is no UnavailableError, so that a loop that tries again on those does nothing twice.
    """

    code = Code.UNAVAILABLE


class ClosedError(FilaError):
    """The client, producer or consumer was closed here: make another."""

    code = Code.FAILED_PRECONDITION


class UnimplementedError(FilaError):
    """This broker does not have what the request asks for."""

    code = Code.UNIMPLEMENTED


class ConfigError(FilaError):
    """A setting is wrong: the message names the key, the value and what is allowed."""

    code = Code.FAILED_PRECONDITION


class StoreError(FilaError):
    """The data directory cannot be used as it is: the message names the cause and the remedy."""

    code = Code.UNAVAILABLE


class StoreCorruptError(StoreError):
    """A stored record is damaged or of an unknown version: nothing is guessed, the key is named."""

    code = Code.DATA_LOSS


class RPCError(FilaError):
    """The broker, or the way to it, answered with a status that has no type of its own."""

    def __init__(self, message: str, code: Code = Code.UNKNOWN) -> None:
        super().__init__(message)
        self.code = code
