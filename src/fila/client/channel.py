"""Opens the connection to a broker: plain, or encrypted with the broker's certificate checked."""

import os
import ssl
from pathlib import Path

import grpc
from grpc import aio

from fila.client.address import Address
from fila.errors import InvalidArgumentError
from fila.wire.channel import CLIENT_OPTIONS

# Where systems keep the authorities that they trust, for Pythons that were built to look elsewhere.
_SYSTEM_ROOTS = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
# Whoever sets it has chosen the roots of every gRPC program.
_GRPC_ROOTS_VARIABLE = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"


def open_channel(address: Address, *, ca_file: str | os.PathLike[str] | None = None) -> aio.Channel:
    """Return a channel, which connects when it is first used.

    With TLS the broker's certificate must come from an authority in `ca_file`, a file of certificates in PEM form;
    without one, from an authority that this system trusts. Raises InvalidArgumentError for a `ca_file` that cannot
    be used, or that would not be: nobody who names an authority wants a connection without encryption.
    """
    if not address.tls:
        if ca_file is not None:
            raise InvalidArgumentError(
                f"ca_file is set, but {address.target} is an address without TLS: write https://{address.target}"
            )
        return aio.insecure_channel(address.target, options=CLIENT_OPTIONS)
    roots = _system_roots() if ca_file is None else _read_roots(ca_file)
    credentials = grpc.ssl_channel_credentials(root_certificates=roots)
    return aio.secure_channel(address.target, credentials, options=CLIENT_OPTIONS)


def _read_roots(ca_file: str | os.PathLike[str]) -> bytes:
    """Read what gRPC would refuse only at the first call, and without a reason."""
    try:
        certificates = Path(ca_file).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidArgumentError(f"ca_file {os.fspath(ca_file)!r} cannot be read: {reason}") from error
    except TypeError as error:
        raise InvalidArgumentError(f"ca_file is a path, not {ca_file!r}") from error
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca_file)
    except ssl.SSLError as error:
        raise InvalidArgumentError(
            f"ca_file {os.fspath(ca_file)!r} holds no certificate that can be used: "
            "it must be a certificate in PEM form, or several"
        ) from error
    return certificates


def _system_roots() -> bytes | None:
    """Return the authorities that this system trusts; None leaves it to those that come with gRPC.

    gRPC would take its own before the system's, and a company's own authority is only among the latter.
    """
    if os.environ.get(_GRPC_ROOTS_VARIABLE):
        return None
    # Where the system's own place is empty, it is None.
    candidates: tuple[str | None, ...] = (ssl.get_default_verify_paths().cafile, *_SYSTEM_ROOTS)
    for path in candidates:
        if path is not None and Path(path).is_file():
            return Path(path).read_bytes()
    return None
