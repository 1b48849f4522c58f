"""What a delivery says of its messages: their columns, their keys, and how often each has failed."""

from collections.abc import Callable, Mapping

from fila.core.attempts import Attempt
from fila.core.columns import pick_columns
from fila.core.leases import Lease
from fila.core.log import QueueLog
from fila.core.outcome import Delivery


def build_delivery(
    log: QueueLog,
    lease: Lease,
    now_ns: int,
    failed: Mapping[int, Attempt],
    name_of: Callable[[int], str],
) -> Delivery:
    """Return the delivery of a new lease; `name_of` gives the name of each key's number."""
    offsets = lease.offsets
    pages, sizes, times_ms, weights = pick_columns(log.segments, offsets)
    dictionary = {number: index for index, number in enumerate(dict.fromkeys(lease.numbers))}
    attempts = None
    if failed:
        get = failed.get
        counts = [attempt.count if (attempt := get(offset)) else 0 for offset in offsets]
        attempts = counts if any(counts) else None
    return Delivery(
        consumer=lease.consumer,
        queue=log.number,
        queue_name=log.spec.name,
        epoch=lease.epoch,
        leased_at_ns=now_ns,
        deadline_ns=lease.deadline_ns,
        offsets=offsets,
        pages=pages,
        sizes=sizes,
        times_ms=times_ms,
        keys=[name_of(number) for number in dictionary],
        key_index=[dictionary[number] for number in lease.numbers],
        weights=weights,
        attempts=attempts,
    )
