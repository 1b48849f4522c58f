"""Why an address cannot be listened on: gRPC only says that it cannot, so a plain socket is asked."""

import errno
import socket


def why_not(address: str) -> str:
    """Return the cause and the remedy, as the end of a sentence."""
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError):
        return f"the host {host} is not known: set --listen (listen_addr) to an address of this machine"
    refused: OSError | None = None
    for family, kind, protocol, _, where in found:
        try:
            with socket.socket(family, kind, protocol) as trial:
                # As gRPC does: a connection that ended a moment ago does not hold the port.
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(where)
        except OSError as error:
            refused = error
    return _sentence_of(refused, host, port)


def _sentence_of(error: OSError | None, host: str, port: str) -> str:
    if error is None:
        return "it is free again, so try again"
    if error.errno == errno.EADDRINUSE:
        return f"is another server using port {port}? Stop it, or set --listen (listen_addr)"
    if error.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
        return f"{host} is no address of this machine: set --listen (listen_addr) to one that is"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return f"this user may not use port {port}: set --listen (listen_addr) to a port from 1024 on"
    return f"{error.strerror or error}: set --listen (listen_addr) to another address"
