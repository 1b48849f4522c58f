"""How a Subscribe stream ends, with the broker and the call played by the test: no race decides here."""

import asyncio
from types import SimpleNamespace
from unittest.mock import patch

import grpc
import pytest

from fila import limits
from fila.core.commands import Attach, Detach, SettleRuns, Stop
from fila.core.model import Runs
from fila.core.outcome import Attached
from fila.errors import UnavailableError
from fila.server.streams import Streams
from fila.server.subscribe import subscribe_handler
from fila.wire.v1.messages_pb2 import LeaseRuns
from fila.wire.v1.service_pb2 import SubscribeRequest, SubscribeResponse

FIRST = SubscribeRequest(queue="q", credit_messages=1, credit_bytes=1)
ACK = SubscribeRequest(sequence=1, ack=LeaseRuns(epochs=[5]))


class FakeBroker:
    """Answers what it is told to answer, when it is told to."""

    recovered = SimpleNamespace(incarnation=1)

    def __init__(self):
        self.commands = []
        self._replies = {}
        self._requests = 0

    def expect(self, reply):
        self._requests += 1
        self._replies[self._requests] = reply
        return self._requests

    def submit(self, command, bodies=b""):
        self.commands.append(command)
        if isinstance(command, Attach):
            self.answer(command, Attached(1, 30_000))

    def answer(self, command, value):
        self._replies.pop(command.request)(value)

    async def ask(self, build):
        future = asyncio.get_running_loop().create_future()
        self.submit(build(self.expect(future.set_result)))
        return await future

    def open_consumer(self, sink):
        self.sink = sink
        return 7

    def close_consumer(self, consumer):
        self.sink = None

    async def room(self):
        pass

    def the(self, kind):
        (command,) = [command for command in self.commands if type(command) is kind]
        return command


class FakeCall:
    """A call whose frames come from a list, and whose writes wait for permission; `end` ends the client's side."""

    def __init__(self, *requests):
        self._frames = [request.SerializeToString() for request in requests]
        self.end = asyncio.Event()
        self.end.set()
        self.written = []
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.ended = None

    async def read(self):
        if self._frames:
            return self._frames.pop(0)
        await self.end.wait()
        return grpc.aio.EOF

    async def write(self, frame):
        await self.may_write.wait()
        self.written.append(SubscribeResponse.FromString(frame))

    async def abort(self, code, details, trailing_metadata=()):
        self.ended = code
        raise grpc.aio.AbortError


async def settle_down():
    """Let everything happen that can happen without anybody's doing."""
    for _ in range(20):
        await asyncio.sleep(0)


def begin(*requests, ends=True):
    broker, call, streams = FakeBroker(), FakeCall(*requests), Streams()
    if not ends:
        call.end.clear()
    handler = subscribe_handler(broker, streams)
    return broker, call, streams, asyncio.ensure_future(handler.stream_stream(None, call))


def on_a_loop(test):
    """Run a coroutine test on a loop of its own."""

    def run():
        asyncio.run(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@on_a_loop
async def test_end_that_takes_no_answer_is_a_broken_stream():
    """A call that was broken off reads as ended before it is cancelled: until an answer is written nothing is released."""
    broker, call, _, serving = begin(FIRST, ACK)
    await settle_down()
    call.may_write.clear()
    broker.answer(broker.the(SettleRuns), Runs((), (), ()))
    await settle_down()
    assert not any(isinstance(command, Detach) for command in broker.commands)

    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)

    assert broker.the(Detach).lost


@on_a_loop
async def test_end_that_takes_an_answer_releases():
    """A client that ends its side gets the last confirmation, then its leases go back, then the stream ends well."""
    broker, call, _, serving = begin(FIRST)
    await settle_down()

    detach = broker.the(Detach)
    assert not detach.lost
    assert not detach.keep
    assert not serving.done()
    broker.answer(detach, None)
    await serving

    assert call.written[-1].HasField("settled")
    assert call.ended is None


@on_a_loop
async def test_end_waits_until_all_is_durable():
    """Leases are not given back, and the stream does not end, while an ack is on its way to the disk."""
    broker, call, _, serving = begin(FIRST, ACK)
    await settle_down()
    assert not any(isinstance(command, Detach) for command in broker.commands)

    broker.answer(broker.the(SettleRuns), Runs((), (), ()))
    await settle_down()
    broker.answer(broker.the(Detach), None)
    await serving

    assert call.written[-1].settled.sequence == 1
    assert call.ended is None


