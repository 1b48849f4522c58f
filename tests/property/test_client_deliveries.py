"""The law of credit: what a stream may hold and what it holds always add up to the prefetch."""

from hypothesis import given
from hypothesis import strategies as st

from fila.client.deliveries import DeliveriesCore
from fila.client.messages import DeliveredMessage, Settle
from fila.client.runs import read_runs
from fila.wire.v1.service_pb2 import Delivery, SubscribeResponse

PREFETCH = 12
BODY_BYTES = 5
LEASE_SECONDS = 10

ACTIONS = {"ack": Settle.ACK, "nack": Settle.NACK}

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("deliver"), st.integers(1, 5)),
        st.tuples(st.just("take"), st.just(0)),
        st.tuples(st.just("ack"), st.integers(0, 20)),
        st.tuples(st.just("nack"), st.integers(0, 20)),
        st.tuples(st.just("extend"), st.integers(0, 20)),
        st.tuples(st.just("write"), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 6)),
    ),
    max_size=80,
)


class BrokerModel:
    """Sends within its credit, and takes each settlement once."""

    def __init__(self):
        self.credit = 0
        self.credit_bytes = 0
        self.epoch = 0
        self.settled = []

    def read(self, request):
        self.credit += request.credit_messages
        self.credit_bytes += request.credit_bytes
        for runs in (request.ack, *(nack.runs for nack in request.nack)):
            for epoch, start, count in read_runs(runs):
                self.settled += [(epoch, place) for place in range(start, start + count)]

    def deliver(self, count):
        count = min(count, self.credit)
        if not count:
            return None
        self.epoch += 1
        self.credit -= count
        self.credit_bytes -= count * BODY_BYTES
        delivery = Delivery(
            epoch=self.epoch,
            leased_at_ms=0,
            lease_expires_at_ms=LEASE_SECONDS * 1000,
            sizes=[BODY_BYTES] * count,
            bodies=b"\x1a\x03abc" * count,
            keys=["default"],
            enqueued_at_ms=[1],
        )
        return SubscribeResponse(delivery=delivery)


@given(steps=STEPS)
def test_credit_and_what_is_held_add_up_to_the_prefetch(steps):
    """Credit is conserved, whatever is delivered, settled, extended or forgotten.

    When all is settled or expired, the broker has the whole credit again and never had more, and every settlement
    arrived exactly once.
    """
    broker = BrokerModel()
    core = DeliveriesCore(
        "orders",
        holder=None,
        message_type=DeliveredMessage,
        prefetch=PREFETCH,
        prefetch_bytes=PREFETCH * BODY_BYTES,
    )
    now, in_hand, settled = 0.0, [], []

    def write():
        while (request := core.next_frame()) is not None:
            broker.read(request)
        assert 0 <= broker.credit <= PREFETCH
        assert broker.credit_bytes == broker.credit * BODY_BYTES

    def settle(name, choice):
        message = in_hand[choice % len(in_hand)]
        if name == "extend":
            core.settle(message.held, message.position, Settle.EXTEND, 15_000, now)
            return
        in_hand.remove(message)
        core.settle(message.held, message.position, ACTIONS[name], "boom", now)
        settled.append((message.held.epoch, message.position))

    write()
    for name, argument in steps:
        if name == "deliver":
            delivery = broker.deliver(argument)
            if delivery is not None:
                core.on_response(delivery, now)
        elif name == "take":
            message = core.take(now)
            if message is not None:
                in_hand.append(message)
        elif name == "write":
            write()
        elif name == "wait":
            now += argument
            core.expire(now)
        elif in_hand:
            settle(name, argument)

    while core.take(now) is not None:
        pass
    while core.next_expiry is not None:
        now = core.next_expiry
        core.expire(now)
    write()
    assert sorted(broker.settled) == sorted(settled)
    assert core.in_work == 0
    assert broker.credit + core._messages_due == PREFETCH
