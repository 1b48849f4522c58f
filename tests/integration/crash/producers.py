"""Producers of the crash test: they send until the server dies, and tell the oracle what was answered."""

import asyncio
from random import Random

import grpc
from tests.integration.crash.oracle import Oracle, Sent

from fila.wire.ids import message_id
from fila.wire.v1 import messages_pb2 as messages
from fila.wire.v1 import service_pb2 as service

# Deliveries must keep up, so that the end of the test is near: beyond this producers wait.
OPEN_MESSAGES_MAX = 3_000
KEYS = 12
BATCHES_IN_FLIGHT_MAX = 8


class Producer:
    """Makes messages and sends them, on a stream or one by one."""

    def __init__(self, name: str, stub, oracle: Oracle, queue: str, random: Random):
        self._name = name
        self._stub = stub
        self._oracle = oracle
        self._queue = queue
        self._random = random
        self._number = 0
        self._stopping = False

    def _make(self, count: int) -> list[Sent]:
        random = self._random
        batch = []
        for _ in range(count):
            self._number += 1
            tag = f"{self._name}-{self._number:06}".ljust(16, ".")
            # Small ones share pages, some fill one, a few are larger than any.
            size = random.choices((random.randrange(400), random.randrange(20_000), 300_000), (200, 4, 1))[0]
            key = f"key-{random.randrange(KEYS)}"
            headers = {"tag": tag} if random.random() < 0.2 else {}
            payload = tag.encode() + random.randbytes(size)
            batch.append(Sent(tag, self._queue, key, random.choice((1, 1, 5)), payload, headers))
        return batch

    async def _turn(self):
        """Let others run, and wait while there is more to deliver than the test wants."""
        await asyncio.sleep(0)
        while self._oracle.alive and len(self._oracle.open) > OPEN_MESSAGES_MAX:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)

    async def enqueue(self):
        """Send one at a time, each awaited."""
        while self._oracle.alive:
            await self._turn()
            (message,) = self._make(1)
            self._oracle.sent([message])
            answer = await self._stub.Enqueue(
                service.EnqueueRequest(
                    queue=message.queue,
                    payload=message.payload,
                    headers=message.headers,
                    fairness_key=message.key,
                    weight=message.weight,
                )
            )
            self._oracle.enqueued(message, answer.message_id, answer.offset)

    async def produce(self):
        """Send batches ahead of their receipts."""
        stream = self._stub.Produce()
        in_flight: dict[int, list[Sent]] = {}
        receipts = asyncio.create_task(self._read_receipts(stream, in_flight))
        sequence = 0
        try:
            while self._oracle.alive and not receipts.done() and not self._stopping:
                await self._turn()
                if len(in_flight) >= BATCHES_IN_FLIGHT_MAX:
                    await asyncio.sleep(0.001)
                    continue
                sequence += 1
                batch = self._make(self._random.choice((1, 10, 60)))
                self._oracle.sent(batch)
                in_flight[sequence] = batch
                await stream.write(_frame(sequence, batch))
            await stream.done_writing()
        except (grpc.RpcError, asyncio.InvalidStateError):
            # The stream has ended; what was answered before is still to be read.
            pass
        finally:
            await receipts

    async def _read_receipts(self, stream, in_flight):
        while (receipt := await stream.read()) is not grpc.aio.EOF:
            if receipt.error_code:
                # A broker that stops says so, and refuses what comes after; nothing else is a reason.
                assert receipt.error_code == grpc.StatusCode.UNAVAILABLE.value[0], receipt
                self._stopping = True
                in_flight.pop(receipt.sequence, None)
                continue
            batch = in_flight.pop(receipt.sequence)
            assert receipt.count == len(batch), receipt
            for place, message in enumerate(batch):
                offset = receipt.first_offset + place
                identity = message_id(receipt.queue_number, offset, receipt.enqueued_at_ms)
                self._oracle.enqueued(message, identity, offset)


def _frame(sequence: int, batch: list[Sent]):
    bodies = [
        messages.Body(headers=message.headers, payload=message.payload).SerializeToString()
        for message in batch
    ]
    keys = sorted({message.key for message in batch})
    return service.ProduceRequest(
        sequence=sequence,
        queue=batch[0].queue,
        messages=messages.MessageColumns(
            bodies=b"".join(bodies),
            sizes=[len(body) for body in bodies],
            keys=keys,
            key_index=[keys.index(message.key) for message in batch],
            weights=[message.weight for message in batch],
        ),
    )
