"""From a store back to a scheduler: reads everything but bodies, and hands each record back as the write that made it.

A record that cannot be what the broker wrote stops the start; its key and the remedy are named.
"""

from dataclasses import dataclass

from fila import limits
from fila.core.model import Discipline, QueueSpec
from fila.core.outcome import PutAttempt, PutBucket, PutConfig, PutLease, PutProgress, PutQueue, PutRow
from fila.core.scheduler import Scheduler
from fila.errors import InvalidArgumentError, StoreCorruptError
from fila.storage import keys, records, settings
from fila.storage.records import corrupt
from fila.storage.store import Family, Store


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a store held. `messages` counts those that are stored and not finished, leased ones included."""

    queues: int
    messages: int
    rows: int
    leases: int
    attempts: int
    incarnation: int
    next_queue: int
    step: int
    now_ns: int


def recover(store: Store, now_ns: int) -> tuple[Scheduler, Recovered]:
    """Build the scheduler that the store's records stand for, ready for its first step.

    `now_ns` is the wall time; the scheduler's time is never before what the store has. The store's incarnation is
    raised, durably, so that epochs given from now on were never given before. Raises StoreError.
    """
    state, incarnation = _open_meta(store)
    now_ns = max(now_ns, state.now_ns)
    scheduler = Scheduler(
        now_ns=now_ns,
        incarnation=incarnation,
        first_step=state.step,
        next_queue_number=state.next_queue,
    )
    reading = _Reading(store, scheduler)
    reading.config()
    reading.buckets()
    scheduler.restore_gates(
        rested=store.get(Family.META, keys.REST) is not None,
        # Its first step is still to come.
        empty=state.step == 0,
    )
    reading.queues()
    reading.progress()
    attempts = reading.attempts()
    leases = reading.leases()
    rows, messages = reading.rows()
    scheduler.ready()
    return scheduler, Recovered(
        queues=len(reading.numbers),
        messages=messages,
        rows=rows,
        leases=leases,
        attempts=attempts,
        incarnation=incarnation,
        next_queue=scheduler.next_queue_number,
        step=state.step,
        now_ns=now_ns,
    )


def _open_meta(store: Store) -> tuple[records.State, int]:
    """Check the format, raise the incarnation, and return where the broker stood."""
    layout = store.get(Family.META, keys.FORMAT)
    if layout is None:
        for family in Family:
            for key, _ in store.scan(family):
                raise corrupt(family, key, "is in a store without a format")
        store.write(
            [
                (Family.META, keys.FORMAT, records.encode_number(records.FORMAT)),
                (Family.META, keys.INCARNATION, records.encode_number(1)),
                (Family.META, keys.STATE, records.encode_state(0, 0, 1)),
            ]
        )
        store.sync()
        return records.State(0, 0, 1), 1
    found = records.decode_number(keys.FORMAT, layout)
    if found != records.FORMAT:
        raise StoreCorruptError(
            f"the store has format {found}, and this version of fila knows format {records.FORMAT}: "
            "start the version of fila that wrote it"
        )
    incarnation = records.decode_number(keys.INCARNATION, _required(store, keys.INCARNATION)) + 1
    state = records.decode_state(keys.STATE, _required(store, keys.STATE))
    store.write([(Family.META, keys.INCARNATION, records.encode_number(incarnation))])
    store.sync()
    return state, incarnation


def _required(store: Store, key: bytes) -> bytes:
    value = store.get(Family.META, key)
    if value is None:
        raise corrupt(Family.META, key, "is missing")
    return value


class _Reading:
    """One pass over each family, in the order that the scheduler asks for."""

    def __init__(self, store: Store, scheduler: Scheduler) -> None:
        self._store = store
        self._scheduler = scheduler
        self.numbers: set[int] = set()
        self._finished: dict[tuple[int, int], int] = {}

    def config(self) -> None:
        for key, value in self._store.scan(Family.CONFIG):
            setting = settings.decode_setting(key, value)
            if keys.name_key(setting.key) != key:
                raise corrupt(Family.CONFIG, key, "is not under its own key")
            try:
                self._scheduler.restore_config(PutConfig(*setting))
            except InvalidArgumentError as error:
                raise corrupt(Family.CONFIG, key, f"has a value that cannot be ({error})") from error

    def buckets(self) -> None:
        for key, value in self._store.scan(Family.GATES):
            bucket = settings.decode_bucket(key, value)
            if keys.name_key(bucket.name) != key:
                raise corrupt(Family.GATES, key, "is not under its own key")
            self._scheduler.restore_bucket(PutBucket(*bucket))

    def queues(self) -> None:
        for key, value in self._store.scan(Family.QUEUES):
            record = records.decode_queue(key, value)
            try:
                number = keys.split_queue_key(key)
                spec = QueueSpec(
                    record.name, Discipline(record.discipline), record.quantum, record.visibility_timeout_ms
                )
            except (ValueError, InvalidArgumentError) as error:
                raise corrupt(Family.QUEUES, key, f"is not a queue ({error})") from error
            self.numbers.add(number)
            self._scheduler.restore_queue(PutQueue(number, spec, record.created_at_ms, record.next_offset))

    def progress(self) -> None:
        for key, value in self._store.scan(Family.PROGRESS):
            queue, first = self._by_group(Family.PROGRESS, key)
            bits = records.decode_progress(key, value)
            self._finished[queue, first] = bits
            self._scheduler.restore_progress(PutProgress(queue, first, bits))

    def attempts(self) -> int:
        count = 0
        for key, value in self._store.scan(Family.ATTEMPTS):
            queue, offset = self._by_group(Family.ATTEMPTS, key)
            self._scheduler.restore_attempt(PutAttempt(queue, offset, *records.decode_attempt(key, value)))
            count += 1
        return count

    def leases(self) -> int:
        count = 0
        for key, value in self._store.scan(Family.LEASES):
            queue, epoch = self._by_group(Family.LEASES, key)
            lease = records.decode_lease(key, value)
            self._scheduler.restore_lease(PutLease(queue, epoch, *lease))
            count += len(lease.offsets)
        return count

    def rows(self) -> tuple[int, int]:
        rows = messages = 0
        restore = self._scheduler.restore_row
        # Where the row before ended, and of which queue it was.
        before = (0, 0)
        for key, value in self._store.scan(Family.INDEX):
            try:
                queue, first = keys.split_offset_key(key)
            except ValueError as error:
                raise corrupt(Family.INDEX, key, f"has a key that names nothing ({error})") from error
            if queue not in self.numbers:
                raise corrupt(Family.INDEX, key, "belongs to no queue")
            row = records.decode_row(key, value)
            place = first % limits.SEGMENT_MESSAGES
            if place + row.length > limits.SEGMENT_MESSAGES:
                raise corrupt(Family.INDEX, key, "reaches beyond its segment")
            if (queue, first) < before:
                raise corrupt(Family.INDEX, key, "overlaps the row before it")
            before = (queue, first + row.length)
            restore(PutRow(queue, first, *row))
            rows += 1
            messages += row.length
            finished = self._finished.get((queue, first - place))
            if finished is not None:
                messages -= (finished >> place & (1 << row.length) - 1).bit_count()
        return rows, messages

    def _by_group(self, family: Family, key: bytes) -> tuple[int, int]:
        try:
            queue, group, number = keys.split_group_key(key)
        except ValueError as error:
            raise corrupt(family, key, f"has a key that names nothing ({error})") from error
        if group != keys.GROUP_DEFAULT or queue not in self.numbers:
            raise corrupt(family, key, "belongs to no queue or group")
        return queue, number
