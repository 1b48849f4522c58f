"""The command line over TLS: a broker behind a proxy that ends it, and the authority that is named for it."""

import asyncio
import json
import os
import sys

from tests.integration.server_process import ServerProcess
from tests.integration.tls_proxy import Certificate, tls_proxy

# Far beyond what a command takes.
TIMEOUT_S = 60


async def fila(*arguments, **environment):
    """Run a command while the proxy serves in this process; return exit code, output and errors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "fila",
        *arguments,
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(TIMEOUT_S):
        output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()


def test_authority_is_named_by_option_or_environment(tmp_path):
    """With it all commands work; without, or with another, the sentence says that the certificate is the reason."""
    certificate, other = Certificate(tmp_path), Certificate(tmp_path, "other")

    async def try_all(address):
        async with tls_proxy(certificate, address) as proxy:
            created = await fila(
                "queue", "create", "orders", "--addr", proxy.address, "--ca-file", str(certificate.path)
            )
            trusted = {"FILA_ADDR": proxy.address, "FILA_CA_FILE": str(certificate.path)}
            put = await fila("enqueue", "orders", "hello", **trusted)
            printed = await fila("consume", "orders", "--ack", **trusted)
            examined = await fila("doctor", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", **trusted)
            distrusted = await fila("queue", "list", FILA_ADDR=proxy.address)
            wrong = await fila("queue", "list", FILA_ADDR=proxy.address, FILA_CA_FILE=str(other.path))
            return created, put, printed, examined, distrusted, wrong

    with ServerProcess(tmp_path / "broker") as server:
        created, put, printed, examined, distrusted, wrong = asyncio.run(
            try_all(server.wait_until_ready().address)
        )

    assert created[0] == 0
    assert "id" in json.loads(put[1])
    assert printed == (0, "hello\n", "")
    assert json.loads(examined[1])["checks"][-1]["mark"] == "ok"
    for code, output, errors in (distrusted, wrong):
        assert (code, output) == (6, "")
        assert len(errors.splitlines()) == 1
        assert "certificate" in errors


def test_authority_without_tls_is_refused(tmp_path):
    """Whoever names an authority believes in encryption."""
    certificate = Certificate(tmp_path)

    code, output, errors = asyncio.run(
        fila("queue", "list", "--addr", "localhost:1", "--ca-file", str(certificate.path))
    )

    assert (code, output) == (2, "")
    assert "without TLS" in errors


def test_authority_that_cannot_be_read_is_refused(tmp_path):
    """It is named, and no broker is asked."""
    code, _, errors = asyncio.run(
        fila("queue", "list", "--addr", "https://localhost:1", "--ca-file", str(tmp_path / "none.pem"))
    )

    assert code == 2
    assert "none.pem" in errors
