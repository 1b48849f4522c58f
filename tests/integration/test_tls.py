"""Encrypted connections, against a real broker behind a proxy that ends TLS."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest
from tests.integration.tls_proxy import Certificate, tls_proxy

from fila import AsyncClient, Client, assembly
from fila.client.address import parse
from fila.client.channel import open_channel
from fila.config import ServerSettings, Settings, StorageSettings
from fila.errors import InvalidArgumentError, UnavailableError
from fila.wire.status import error_of_call
from fila.wire.v1 import admin_pb2
from fila.wire.v1.admin_pb2_grpc import FilaAdminStub

# Far beyond what a handshake takes.
TIMEOUT_S = 30


@asynccontextmanager
async def broker_in(directory):
    """Run a broker without TLS, and yield its address."""
    settings = Settings(
        server=ServerSettings(listen_addr="127.0.0.1:0"), storage=StorageSettings(data_dir=directory / "data")
    )
    async with assembly.running(settings) as broker:
        yield broker.address


def run_bounded(work):
    """Run a coroutine that does not wait for ever."""

    async def bounded():
        async with asyncio.timeout(TIMEOUT_S):
            return await work

    return asyncio.run(bounded())


async def ask(addr, **options):
    """Make one call over a channel, and return the names of all queues."""
    async with open_channel(parse(addr), **options) as channel:
        try:
            response = await FilaAdminStub(channel).ListQueues(
                admin_pb2.ListQueuesRequest(), timeout=TIMEOUT_S
            )
        except grpc.RpcError as error:
            raise error_of_call(error) from error
    return [queue.name for queue in response.queues]


def ask_through_proxy(directory, certificate, *, protocols=("h2",), **options):
    """Make one call to a broker behind a proxy that shows this certificate."""

    async def run():
        async with broker_in(directory) as broker, tls_proxy(certificate, broker, protocols) as proxy:
            return await ask(proxy.address, **options)

    return run_bounded(run())


@pytest.fixture
def certificate(tmp_path):
    return Certificate(tmp_path)


def test_https_with_its_authority_reaches_the_broker(tmp_path, certificate):
    """The whole way: a handshake, the broker behind it, and its answer."""
    assert ask_through_proxy(tmp_path, certificate, ca_file=certificate.path) == []


def test_authority_may_be_named_by_a_string(tmp_path, certificate):
    """Paths come from the environment and from flags as text."""
    assert ask_through_proxy(tmp_path, certificate, ca_file=str(certificate.path)) == []


def test_authorities_of_the_system_are_trusted_without_a_file(tmp_path, certificate, monkeypatch):
    """A company's own authority is among them, where the system says: in the file that OpenSSL is told of."""
    monkeypatch.delenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))

    assert ask_through_proxy(tmp_path, certificate) == []


def test_authorities_chosen_for_all_of_grpc_are_left_alone(tmp_path, certificate, monkeypatch):
    """That variable is gRPC's own, and whoever sets it means it: the system's are not asked."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))
    monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(Certificate(tmp_path, "other").path))

    with pytest.raises(UnavailableError, match="not from an authority that is trusted"):
        ask_through_proxy(tmp_path, certificate)


def test_certificate_of_another_authority_is_refused_with_a_remedy(tmp_path, certificate):
    """Whoever has the wrong file learns that it is the authority, not that the broker is away."""
    other = Certificate(tmp_path, "other")

    with pytest.raises(UnavailableError, match=r"not from an authority that is trusted.*ca_file"):
        ask_through_proxy(tmp_path, certificate, ca_file=other.path)


def test_certificate_of_an_unknown_authority_is_refused(tmp_path, certificate):
    """Without a file only the system's authorities count: encryption with anybody is no protection."""
    with pytest.raises(UnavailableError, match="not from an authority that is trusted"):
        ask_through_proxy(tmp_path, certificate)


def test_certificate_for_another_name_is_refused(tmp_path):
    """A good certificate of somebody else proves nothing."""
    other = Certificate(tmp_path, "broker.example")

    with pytest.raises(UnavailableError, match="another name"):
        ask_through_proxy(tmp_path, other, ca_file=other.path)


def test_proxy_without_http_2_is_named(tmp_path, certificate):
    """A web server on that port has TLS too."""
    with pytest.raises(UnavailableError, match="not HTTP/2"):
        ask_through_proxy(tmp_path, certificate, protocols=("http/1.1",), ca_file=certificate.path)


def test_https_to_a_broker_without_tls_says_so(tmp_path, certificate):
    """The broker itself does not do TLS: the address is wrong, and the sentence has the right one."""

    async def run():
        async with broker_in(tmp_path) as broker:
            return await ask(f"https://{broker}", ca_file=certificate.path)

    with pytest.raises(UnavailableError, match="http://"):
        asyncio.run(run())


