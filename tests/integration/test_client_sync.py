"""What only the synchronous client has: threads that share it, interrupts, forks, and its own thread that ends."""

import gc
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import fila.testing
from fila import Client
from fila.errors import ClosedError, MessageNotFoundError, QueueNotFoundError, UnavailableError

# Far more than anything here takes.
TIMEOUT_SECONDS = 30


@pytest.fixture(scope="module")
def broker():
    """One for all."""
    with fila.testing.broker() as running:
        yield running


@pytest.fixture
def client(broker):
    with Client(broker.address) as client:
        client.create_queue("orders")
        client.create_queue("done")
        try:
            yield client
        finally:
            with Client(broker.address) as last:
                last.delete_queue("orders")
                last.delete_queue("done")


def threads_of_clients():
    return [thread for thread in threading.enumerate() if thread.name.startswith("fila-client")]


def in_threads(number, function):
    """Call a function in so many threads, and return what they returned."""
    with ThreadPoolExecutor(number) as threads:
        futures = [threads.submit(function, each) for each in range(number)]
        return [future.result(TIMEOUT_SECONDS) for future in futures]


def until(condition):
    """Wait for something that the broker does in its own time."""
    event = threading.Event()
    for _ in range(TIMEOUT_SECONDS * 1000):
        if condition():
            return
        event.wait(0.001)
    raise AssertionError("it did not happen")


def test_threads_share_one_producer(client):
    """Each message has its own receipt, and the messages of each thread stay in their order."""

    def send(thread):
        return [producer.send(b"%d/%d" % (thread, number)) for number in range(500)]

    with client.producer("orders") as producer:
        receipts = [receipt for receipts in in_threads(4, send) for receipt in receipts]
    ids = [receipt.result() for receipt in receipts]

    stored = {}
    while messages := client.lease("orders", 1000):
        stored |= {message.id: message for message in messages}
    assert len(set(ids)) == len(ids) == len(stored)
    assert sorted(receipt.number for receipt in receipts) == list(range(1, 2001))
    for thread in range(4):
        offsets = [stored[message_id].offset for message_id in ids[500 * thread : 500 * (thread + 1)]]
        assert offsets == sorted(offsets)


def test_threads_share_one_consumer(client):
    """Each message goes to one of them, and closing it ends the loop in all."""
    with client.producer("orders") as producer:
        for number in range(1_000):
            producer.send(b"%d" % number)
    seen, all_seen = [], threading.Event()

    def work(_thread):
        for message in consumer:
            seen.append(message.id)
            message.ack()
            if len(seen) >= 1_000:
                all_seen.set()
        return True

    def close_when_done():
        all_seen.wait(TIMEOUT_SECONDS)
        consumer.close()

    consumer = client.consume("orders", prefetch=50)
    closing = threading.Thread(target=close_when_done)
    closing.start()

    assert in_threads(4, work) == [True] * 4
    closing.join()
    assert len(seen) == len(set(seen)) == 1_000
    stats = client.stats("orders")
    assert (stats.depth, stats.in_flight) == (0, 0)


def test_threads_share_one_client(client):
    """Calls of all kinds at once."""

    def work(thread):
        for _ in range(20):
            client.enqueue("orders", {"thread": str(thread)}, b"x")
        taken = [message for _ in range(4) for message in client.lease("orders", 5, wait_seconds=20)]
        for message in taken:
            message.ack()
        return len(taken)

    taken = sum(in_threads(4, work))

    stats = client.stats("orders")
    assert (stats.depth, stats.in_flight) == (80 - taken, 0)


def test_send_waits_for_room_and_goes_on(client):
    """A flood is bounded in memory, without an error and without `room`."""
    with client.producer("orders") as producer:
        for _ in range(25_000):
            producer.send(b"x")
            assert producer._stream.core.messages_held <= 10_000

    assert client.stats("orders").depth == 25_000


def test_send_that_waits_ends_when_the_producer_does(client, broker):
    """With an error: its message went nowhere."""
    with Client(broker.address, reconnect_seconds=0) as other:
        producer = other.producer("missing")

        with pytest.raises(QueueNotFoundError), producer:
            producer.send(b"x").result()
        with pytest.raises(ClosedError, match="closed"):
            producer.send(b"x")


def test_loop_ends_when_another_thread_closes_the_consumer(client):
    """It waits for a message, and there will be none."""
    consumer = client.consume("orders")
    ended = threading.Event()

    def loop():
        for _ in consumer:
            pass
        ended.set()

    thread = threading.Thread(target=loop)
    thread.start()
    until(lambda: client.stats("orders").active_consumers == 1)

    consumer.close()

    assert ended.wait(TIMEOUT_SECONDS)
    thread.join()


