"""Ctrl-C in the middle of everything that the synchronous client does: it raises, and nothing is left taken or half done."""

import subprocess
import sys

import pytest

import fila.testing

TIMEOUT_SECONDS = 60

# Each round is interrupted at a random moment, and the same client has to work on. One that hangs says where.
COMMON = """
import faulthandler, random, signal, sys
from fila import Client

faulthandler.dump_traceback_later(40, exit=True)
chance = random.Random(int(sys.argv[2]))


def interrupt(number, frame):
    raise KeyboardInterrupt


signal.signal(signal.SIGALRM, interrupt)


def interrupted(work, seconds):
    try:
        # Again and again: Python drops one that comes within a callback of the garbage collector.
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00002, seconds), 1.0)
        while True:
            work()
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)


client = Client(sys.argv[1])
"""

PRODUCER = (
    COMMON
    + """
producer = client.producer("orders")
receipts = []
for _ in range(300):
    interrupted(lambda: receipts.append(producer.send(b"x", {"k": "v"}, weight=2)), 0.003)
    if chance.random() < 0.2:
        interrupted(producer.flush, 0.002)
    producer.send(b"x").result(20)
producer.flush(20)
ids = {receipt.result(20) for receipt in receipts}
assert len(ids) == len(receipts)
depth = client.stats("orders").depth
# Where `send` was interrupted, its message may be there or not.
assert len(ids) + 300 <= depth <= len(ids) + 600, (len(ids), depth)
client.close()
print("done")
"""
)

CONSUMER = (
    COMMON
    + """
with client.producer("orders") as producer:
    for _ in range(30_000):
        producer.send(b"x")
taken = []
consumer = client.consume("orders")


def work():
    message = next(consumer)
    taken.append(message.id)
    if chance.random() < 0.9:
        message.ack()
    else:
        message.release()


for _ in range(300):
    interrupted(work, 0.002)
    # There is one, however many were worked off.
    client.enqueue("orders", None, b"x")
    next(consumer).ack().durable(20)
consumer.close()
client.purge_queue("orders")
stats = client.stats("orders")
assert (stats.depth, stats.in_flight) == (0, 0), stats
client.close()
print("done")
"""
)

CALLS = (
    COMMON
    + """
for _ in range(300):
    interrupted(lambda: client.enqueue("orders", None, b"x"), 0.003)
    interrupted(lambda: [message.ack() for message in client.lease("orders")], 0.003)
    client.list_queues()
client.close()
print("done")
"""
)

PROGRAMS = {"producer": PRODUCER, "consumer": CONSUMER, "calls": CALLS}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_interrupt_at_any_moment_leaves_a_client_that_works(program):
    """Hundreds in one process: none leaves a lock taken, a batch half made or a wake-up lost, and each raises."""
    with fila.testing.broker() as broker:
        broker.create_queue("orders")
        process = subprocess.run(
            [sys.executable, "-X", "dev", "-c", program, broker.address, "1"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )

    assert (process.stdout, process.returncode) == ("done\n", 0), process.stderr
