"""Producers and workers as users write them, with asyncio and with threads; what they see, they tell the oracle.

Nothing here catches what the client raises: the run does, and calls it a broken law.
"""

import asyncio
import queue
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

from tests.integration.restarts.oracle import Oracle

from fila import AsyncClient, Client, Message, SyncMessage

QUEUE = "jobs"
CONCURRENCY = 10
# Workers must keep up, so that the end is near: beyond this producers wait.
OPEN_MESSAGES_MAX = 3_000
# How many handlers of a worker hold a message until the broker has been restarted.
HOLDERS_MAX = 3
POLL_SECONDS = 0.02


class HandlerError(Exception):
    """A handler fails on purpose."""


class Producer(ABC):
    """Sends messages, each with a payload of its own, and collects every receipt."""

    def __init__(self, name: str, oracle: Oracle, random: Random):
        self._name = name
        self._oracle = oracle
        self._random = random
        self._number = 0
        self.stopping = False

    @abstractmethod
    async def run(self):
        """Send until told to stop, and flush."""

    def _burst(self) -> Iterator[bytes]:
        for _ in range(self._random.choice((1, 5, 60))):
            self._number += 1
            payload = f"{self._name} {self._number}".encode()
            self._oracle.sends(payload)
            yield payload

    def _pauses(self) -> Iterator[float]:
        """Say how long to wait, again and again: until more may be sent, or nothing more is to be."""
        yield self._random.uniform(0, 0.03)
        while self._oracle.open_messages > OPEN_MESSAGES_MAX and not self.stopping:
            yield POLL_SECONDS


class AsyncProducer(Producer):
    """With asyncio."""

    def __init__(self, client: AsyncClient, *arguments):
        super().__init__(*arguments)
        self._client = client

    async def run(self):
        """Send until told to stop, and flush."""
        receipts = asyncio.Queue()
        collecting = asyncio.create_task(self._collect(receipts))
        try:
            async with self._client.producer(QUEUE) as producer:
                while not self.stopping:
                    for payload in self._burst():
                        await producer.room()
                        receipts.put_nowait((payload, producer.send(payload, fairness_key=self._name)))
                    for seconds in self._pauses():
                        await asyncio.sleep(seconds)
        finally:
            receipts.put_nowait(None)
            await collecting

    async def _collect(self, receipts: asyncio.Queue):
        while (entry := await receipts.get()) is not None:
            payload, receipt = entry
            self._oracle.acknowledges(payload, await receipt)


class ThreadProducer(Producer):
    """In a thread of its own, and a second one for the receipts."""

    def __init__(self, client: Client, *arguments):
        super().__init__(*arguments)
        self._client = client

    async def run(self):
        """Send until told to stop, and flush."""
        receipts = queue.SimpleQueue()
        await asyncio.gather(
            _in_thread(lambda: self._send(receipts)), _in_thread(lambda: self._collect(receipts))
        )

    def _send(self, receipts: queue.SimpleQueue):
        try:
            with self._client.producer(QUEUE) as producer:
                while not self.stopping:
                    for payload in self._burst():
                        receipts.put((payload, producer.send(payload, fairness_key=self._name)))
                    for seconds in self._pauses():
                        time.sleep(seconds)
        finally:
            receipts.put(None)

    def _collect(self, receipts: queue.SimpleQueue):
        while (entry := receipts.get()) is not None:
            payload, receipt = entry
            self._oracle.acknowledges(payload, receipt.result())


class Worker(ABC):
    """Handles messages: most at once, some slowly, a few across a restart, a few with an error."""

    def __init__(self, client, oracle: Oracle, random: Random):
        self._oracle = oracle
        self._random = random
        self._holders = 0
        self._worker = client.worker(QUEUE, self._handle, concurrency=CONCURRENCY)
        self.finishing = False

    @abstractmethod
    async def run(self):
        """Work until told to stop."""

    def stop(self):
        """Begin nothing new."""
        self._worker.stop()

    def _pauses(self, message: Message | SyncMessage) -> Iterator[float]:
        """Say what the handler waits for, and note when it begins and how it ends."""
        oracle, message_id = self._oracle, message.id
        oracle.begins(message_id, message.payload, message.offset)
        try:
            yield from self._work(message)
        except BaseException:
            oracle.fails(message_id)
            raise
        oracle.returns(message_id)

    def _work(self, message: Message | SyncMessage) -> Iterator[float]:
        draw = self._random.random()
        if draw < 0.02 and self._holders < HOLDERS_MAX:
            self._holders += 1
            life = self._oracle.life
            while self._oracle.life == life and not self.finishing:
                yield POLL_SECONDS
            self._holders -= 1
            self._oracle.counts.held_over_a_restart += self._oracle.life != life
        elif draw < 0.2:
            yield self._random.uniform(0, 0.03)
        elif draw > 0.997 and not message.attempt_count:
            self._oracle.counts.failed_on_purpose += 1
            raise HandlerError


class AsyncWorker(Worker):
    """With asyncio."""

    async def run(self):
        """Work until told to stop."""
        await self._worker.run()

    async def _handle(self, message: Message):
        for seconds in self._pauses(message):
            await asyncio.sleep(seconds)


class ThreadWorker(Worker):
    """In threads."""

    async def run(self):
        """Work until told to stop."""
        await _in_thread(self._worker.run)

    def _handle(self, message: SyncMessage):
        for seconds in self._pauses(message):
            time.sleep(seconds)


async def _in_thread(function: Callable[[], None]):
    with ThreadPoolExecutor(1) as pool:
        await asyncio.get_running_loop().run_in_executor(pool, function)
