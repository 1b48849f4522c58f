"""The arithmetic and the load of the bench."""

import itertools
import os
from pathlib import Path

import pytest

from fila.bench.figures import Sample, median_or_none, percentile, ratio_or_none
from fila.bench.messages import MessageSource, build_batch
from fila.bench.process import cpu_seconds, find_listener, measure_fsync_ms, process_tree, resident_bytes
from fila.bench.workloads import Choices, choose_parameters
from fila.errors import InvalidArgumentError
from fila.wire.v1.messages_pb2 import Body
from fila.wire.v1.service_pb2 import ProduceRequest


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1), (1, 1), (50, 50), (50.5, 51), (99, 99), (99.1, 100), (100, 100)]
)
def test_percentiles_are_values_that_were_measured(percent, expected):
    """The nearest rank: no value in between is made up."""
    values = [*range(51, 101), *range(1, 51)]

    assert percentile(values, percent) == expected


def test_unknown_figures_stay_unknown():
    """A processor time that cannot be read becomes no number anywhere."""
    sample = Sample(10, 1.0, 0.5)

    sample.add(Sample(10, 1.0, None))

    assert sample.messages == 20
    assert sample.cpu_us_per_msg is None
    assert ratio_or_none(sample.cpu_us_per_msg, 1.0) is None
    assert median_or_none([1.0, None]) is None
    assert median_or_none([3.0, 1.0, 2.0]) == 2.0


def test_batches_hold_random_payloads_and_all_keys_in_turn():
    """What goes over the wire is what the parameters say."""
    batches = MessageSource(payload_bytes=300, keys=7).batches(10)

    columns = [ProduceRequest.FromString(batch.field).messages for batch in itertools.islice(batches, 2)]

    for column in columns:
        assert sum(column.sizes) == len(column.bodies)
        assert len(column.sizes) == len(column.key_index) == 10
        assert max(column.key_index) < len(column.keys) == 7
    keys = [column.keys[place] for column in columns for place in column.key_index]
    assert keys == [f"key-{place % 7:06d}" for place in range(20)]
    body = Body.FromString(columns[0].bodies[: columns[0].sizes[0]])
    assert len(body.payload) == 300
    assert len({column.bodies[:100] for column in columns}) == 2


def test_shuffled_keys_repeat_with_their_seed():
    """Broker and bare server get the same keys."""

    def keys(seed):
        source = MessageSource(payload_bytes=10, keys=1_000, shuffle_seed=seed)
        columns = ProduceRequest.FromString(next(source.batches(100)).field).messages
        return [columns.keys[place] for place in columns.key_index]

    assert keys(1) == keys(1) != keys(2)


def test_a_batch_of_one_key_and_weight_carries_no_columns_for_them():
    """Nothing per message that the batch can say once."""
    columns = ProduceRequest.FromString(build_batch([b"x"] * 3, ["a"] * 3).field).messages

    assert (list(columns.keys), list(columns.key_index), list(columns.weights)) == (["a"], [], [])


def test_a_process_is_read_from_outside():
    """Our own processor time grows with work, and our memory is that of an interpreter."""
    before = cpu_seconds(os.getpid())
    sum(range(2_000_000))

    assert 0.001 < cpu_seconds(os.getpid()) - before < 60
    assert process_tree(os.getpid())[0] == os.getpid()
    assert 5_000_000 < resident_bytes(os.getpid()) < 5_000_000_000


def test_addresses_of_other_machines_have_no_process_here():
    """A guess would measure a stranger."""
    assert find_listener("broker.example:5555") is None


def test_the_fsync_probe_leaves_nothing_behind(tmp_path: Path):
    """The data directory belongs to the broker."""
    assert measure_fsync_ms(tmp_path) > 0
    assert list(tmp_path.iterdir()) == []


def test_choices_that_mean_nothing_are_refused():
    """An unknown workload, or a time for a load that ends by count, is an error and not a default."""
    with pytest.raises(InvalidArgumentError, match="produce, consume, both"):
        choose_parameters("prodcue", Choices())
    with pytest.raises(InvalidArgumentError, match="--messages"):
        choose_parameters("consume", Choices(seconds=3.0))
    assert choose_parameters("consume", Choices(messages=5, quick=True)).messages == 5
