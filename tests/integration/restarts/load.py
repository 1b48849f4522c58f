"""Producers and workers as users write them; what they see, they tell the oracle.

Nothing here catches what the client raises: the run does, and calls it a broken law.
"""

import asyncio
from random import Random

from tests.integration.restarts.oracle import Oracle

from fila import AsyncClient, Message

QUEUE = "jobs"
CONCURRENCY = 10
# Workers must keep up, so that the end is near: beyond this producers wait.
OPEN_MESSAGES_MAX = 3_000
# How many handlers of a worker hold a message until the broker has been restarted.
HOLDERS_MAX = 3


class HandlerError(Exception):
    """A handler fails on purpose."""


class Producer:
    """Sends messages, each with a payload of its own, and collects every receipt."""

    def __init__(self, name: str, client: AsyncClient, oracle: Oracle, random: Random):
        self._name = name
        self._client = client
        self._oracle = oracle
        self._random = random
        self._number = 0
        self.stopping = False

    async def run(self):
        """Send until told to stop, and flush."""
        receipts = asyncio.Queue()
        collecting = asyncio.create_task(self._collect(receipts))
        try:
            async with self._client.producer(QUEUE) as producer:
                while not self.stopping:
                    for _ in range(self._random.choice((1, 5, 60))):
                        self._number += 1
                        payload = f"{self._name} {self._number}".encode()
                        await producer.room()
                        self._oracle.sends(payload)
                        receipt = producer.send(payload, fairness_key=self._name)
                        receipts.put_nowait((payload, receipt))
                    await asyncio.sleep(self._random.uniform(0, 0.03))
                    # Polled, as is the life: whoever changes them may be another thread.
                    while self._oracle.open_messages > OPEN_MESSAGES_MAX and not self.stopping:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
        finally:
            receipts.put_nowait(None)
            await collecting

    async def _collect(self, receipts: asyncio.Queue):
        while (entry := await receipts.get()) is not None:
            payload, receipt = entry
            self._oracle.acknowledges(payload, await receipt)


class Worker:
    """Handles messages: most at once, some slowly, a few across a restart, a few with an error."""

    def __init__(self, client: AsyncClient, oracle: Oracle, random: Random):
        self._oracle = oracle
        self._random = random
        self._holders = 0
        self._worker = client.worker(QUEUE, self._handle, concurrency=CONCURRENCY)
        self.finishing = False

    async def run(self):
        """Work until told to stop."""
        await self._worker.run()

    def stop(self):
        """Begin nothing new."""
        self._worker.stop()

    async def _handle(self, message: Message):
        oracle, message_id = self._oracle, message.id
        oracle.begins(message_id, message.payload, message.offset)
        try:
            await self._work(message)
        except BaseException:
            oracle.fails(message_id)
            raise
        oracle.returns(message_id)

    async def _work(self, message: Message):
        draw = self._random.random()
        if draw < 0.02 and self._holders < HOLDERS_MAX:
            self._holders += 1
            life = self._oracle.life
            while self._oracle.life == life and not self.finishing:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            self._holders -= 1
            self._oracle.counts.held_over_a_restart += self._oracle.life != life
        elif draw < 0.2:
            await asyncio.sleep(self._random.uniform(0, 0.03))
        elif draw > 0.997 and not message.attempt_count:
            self._oracle.counts.failed_on_purpose += 1
            raise HandlerError
