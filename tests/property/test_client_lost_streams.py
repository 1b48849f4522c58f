"""The law of the consumer over lost streams: nothing is handed out twice, nothing settled is left unsaid."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from fila.client.deliveries import DeliveriesCore
from fila.client.messages import DeliveredMessage, Settle
from fila.client.runs import read_runs
from fila.errors import UnavailableError
from fila.wire.v1.service_pb2 import Delivery, Settled, SubscribeResponse

PREFETCH = 12
BODY_BYTES = 5
LEASE_SECONDS = 10

FINAL = {"ack": Settle.ACK, "nack": Settle.NACK, "release": Settle.RELEASE}

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("deliver"), st.integers(1, 5)),
        st.tuples(st.just("take"), st.integers(1, 3)),
        st.tuples(st.sampled_from(sorted(FINAL)), st.integers(0, 20)),
        st.tuples(st.just("extend"), st.integers(0, 20)),
        st.tuples(st.just("write"), st.just(0)),
        st.tuples(st.just("confirm"), st.integers(1, 3)),
        st.tuples(st.just("lose"), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 4)),
        st.tuples(st.just("keep_alive"), st.just(0)),
        st.tuples(st.just("stopping"), st.just(0)),
    ),
    max_size=80,
)


def places_of(runs):
    return [
        (epoch, place) for epoch, start, count in read_runs(runs) for place in range(start, start + count)
    ]


class History:
    """A core, the broker at the other end of its streams, and a user."""

    def __init__(self):
        self.core = DeliveriesCore(
            "orders",
            holder=None,
            message_type=DeliveredMessage,
            prefetch=PREFETCH,
            prefetch_bytes=PREFETCH * BODY_BYTES,
        )
        self.now = 0.0
        # Of the stream that is open. Epochs begin anew with each: nothing may depend on them alone.
        self.credit = self.epoch = self.next_sequence = self.confirmed = 0
        # What was leased and not settled, and until when at least: no credit may stand for it.
        self.leased = {}
        self.said = set()
        self.handed = Counter()
        self.given_back = Counter()
        self.in_hand = []
        # Frames by what the user settled; what was said by id instead.
        self.frames = {}
        self.by_id = Counter()
        self.begin_stream()

    def begin_stream(self):
        self.credit = self.epoch = self.confirmed = 0
        self.next_sequence = 1
        self.leased.clear()
        self.write(0)

    def key(self, epoch, place):
        return self.core.generation, epoch, place

    def write(self, _):
        while (request := self.core.next_frame()) is not None:
            self.read(request)
        live = sum(until > self.now for until in self.leased.values())
        assert self.credit + live <= PREFETCH

    def read(self, request):
        if request.sequence:
            assert request.sequence == self.next_sequence
            self.next_sequence += 1
        actions = [request.ack, request.release, *(nack.runs for nack in request.nack)]
        final = [place for runs in actions for place in places_of(runs)]
        # One place is settled once, in whatever way, and not extended in the frame that settles it.
        assert len(set(final)) == len(final)
        assert not set(final) & {place for extend in request.extend for place in places_of(extend.runs)}
        for epoch, place in final:
            assert self.key(epoch, place) not in self.said
            self.said.add(self.key(epoch, place))
            self.leased.pop((epoch, place), None)
        for epoch, place in places_of(request.begun):
            assert self.handed[self.key(epoch, place)] == 1
        self.credit += request.credit_messages
        assert request.credit_bytes == request.credit_messages * BODY_BYTES

    def deliver(self, number):
        number = min(number, self.credit)
        if not number or self.core.stopping:
            return
        self.epoch += 1
        self.credit -= number
        self.leased |= {(self.epoch, place): self.now + LEASE_SECONDS for place in range(number)}
        delivery = Delivery(
            epoch=self.epoch,
            leased_at_ms=0,
            lease_expires_at_ms=LEASE_SECONDS * 1000,
            sizes=[BODY_BYTES] * number,
            bodies=b"\x1a\x03abc" * number,
            keys=["default"],
            enqueued_at_ms=[1],
        )
        self.core.on_response(SubscribeResponse(delivery=delivery), self.now)

    def take(self, number):
        for _ in range(number):
            message = self.core.take(self.now)
            if message is None:
                return
            held = message.held
            # Never from a stream that was lost, nor after its lease.
            assert held.generation == self.core.generation
            assert self.now < held.deadline
            self.handed[held.generation, held.epoch, message.position] += 1
            self.in_hand.append(message)

    def settle(self, name, choice):
        if not self.in_hand:
            return
        message = self.in_hand.pop(choice % len(self.in_hand))
        held, place = message.held, message.position
        frame = self.core.settle(held, place, FINAL[name], "boom", self.now)
        key = (held.generation, held.epoch, place)
        if frame is None:
            assert held.generation != self.core.generation
            self.by_id[key] += 1
        else:
            assert key not in self.frames
            self.frames[key] = frame

    def extend(self, choice):
        if self.in_hand:
            message = self.in_hand[choice % len(self.in_hand)]
            self.core.settle(message.held, message.position, Settle.EXTEND, 15_000, self.now)

    def confirm(self, number):
        last = min(self.confirmed + number, self.next_sequence - 1)
        if last > self.confirmed:
            self.confirmed = last
            self.core.on_response(SubscribeResponse(settled=Settled(sequence=last)), self.now)

    def lose(self, _):
        adrift = self.core.lost()
        for frame in adrift.frames:
            assert not frame.done
            for action, _, places in frame.settlements():
                if action is not Settle.EXTEND:
                    self.by_id.update(
                        (held.generation, held.epoch, first + place)
                        for held, first, count in places
                        for place in range(count)
                        if (held.generation, held.epoch, first + place) in self.frames
                    )
            self.core.resolve(frame)
        for held, first, count in adrift.waiting:
            for place in range(first, first + count):
                key = (held.generation, held.epoch, place)
                assert not self.handed[key]
                self.given_back[key] += 1
        self.begin_stream()

    def wait(self, seconds):
        self.now += seconds
        self.core.expire(self.now)

    def keep_alive(self, _):
        _, adrift = self.core.keep_alive(self.now)
        settled = set(self.frames) | set(self.by_id)
        for held, first, count in (place for places in adrift.values() for place in places):
            assert held.generation != self.core.generation
            assert not settled & {(held.generation, held.epoch, first + place) for place in range(count)}

    def stopping(self, _):
        self.core.on_response(SubscribeResponse(stopping=True), self.now)
        assert self.core.take(self.now) is None

    def step(self, name, argument):
        if name in FINAL:
            self.settle(name, argument)
        else:
            getattr(self, name)(argument)
        assert self.core.unconfirmed == sum(not frame.done for frame in self.frames.values())
        assert set(self.handed.values()) <= {1}


@settings(max_examples=300)
@given(steps=STEPS)
def test_nothing_is_handed_out_twice_and_nothing_settled_is_left_unsaid(steps):
    """Whatever streams are lost, and whatever was written, confirmed or in hand at the time.

    A place of a delivery is handed out once or given back once. A settlement is confirmed by its own stream, or said by
    message id after it. The credit of a stream and what it has leased never exceed the prefetch.
    """
    history = History()

    for step in steps:
        history.step(*step)
    for message in list(history.in_hand):
        history.settle("ack", history.in_hand.index(message))
    history.step("write", 0)
    history.step("confirm", 1_000_000)

    assert history.core.unconfirmed == 0
    assert history.core.in_work == 0
    for key, frame in history.frames.items():
        assert frame.done
        # By its own stream alone, or by id when that was lost unconfirmed; said there before or not.
        assert key in history.said or history.by_id[key] == 1
    assert set(history.by_id.values()) <= {1}
    assert set(history.given_back.values()) <= {1}
    assert not set(history.given_back) & set(history.handed)


@settings(max_examples=300)
@given(steps=STEPS)
def test_failed_consumer_leaves_nobody_waiting(steps):
    """Whatever was settled is answered, and nothing is handed out any more."""
    history = History()
    for step in steps:
        history.step(*step)

    history.core.fail(UnavailableError("closed"))

    assert all(frame.done for frame in history.frames.values())
    assert history.core.unconfirmed == 0
    assert history.core.take(history.now) is None
    assert history.core.next_frame() is None
