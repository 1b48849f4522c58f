"""What people write as a broker's address."""

import pytest

from fila.client.address import Address, parse
from fila.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "target", "tls"),
    [
        ("broker", "broker:5555", False),
        ("broker:1", "broker:1", False),
        ("  broker-1.internal:65535 ", "broker-1.internal:65535", False),
        ("127.0.0.1:5555", "127.0.0.1:5555", False),
        ("http://broker", "broker:5555", False),
        ("http://broker:80/", "broker:80", False),
        ("https://broker", "broker:5555", True),
        ("https://broker:443", "broker:443", True),
        ("HTTPS://broker:443/", "broker:443", True),
        ("[::1]", "[::1]:5555", False),
        ("[::1]:1", "[::1]:1", False),
        ("[fe80::1%eth0]:1", "[fe80::1%eth0]:1", False),
        ("https://[2001:db8::7]:443", "[2001:db8::7]:443", True),
    ],
)
def test_every_way_to_write_an_address_gives_host_port_and_tls(text, target, tls):
    """Bare names, ports, both schemes and IPv6 in brackets; https changes the connection, never the port."""
    assert parse(text) == Address(target, tls)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ":5555",
        "http://",
        "https://:5555",
        "broker:",
        "broker:0",
        "broker:65536",
        "broker:port",
        "broker:5555/path",
        "https://broker/fila",
        "ftp://broker",
        "dns:///broker:5555",
        "unix:/run/fila.sock",
        "user@broker:5555",
        "broker 1:5555",
        "::1",
        "fe80::1:5555",
        "[::1",
        "broker:5555?tls=1",
    ],
)
def test_what_is_no_address_is_refused_by_name(text):
    """A resolver would look it up, and wait for somebody to answer."""
    with pytest.raises(InvalidArgumentError) as raised:
        parse(text)

    assert repr(text) in raised.value.message


def test_bare_ipv6_address_is_told_of_brackets():
    """Its last colon may be part of the address or stand before a port."""
    with pytest.raises(InvalidArgumentError, match=r"\[::1\]:5555"):
        parse("fe80::1:5555")


@pytest.mark.parametrize("value", [None, 5555, b"broker:5555", ("broker", 5555)])
def test_address_that_is_no_text_is_an_error_of_ours(value):
    """Whoever catches FilaError catches this too."""
    with pytest.raises(InvalidArgumentError, match="an address is text"):
        parse(value)


@pytest.mark.parametrize("text", ["broker:5555", "https://broker:5555", "https://[::1]:443"])
def test_address_is_shown_so_that_it_can_be_written_again(text):
    """Messages name the address as somebody could type it."""
    assert str(parse(text)) == text
