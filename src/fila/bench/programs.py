"""The programs that users write, each to be run in a process of its own: `python -m fila.bench.programs loop ...`.

A program says what it did, and what its process used for that, in one line of JSON. `raw` is the bench's own consumer,
to compare with: the wire and nothing else.
"""

import argparse
import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvloop

import fila
from fila.bench.figures import Sample
from fila.bench.load import SubscribeStream
from fila.bench.messages import make_payloads
from fila.bench.operations import WARM_UP_SHARE
from fila.bench.transport import open_channel

Program = Callable[[str, str, int, int], Awaitable[Sample]]


@contextmanager
def _measured(messages: int) -> Iterator[Sample]:
    """Measure what this process does: user and system time of all its threads."""
    sample = Sample(messages)
    cpu_before_s, start_s = time.process_time(), time.perf_counter()
    yield sample
    sample.seconds = time.perf_counter() - start_s
    sample.cpu_s = time.process_time() - cpu_before_s


async def produce(address: str, queue: str, messages: int, payload_bytes: int) -> Sample:
    """Send messages one by one, and wait for the receipt of the last."""
    payloads = itertools.cycle(make_payloads(payload_bytes))
    async with fila.AsyncClient(address) as client, client.producer(queue) as producer:
        for payload in itertools.islice(payloads, max(1, int(messages * WARM_UP_SHARE))):
            await producer.room()
            producer.send(payload)
        await producer.flush()
        with _measured(messages) as sample:
            for payload in itertools.islice(payloads, messages):
                await producer.room()
                producer.send(payload)
            await producer.flush()
    return sample


async def loop(address: str, queue: str, messages: int, _payload_bytes: int) -> Sample:
    """Read and ack messages one by one, to the confirmation of the last ack."""
    left = messages
    async with fila.AsyncClient(address) as client:
        with _measured(messages) as sample:
            async for message in client.consume(queue):
                _ = message.payload
                ack = message.ack()
                await ack
                left -= 1
                if not left:
                    await ack.durable()
                    break
    return sample


def sync_loop(address: str, queue: str, messages: int) -> Sample:
    """Do the same without asyncio."""
    left = messages
    with fila.Client(address) as client, _measured(messages) as sample:
        for message in client.consume(queue):
            _ = message.payload
            ack = message.ack()
            left -= 1
            if not left:
                ack.durable()
                break
    return sample


async def raw(address: str, queue: str, messages: int, _payload_bytes: int) -> Sample:
    """Consume and ack as the bench does: whole deliveries."""
    channel = open_channel(address)
    with _measured(messages) as sample:
        stream = SubscribeStream(channel, queue)
        await stream.wait_until(lambda: stream.settled >= messages)
    await stream.close()
    await channel.close()
    return sample


ASYNC_PROGRAMS: dict[str, Program] = {"produce": produce, "loop": loop, "raw": raw}
SYNC_LOOP = "sync-loop"


def main() -> None:
    """Run a program and print its sample."""
    parser = argparse.ArgumentParser(description="A program that a user writes, measured.")
    parser.add_argument("program", choices=[*ASYNC_PROGRAMS, SYNC_LOOP])
    parser.add_argument("--addr", required=True)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--payload-bytes", type=int, required=True)
    parser.add_argument("--uvloop", action="store_true")
    arguments = parser.parse_args()
    if arguments.program == SYNC_LOOP:
        sample = sync_loop(arguments.addr, arguments.queue, arguments.messages)
    else:
        program = ASYNC_PROGRAMS[arguments.program]
        factory: Any = uvloop.new_event_loop if arguments.uvloop else None
        with asyncio.Runner(loop_factory=factory) as runner:
            work: Any = program(arguments.addr, arguments.queue, arguments.messages, arguments.payload_bytes)
            sample = runner.run(work)
    print(json.dumps({"messages": sample.messages, "seconds": sample.seconds, "cpu_s": sample.cpu_s}))


if __name__ == "__main__":
    main()
