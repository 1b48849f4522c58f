"""Errors across the wire."""

import grpc
import pytest

from fila import errors, limits
from fila.errors import Code, FilaError, RPCError
from fila.wire.status import error_of, error_of_call, status_of, trailers_of


def every_error():
    found, rest = [], [FilaError]
    while rest:
        kind = rest.pop()
        found.append(kind)
        rest += kind.__subclasses__()
    return [kind for kind in found if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", every_error())
def test_every_error_has_a_status_of_its_own_code(kind):
    """The status code of an error is the gRPC code of the same number."""
    code, details = status_of(kind("what happened"))

    assert code.value[0] == kind("x").code
    assert details == "what happened"


@pytest.mark.parametrize("code", Code)
def test_every_status_becomes_an_error_with_its_code(code):
    """Nothing is lost on the way to the client: code and text are those of the broker."""
    error = error_of(int(code), "what happened")

    assert error.code == code
    assert error.message == "what happened"


def test_an_unknown_code_becomes_an_error_too():
    """A broker newer than the client may answer with a number that the client has never heard of."""
    error = error_of(999, "from the future")

    assert isinstance(error, RPCError)
    assert error.code == Code.UNKNOWN


def test_the_caller_says_what_not_found_is_about():
    """NOT_FOUND is a missing queue for some calls and an ended lease for others."""
    error = error_of(Code.NOT_FOUND, "gone", not_found=errors.MessageNotFoundError)

    assert type(error) is errors.MessageNotFoundError


def test_long_messages_are_cut_so_that_the_status_arrives():
    """A status text longer than trailers may be would lose the status itself."""
    code, details = status_of(errors.InvalidArgumentError("x" * 100_000))

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert len(details) == limits.STATUS_CHARACTERS_MAX
    assert details.endswith("...")


def test_a_write_to_an_ended_stream_is_a_broker_that_is_unavailable():
    """The client of gRPC hides the status of a stream behind an internal error when a write meets its end."""
    metadata = grpc.aio.Metadata()
    lost = grpc.aio.AioRpcError(
        grpc.StatusCode.INTERNAL, metadata, metadata, details="Internal error from Core"
    )
    other = grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, metadata, metadata, details="a fault")

    assert type(error_of_call(lost)) is errors.UnavailableError
    assert error_of_call(other).code == Code.INTERNAL


def failed_call(status, *trailers):
    metadata = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(status, metadata, grpc.aio.Metadata(*trailers), details="what happened")


@pytest.mark.parametrize("status", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED])
def test_only_the_broker_can_say_that_nothing_was_done(status):
    """Calls that did arrive may end with the same codes: without the broker's word the outcome is unknown."""
    refused = failed_call(status, *trailers_of(errors.LimitError("full")))

    assert error_of_call(refused).not_done
    assert not error_of_call(failed_call(status)).not_done
    assert not error_of_call(failed_call(status, ("fila-not-done", "0"))).not_done


def test_unknown_outcome_is_not_said_to_be_nothing():
    """A broker whose disk failed under a call does not know; what is wrong with a request needs no such word."""
    assert trailers_of(errors.UnavailableError("the disk failed")) == (("fila-error", "unavailable"),)
    assert trailers_of(errors.UnavailableError("it stops", not_done=True)) == (
        ("fila-error", "unavailable"),
        ("fila-not-done", "1"),
    )
    assert trailers_of(errors.InvalidArgumentError("no name")) == (("fila-error", "invalid-argument"),)


@pytest.mark.parametrize(
    "kind", [errors.QueueNotFoundError, errors.MessageNotFoundError, errors.ConfigKeyNotFoundError]
)
@pytest.mark.parametrize("guess", [errors.QueueNotFoundError, errors.MessageNotFoundError])
def test_broker_says_what_was_not_found(kind, guess):
    """An ack may fail for want of a queue as well: what the broker calls it counts, not what the call is about."""
    refused = failed_call(grpc.StatusCode.NOT_FOUND, *trailers_of(kind("gone")))

    assert type(error_of_call(refused, not_found=guess)) is kind
