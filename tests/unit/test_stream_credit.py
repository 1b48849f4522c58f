"""The credit of a stream, and how much of it the core hears of."""

import pytest

from fila import limits
from fila.errors import InvalidArgumentError
from fila.server.credit import StreamCredit


def test_small_credit_is_handed_over_whole():
    """Nothing is kept back that may wait in memory."""
    credit = StreamCredit()

    assert credit.grant(10, 1000) == (10, 1000)
    assert credit.grant(5, 500) == (5, 500)


def test_credit_beyond_what_may_wait_follows_as_frames_are_written():
    """The core is never told of more bytes than one stream may have waiting."""
    credit = StreamCredit()

    assert credit.grant(10, limits.STREAM_BYTES_MAX + 700) == (10, limits.STREAM_BYTES_MAX)
    assert credit.grant(1, 100) == (1, 0)
    credit.delivered(1, 300)
    assert credit.written(300) == 300
    credit.delivered(1, 10_000)
    assert credit.written(10_000) == 500
    credit.delivered(1, 1)
    assert credit.written(1) == 0


@pytest.mark.parametrize(
    "grant", [(limits.CREDIT_MESSAGES_MAX + 1, 0), (0, limits.CREDIT_BYTES_MAX + 1), (0, 2**64 - 1)]
)
def test_credit_beyond_its_bounds_is_refused(grant):
    """One stream may hold so much and no more, in one grant or in many."""
    with pytest.raises(InvalidArgumentError, match="credit"):
        StreamCredit().grant(*grant)


def test_used_credit_can_be_granted_again():
    """The bound is on what is outstanding, not on what was ever granted."""
    credit = StreamCredit()
    credit.grant(limits.CREDIT_MESSAGES_MAX, limits.CREDIT_BYTES_MAX)

    with pytest.raises(InvalidArgumentError):
        credit.grant(1, 0)
    credit.delivered(1, 10)

    assert credit.grant(1, 10)[0] == 1


def test_stopped_credit_is_void_and_stays_so():
    """What was granted and not used does not come back as frames are written, and later grants are nobody's fault."""
    credit = StreamCredit()
    credit.grant(10, limits.STREAM_BYTES_MAX + 700)
    credit.delivered(1, 500)

    credit.stop()

    assert credit.written(500) == 0
    assert credit.grant(limits.CREDIT_MESSAGES_MAX, limits.CREDIT_BYTES_MAX) == (0, 0)
    assert credit.grant(limits.CREDIT_MESSAGES_MAX, limits.CREDIT_BYTES_MAX) == (0, 0)
