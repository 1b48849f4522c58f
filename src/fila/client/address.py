"""Where a broker is: what people write, and what gRPC takes."""

import re
from dataclasses import dataclass

from fila.errors import InvalidArgumentError

DEFAULT_ADDRESS = "localhost:5555"
DEFAULT_PORT = 5555

_ADDRESS = re.compile(
    r"(?:(?P<scheme>https?)://)?"
    r"(?P<host>\[[0-9A-Fa-f:.]+(?:%[^\s/\[\]]+)?\]|[^\s:/\[\]?#@]+)"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"/?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Address:
    """A broker's address: `target` is the host:port that gRPC takes, `tls` whether the connection is encrypted."""

    target: str
    tls: bool = False

    def __str__(self) -> str:
        return f"https://{self.target}" if self.tls else self.target


def parse(text: str) -> Address:
    """Return the address that is written as `host`, `host:port`, `http://host:port` or `https://host:port`.

    An IPv6 address stands in brackets. `https` means TLS; the port is 5555 unless it is given, whatever the scheme.
    Raises InvalidArgumentError for anything else; gRPC itself would take it for a name and wait for an answer.
    """
    if not isinstance(text, str):
        raise InvalidArgumentError(f"an address is text such as {DEFAULT_ADDRESS!r}, not {text!r}")
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        raise InvalidArgumentError(
            f"{text!r} is no address: write host:port, or https://host:port for TLS"
            + ("; an IPv6 address stands in brackets, as in [::1]:5555" if text.count(":") > 2 else "")
        )
    port = int(match["port"] or DEFAULT_PORT)
    if not 0 < port <= 65_535:
        raise InvalidArgumentError(f"the port of {text!r} is not in 1 to 65,535")
    return Address(f"{match['host']}:{port}", tls=(match["scheme"] or "").lower() == "https")
