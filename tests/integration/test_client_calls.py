"""The rules of a call: what is repeated, what is not, and until when. A server of the test's own answers as the test says."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc import aio

from fila import AsyncClient, NewMessage
from fila.errors import (
    ClosedError,
    Code,
    InvalidArgumentError,
    LimitError,
    OutcomeUnknownError,
    QueueExistsError,
    RPCError,
    UnavailableError,
)
from fila.wire.status import NOT_DONE_KEY
from fila.wire.v1 import admin_pb2, admin_pb2_grpc, service_pb2, service_pb2_grpc

UNAVAILABLE, EXHAUSTED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED
NOT_DONE = ((NOT_DONE_KEY, "1"),)


class Script(service_pb2_grpc.FilaServiceServicer, admin_pb2_grpc.FilaAdminServicer):
    """Answers each call as its list of answers says; after its end, well."""

    def __init__(self):
        self.answers = []
        self.calls = 0

    async def _answer(self, context):
        self.calls += 1
        if self.answers:
            answer = self.answers.pop(0)
            if answer == "never":
                await asyncio.get_running_loop().create_future()
            status, trailers = answer
            await context.abort(status, "as the test said", trailers)

    async def Enqueue(self, request, context):  # noqa: N802 - the contract's name
        await self._answer(context)
        return service_pb2.EnqueueResponse(message_id="an-id")

    async def ListQueues(self, request, context):  # noqa: N802 - the contract's name
        await self._answer(context)
        return admin_pb2.ListQueuesResponse()

    async def EnqueueBatch(self, request, context):  # noqa: N802 - the contract's name
        await self._answer(context)
        return service_pb2.EnqueueBatchResponse(
            results=[
                service_pb2.EnqueueResult(
                    error_code=Code.UNAVAILABLE,
                    error="as the test said",
                    not_taken=message.payload == b"not taken",
                )
                for message in request.messages
            ]
        )

    async def Subscribe(self, requests, context):  # noqa: N802 - the contract's name
        self.calls += 1
        await asyncio.get_running_loop().create_future()
        yield service_pb2.SubscribeResponse()

    async def Ack(self, request, context):  # noqa: N802 - the contract's name
        await self._answer(context)
        return service_pb2.AckResponse()


@asynccontextmanager
async def serving(script, address="127.0.0.1:0"):
    server = aio.server(options=[("grpc.so_reuseport", 0)])
    service_pb2_grpc.add_FilaServiceServicer_to_server(script, server)
    admin_pb2_grpc.add_FilaAdminServicer_to_server(script, server)
    port = server.add_insecure_port(address)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def with_script(**options):
    """Run a test with a script and a client that it has answered once."""

    def decorate(body):
        def test():
            async def run():
                script = Script()
                async with (
                    asyncio.timeout(20),
                    serving(script) as address,
                    AsyncClient(address, **options) as client,
                ):
                    await client.list_queues()
                    script.calls = 0
                    await body(client, script)

            asyncio.run(run())

        test.__name__, test.__doc__ = body.__name__, body.__doc__
        return test

    return decorate


@with_script()
async def test_call_that_may_be_repeated_is_repeated(client, script):
    """A broker that is away for a moment is a pause."""
    script.answers = [(UNAVAILABLE, ()), (UNAVAILABLE, ())]

    assert await client.list_queues() == []

    assert script.calls == 3


@with_script()
async def test_enqueue_is_not_repeated_when_its_outcome_is_unknown(client, script):
    """It might be there twice. The error says so, and that it may be there."""
    script.answers = [(UNAVAILABLE, ())]

    with pytest.raises(OutcomeUnknownError, match="may be done or not") as caught:
        await client.enqueue("orders", None, b"x")

    assert script.calls == 1
    assert not caught.value.retryable


@with_script()
async def test_enqueue_that_certainly_had_no_effect_is_repeated(client, script):
    """The broker's own word for it."""
    script.answers = [(UNAVAILABLE, NOT_DONE), (UNAVAILABLE, NOT_DONE)]

    assert await client.enqueue("orders", None, b"x") == "an-id"

    assert script.calls == 3


@with_script()
async def test_message_of_a_batch_says_whether_it_is_in_doubt(client, script):
    """Where the broker does not say that it was not taken, it may not be sent again as it is."""
    first, second = await client.enqueue_batch("orders", [NewMessage(b"not taken"), NewMessage(b"perhaps")])

    assert (type(first.error), first.error.not_done) == (UnavailableError, True)
    assert (type(second.error), second.error.retryable) == (OutcomeUnknownError, False)


@with_script()
async def test_refusal_is_raised_and_not_repeated(client, script):
    """Only a connection is waited for: a limit, a mistake and a refusal are the caller's to know."""
    for status, kind in [
        (EXHAUSTED, LimitError),
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidArgumentError),
        (grpc.StatusCode.ALREADY_EXISTS, QueueExistsError),
        (grpc.StatusCode.INTERNAL, RPCError),
    ]:
        script.answers, script.calls = [(status, ())], 0

        with pytest.raises(kind, match="as the test said"):
            await client.list_queues()

        assert script.calls == 1


@with_script(timeout_seconds=0.3)
async def test_repeated_call_ends_within_its_deadline(client, script):
    """With the last reason, however often it was tried."""
    script.answers = [(UNAVAILABLE, ())] * 100
    began = asyncio.get_running_loop().time()

    with pytest.raises(UnavailableError, match="as the test said"):
        await client.list_queues()

    assert asyncio.get_running_loop().time() - began < 1
    assert 2 <= script.calls < 10


