"""What the client says when it reaches no broker: the address, the cause and the remedy, with real sockets on the other side."""

import asyncio
import http.server
import socket
import threading
import traceback
from contextlib import contextmanager

import grpc
import pytest
from click.testing import CliRunner
from grpc import aio
from tests.integration.faces import FACES, client_of

from fila import AsyncClient
from fila.cli.main import main
from fila.errors import Absence, Code, OutcomeUnknownError, RPCError, UnavailableError


@contextmanager
def closed_port():
    """A port where nobody listens: it is bound, so that nobody else gets it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@contextmanager
def silent_port():
    """A port where somebody listens and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@contextmanager
def hanging_up_port():
    """A port where every connection is ended at once, as by a proxy without its broker."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def hang_up():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connection.recv(10)
                connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


class Quiet(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_arguments):
        pass


@contextmanager
def web_port():
    """A port with a web server."""
    with http.server.HTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


ABSENT = [
    (
        closed_port,
        Absence.NOBODY,
        "no broker answers at localhost:{port}: start one with `fila server`, or correct the address",
    ),
    (
        web_port,
        Absence.NO_BROKER,
        "what answers at localhost:{port} does not speak gRPC: correct the address, or write https:// before it if there is TLS",
    ),
    (
        hanging_up_port,
        Absence.NO_BROKER,
        "what listens at localhost:{port} ended the connection at once: correct the address, or write https:// before it if there is TLS",
    ),
]


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(("port", "absence", "sentence"), ABSENT)
def test_whoever_reaches_no_broker_is_told_where_and_what_to_do(face, port, absence, sentence):
    """Not in the words of gRPC, and as something that was certainly not done, also where it may not be repeated."""

    async def run(address, expected):
        async with asyncio.timeout(20), client_of(face, address) as client:
            for call in (client.list_queues(), client.enqueue("orders", None, b"x")):
                with pytest.raises(UnavailableError) as caught:
                    await call
                error = caught.value
                assert (type(error), error.message) == (UnavailableError, expected)
                assert (error.not_done, error.absence) == (True, absence)

    with port() as number:
        asyncio.run(run(f"localhost:{number}", sentence.format(port=number)))


def test_port_that_says_nothing_is_told_from_one_where_nobody_is():
    """The attempt takes its time; then the sentence says that somebody is there."""

    async def run(address):
        async with asyncio.timeout(20), AsyncClient(address) as client:
            with pytest.raises(UnavailableError, match=f"what listens at {address} says nothing: correct"):
                await client.list_queues()

    with silent_port() as number:
        asyncio.run(run(f"127.0.0.1:{number}"))


def test_name_that_does_not_resolve_is_named():
    """The remedy is another than for a broker that is not running."""

    async def run():
        async with asyncio.timeout(20), AsyncClient("no-such-host.invalid:5901") as client:
            with pytest.raises(UnavailableError) as caught:
                await client.list_queues()
            assert caught.value.message == (
                "the name 'no-such-host.invalid' does not resolve: "
                "correct the address no-such-host.invalid:5901, or see to the name service"
            )
            assert caught.value.absence is Absence.NO_NAME

    asyncio.run(run())


def test_other_grpc_server_is_no_broker():
    """It answers each call with a word of gRPC's own."""

    async def run():
        server = aio.server()
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with asyncio.timeout(20), AsyncClient(f"127.0.0.1:{port}") as client:
            with pytest.raises(
                RPCError, match=f"what answers at 127.0.0.1:{port} is no fila broker"
            ) as caught:
                await client.list_queues()
            assert caught.value.code is Code.UNIMPLEMENTED
        await server.stop(None)

    asyncio.run(run())


def test_call_that_takes_too_long_names_itself():
    """The address, the call, how long it waited and what to do; of what may not be repeated, that it is in doubt."""

    async def never(_request, _context):
        await asyncio.get_running_loop().create_future()

    class All(grpc.GenericRpcHandler):
        def service(self, _details):
            return grpc.unary_unary_rpc_method_handler(never)

    async def run():
        server = aio.server()
        server.add_generic_rpc_handlers((All(),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with asyncio.timeout(20), AsyncClient(f"127.0.0.1:{port}", timeout_seconds=0.2) as client:
            late = f"the broker at 127.0.0.1:{port} did not answer {{}} within 0.2 seconds: give the client a longer timeout_seconds"
            with pytest.raises(RPCError, match=late.format("ListQueues")) as caught:
                await client.list_queues()
            assert caught.value.code is Code.DEADLINE_EXCEEDED
            with pytest.raises(OutcomeUnknownError, match=late.format("Enqueue")):
                await client.enqueue("orders", None, b"x")
        await server.stop(None)

    asyncio.run(run())


def test_traceback_of_an_absent_broker_is_short():
    """What users see first has our sentence, and nothing of gRPC's."""

    async def run(address):
        async with asyncio.timeout(20), AsyncClient(address) as client:
            with pytest.raises(UnavailableError) as caught:
                await client.list_queues()
            return "".join(traceback.format_exception(caught.value))

    with closed_port() as number:
        text = asyncio.run(run(f"127.0.0.1:{number}"))

    assert "During handling" not in text
    assert "direct cause" not in text
    assert "AioRpcError" not in text


@pytest.mark.parametrize("face", FACES)
def test_producer_without_a_broker_has_sent_nothing(face):
    """No connection came about, so that nothing is in doubt: receipt, flush and the next send say so."""

    async def run(address):
        async with asyncio.timeout(20), client_of(face, address) as client:
            producer = client.producer("orders")
            receipt = producer.send(b"x")
            for failing in (receipt, producer.flush()):
                with pytest.raises(UnavailableError, match=f"no broker answers at {address}") as caught:
                    await failing
                assert caught.value.not_done
            with pytest.raises(UnavailableError, match=f"no broker answers at {address}"):
                producer.send(b"y")

    with closed_port() as number:
        asyncio.run(run(f"127.0.0.1:{number}"))


@pytest.mark.parametrize("face", FACES)
def test_consumer_without_a_broker_is_told(face):
    """The loop ends with the same sentence."""

    async def run(address):
        async with asyncio.timeout(20), client_of(face, address) as client:
            with pytest.raises(UnavailableError, match=f"no broker answers at {address}"):
                await anext(client.consume("orders"))

    with closed_port() as number:
        asyncio.run(run(f"127.0.0.1:{number}"))


@pytest.mark.parametrize(
    ("port", "sentence"),
    [
        (
            closed_port,
            "No broker answers at 127.0.0.1:{port}: start one with `fila server --listen 127.0.0.1:{port}`",
        ),
        (web_port, "Error: what answers at 127.0.0.1:{port} does not speak gRPC"),
        (hanging_up_port, "Error: what listens at 127.0.0.1:{port} ended the connection at once"),
    ],
)
def test_command_without_a_broker_says_why_in_one_sentence(port, sentence):
    """With the exit code of a broker that is not there."""
    with port() as number:
        finished = CliRunner().invoke(main, ["queue", "list", "--addr", f"127.0.0.1:{number}"])

    (line,) = finished.stderr.splitlines()
    assert line.startswith(sentence.format(port=number))
    assert "--addr" in line
    assert finished.exit_code == 6


def test_command_with_a_name_that_does_not_resolve_says_so():
    """It does not advise to start a broker there."""
    finished = CliRunner().invoke(main, ["queue", "list", "--addr", "no-such-host.invalid"])

    assert finished.exit_code == 6
    assert finished.stderr == (
        "Error: the name 'no-such-host.invalid' does not resolve: correct the address no-such-host.invalid:5555, "
        "or see to the name service; --addr says where the broker is.\n"
    )