def test_loop_ends_when_another_thread_closes_the_client(broker, client):
    """Whether it waits for a message, or works on one."""
    client.enqueue("orders", None, b"x")
    other = Client(broker.address)
    works, may_end, ended = threading.Event(), threading.Event(), []

    def loop(queue):
        for _ in other.consume(queue):
            works.set()
            may_end.wait(TIMEOUT_SECONDS)
        ended.append(queue)

    threads = [threading.Thread(target=loop, args=(queue,)) for queue in ("orders", "done")]
    for thread in threads:
        thread.start()
    assert works.wait(TIMEOUT_SECONDS)
    until(lambda: client.stats("done").active_consumers == 1)

    other.close()
    may_end.set()
    for thread in threads:
        thread.join(TIMEOUT_SECONDS)

    assert sorted(ended) == ["done", "orders"]
    assert (client.stats("orders").depth, client.stats("orders").in_flight) == (1, 0)


def test_break_gives_back_what_was_not_handed_out(client):
    """And what was is still the caller's."""
    with client.producer("orders") as producer:
        for _ in range(20):
            producer.send(b"x")
    for message in client.consume("orders"):
        kept = message
        break
    gc.collect()

    until(lambda: (client.stats("orders").depth, client.stats("orders").in_flight) == (19, 1))
    kept.ack().durable()

    until(lambda: client.stats("orders").active_consumers == 0)
    assert client.stats("orders").depth == 19


def test_context_gives_back_what_is_unsettled(client):
    """At once, and without an attempt."""
    client.enqueue("orders", None, b"x")
    with client.consume("orders") as consumer:
        message = next(consumer)

    (again,) = client.lease("orders")
    assert (again.id, again.attempt_count) == (message.id, 0)
    with pytest.raises(MessageNotFoundError):
        message.ack()
    assert next(consumer, None) is None


