"""A worker: takes messages, works on several at once, acks what is done, nacks what fails, and stops on Ctrl-C or SIGTERM.

Start a broker with `make run`, then: .venv/bin/python examples/worker.py QUEUE [HOST:PORT]
"""

import asyncio
import signal
import sys

from fila import AsyncClient
from fila.client.messages import Message
from fila.errors import MessageNotFoundError

AT_ONCE = 8


async def handle(message: Message) -> None:
    """Do the work. Whatever this raises is reported to the broker, which delivers the message again later."""
    text = message.payload.decode()
    if message.attempt_count == 0 and text == "flaky":
        raise RuntimeError("try again")
    print(f"{message.fairness_key}: {text} (attempt {message.attempt_count + 1})", flush=True)


async def work(messages: "asyncio.Queue[Message]") -> None:
    """Handle one message after another."""
    while True:
        message = await messages.get()
        try:
            try:
                await handle(message)
            except Exception as error:  # noqa: BLE001 - a worker goes on with the next message
                await message.nack(repr(error))
            else:
                await message.ack()
        except MessageNotFoundError:
            # It took longer than the lease: somebody else has the message now, and this result does not count.
            print(f"too late for {message.id}", file=sys.stderr)
        finally:
            messages.task_done()


async def take(client: AsyncClient, queue: str, messages: "asyncio.Queue[Message]") -> None:
    """Hand messages to the workers, no faster than they take them."""
    async for message in client.consume(queue, prefetch=2 * AT_ONCE):
        await messages.put(message)


async def main(queue: str, addr: str) -> None:
    """Work until told to stop, finish what was begun, and leave the rest to others."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    messages: asyncio.Queue[Message] = asyncio.Queue(maxsize=1)
    async with AsyncClient(addr) as client:
        workers = [asyncio.create_task(work(messages)) for _ in range(AT_ONCE)]
        taking = asyncio.create_task(take(client, queue, messages))
        stopped = asyncio.create_task(stop.wait())
        print(f"working on {queue}", flush=True)
        await asyncio.wait({taking, stopped, *workers}, return_when=asyncio.FIRST_COMPLETED)
        failed = [task for task in (taking, *workers) if task.done()]
        taking.cancel()
        if not failed:
            await messages.join()
        for task in (stopped, *workers):
            task.cancel()
    for task in failed:
        task.result()
    print("stopped", flush=True)


if __name__ == "__main__":
    if len(sys.argv) not in {2, 3}:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "localhost:5555"))
