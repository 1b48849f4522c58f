"""Where a broker is: what people write, and what gRPC takes."""

import re

from fila.errors import InvalidArgumentError

DEFAULT_ADDRESS = "localhost:5555"
DEFAULT_PORT = 5555

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+)(?::(?P<port>[0-9]{1,5}))?")


def target(address: str) -> str:
    """Return `host:port` for `host`, `host:port` or `http://host:port`.

    Raises InvalidArgumentError for anything else; gRPC itself would take it for a name and wait for an answer.
    """
    text = address.strip()
    if text.startswith("https://"):
        raise InvalidArgumentError(
            f"the address {address!r} asks for TLS, which this client does not speak yet"
        )
    match = _ADDRESS.fullmatch(text.removeprefix("http://").removesuffix("/"))
    port = int(match["port"] or DEFAULT_PORT) if match else 0
    if match is None or not 0 < port <= 65_535:
        raise InvalidArgumentError(f"{address!r} is no address: write host:port or http://host:port")
    return f"{match['host']}:{port}"
