"""The judge of the crash test finds what it is there to find."""

import pytest
from tests.integration.crash.oracle import LawBrokenError, Oracle, Sent

SECOND = 1_000


@pytest.fixture
def oracle():
    oracle = Oracle()
    oracle.life = 1
    return oracle


def sent(oracle, *tags, answered=True, first=0):
    batch = [Sent(tag.ljust(16, "."), "q", "k", 1, tag.ljust(16, ".").encode() + b"body", {}) for tag in tags]
    oracle.sent(batch)
    for place, message in enumerate(batch):
        if answered:
            oracle.enqueued(message, f"id-{message.tag}", first + place)
    return batch


def deliver(oracle, message, epoch, *, call=1, attempts=0, at_ms=0, **changed):
    fields = {
        "id": message.id or f"id-{message.tag}",
        "offset": max(message.offset, 0),
        "key": message.key,
        "weight": message.weight,
        "headers": {},
        "payload": message.payload,
        "leased_at_ms": at_ms,
        "deadline_ms": at_ms + SECOND,
    }
    return oracle.delivered(call, "q", epoch=epoch, attempts=attempts, **(fields | changed))


def settle(oracle, lease, action, **fields):
    oracle.settling(lease, action)
    oracle.settled(lease, action, **fields)


def test_acknowledged_message_that_never_comes_is_lost(oracle):
    """An answered enqueue is a promise."""
    sent(oracle, "a")

    with pytest.raises(LawBrokenError, match="is lost"):
        oracle.drained()


def test_message_whose_ack_has_no_answer_may_come_again_or_not(oracle):
    """What was not answered binds nobody."""
    (message,) = sent(oracle, "a")
    oracle.settling(deliver(oracle, message, 1), "ack")

    oracle.drained()
    oracle.life = 2
    deliver(oracle, message, 2)


def test_half_a_batch_is_found(oracle):
    """A batch without an answer is there whole or not at all."""
    first, _ = sent(oracle, "a", "b", answered=False)
    settle(oracle, deliver(oracle, first, 1), "ack")

    with pytest.raises(LawBrokenError, match="1 of the 2 messages"):
        oracle.drained()


def test_acked_message_that_comes_again_is_found(oracle):
    """In the next life of the server, and in the same one under a later epoch."""
    (message,) = sent(oracle, "a")
    settle(oracle, deliver(oracle, message, 5), "ack")

    with pytest.raises(LawBrokenError, match="was acked"):
        deliver(oracle, message, 6)
    oracle.life = 2
    with pytest.raises(LawBrokenError, match="was acked"):
        deliver(oracle, message, 4, call=2)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"payload": b"a...............other"}, "payload"),
        ({"key": "other"}, "key"),
        ({"weight": 2}, "weight"),
        ({"headers": {"a": "b"}}, "headers"),
        ({"id": "other"}, "now is other"),
        ({"offset": 9}, "at 9"),
        ({"payload": b"never sent......"}, "never sent"),
    ],
)
def test_changed_message_is_found(oracle, changed, what):
    """A message comes as it was sent, under the id and offset that were answered."""
    (message,) = sent(oracle, "a")

    with pytest.raises(LawBrokenError, match=what):
        deliver(oracle, message, 1, **changed)


def test_offset_given_twice_is_found(oracle):
    """Two messages of a queue never share an offset."""
    sent(oracle, "a")

    with pytest.raises(LawBrokenError, match="are both"):
        sent(oracle, "b")


def test_epoch_given_twice_is_found(oracle):
    """Neither to another call, nor in another life, nor to the same message."""
    first, second = sent(oracle, "a", "b")
    deliver(oracle, first, 1)

    with pytest.raises(LawBrokenError, match="delivered twice"):
        deliver(oracle, first, 1)
    with pytest.raises(LawBrokenError, match="and again to"):
        deliver(oracle, second, 1, call=2)
    oracle.life = 2
    with pytest.raises(LawBrokenError, match="and again to"):
        deliver(oracle, second, 1)


def test_forgotten_attempt_is_found(oracle):
    """An answered nack is an attempt, and an attempt that was once shown stays."""
    first, second = sent(oracle, "a", "b")
    settle(oracle, deliver(oracle, first, 1), "nack")
    deliver(oracle, second, 2, attempts=3)

    with pytest.raises(LawBrokenError, match="1 attempts"):
        deliver(oracle, first, 3)
    with pytest.raises(LawBrokenError, match="3 attempts"):
        deliver(oracle, second, 4, attempts=2, at_ms=2 * SECOND)


def test_message_in_two_leases_is_found(oracle):
    """A lease lasts until its deadline, also over a crash, and as long as it was extended."""
    first, second = sent(oracle, "a", "b")
    deliver(oracle, first, 1)
    settle(oracle, deliver(oracle, second, 2), "extend", until_ms=3 * SECOND)

    oracle.life = 2
    with pytest.raises(LawBrokenError, match="is leased until 1000"):
        deliver(oracle, first, 3, at_ms=SECOND // 2)
    with pytest.raises(LawBrokenError, match="is leased until 3000"):
        deliver(oracle, second, 4, at_ms=2 * SECOND)


def test_stream_of_a_stopping_server_gives_its_leases_back(oracle):
    """And nothing else does: what a unary call leased stays leased."""
    first, second = sent(oracle, "a", "b")
    deliver(oracle, first, 1)
    deliver(oracle, second, 2, call=("lease", 1))
    oracle.stopped.add(1)

    oracle.life = 2
    deliver(oracle, first, 3)
    with pytest.raises(LawBrokenError, match="is leased until"):
        deliver(oracle, second, 4)


def test_refusal_of_a_living_lease_is_found(oracle):
    """Only the deadline, or what was sent before, ends a lease."""
    (message,) = sent(oracle, "a")
    lease = deliver(oracle, message, 1)
    oracle.settling(lease, "ack")

    with pytest.raises(LawBrokenError, match="before its deadline"):
        oracle.refused(lease, "ack", at_ms=SECOND // 2)
    oracle.settling(lease, "ack")
    oracle.settling(lease, "ack")
    oracle.refused(lease, "ack", at_ms=SECOND // 2)
