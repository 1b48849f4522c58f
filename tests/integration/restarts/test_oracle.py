"""The judge of the restart test finds what it is there to find."""

import pytest
from tests.integration.restarts.oracle import LawBrokenError, Oracle


@pytest.fixture
def oracle():
    oracle = Oracle()
    for number in range(3):
        oracle.sends(f"p {number}".encode())
        oracle.acknowledges(f"p {number}".encode(), f"id-{number}")
    return oracle


def handle(oracle, *numbers, message_id="", offset=-1):
    for number in numbers:
        identity = message_id or f"id-{number}"
        oracle.begins(identity, f"p {number}".encode(), number if offset < 0 else offset)
        oracle.returns(identity)


def test_all_is_well(oracle):
    """Everything handled once, in any order, breaks no law; a message that was sent again is counted."""
    handle(oracle, 2, 0, 1)
    handle(oracle, 1, message_id="id-1-again", offset=7)

    oracle.finish()

    assert (oracle.counts.handled, oracle.counts.duplicates, oracle.counts.handed_again) == (4, 1, 0)


def test_a_failed_handler_gets_its_message_again(oracle):
    """It had not returned: that it comes back is right, and counted."""
    oracle.begins("id-0", b"p 0", 0)
    oracle.fails("id-0")
    handle(oracle, 0, 1, 2)

    oracle.finish()

    assert (oracle.counts.handed_again, oracle.counts.handed_while_in_work) == (1, 0)


def test_what_was_acked_and_comes_back_is_found(oracle):
    """Its handler had returned, in this life or another."""
    handle(oracle, 0, 1, 2)
    oracle.life = 2
    handle(oracle, 1)

    with pytest.raises(LawBrokenError, match="id-1 came back, and its handler had returned in life 1"):
        oracle.check()


def test_what_was_acknowledged_and_never_comes_is_found(oracle):
    """Even where a message of the same payload, sent again, was handled."""
    handle(oracle, 0, 2)
    handle(oracle, 1, message_id="id-1-again", offset=7)

    with pytest.raises(LawBrokenError, match="id-1 was acknowledged and is lost"):
        oracle.finish()


def test_a_payload_that_nobody_sent_is_found(oracle):
    """Nor may an id change what it stands for."""
    handle(oracle, 0, message_id="id-0")
    oracle.begins("id-1", b"q 1", 1)
    oracle.begins("id-2", b"p 0", 2)

    with pytest.raises(LawBrokenError, match="nobody sent"):
        oracle.check()


def test_messages_of_a_producer_out_of_order_are_found(oracle):
    """Their places in the queue go as they were sent."""
    handle(oracle, 0)
    handle(oracle, 1, offset=2)
    handle(oracle, 2, offset=1)

    with pytest.raises(LawBrokenError, match="out of order"):
        oracle.finish()


def test_two_messages_with_one_receipt_are_found(oracle):
    """One of them is not there."""
    oracle.sends(b"p 3")
    oracle.acknowledges(b"p 3", "id-0")

    with pytest.raises(LawBrokenError, match="the receipt of two messages"):
        oracle.check()
