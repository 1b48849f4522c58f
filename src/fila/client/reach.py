"""Why a call found no broker: gRPC's account of it, as one sentence with the address and what to do."""

import re

import grpc

from fila.client.address import Address
from fila.errors import (
    Absence,
    Code,
    FilaError,
    NotFoundError,
    QueueNotFoundError,
    RPCError,
    UnavailableError,
)
from fila.wire import handshake
from fila.wire.status import error_of_call, is_not_done, kind_of

# What gRPC's account of a call begins with when there was no connection to send it on.
_UNCONNECTED = "failed to connect to all addresses"
_UNRESOLVED = ("errors resolving ", "DNS resolution failed")
# Signs in its account of a connection that did not come about, and what they mean.
_NOT_GRPC = (
    ("timed out before receiving SETTINGS", "what listens at {address} says nothing"),
    ("SETTINGS frame", "what answers at {address} does not speak gRPC"),
    ("Failed parsing HTTP/2", "what answers at {address} does not speak gRPC"),
    ("recvmsg", "what listens at {address} ended the connection at once"),
    ("Socket closed", "what listens at {address} ended the connection at once"),
)
_HTTP_STATUS = re.compile(r"Received http2 header with status: (\d+)")
_REASON = re.compile(r"remote host: (.+)$")


def failure_of(
    error: grpc.RpcError, address: Address, *, not_found: type[NotFoundError] = QueueNotFoundError
) -> FilaError:
    """Return what a failed call stands for; where no broker has answered, it names the address and a remedy."""
    failure = error_of_call(error, not_found=not_found)
    if kind_of(error) is not None or is_not_done(error):
        return failure
    details = error.details() or ""
    status = error.code()
    if status is grpc.StatusCode.UNAVAILABLE:
        return _unreached(details, address) or UnavailableError(
            f"the connection to the broker at {address} was lost ({details})", absence=Absence.LOST
        )
    if status is grpc.StatusCode.CANCELLED:
        # Not by the caller: a broker that stops cancels what it has no time left for.
        return UnavailableError(
            f"the broker at {address} ended the call before it was answered", absence=Absence.LOST
        )
    http_status = _HTTP_STATUS.search(details)
    if http_status is not None:
        return UnavailableError(
            f"what answers at {address} is no gRPC server (HTTP {http_status[1]}): correct the address",
            absence=Absence.NO_BROKER,
        )
    if status is grpc.StatusCode.UNIMPLEMENTED:
        return RPCError(
            f"what answers at {address} is no fila broker, or one of another version ({details})",
            Code.UNIMPLEMENTED,
        )
    return failure


def _unreached(details: str, address: Address) -> UnavailableError | None:
    """Return why there was no connection; None where there was one."""
    if details.startswith(_UNRESOLVED):
        host = address.target.rpartition(":")[0]
        return UnavailableError(
            f"the name {host!r} does not resolve: correct the address {address}, or see to the name service",
            not_done=True,
            absence=Absence.NO_NAME,
        )
    encrypted = handshake.sentence_of(details)
    if encrypted is not None:
        return UnavailableError(encrypted, not_done=details.startswith(_UNCONNECTED), absence=Absence.NO_TLS)
    if not details.startswith(_UNCONNECTED):
        return None
    for sign, sentence in _NOT_GRPC:
        if sign in details:
            remedy = "correct the address" + (
                "" if address.tls else ", or write https:// before it if there is TLS"
            )
            return UnavailableError(
                f"{sentence.format(address=address)}: {remedy}", not_done=True, absence=Absence.NO_BROKER
            )
    reason = _REASON.search(details)
    shown = f" ({reason[1]})" if reason and reason[1] != "Connection refused" else ""
    return UnavailableError(
        f"no broker answers at {address}{shown}: start one with `fila server`, or correct the address",
        not_done=True,
        absence=Absence.NOBODY,
    )
