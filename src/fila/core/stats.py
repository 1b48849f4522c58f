"""A queue at a glance, from what its group holds."""

from collections import Counter
from heapq import nsmallest

from fila import limits
from fila.core.group import Group
from fila.core.model import KeyStats, QueueStats


def queue_stats(group: Group, *, with_keys: bool) -> QueueStats:
    """Return the numbers of a queue; without keys it takes the same time however many there are."""
    log = group.log
    return QueueStats(
        number=log.number,
        spec=log.spec,
        depth=group.waiting + len(group.delayed),
        delayed=len(group.delayed),
        in_flight=len(group.epochs),
        consumers=len(group.consumers),
        active_keys=sum(key.live > 0 for key in group.keys.values()) if with_keys else 0,
        next_offset=log.next_offset,
        keys=_key_stats(group) if with_keys else (),
        gates=group.holding.stats() if with_keys and group.holding is not None else (),
    )


def _key_stats(group: Group) -> tuple[KeyStats, ...]:
    """Return the keys with the most waiting messages; values are made only for those that are shown."""
    elsewhere = Counter(group.held_numbers())
    elsewhere.update(group.log.key_number(offset) for offset in group.delayed)
    shown = nsmallest(
        limits.STATS_KEYS_MAX,
        [(elsewhere[key.number] - key.live, key.name) for key in group.keys.values() if key.live],
    )
    keys = [(group.keys[name], -missing) for missing, name in shown]
    return tuple(
        KeyStats(key.name, pending, group.discipline.deficit(key), key.weight) for key, pending in keys
    )
