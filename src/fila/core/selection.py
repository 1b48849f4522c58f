"""Which leases a client means, and which of those there are: by run or by address, in masks of each delivery."""

from collections.abc import Sequence

from fila.core.group import Group
from fila.core.leases import Lease
from fila.core.model import NO_RUNS, Action, Address, Runs
from fila.core.segment import places
from fila.errors import MessageNotFoundError

Masks = dict[int, int]


def select_runs(leases: dict[int, Lease], runs: Runs) -> tuple[Masks, Runs]:
    """Return the held places that the runs name, by epoch, and the runs that had ended."""
    masks: Masks = {}
    refused: list[tuple[int, int, int]] = []
    for epoch, position, count in zip(runs.epochs, runs.positions, runs.counts, strict=True):
        lease = leases.get(epoch)
        if lease is None:
            refused.append((epoch, position, count))
            continue
        mask = lease.select(position, count)
        known = mask & lease.held & ~masks.get(epoch, 0)
        if known != mask or not mask:
            refused += refused_runs(epoch, position, count, mask & ~known)
        if known:
            masks[epoch] = masks.get(epoch, 0) | known
    return masks, Runs(*zip(*refused, strict=True)) if refused else NO_RUNS


def refused_runs(epoch: int, position: int, count: int, mask: int) -> list[tuple[int, int, int]]:
    """Return the runs of a mask that had ended; a run of places that never were is refused as it came."""
    if not mask:
        return [(epoch, position, count)]
    return [(epoch, place, 1) for place in places(mask)]


def select_messages(
    group: Group, addresses: Sequence[Address], epochs: Sequence[int] | None
) -> tuple[Masks, tuple[MessageNotFoundError | None, ...]]:
    """Return the held places that the addresses name, by epoch, and for each address why not, or None."""
    results: list[MessageNotFoundError | None] = []
    masks: Masks = {}
    for place, address in enumerate(addresses):
        found = find_lease(group, address, 0 if epochs is None else epochs[place])
        if found is not None and masks.get(found[0], 0) & found[1]:
            found = None
        if found is None:
            results.append(not_leased(group, address))
            continue
        masks[found[0]] = masks.get(found[0], 0) | found[1]
        results.append(None)
    return masks, tuple(results)


def find_lease(group: Group, address: Address, wanted: int) -> tuple[int, int] | None:
    """Return the epoch and mask of a message's present lease, if it is the one that is meant."""
    if address.queue_number != group.log.number:
        return None
    epoch = group.epochs.get(address.offset)
    if (
        epoch is None
        or (wanted and wanted != epoch)
        or group.log.time_ms(address.offset) != address.enqueued_at_ms
    ):
        return None
    return epoch, 1 << group.leases[epoch].offsets.index(address.offset)


def not_leased(group: Group, address: Address) -> MessageNotFoundError:
    """Say that there is no such lease, and whether that is because the message is finished."""
    log = group.log
    if (
        address.queue_number == log.number
        and address.offset < log.next_offset
        and log.time_ms(address.offset) is None
    ):
        return MessageNotFoundError("the message is finished: it was acked before, or purged", finished=True)
    return MessageNotFoundError("the message is not leased, or no longer under this lease")


def in_order(masks: Masks, action: Action) -> list[tuple[int, int]]:
    """Return what is settled of each delivery; releases with the newest first, so that the oldest stand before them again."""
    return sorted(masks.items(), reverse=True) if action is Action.RELEASE else list(masks.items())
