"""Why an encrypted connection did not come about: gRPC's account of it, as a sentence with a remedy."""

import re
from urllib.parse import unquote

# Signs in gRPC's account, the more exact ones first, and what they mean.
_SENTENCES = (
    ("certificate has expired", "the certificate of {peer} has expired: renew it there"),
    ("certificate is not yet valid", "the certificate of {peer} is not valid yet: compare the clocks"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "the certificate of {peer} is not from an authority that is trusted: name that authority's as ca_file",
    ),
    (
        "Hostname Verification Check failed",
        "the certificate of {peer} is for another name than that in the address: write the name that it was made for",
    ),
    (
        "missing selected ALPN",
        '{peer} speaks TLS but not HTTP/2: let it offer "h2", or correct the port',
    ),
    (
        "WRONG_VERSION_NUMBER",
        "{peer} does not speak TLS: write http:// in place of https://, or correct the port",
    ),
    (
        "Handshake read failed",
        "{peer} ended the connection before it was encrypted: if there is no TLS, write http:// in place of https://",
    ),
    # What is left are refusals of the other end, such as one that demands a certificate of ours.
    ("Tls handshake failed", "no encrypted connection to {peer} came about: see the log there"),
)
_PEER = re.compile(r"\bipv[46]:(\S+?): ")


def sentence_of(details: str) -> str | None:
    """Return what the details of a failed call say of the TLS handshake, None if they are about something else."""
    for sign, sentence in _SENTENCES:
        if sign in details:
            match = _PEER.search(details)
            return sentence.format(peer=unquote(match[1]) if match else "the broker")
    return None