@on_a_loop
async def test_stop_is_said_once_and_waits_for_the_client_to_end_its_side():
    """A stopping server says so, takes the credit away, reads on, and leaves only when all is confirmed; what is begun is kept."""
    broker, call, streams, serving = begin(FIRST, ACK, ends=False)
    await settle_down()

    streams.stop()
    await settle_down()
    assert [response.stopping for response in call.written] == [False, True]
    assert broker.the(Stop) == Stop(7, 0)
    assert not any(isinstance(command, Detach) for command in broker.commands)

    call.end.set()
    await settle_down()
    assert not any(isinstance(command, Detach) for command in broker.commands)
    broker.answer(broker.the(SettleRuns), Runs((), (), ()))
    await settle_down()
    detach = broker.the(Detach)
    assert (detach.lost, detach.keep, detach.keep_begun) == (False, False, True)
    broker.answer(detach, None)
    await asyncio.gather(serving, return_exceptions=True)

    assert call.written[-1].settled.sequence == 1
    assert call.ended is grpc.StatusCode.UNAVAILABLE


@on_a_loop
async def test_stop_cuts_a_client_that_does_not_end_its_side():
    """After its time the stream ends without the client; what it settled before is confirmed all the same."""
    broker, call, streams, serving = begin(FIRST, ACK, ends=False)
    await settle_down()
    with patch.object(limits, "SUBSCRIBE_STOP_GRACE_MS", 0):
        streams.stop()
    while not any(isinstance(command, Detach) for command in broker.commands):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)

    detach = broker.the(Detach)
    assert (detach.lost, detach.keep_begun) == (False, True)
    broker.answer(broker.the(SettleRuns), Runs((), (), ()))
    broker.answer(detach, None)
    await asyncio.gather(serving, return_exceptions=True)

    assert call.written[-1].settled.sequence == 1
    assert call.ended is grpc.StatusCode.UNAVAILABLE


@on_a_loop
async def test_stop_loses_nobody_who_breaks_off():
    """A stream that breaks while the server stops is no attempt: what is begun is kept, as for all others."""
    broker, _, streams, serving = begin(FIRST, ends=False)
    await settle_down()
    streams.stop()
    await settle_down()

    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)

    detach = broker.the(Detach)
    assert (detach.lost, detach.keep_begun) == (False, True)


@on_a_loop
async def test_stop_leaves_a_stream_alone_that_ends_already():
    """A client that has ended its side before gives everything back, and its stream ends well."""
    broker, call, streams, serving = begin(FIRST, ACK)
    await settle_down()

    streams.stop()
    broker.answer(broker.the(SettleRuns), Runs((), (), ()))
    await settle_down()
    detach = broker.the(Detach)
    assert (detach.lost, detach.keep, detach.keep_begun) == (False, False, False)
    broker.answer(detach, None)
    await serving

    assert not any(response.stopping for response in call.written)
    assert call.ended is None


@on_a_loop
async def test_failed_store_confirms_nothing():
    """An ack of which the outcome is unknown is not confirmed, and not listed as refused: the stream fails."""
    broker, call, _, serving = begin(FIRST, ACK)
    await settle_down()

    broker.answer(broker.the(SettleRuns), UnavailableError("the outcome is unknown"))
    await settle_down()
    broker.answer(broker.the(Detach), None)
    await asyncio.gather(serving, return_exceptions=True)

    assert call.ended is grpc.StatusCode.UNAVAILABLE
    assert all(not response.settled.sequence for response in call.written)


@pytest.mark.parametrize("lost", [True, False])
def test_consumer_that_has_left_twice_has_left_once(lost):
    """The first word counts: a stream that ends well and is then cancelled has ended well."""
    from fila.server.consumer import Consumer

    async def leave_twice():
        broker = FakeBroker()
        consumer = Consumer(broker, "q", asyncio.Event())
        await consumer.attach(credit_messages=1, credit_bytes=1)
        consumer.leave(lost=lost)
        consumer.leave(lost=not lost)
        return broker.the(Detach)

    assert asyncio.run(leave_twice()).lost is lost
