"""The two faces of the client behind one: the synchronous one, driven in threads, can be awaited like the other.

What one face has and the other has not is not here.
"""

import asyncio
from contextlib import asynccontextmanager

from fila import AsyncClient, Client


def in_thread(function, *arguments, **options):
    return asyncio.to_thread(function, *arguments, **options)


class Done:
    """What the synchronous face has done when it returns; there is nothing to wait for, except that it is durable."""

    def __init__(self, settlement=None):
        self._settlement = settlement

    def __await__(self):
        return iter(())

    async def durable(self):
        await in_thread(self._settlement.durable)


class ThreadedMessage:
    """A message whose settling can be awaited."""

    def __init__(self, message):
        self._message = message

    def __getattr__(self, name):
        return getattr(self._message, name)

    def __repr__(self):
        return repr(self._message)

    def ack(self):
        return Done(self._message.ack())

    def nack(self, error=""):
        return Done(self._message.nack(error))

    def release(self):
        return Done(self._message.release())

    async def extend(self, seconds):
        await in_thread(self._message.extend, seconds)


class ThreadedConsumer:
    """Asks for each message in a thread."""

    def __init__(self, consumer):
        self._consumer = consumer

    def __aiter__(self):
        return self

    async def __anext__(self):
        message = await in_thread(next, self._consumer, None)
        if message is None:
            raise StopAsyncIteration
        return ThreadedMessage(message)

    def stop(self):
        self._consumer.stop()

    async def aclose(self):
        await in_thread(self._consumer.close)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        await in_thread(self._consumer.__exit__, *error)


class ThreadedReceipt:
    def __init__(self, receipt):
        self._receipt = receipt
        self.number = receipt.number

    def __await__(self):
        return in_thread(self._receipt.result).__await__()


class ThreadedProducer:
    """Sending waits for room by itself."""

    def __init__(self, producer):
        self._producer = producer

    def send(self, *arguments, **options):
        return ThreadedReceipt(self._producer.send(*arguments, **options))

    async def room(self):
        pass

    async def flush(self):
        await in_thread(self._producer.flush)

    async def close(self):
        await in_thread(self._producer.close)

    async def abort(self):
        await in_thread(self._producer.abort)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        await in_thread(self._producer.__exit__, *error)


class ThreadedWorker:
    """A worker whose handlers are coroutines of the test's loop, waited for in the worker's threads."""

    def __init__(self, client, queue, handler, **options):
        loop = asyncio.get_running_loop()

        def handle(message):
            asyncio.run_coroutine_threadsafe(handler(ThreadedMessage(message)), loop).result()

        self._worker = client.worker(queue, handle if callable(handler) else handler, **options)

    def stop(self):
        self._worker.stop()

    async def run(self):
        await in_thread(self._worker.run)


class ThreadedClient:
    """A `Client` whose calls are made in threads."""

    def __init__(self, *arguments, **options):
        self._client = Client(*arguments, **options)
        self.addr = self._client.addr

    @classmethod
    async def connect(cls, *arguments, **options):
        client = await in_thread(Client.connect, *arguments, **options)
        wrapped = cls.__new__(cls)
        wrapped._client, wrapped.addr = client, client.addr
        return wrapped

    def __getattr__(self, name):
        method = getattr(self._client, name)
        return lambda *arguments, **options: in_thread(method, *arguments, **options)

    async def lease(self, *arguments, **options):
        return [ThreadedMessage(each) for each in await in_thread(self._client.lease, *arguments, **options)]

    def consume(self, *arguments, **options):
        return ThreadedConsumer(self._client.consume(*arguments, **options))

    def producer(self, *arguments, **options):
        return ThreadedProducer(self._client.producer(*arguments, **options))

    def worker(self, *arguments, **options):
        return ThreadedWorker(self._client, *arguments, **options)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        await self.close()


FACES = {"async": AsyncClient, "sync": ThreadedClient}


@asynccontextmanager
async def client_of(face, address, **options):
    """Yield a client with this face."""
    async with FACES[face](address, **options) as client:
        yield client
