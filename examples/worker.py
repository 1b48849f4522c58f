"""A worker: takes messages, works on several at once, acks what is done, nacks what fails, and stops on Ctrl-C or SIGTERM.

Start a broker with `make run`, then: .venv/bin/python examples/worker.py QUEUE [HOST:PORT]
"""

import asyncio
import sys

from fila import AsyncClient, Message

AT_ONCE = 8


async def handle(message: Message) -> None:
    """Do the work. Whatever this raises is reported to the broker, which delivers the message again later."""
    text = message.payload.decode()
    if message.attempt_count == 0 and text == "flaky":
        raise RuntimeError("try again")
    print(f"{message.fairness_key}: {text} (attempt {message.attempt_count + 1})", flush=True)


async def main(queue: str, addr: str) -> None:
    """Work until told to stop, finish what was begun, and leave the rest to others."""
    async with AsyncClient(addr) as client:
        worker = client.worker(queue, handle, concurrency=AT_ONCE)
        print(f"working on {queue}", flush=True)
        await worker.run()
    print("stopped", flush=True)


if __name__ == "__main__":
    if len(sys.argv) not in {2, 3}:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "localhost:5555"))
