"""A proxy that ends TLS before a broker, as one stands before it in production, and certificates for it."""

import asyncio
import shutil
import ssl
import subprocess
from contextlib import asynccontextmanager, suppress

import pytest


class Certificate:
    """A certificate that signs itself, so that it is its own authority, made by the `openssl` command."""

    def __init__(self, directory, name="localhost"):
        if shutil.which("openssl") is None:
            pytest.skip("there is no openssl command to make a certificate with")
        self.path, self._key_path = directory / f"{name}.pem", directory / f"{name}.key"
        command = ["openssl", "req", "-x509", "-nodes", "-days", "1", "-subj", f"/CN={name}"]
        command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        command += ["-addext", f"subjectAltName=DNS:{name}", "-keyout", self._key_path, "-out", self.path]
        subprocess.run(command, check=True, capture_output=True)

    def server_context(self, *protocols):
        """Return what a server needs to show the certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path, self._key_path)
        context.set_alpn_protocols(list(protocols))
        return context


async def pump(reader, writer):
    """Pass on bytes until one end closes."""
    with suppress(OSError, ssl.SSLError):
        while chunk := await reader.read(64 * 1024):
            writer.write(chunk)
            await writer.drain()
    writer.close()


class Proxy:
    """A proxy that listens at `address`."""

    def __init__(self, address):
        self.address = address
        self._writers = []

    def hold(self, *writers):
        self._writers += writers

    def cut(self):
        """End all connections at once; new ones are taken."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


@asynccontextmanager
async def tls_proxy(certificate, broker_address, protocols=("h2",)):
    """Listen on a free port with TLS, pass everything on to a broker, and yield the Proxy, with an `https://` address."""
    host, _, port = broker_address.rpartition(":")

    async def serve(reader, writer):
        broker_reader, broker_writer = await asyncio.open_connection(host, int(port))
        proxy.hold(writer, broker_writer)
        await asyncio.gather(pump(reader, broker_writer), pump(broker_reader, writer))

    context = certificate.server_context(*protocols)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    proxy = Proxy(f"https://localhost:{server.sockets[0].getsockname()[1]}")
    async with server:
        yield proxy
        proxy.cut()
