"""The checks of a batch in columns."""

import pytest

from fila import limits
from fila.errors import InvalidArgumentError
from fila.wire.columns import MalformedColumnsError, read_columns
from fila.wire.v1.messages_pb2 import MessageColumns


def columns(**changes):
    given = {"bodies": b"aabbb", "sizes": [2, 3], "keys": ["x", "y"], "key_index": [1, 0]} | changes
    return MessageColumns(**given)


def test_sound_columns_come_out_as_they_came():
    """What is sound is taken over without a change."""
    batch = read_columns(columns(weights=[1, 3], costs=[7, 2]))

    assert batch.bodies == b"aabbb"
    assert list(batch.sizes) == [2, 3]
    assert batch.keys == ["x", "y"]
    assert batch.key_index == [1, 0]
    assert batch.weights == [1, 3]
    assert batch.costs == [7, 2]


def test_absent_columns_mean_the_default():
    """Without keys all messages belong to `default`; without weights and costs all have 1."""
    batch = read_columns(MessageColumns(bodies=b"ab", sizes=[1, 1]))

    assert batch.keys == ["default"]
    assert batch.key_index is None
    assert batch.weights is None
    assert batch.costs is None


def test_without_an_index_all_belong_to_the_first_key():
    """A dictionary without an index: the other keys are nobody's."""
    batch = read_columns(columns(key_index=[]))

    assert batch.keys == ["x"]
    assert batch.key_index is None


def test_the_empty_key_is_the_default_key():
    """A message that names no key belongs to `default`, as with Enqueue."""
    assert read_columns(columns(keys=["", "y"])).keys == ["default", "y"]


def test_zero_weights_and_costs_mean_one():
    """0 says nothing, and so does a column of nothing but 1."""
    batch = read_columns(columns(weights=[0, 5], costs=[0, 1]))

    assert batch.weights == [1, 5]
    assert batch.costs is None


def test_messages_without_a_body_are_messages():
    """Neither headers nor payload: the encoding has no bytes."""
    assert list(read_columns(MessageColumns(bodies=b"", sizes=[0, 0])).sizes) == [0, 0]


@pytest.mark.parametrize(
    "changes",
    [
        {"sizes": [2, 2]},
        {"sizes": [2, 3, 1]},
        {"sizes": [2**32 - 1, 2**32 - 1]},
        {"bodies": b""},
        {"key_index": [0]},
        {"key_index": [0, 1, 0]},
        {"key_index": [0, 2]},
        {"key_index": [0, 2**32 - 1]},
        {"keys": []},
        {"keys": ["x", "x"]},
        {"keys": ["", "default"]},
        {"keys": ["x", "y", "z"]},
        {"weights": [1]},
        {"costs": [1, 1, 1]},
    ],
)
def test_columns_that_contradict_each_other_are_malformed(changes):
    """Nothing is taken from a batch whose columns do not fit together."""
    with pytest.raises(MalformedColumnsError):
        read_columns(columns(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"bodies": b"", "sizes": []},
        {"weights": [1, limits.WEIGHT_MAX + 1]},
        {"weights": [2**32 - 1, 1]},
        {"costs": [limits.COST_MAX + 1, 1]},
        {"keys": ["x", "y" * (limits.FAIRNESS_KEY_BYTES_MAX + 1)]},
        {"keys": ["x", "\U0001f600" * (limits.FAIRNESS_KEY_BYTES_MAX // 4 + 1)]},
        {"bodies": bytes(limits.BODY_BYTES_MAX + 2), "sizes": [1, limits.BODY_BYTES_MAX + 1]},
        {"bodies": bytes(limits.BATCH_BYTES_MAX + 4), "sizes": [limits.BATCH_BYTES_MAX // 4 + 1] * 4},
        {
            "bodies": bytes(limits.BATCH_MESSAGES_MAX + 1),
            "sizes": [1] * (limits.BATCH_MESSAGES_MAX + 1),
            "key_index": [],
        },
    ],
)
def test_values_out_of_bounds_are_refused_but_not_malformed(changes):
    """A batch beyond a limit is one refused batch; the stream that brought it is sound."""
    with pytest.raises(InvalidArgumentError) as refusal:
        read_columns(columns(**changes))

    assert not isinstance(refusal.value, MalformedColumnsError)


def test_values_at_their_bounds_are_taken():
    """A limit itself is allowed."""
    key = "\U0001f600" * (limits.FAIRNESS_KEY_BYTES_MAX // 4)

    batch = read_columns(
        columns(
            bodies=bytes(limits.BODY_BYTES_MAX + 1),
            sizes=[1, limits.BODY_BYTES_MAX],
            keys=[key, "k" * limits.FAIRNESS_KEY_BYTES_MAX],
            weights=[limits.WEIGHT_MAX, 1],
            costs=[limits.COST_MAX, 1],
        )
    )

    assert batch.keys[0] == key
