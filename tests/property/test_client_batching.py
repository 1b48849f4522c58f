"""The law of the producer: nothing lost, nothing reordered, memory bounded, over lost and refused streams as well."""

from collections import Counter
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from fila.client.batching import BatchingCore
from fila.client.bodies import decode_body
from fila.errors import LimitError, OutcomeUnknownError, UnavailableError
from fila.wire.v1.service_pb2 import ProduceRequest, ProduceResponse

MESSAGES_HELD_MAX = 20
BYTES_HELD_MAX = 400
# Larger than a batch may be, and as many as may be in flight.
BATCHES_IN_FLIGHT = 3

ADD = st.tuples(
    st.just("add"),
    st.integers(0, 60),
    st.sampled_from([None, "acme", "umbrella", "default"]),
    st.sampled_from([None, 1, 4]),
)
# As many as make several batches, each with its frame if it may have one.
FLOOD = st.tuples(st.just("flood"), st.integers(4, 16))
QUIET = st.one_of(ADD, FLOOD, st.just(("write",)), st.just(("receipt",)), st.just(("refuse",)))
TROUBLE = st.one_of(
    # So many of the unanswered batches were stored before it.
    st.tuples(st.just("lose"), st.integers(0, BATCHES_IN_FLIGHT)),
    st.tuples(st.just("fail_write"), st.integers(0, BATCHES_IN_FLIGHT)),
    st.just(("stop",)),
    st.just(("take_nothing",)),
    st.tuples(st.just("wait"), st.integers(1, 6)),
)
TIMEOUT_SECONDS = 10


def next_request(core):
    """Read the next frame as the broker does."""
    frame = core.next_frame()
    return None if frame is None else ProduceRequest.FromString(frame)


class BrokerModel:
    """Takes what arrives in the order in which it arrives; what it has stored is there for good."""

    def __init__(self):
        self.stored = []
        self.unanswered = []
        self.next_sequence = 1
        # Set when the stream takes nothing more; then why: may what is refused be there or not.
        self.refuses = False
        # How often a message was stored without a receipt that arrived.
        self.unreceipted = Counter()

    def write(self, request):
        columns = request.messages
        assert request.sequence == self.next_sequence
        assert request.queue == ("orders" if request.sequence == 1 else "")
        assert sum(columns.sizes) == len(columns.bodies)
        self.next_sequence += 1
        bodies, start = [], 0
        for size in columns.sizes:
            bodies.append(decode_body(columns.bodies[start : start + size])[1])
            start += size
        keys = list(columns.keys) or ["default"]
        index = list(columns.key_index) or [0] * len(bodies)
        weights = list(columns.weights) or [1] * len(bodies)
        messages = [
            (body, keys[key], weight) for body, key, weight in zip(bodies, index, weights, strict=True)
        ]
        self.unanswered.append((request.sequence, messages))

    def answer(self, *, refuse=False):
        sequence, messages = self.unanswered.pop(0)
        if self.refuses:
            return ProduceResponse(sequence=sequence, error_code=14, error="no more", not_taken=True)
        if refuse:
            return ProduceResponse(sequence=sequence, error_code=8, error="no room")
        self.stored += messages
        return ProduceResponse(
            sequence=sequence, first_offset=len(self.stored) - len(messages), count=len(messages)
        )

    def store_unanswered(self, number):
        """Store some batches whose receipts will not arrive, unless nothing is taken any more."""
        if self.refuses:
            return
        for _, messages in self.unanswered[:number]:
            self.stored += messages
            self.unreceipted.update(messages)

    def fail_write(self, number):
        """Answer all that is in flight with an outcome that nobody knows."""
        self.store_unanswered(number)
        answers = [
            ProduceResponse(sequence=sequence, error_code=14, error="the disk is ill")
            for sequence, _ in self.unanswered
        ]
        self.unanswered.clear()
        self.refuses = True
        return answers

    def begin_stream(self):
        self.unanswered.clear()
        self.next_sequence = 1
        self.refuses = False