# --- the whole client ---------------------------------------------------------------------------------


def test_client_does_everything_over_tls(tmp_path, certificate):
    """Calls and both kinds of streams go through the same channel."""

    async def run():
        async with (
            broker_in(tmp_path) as broker,
            tls_proxy(certificate, broker) as proxy,
            await AsyncClient.connect(proxy.address, ca_file=certificate.path) as client,
        ):
            await client.create_queue("orders")
            async with client.producer("orders") as producer:
                for number in range(100):
                    await producer.room()
                    producer.send(b"%d" % number)
            return await take(client, 100)

    assert run_bounded(run()) == list(range(100))


def test_client_without_asyncio_speaks_tls_too(tmp_path, certificate):
    """It has the same channel, with the same authority."""

    def call(addr):
        with Client(addr, ca_file=certificate.path) as client:
            client.create_queue("orders")
            return [queue.name for queue in client.list_queues()]

    async def run():
        async with broker_in(tmp_path) as broker, tls_proxy(certificate, broker) as proxy:
            return await asyncio.to_thread(call, proxy.address)

    assert run_bounded(run()) == ["orders"]


async def take(client, count):
    """Consume and ack so many messages, and return the numbers in them."""
    got = []
    async for message in client.consume("orders"):
        await message.ack()
        got.append(int(message.payload))
        if len(got) == count:
            break
    return got


@pytest.mark.parametrize("way", ["connect", "call", "produce", "consume"])
def test_client_with_the_wrong_authority_fails_at_its_first_contact(tmp_path, certificate, way):
    """A certificate that is not trusted is no pause to sit out: whatever comes first raises, with the sentence."""
    other = Certificate(tmp_path, "other")

    async def produce(client):
        async with client.producer("orders") as producer:
            await producer.send(b"x")

    async def run():
        async with broker_in(tmp_path) as broker, tls_proxy(certificate, broker) as proxy:
            if way == "connect":
                await AsyncClient.connect(proxy.address, ca_file=other.path)
            async with AsyncClient(proxy.address, ca_file=other.path) as client:
                first = {
                    "call": client.list_queues,
                    "produce": lambda: produce(client),
                    "consume": lambda: take(client, 1),
                }
                await first[way]()

    with pytest.raises(UnavailableError, match="not from an authority that is trusted"):
        run_bounded(run())


def test_client_sits_out_a_proxy_that_cuts_its_connections(tmp_path, certificate):
    """Encryption changes nothing about coming back: the second handshake is like the first."""

    async def run():
        async with (
            broker_in(tmp_path) as broker,
            tls_proxy(certificate, broker) as proxy,
            AsyncClient(proxy.address, ca_file=certificate.path) as client,
        ):
            await client.create_queue("orders")
            async with await client.consume("orders") as consumer:
                await client.enqueue("orders", payload=b"before")
                first = await anext(consumer)
                await first.ack().durable()

                proxy.cut()

                async with client.producer("orders") as producer:
                    await producer.send(b"after")
                second = await anext(consumer)
            return [first.payload, second.payload]

    assert run_bounded(run()) == [b"before", b"after"]


# --- what never gets as far as a connection ------------------------------------------------------------


def open_and_close(addr, ca_file):
    """Open a channel, which fails before anything is sent."""

    async def run():
        await open_channel(parse(addr), ca_file=ca_file).close()

    asyncio.run(run())


def test_authority_without_tls_is_refused(certificate):
    """Whoever names an authority expects encryption, and would not have it."""
    with pytest.raises(InvalidArgumentError, match="https://broker:5555"):
        open_and_close("broker", certificate.path)


@pytest.mark.parametrize("name", ["missing.pem", "."])
def test_authority_that_cannot_be_read_is_named(tmp_path, name):
    """The file, and the system's reason."""
    with pytest.raises(InvalidArgumentError, match=r"ca_file.*cannot be read") as raised:
        open_and_close("https://broker", tmp_path / name)

    assert str(tmp_path) in raised.value.message


@pytest.mark.parametrize(
    "text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"]
)
def test_file_without_a_certificate_is_refused(tmp_path, text):
    """The call itself would say so only at the first call, and not why."""
    path = tmp_path / "authority.pem"
    path.write_text(text)

    with pytest.raises(InvalidArgumentError, match="holds no certificate"):
        open_and_close("https://broker", path)


@pytest.mark.parametrize("value", [5, ["a.pem"], b"a\0b"])
def test_authority_that_is_no_path_is_an_error_of_ours(value):
    """Whoever catches FilaError catches this too."""
    with pytest.raises(InvalidArgumentError, match="ca_file"):
        open_and_close("https://broker", value)