def test_error_in_a_context_is_the_one_that_is_raised(client):
    """Also where the flush fails with it."""

    def send_and_fail():
        with client.producer("missing") as producer:
            producer.send(b"x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        send_and_fail()

    assert "flushing the producer of 'missing' failed too" in caught.value.__notes__[0]


def test_flush_raises_the_first_refusal_once(client):
    """It names the message, for nobody looked at its receipt."""
    producer = client.producer("missing")
    producer.send(b"x", fairness_key="acme")

    with pytest.raises(QueueNotFoundError, match=r"message 1 of the producer \(key 'acme'\)"):
        producer.flush()
    producer.flush()
    producer.abort()


def test_batch_with_a_message_of_a_wrong_type_is_refused_alone(client):
    """The caller's own loop is where it is raised."""
    with client.producer("orders") as producer:
        with pytest.raises(Exception, match="encode"):
            producer.send("text")
        producer.send(b"x")

    assert client.stats("orders").depth == 1


def test_no_thread_is_left_after_a_close(broker):
    """However often, and with streams open."""
    before = threads_of_clients()
    for _ in range(3):
        client = Client(broker.address)
        consumer = client.consume("missing")
        with pytest.raises(QueueNotFoundError):
            next(consumer)
        client.close()
        client.close()

    assert threads_of_clients() == before
    with pytest.raises(ClosedError, match="closed"):
        client.list_queues()
    with pytest.raises(ClosedError, match="closed"):
        client.consume("orders")


def test_forgotten_client_ends(broker):
    """Its thread does not keep it alive."""
    before = threads_of_clients()
    client = Client(broker.address)
    client.list_queues()
    assert len(threads_of_clients()) == len(before) + 1

    del client
    gc.collect()

    assert threads_of_clients() == before


def test_failed_connect_leaves_no_thread():
    """There is no client that one could close."""
    before = threads_of_clients()

    with pytest.raises(UnavailableError):
        Client.connect("127.0.0.1:1")

    assert threads_of_clients() == before


# --- interrupts ---

WAITER = """
import sys
from fila import Client
with Client(sys.argv[1]) as client:
    try:
        for message in client.consume("orders"):
            print("got", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise SystemExit(7)
"""


@pytest.fixture
def run(tmp_path, broker):
    """Start a program, with the broker's address as its argument."""

    def run(program):
        path = tmp_path / "program.py"
        path.write_text(program)
        # One that hangs ends by itself, with what it has forked: whoever reads what it prints would wait for that.
        bounded = ["timeout", "--foreground", "--signal=KILL", str(TIMEOUT_SECONDS)]
        return subprocess.Popen(
            [*bounded, sys.executable, path, broker.address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return run


def test_interrupt_of_a_waiting_loop_leaves_no_lease(run, client):
    """Ctrl-C ends it at once; what it had in hand and what was leased ahead go back without an attempt."""
    client.enqueue("orders", None, b"x")
    program = run(WAITER)
    assert program.stdout.readline() == "got\n"

    program.send_signal(signal.SIGINT)
    output, errors = program.communicate(timeout=TIMEOUT_SECONDS)

    assert (program.returncode, output, errors) == (7, "interrupted\n", "")
    (message,) = client.lease("orders")
    assert message.attempt_count == 0


def test_program_that_closes_nothing_ends(run, client):
    """It ends when its main thread does, and what it sent is flushed."""
    program = run(
        "import sys\n"
        "from fila import Client\n"
        "client = Client(sys.argv[1])\n"
        "producer = client.producer('orders')\n"
        "receipts = [producer.send(b'x') for _ in range(100)]\n"
        "consumer = client.consume('done')\n"
    )
    output, errors = program.communicate(timeout=TIMEOUT_SECONDS)

    assert (program.returncode, output, errors) == (0, "", "")
    assert client.stats("orders").depth == 100
    assert client.stats("done").active_consumers == 0


# --- forks ---

FORKING = """
import os, sys
from fila import Client, FilaError

client = Client(sys.argv[1])
client.enqueue("orders", None, b"parent 1")
producer = client.producer("orders")
producer.send(b"parent 2").result()
consumer = client.consume("orders")
message = next(consumer)
child = os.fork()
if child == 0:
    said = 0
    for use in (
        client.list_queues,
        lambda: client.enqueue("orders", None, b"child"),
        lambda: producer.send(b"child"),
        producer.flush,
        lambda: next(consumer),
        message.ack,
        consumer.close,
        lambda: client.consume("orders"),
        Client(sys.argv[1]).list_queues,
    ):
        try:
            use()
        except FilaError as error:
            said += "fork before" in str(error)
    # To close what was inherited does no harm.
    client.close()
    os._exit(said)
_, status = os.waitpid(child, 0)
print("the child said it", os.waitstatus_to_exitcode(status), "times")
message.ack().durable()
next(consumer).ack().durable()
producer.send(b"parent 3").result()
client.close()
"""


def test_child_of_a_fork_is_told_and_the_parent_goes_on(run, client):
    """Every use says what to do, none hangs, and nothing of the parent's is closed by it."""
    program = run(FORKING)
    output, errors = program.communicate(timeout=TIMEOUT_SECONDS)

    assert (program.returncode, output, errors) == (0, "the child said it 9 times\n", "")
    assert [message.payload for message in client.lease("orders", 10)] == [b"parent 3"]


BEFORE_USE = """
import os, sys
from fila import Client

child = os.fork()
with Client(sys.argv[1]) as client:
    client.enqueue("orders", None, b"child" if child == 0 else b"parent")
if child == 0:
    os._exit(0)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""

SPAWNING = """
import sys
from multiprocessing import get_context
from fila import Client

def work(address):
    with Client(address) as client:
        client.enqueue("orders", None, b"child")

if __name__ == "__main__":
    with Client(sys.argv[1]) as client:
        client.enqueue("orders", None, b"parent")
        process = get_context("spawn").Process(target=work, args=(sys.argv[1],))
        process.start()
        process.join()
        sys.exit(process.exitcode)
"""


@pytest.mark.parametrize("program", [BEFORE_USE, SPAWNING], ids=["before", "spawn"])
def test_what_the_error_of_a_fork_advises_works(run, client, program):
    """A fork before the first client, and a process that is no fork."""
    running = run(program)
    _, errors = running.communicate(timeout=TIMEOUT_SECONDS)

    assert running.returncode == 0, errors
    assert client.stats("orders").depth == 2


def test_consumer_keeps_its_client(broker):
    """A client that nobody else holds lives as long as what it made."""
    with Client(broker.address) as client:
        client.create_queue("kept", exist_ok=True)
        client.enqueue("kept", None, b"x")

    consumer = Client(broker.address).consume("kept")
    gc.collect()
    message = next(consumer)
    message.ack().durable()
    consumer.close()


def test_client_in_a_cycle_is_closed_by_whatever_thread_collects_it(broker):
    """Also by its own, which cannot wait for itself."""
    client = Client(broker.address)
    client.list_queues()
    portal = client._portal
    cycle = [client]
    cycle.append(cycle)
    thread = portal._thread
    del client, cycle

    portal.post(gc.collect)

    thread.join(timeout=10)
    assert not thread.is_alive()


def test_closing_what_is_closed_is_no_error(broker):
    """Contexts may be left in any order."""
    client = Client(broker.address)
    client.create_queue("closing", exist_ok=True)
    consumer, producer = client.consume("closing"), client.producer("closing")
    producer.send(b"x").result()

    client.close()

    consumer.close()
    producer.close()
    producer.abort()
    client.close()
