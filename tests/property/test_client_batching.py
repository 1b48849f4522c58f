"""The law of the producer: nothing lost, nothing reordered, memory bounded."""

from hypothesis import given
from hypothesis import strategies as st

from fila.client.batching import BatchingCore
from fila.client.bodies import decode_body
from fila.errors import LimitError
from fila.wire.v1.service_pb2 import ProduceResponse

MESSAGES_HELD_MAX = 20
BYTES_HELD_MAX = 400

ADD = st.tuples(
    st.just("add"),
    st.binary(max_size=60),
    st.sampled_from([None, "acme", "umbrella", "default"]),
    st.sampled_from([None, 1, 4]),
)
STEPS = st.lists(
    st.one_of(ADD, ADD, st.just(("write",)), st.just(("receipt",)), st.just(("refuse",))), max_size=120
)


class BrokerModel:
    """Takes what arrives, in the order in which it arrives."""

    def __init__(self):
        self.stored = []
        self.unanswered = []

    def write(self, request):
        columns = request.messages
        assert sum(columns.sizes) == len(columns.bodies)
        bodies, start = [], 0
        for size in columns.sizes:
            bodies.append(decode_body(columns.bodies[start : start + size])[1])
            start += size
        keys = list(columns.keys) or ["default"]
        index = list(columns.key_index) or [0] * len(bodies)
        weights = list(columns.weights) or [1] * len(bodies)
        self.unanswered.append(
            (
                request.sequence,
                [(body, keys[key], weight) for body, key, weight in zip(bodies, index, weights, strict=True)],
            )
        )

    def receipt(self, *, refuse=False):
        sequence, messages = self.unanswered.pop(0)
        if refuse:
            return ProduceResponse(sequence=sequence, error_code=8, error="no room")
        self.stored += messages
        return ProduceResponse(
            sequence=sequence, first_offset=len(self.stored) - len(messages), count=len(messages)
        )


@given(steps=STEPS)
def test_nothing_lost_nothing_reordered_memory_bounded(steps):
    """The producer's law, whatever the order of sends, frames, receipts and refusals.

    A receipt tells where its message is, all that was taken is stored once and in order, and what the producer
    holds stays within its bounds.
    """
    core = BatchingCore(
        "orders",
        batch_messages=4,
        batch_bytes=100,
        batches_in_flight=3,
        messages_held_max=MESSAGES_HELD_MAX,
        bytes_held_max=BYTES_HELD_MAX,
    )
    broker, sent = BrokerModel(), []

    def write():
        request = core.next_request()
        if request is not None:
            broker.write(request)

    for name, *arguments in [*steps, *[("write",), ("receipt",)] * 40]:
        if name == "add":
            payload, key, weight = arguments
            had_room = core.has_room
            try:
                batch = core.add(payload, fairness_key=key, weight=weight)
            except LimitError:
                assert not had_room
            else:
                # Whoever has waited for room may add one message, whatever its size.
                assert had_room
                assert core.bytes_held < BYTES_HELD_MAX + len(payload) + 2
                sent.append((batch, batch.count - 1, (payload, key or "default", weight or 1)))
        elif name == "write":
            write()
        elif broker.unanswered:
            core.on_response(broker.receipt(refuse=name == "refuse"))
        assert core.messages_held <= MESSAGES_HELD_MAX

    assert core.unresolved(core.sent) is None
    assert core.messages_held == core.bytes_held == 0
    assert all(batch.done for batch, _, _ in sent)
    taken = [(batch.first_offset + place, message) for batch, place, message in sent if batch.error is None]
    assert taken == list(enumerate(broker.stored))
