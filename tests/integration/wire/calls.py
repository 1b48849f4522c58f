"""The generated stubs, and what many tests say with them. Knows the contract and nothing of fila's own code."""

import asyncio
from collections import deque
from contextlib import asynccontextmanager

import grpc

from fila.wire.v1 import admin_pb2 as admin
from fila.wire.v1 import messages_pb2 as messages
from fila.wire.v1 import service_pb2 as service
from fila.wire.v1.admin_pb2_grpc import FilaAdminStub
from fila.wire.v1.service_pb2_grpc import FilaServiceStub

MUCH = {"credit_messages": 1_000, "credit_bytes": 8 << 20}


class Wire:
    """One server as its clients see it."""

    def __init__(self, address, channel, stack):
        self.address = address
        self.channel = channel
        self.service = FilaServiceStub(channel)
        self.admin = FilaAdminStub(channel)
        self._stack = stack

    async def another_channel(self, **options):
        """Return a connection of its own, so that breaking it breaks nothing else."""
        channel = grpc.aio.insecure_channel(
            self.address, options=[("grpc.use_local_subchannel_pool", 1), *options.items()]
        )
        return await self._stack.enter_async_context(channel)

    async def create(self, name="q", **config):
        return await self.admin.CreateQueue(
            admin.CreateQueueRequest(name=name, config=admin.QueueConfig(**config))
        )

    async def enqueue(self, payload=b"x", *, queue="q", **fields):
        return await self.service.Enqueue(service.EnqueueRequest(queue=queue, payload=payload, **fields))

    async def fill(self, count, *, queue="q", payload=b"x", **columns):
        """Append many small messages in one batch."""
        receipts = await self.produce(batch(1, [payload] * count, queue=queue, **columns))
        assert not receipts[0].error

    async def produce(self, *requests):
        """Send batches, end the stream, and return the receipts."""
        stream = self.service.Produce()
        for request in requests:
            await stream.write(request)
        await stream.done_writing()
        return [receipt async for receipt in stream]

    async def lease(self, count=1, *, queue="q", wait_ms=0):
        response = await self.service.Lease(
            service.LeaseRequest(queue=queue, max_messages=count, wait_ms=wait_ms)
        )
        return list(response.messages)

    async def ack(self, message_id, queue="q"):
        await self.service.Ack(service.AckRequest(queue=queue, message_id=message_id))

    async def delete_all(self):
        for info in (await self.admin.ListQueues(admin.ListQueuesRequest())).queues:
            await self.admin.DeleteQueue(admin.DeleteQueueRequest(queue=info.name))

    async def stats(self, queue="q"):
        return await self.admin.GetStats(admin.GetStatsRequest(queue=queue))

    async def until(self, *, queue="q", **expected):
        """Wait until the queue's figures are these."""
        while True:
            stats = await self.stats(queue)
            if all(getattr(stats, name) == value for name, value in expected.items()):
                return
            await asyncio.sleep(0)

    @asynccontextmanager
    async def subscribed(self, queue="q", *, channel=None, **credit):
        """Open a Subscribe stream, past its first answer; break it off at the end."""
        stub = FilaServiceStub(channel) if channel else self.service
        subscription = Subscription(stub.Subscribe())
        try:
            await subscription.send(queue=queue, **credit)
            response = await subscription.read()
            assert response.HasField("subscribed")
            subscription.subscribed = response.subscribed
            yield subscription
        finally:
            subscription.call.cancel()


class Subscription:
    """A Subscribe stream, frame by frame."""

    def __init__(self, call):
        self.call = call
        self.sequence = 0
        self.subscribed = None
        self._parts = deque()

    async def send(self, **fields):
        await self.call.write(service.SubscribeRequest(**fields))

    async def settle(self, **fields):
        """Send a settling frame with the next number."""
        self.sequence += 1
        await self.send(sequence=self.sequence, **fields)

    async def read(self):
        """Read the next thing that is said; a frame may say several at once."""
        if not self._parts:
            response = await self.call.read()
            assert response is not grpc.aio.EOF, await self.call.code()
            for field, value in reversed(response.ListFields()):
                self._parts.append(service.SubscribeResponse(**{field.name: value}))
        return self._parts.popleft()

    async def delivery(self):
        response = await self.read()
        assert response.HasField("delivery"), response
        return response.delivery

    async def settled(self):
        """Read on to the answer to the last settling frame, and return all refusals on the way."""
        refused = []
        while True:
            response = await self.read()
            assert response.HasField("settled"), response
            refused += response.settled.refused
            if response.settled.sequence == self.sequence:
                return refused

    async def end(self):
        """End the client's side, and return the status that the server ends with."""
        await self.call.done_writing()
        return await self.drain()

    async def confirmed_to_the_end(self):
        """Read everything that is left, and return the last confirmed sequence and the status."""
        confirmed = max([0, *[part.settled.sequence for part in self._parts]])
        try:
            while (response := await self.call.read()) is not grpc.aio.EOF:
                confirmed = response.settled.sequence or confirmed
        except grpc.aio.AioRpcError:
            pass
        return confirmed, await self.call.code()

    async def drain(self):
        """Read everything that is left, and return the status."""
        return (await self.confirmed_to_the_end())[1]


def batch(sequence, payloads, *, queue="q", **columns):
    """Return a Produce frame with these payloads."""
    bodies = [messages.Body(payload=payload).SerializeToString() for payload in payloads]
    return service.ProduceRequest(
        sequence=sequence,
        queue=queue,
        messages=messages.MessageColumns(
            bodies=b"".join(bodies), sizes=[len(body) for body in bodies], **columns
        ),
    )


def runs(*epochs, **columns):
    return messages.LeaseRuns(epochs=epochs, **columns)


def payloads_of(delivery):
    """Cut a delivery's bodies by their sizes, and return the payloads."""
    begin, payloads = 0, []
    for size in delivery.sizes:
        payloads.append(messages.Body.FromString(delivery.bodies[begin : begin + size]).payload)
        begin += size
    assert begin == len(delivery.bodies)
    return payloads


async def status_of(call):
    """Return the code and the text of a call that fails."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details()
    raise AssertionError(f"the call succeeded: {answer}")


async def code_of(call):
    return (await status_of(call))[0]