class History:
    """A core and a broker, and what was sent."""

    def __init__(self, *, repeat):
        self.now = 0.0
        self.core = BatchingCore(
            "orders",
            batch_messages=4,
            batch_bytes=100,
            batches_in_flight=BATCHES_IN_FLIGHT,
            messages_held_max=MESSAGES_HELD_MAX,
            bytes_held_max=BYTES_HELD_MAX,
            repeat=repeat,
            clock=lambda: self.now,
        )
        self.repeat = repeat
        self.broker = BrokerModel()
        self.numbers = count()
        # Batch, place, message, and the bytes that it holds.
        self.sent = []

    def step(self, name, *arguments):
        getattr(self, name)(*arguments)
        waiting = [held for batch, _, _, held in self.sent if not batch.done]
        assert (self.core.messages_held, self.core.bytes_held) == (len(waiting), sum(waiting))
        assert len(waiting) <= MESSAGES_HELD_MAX
        assert self.core.has_room == (len(waiting) < MESSAGES_HELD_MAX and sum(waiting) < BYTES_HELD_MAX)

    def add(self, padding, key, weight):
        had_room, held = self.core.has_room, self.core.bytes_held
        payload = b"%d " % next(self.numbers) + bytes(padding)
        try:
            batch = self.core.add(payload, fairness_key=key, weight=weight)
        except LimitError:
            assert not had_room
            return
        # Whoever has waited for room may add one message, whatever its size.
        assert had_room
        message = (payload, key or "default", weight or 1)
        self.sent.append((batch, batch.count - 1, message, self.core.bytes_held - held))

    def flood(self, number):
        for _ in range(number):
            self.add(number, None, None)
            self.write()

    def write(self):
        request = next_request(self.core)
        if request is not None:
            assert not self.core.stopping
            self.broker.write(request)
            assert len(self.broker.unanswered) <= BATCHES_IN_FLIGHT

    def receipt(self):
        if self.broker.unanswered:
            self.core.on_response(self.broker.answer())

    def refuse(self):
        if self.broker.unanswered:
            self.core.on_response(self.broker.answer(refuse=True))

    def stop(self):
        """The broker answers what it has, and takes nothing that comes after its notice."""
        while self.broker.unanswered:
            self.receipt()
        self.core.on_response(ProduceResponse(sequence=0, error_code=14, error="stopping"))
        assert next_request(self.core) is None

    def take_nothing(self):
        """What is in flight is not taken, nor what follows."""
        self.broker.refuses = True

    def fail_write(self, number):
        for answer in self.broker.fail_write(number):
            self.core.on_response(answer)

    def lose(self, number):
        self.broker.store_unanswered(number)
        self.broker.begin_stream()
        self.core.lost(UnavailableError("gone"))

    def wait(self, seconds):
        self.now += seconds
        self.core.expire(TIMEOUT_SECONDS)

    def drain(self):
        """Let a broker that is well again take all."""
        self.step("lose", 0)
        while self.core.messages_held:
            self.step("write")
            self.step("receipt")

    def check(self):
        """Assert the laws of what was sent, and of what is stored."""
        assert self.core.unresolved(self.core.sent) is None
        assert all(batch.done for batch, _, _, _ in self.sent)
        stored = Counter(self.broker.stored)
        for batch, place, message, _ in self.sent:
            copies = stored[message]
            if batch.error is None:
                assert self.broker.stored[batch.first_offset + place] == message
                # More than once only where a receipt was lost, and never where that was not allowed.
                assert 1 <= copies <= 1 + (self.broker.unreceipted[message] if self.repeat else 0)
            elif type(batch.error) is OutcomeUnknownError:
                assert copies <= (self.broker.unreceipted[message] if self.repeat else 1)
            else:
                assert copies == (self.broker.unreceipted[message] if self.repeat else 0)
        order = {message: number for number, (_, _, message, _) in enumerate(self.sent)}
        first = [order[message] for message in dict.fromkeys(self.broker.stored)]
        assert first == sorted(first)


@given(steps=st.lists(QUIET, max_size=120))
def test_nothing_lost_nothing_reordered_memory_bounded(steps):
    """The producer's law, whatever the order of sends, frames, receipts and refusals.

    A receipt tells where its message is, all that was taken is stored once and in order, and what the producer
    holds stays within its bounds.
    """
    history = History(repeat=False)

    for step in steps:
        history.step(*step)
    history.drain()

    history.check()
    taken = [message for batch, _, message, _ in history.sent if batch.error is None]
    unknown = [message for batch, _, message, _ in history.sent if type(batch.error) is OutcomeUnknownError]
    assert [message for message in history.broker.stored if message not in unknown] == taken


@settings(max_examples=500)
@given(steps=st.lists(st.one_of(QUIET, QUIET, TROUBLE), max_size=120), repeat=st.booleans())
def test_lost_streams_lose_nothing_and_reorder_nothing(steps, repeat):
    """Streams are lost, brokers stop, disks fail, batches are not taken, time runs out.

    What has a receipt is where the receipt says; a message is there twice only where its receipt was lost and it may be
    repeated; the first copies are in the order of the sends; every receipt resolves; the counts are true at each step.
    """
    history = History(repeat=repeat)

    for step in steps:
        history.step(*step)
    history.drain()

    history.check()


@given(steps=st.lists(st.one_of(QUIET, QUIET, TROUBLE), max_size=60), repeat=st.booleans())
def test_failed_producer_resolves_every_receipt(steps, repeat):
    """With an error that says whether the message may be there, wherever it was when the stream failed for good."""
    history = History(repeat=repeat)
    for step in steps:
        history.step(*step)
    history.broker.store_unanswered(BATCHES_IN_FLIGHT)

    history.core.fail(UnavailableError("closed"))

    history.check()
    assert history.core.messages_held == history.core.bytes_held == 0
    assert next_request(history.core) is None