@with_script(timeout_seconds=0.3)
async def test_call_without_an_answer_ends_at_its_deadline(client, script):
    """What may be repeated has run out of time; of what may not, nobody knows the outcome."""
    script.answers = ["never", "never"]

    with pytest.raises(RPCError) as caught:
        await client.list_queues()
    with pytest.raises(OutcomeUnknownError):
        await client.enqueue("orders", None, b"x")

    assert caught.value.code is Code.DEADLINE_EXCEEDED


@with_script(reconnect_seconds=0)
async def test_client_that_does_not_reconnect_does_not_repeat(client, script):
    """Its user wants to know at once."""
    script.answers = [(UNAVAILABLE, ())]

    with pytest.raises(UnavailableError, match="as the test said"):
        await client.list_queues()

    assert script.calls == 1


def test_broker_that_never_answered_is_not_waited_for():
    """It is more likely a wrong address than a restart; what was not sent is not in doubt."""

    async def run():
        script = Script()
        async with serving(script) as address:
            pass
        async with asyncio.timeout(20), AsyncClient(address) as client:
            for call in (client.list_queues(), client.enqueue("orders", None, b"x")):
                with pytest.raises(UnavailableError, match="no broker answers at") as caught:
                    await call
                assert (type(caught.value), caught.value.not_done) == (UnavailableError, True)

    asyncio.run(run())


def test_name_that_nobody_knows_is_not_in_doubt():
    """Nothing was sent; nor is there anything to wait for."""

    async def run():
        async with asyncio.timeout(20), AsyncClient("no-such-host.invalid:5555") as client:
            with pytest.raises(UnavailableError) as caught:
                await client.enqueue("orders", None, b"x")
            assert (type(caught.value), caught.value.not_done) == (UnavailableError, True)

    asyncio.run(run())


def test_first_enqueue_is_in_doubt_when_its_answer_is_lost():
    """It was sent: that the client had no answer before does not make it safe to repeat."""

    async def run():
        script = Script()
        script.answers = [(UNAVAILABLE, ())]
        async with asyncio.timeout(20), serving(script) as address, AsyncClient(address) as client:
            with pytest.raises(OutcomeUnknownError):
                await client.enqueue("orders", None, b"x")

    asyncio.run(run())


def test_broker_that_has_answered_is_waited_for():
    """Also by a call that is not repeated: it is sent when there is somebody to send it to."""

    async def run():
        script = Script()
        async with serving(script) as address:
            client = AsyncClient(address, timeout_seconds=10)
            await client.list_queues()
        waiting = [
            asyncio.ensure_future(client.list_queues()),
            asyncio.ensure_future(client.enqueue("orders", None, b"x")),
        ]
        await asyncio.sleep(0)
        async with asyncio.timeout(20), serving(script, address):
            assert await asyncio.gather(*waiting) == [[], "an-id"]
            await client.close()

    asyncio.run(run())


def test_patience_ends_with_a_word_about_the_broker():
    """Whether the client's or the call's: nothing was sent, so nothing is in doubt."""

    async def run():
        script = Script()
        for options in ({"reconnect_seconds": 0.2}, {"timeout_seconds": 0.2}):
            async with serving(script) as address:
                client = AsyncClient(address, **options)
                await client.list_queues()
            for call in (client.list_queues(), client.enqueue("orders", None, b"x")):
                with pytest.raises(UnavailableError, match="did not come back within") as caught:
                    await call
                assert (type(caught.value), caught.value.not_done) == (UnavailableError, True)
            await client.close()

    asyncio.run(run())


def test_closing_ends_whoever_waits_for_the_broker():
    """With a word, and at once."""

    async def run():
        script = Script()
        async with serving(script) as address:
            client = AsyncClient(address)
            await client.list_queues()
        # What is sent into a connection that is just lost is in doubt, and not what waits for the next.
        while client._connection._open().get_state() is grpc.ChannelConnectivity.READY:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        waiting = [asyncio.ensure_future(client.list_queues()) for _ in range(2)]
        consumer = client.consume("orders")
        waiting.append(asyncio.ensure_future(client.enqueue("orders", None, b"x")))
        while not any(task.get_coro().cr_await is not None for task in waiting):  # noqa: ASYNC110 - until they wait
            await asyncio.sleep(0)

        async with asyncio.timeout(5):
            await client.close()
            ends = await asyncio.gather(*waiting, return_exceptions=True)

        assert [type(end) for end in ends] == [ClosedError] * 3
        with pytest.raises(ClosedError, match="closed"):
            await anext(consumer)

    asyncio.run(run())


def test_closing_ends_whoever_waits_for_a_stream():
    """Also where the broker says nothing on it: it is closed here, and another try with this client is in vain."""

    async def subscribe(client):
        return await client.consume("orders")

    async def run():
        script = Script()
        async with asyncio.timeout(20), serving(script) as address:
            client = AsyncClient(address, timeout_seconds=0.2)
            subscribed = asyncio.ensure_future(subscribe(client))
            while not script.calls:  # noqa: ASYNC110 - until the stream is open
                await asyncio.sleep(0.001)

            await client.close()

            with pytest.raises(ClosedError, match="closed"):
                await subscribed

    asyncio.run(run())


@with_script()
async def test_call_that_a_stopping_broker_cancels_is_a_lost_one(client, script):
    """It had no time left for it: what may be said twice is said again, and of the rest the outcome is unknown."""
    cancelled = (grpc.StatusCode.CANCELLED, ())
    script.answers = [cancelled, cancelled]
    await client.list_queues()
    assert script.calls == 3

    script.answers = [cancelled]
    with pytest.raises(OutcomeUnknownError):
        await client.enqueue("orders", None, b"x")
    assert script.calls == 4
