"""What gRPC says when encryption fails, and what people read. The details are gRPC's own, word for word."""

import pytest

from fila.wire.handshake import sentence_of

FAILED = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:34049: "
VERIFY = (
    FAILED + "Tls handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:1000007d:SSL routines:"
    "OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: "
)


@pytest.mark.parametrize(
    ("details", "words"),
    [
        (VERIFY + "self signed certificate: OK", ["127.0.0.1:34049", "authority", "ca_file"]),
        (VERIFY + "certificate has expired: OK", ["127.0.0.1:34049", "expired", "renew"]),
        (
            FAILED + "Custom verification check failed with error: UNAUTHENTICATED: "
            "Hostname Verification Check failed.",
            ["127.0.0.1:34049", "another name"],
        ),
        (FAILED + "Cannot check peer: missing selected ALPN property.", ["127.0.0.1:34049", "HTTP/2"]),
        (FAILED + "Handshake read failed (Socket closed)", ["127.0.0.1:34049", "http://"]),
        (
            "last error: UNAVAILABLE: ipv6:%5B::1%5D:443: Handshake read failed (Socket closed)",
            ["[::1]:443"],
        ),
    ],
)
def test_failed_handshake_says_what_is_wrong_and_what_to_do(details, words):
    """The other end is named, with a cause and a remedy."""
    sentence = sentence_of(details)

    assert sentence is not None
    assert [word for word in words if word not in sentence] == []


@pytest.mark.parametrize(
    "details",
    [
        FAILED + "connect endpoint failed (Failed to connect to remote host: Connection refused)",
        "Socket closed",
        "the broker is stopping",
        "",
    ],
)
def test_other_failures_are_left_as_they_are(details):
    """A broker that is not there has nothing to do with certificates."""
    assert sentence_of(details) is None
