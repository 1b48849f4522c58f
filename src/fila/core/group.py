"""What one group of consumers has left of a queue: who waits, who holds what, and what has failed before.

A message that is not finished is in exactly one of three states: *waiting* in the discipline, *leased* in a delivery, or
*delayed* until its next attempt. Every change of state is a method here.

        push                  deliver                 ack
    ---------->  waiting  --------------->  leased  ------->  finished
                    ^                          |
                    |    release, first failure |
                    +--------------------------+
                    |                          | later failure
                    +---------- delayed <------+
                       due
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import repeat

from fila import limits
from fila.core.attempts import Attempt, backoff_ms
from fila.core.credit import Consumer
from fila.core.deliveries import build_delivery
from fila.core.fairness.discipline import Discipline, Forget, Key, Make
from fila.core.gates.holding import Holding
from fila.core.gates.keeper import Keeper
from fila.core.leases import Lease
from fila.core.log import QueueLog
from fila.core.model import NO_GATES, GateKeys
from fila.core.outcome import DeleteAttempt, DeleteLease, Delivery, PutAttempt, PutLease, Write
from fila.core.segment import places
from fila.core.timers import Timers
from fila.core.usage import Usage

BITS = limits.SEGMENT_BITS
MASK = limits.SEGMENT_MESSAGES - 1


class Group:
    """The consumers of one queue, and the state of its messages among them."""

    def __init__(
        self, log: QueueLog, make: Make, expiries: Timers, retries: Timers, usage: Usage, keeper: Keeper
    ) -> None:
        self.log = log
        self._keeper = keeper
        # What waits behind gates; None until the first message that has any.
        self.holding: Holding | None = None
        self._usage = usage
        self._make = make
        self._expiries = expiries
        self._retries = retries
        self.discipline = self.new_discipline(self._forget)
        self.keys: dict[str, Key] = {}
        self._keys_by_number: list[Key | None] = []
        self._free_numbers: list[int] = []
        self.attempts: dict[int, Attempt] = {}
        self.delayed: dict[int, int] = {}
        self.leases: dict[int, Lease] = {}
        self.epochs: dict[int, int] = {}
        self.consumers: dict[int, Consumer] = {}
        self.ready: deque[Consumer] = deque()
        self._passed_over: list[Consumer] = []
        # Leases whose record is behind.
        self._dirty: dict[int, Lease] = {}

    # --- keys -------------------------------------------------------------------------------------------

    def key(self, name: str) -> Key:
        """Return the key of that name, made if need be."""
        key = self.keys.get(name)
        if key is None:
            if self._free_numbers:
                number = self._free_numbers.pop()
            else:
                number = len(self._keys_by_number)
                self._keys_by_number.append(None)
            key = self.keys[name] = self.discipline.new_key(name, number)
            self._keys_by_number[number] = key
            self._usage.keys += 1
        return key

    def key_at(self, number: int) -> Key:
        """Return the key of that number."""
        key = self._keys_by_number[number]
        assert key is not None, "a message's key is forgotten"
        return key

    def name_of(self, number: int) -> str:
        """Return a key's name, or nothing if it is forgotten."""
        key = self._keys_by_number[number]
        return "" if key is None else key.name

    def _forget(self, key: Key) -> None:
        """Forget a key that has no message and no place in the discipline."""
        if not key.live and not key.active and self._keys_by_number[key.number] is key:
            self._usage.keys -= 1
            del self.keys[key.name]
            self._keys_by_number[key.number] = None
            self._free_numbers.append(key.number)

    # --- gates ------------------------------------------------------------------------------------------

    def new_discipline(self, forget: Forget) -> Discipline:
        """Make a discipline of the queue's kind."""
        return self._make(self.log, self.log.spec.quantum, forget)

    def gates_of(self, number: int) -> GateKeys:
        """Return the gates of a number."""
        return NO_GATES if self.holding is None else self.holding.keys_of(number)

    def hold(self) -> Holding:
        """Return what waits behind gates, made if need be."""
        if self.holding is None:
            self.holding = Holding(self, self._keeper, self._usage)
        return self.holding

    def _push_one(self, key: Key, offset: int, *, front: bool) -> None:
        """Let a message wait again."""
        if self.holding is not None:
            self.holding.push_one(key, offset, front=front)
        elif front:
            self.discipline.push_front(key, offset)
        else:
            self.discipline.push_back(key, offset)

    def _reweigh(self, key: Key, weight: int) -> None:
        self.discipline.reweigh(key, weight)
        if self.holding is not None:
            self.holding.reweigh(key.name, weight)

    # --- waiting ----------------------------------------------------------------------------------------

    def push(
        self,
        names: Sequence[str],
        key_index: Sequence[int] | None,
        sizes: Sequence[int],
        weights: Sequence[int] | None,
        costs: Sequence[int] | None,
        time_ms: int,
        tags: Sequence[int] | None = None,
    ) -> int:
        """Append a batch to the log and let it wait. Return its first offset. `tags` are the numbers of the sets of gates."""
        keys = [self.key(name) for name in names]
        count = len(sizes)
        if key_index is None:
            numbers = [keys[0].number] * count
        else:
            of_place = [key.number for key in keys]
            numbers = [of_place[place] for place in key_index]
        first = self.log.append(numbers, sizes, time_ms, weights, costs, tags)
        if weights is None:
            heavy = [place for place, key in enumerate(keys) if key.weight != 1]
            used = frozenset(key_index if key_index is not None else (0,)) if heavy else frozenset()
            for place in heavy:
                # A key of the dictionary that no message uses keeps its weight.
                if place in used:
                    self._reweigh(keys[place], 1)
        else:
            newest = dict(zip(key_index if key_index is not None else repeat(0), weights, strict=False))
            for place, weight in newest.items():
                if keys[place].weight != weight:
                    self._reweigh(keys[place], weight)
        if tags is None:
            self.discipline.push(keys, key_index, first, count)
        else:
            self.hold().push(keys, key_index, first, tags)
        self._usage.messages += count
        for key in keys:
            if not key.live:
                self._forget(key)
        return first

    def retry_due(self, offset: int, now_ns: int) -> None:
        """Let a delayed message wait again, if its time has come."""
        due_ns = self.delayed.get(offset)
        if due_ns is not None and due_ns <= now_ns:
            del self.delayed[offset]
            self._push_one(self.key_at(self.log.key_number(offset)), offset, front=False)

    def purge(self, writes: list[Write]) -> int:
        """Finish all that waits or is delayed. Leased messages stay."""
        for offset in list(self.attempts):
            if offset not in self.epochs:
                del self.attempts[offset]
                self._usage.failed -= 1
                writes.append(DeleteAttempt(self.log.number, offset))
        purged = self.log.purge(list(self.epochs), writes)
        self.delayed.clear()
        live = Counter(self.held_numbers())
        weights = {name: key.weight for name, key in self.keys.items()}
        old = self._keys_by_number
        self.discipline = self.new_discipline(self._forget)
        if self.holding is not None:
            self.holding.purge()
        self.keys = {}
        self._keys_by_number = [None] * len(old)
        self._free_numbers = []
        for number, key in enumerate(old):
            if key is not None and live[number]:
                kept = self.discipline.new_key(key.name, number)
                kept.live, kept.weight = live[number], weights[key.name]
                self.keys[key.name] = self._keys_by_number[number] = kept
            else:
                self._free_numbers.append(number)
        self._usage.keys += len(self.keys) - len(weights)
        self._usage.messages -= purged
        return purged

    def held_numbers(self) -> Iterator[int]:
        """Yield the key's number of each leased message."""
        for lease in self.leases.values():
            for place in places(lease.held):
                yield lease.numbers[place]

    @property
    def waiting(self) -> int:
        """How many messages wait, those at gates included."""
        return self.discipline.waiting + (0 if self.holding is None else self.holding.held)

    # --- delivering -------------------------------------------------------------------------------------

    @property
    def can_deliver(self) -> bool:
        """Whether somebody can take something and something waits."""
        return bool(self.ready) and self.discipline.waiting > 0

    def refresh(self, consumer: Consumer) -> None:
        """Put a consumer in the row of those that can take something, if it can."""
        if not consumer.ready and consumer.has_credit:
            consumer.ready = True
            self.ready.append(consumer)

    def deliver(self, epoch: int, now_ns: int) -> Delivery | None:
        """Lease what is next to the consumer whose turn it is. None: what is next is too large for it now."""
        consumer = self.ready.popleft()
        share = -(-self.discipline.waiting // (len(self.ready) + 1))
        count = min(consumer.messages, limits.DELIVERY_MESSAGES_MAX, share)
        bytes_max = min(consumer.bytes, limits.DELIVERY_BYTES_MAX)
        take = (self.holding or self.discipline).take
        self.ready.appendleft(consumer)
        offsets, numbers = take(count, bytes_max, force=not consumer.leases)
        if not offsets and consumer.bytes > bytes_max:
            # Larger than a delivery should be and within the credit: it goes alone.
            offsets, numbers = take(1, consumer.bytes, force=False)
        if not offsets and not self.discipline.waiting:
            # Whatever seemed free waits at a gate.
            return None
        self.ready.popleft()
        consumer.ready = False
        if not offsets:
            self._passed_over.append(consumer)
            return None
        spec = self.log.spec
        deadline_ns = now_ns + spec.visibility_timeout_ms * limits.MS_NS
        lease = Lease(epoch, consumer.number, offsets, numbers, deadline_ns)
        self.leases[epoch] = lease
        self.epochs.update(zip(offsets, repeat(epoch)))
        self._usage.leased += len(offsets)
        self._wake_for(lease)
        self._dirty[epoch] = lease
        delivery = build_delivery(self.log, lease, now_ns, self.attempts, self.name_of)
        if self.holding is not None:
            delivery = self.holding.with_gates(delivery)
        consumer.spend(len(offsets), sum(delivery.sizes))
        if consumer.once:
            del self.consumers[consumer.number]
        else:
            consumer.took(lease)
            self.refresh(consumer)
        self.reconsider()
        return delivery

    def reconsider(self) -> None:
        """Let those try again for whom the next message was too large: another is next now, also at gates."""
        if self.holding is not None:
            self.holding.resume()
        if self._passed_over:
            passed_over, self._passed_over = self._passed_over, []
            for consumer in passed_over:
                if consumer.number in self.consumers:
                    self.refresh(consumer)

    # --- ending leases ----------------------------------------------------------------------------------

    def ack(self, lease: Lease, mask: int, writes: list[Write]) -> None:
        """Finish held messages."""
        if mask == (1 << len(lease.offsets)) - 1:
            offsets, numbers = lease.offsets, lease.numbers
        else:
            taken = list(places(mask))
            offsets = [lease.offsets[place] for place in taken]
            numbers = [lease.numbers[place] for place in taken]
        # The lease's record may stay as it is while others are held: what is finished is leased to nobody.
        self._end(lease, mask, offsets)
        if self.holding is not None:
            self.holding.finish(offsets)
        self.log.finish(offsets, writes)
        self._usage.messages -= len(offsets)
        by_number = self._keys_by_number
        for number in numbers:
            key = by_number[number]
            key.live -= 1  # type: ignore[union-attr]
            if not key.live:  # type: ignore[union-attr]
                self._forget(key)  # type: ignore[arg-type]
        if self.attempts:
            failed = [offset for offset in offsets if self.attempts.pop(offset, None)]
            self._usage.failed -= len(failed)
            writes.extend([DeleteAttempt(self.log.number, offset) for offset in failed])

    def release(self, lease: Lease, mask: int) -> None:
        """Let held messages wait again, before the others of their keys, as if they had not been delivered."""
        taken = list(places(mask))
        self._end(lease, mask, [lease.offsets[place] for place in taken])
        self._dirty[lease.epoch] = lease
        for place in reversed(taken):
            self._push_one(self.key_at(lease.numbers[place]), lease.offsets[place], front=True)

    def fail(self, lease: Lease, mask: int, error: str, now_ns: int, writes: list[Write]) -> None:
        """Count an attempt: the first failure is tried again at once, later ones after a growing delay."""
        taken = list(places(mask))
        self._end(lease, mask, [lease.offsets[place] for place in taken])
        self._dirty[lease.epoch] = lease
        for place in taken:
            offset = lease.offsets[place]
            before = self.attempts.get(offset)
            count = before.count + 1 if before else 1
            self._usage.failed += before is None
            due_ns = now_ns + backoff_ms(count) * limits.MS_NS
            self.attempts[offset] = Attempt(count, due_ns)
            writes.append(PutAttempt(self.log.number, offset, count, due_ns, error))
            if due_ns <= now_ns:
                self._push_one(self.key_at(lease.numbers[place]), offset, front=False)
            else:
                self.delayed[offset] = due_ns
                self._retries.add(due_ns, self.log.number, offset)

    def extend(self, lease: Lease, mask: int, deadline_ns: int) -> None:
        """Give held messages another deadline."""
        lease.extend(mask, deadline_ns)
        self._dirty[lease.epoch] = lease
        if lease.next_deadline_ns() < lease.due_ns:
            self._expiries.drop()
            self._wake_for(lease)
        # Else what stands in the heap falls due first, and looks again.

    def _wake_for(self, lease: Lease) -> None:
        lease.due_ns = lease.next_deadline_ns()
        self._expiries.add(lease.due_ns, self.log.number, lease.epoch)

    def _end(self, lease: Lease, mask: int, offsets: Sequence[int]) -> None:
        """Take note that leases have ended, and give their consumer its credit back if it has no other."""
        assert lease.held & mask == mask, "a lease ends twice"
        lease.held &= ~mask
        epochs = self.epochs
        for offset in offsets:
            del epochs[offset]
        self._usage.leased -= len(offsets)
        if self.holding is not None:
            self.holding.slots_back(offsets)
        if not lease.held:
            del self.leases[lease.epoch]
            self._dirty[lease.epoch] = lease
            self._expiries.drop()
        consumer = self.consumers.get(lease.consumer)
        if consumer is None:
            return
        if not lease.held:
            consumer.leases.pop(lease.epoch, None)
        if consumer.refill:
            consumer.give_back(lease.epoch, len(offsets), sum(map(self.log.size, offsets)))
        self.refresh(consumer)

    def expire(self, epoch: int, now_ns: int, writes: list[Write]) -> int:
        """End the leases of a delivery whose deadline has come, and return how many."""
        lease = self.leases.get(epoch)
        if lease is None or lease.due_ns > now_ns:
            return 0
        mask = lease.expired(now_ns)
        if mask:
            self.fail(lease, mask, "lease expired", now_ns, writes)
        if lease.held:
            self._wake_for(lease)
        return mask.bit_count()

    def close_leases(self, writes: list[Write]) -> None:
        """Write the records of the deliveries that changed in this step."""
        for epoch, lease in self._dirty.items():
            if lease.held:
                full = lease.held == (1 << len(lease.offsets)) - 1
                offsets = lease.offsets if full else [lease.offsets[place] for place in places(lease.held)]
                writes.append(PutLease(self.log.number, epoch, lease.consumer, offsets, lease.deadlines()))
            else:
                writes.append(DeleteLease(self.log.number, epoch))
        self._dirty.clear()

    # --- consumers --------------------------------------------------------------------------------------

    def detach(self, consumer: Consumer) -> list[Lease]:
        """Forget a consumer and return the deliveries that it holds leases of."""
        del self.consumers[consumer.number]
        return self.stop(consumer)

    def stop(self, consumer: Consumer) -> list[Lease]:
        """Give a consumer nothing more and return the deliveries that it holds leases of, oldest first."""
        consumer.stop()
        if consumer.ready:
            self.ready.remove(consumer)
            consumer.ready = False
        return list(consumer.leases.values())

    def remove(self) -> None:
        """Give up everything: the queue is deleted."""
        self._usage.messages -= self.waiting + len(self.delayed) + len(self.epochs)
        if self.holding is not None:
            self.holding.remove()
        self._usage.leased -= len(self.epochs)
        self._usage.failed -= len(self.attempts)
        self._usage.keys -= len(self.keys)
        self.log.remove()

    # --- recovery ---------------------------------------------------------------------------------------

    def restore_lease(self, record: PutLease) -> None:
        """Take back a delivery, in the order of epochs; what no row covers falls away in `restored`."""
        lease = Lease(record.epoch, 0, list(record.offsets), [], record.deadlines_ns[0])
        if len(record.deadlines_ns) > 1:
            lease.deadlines_ns = dict(enumerate(record.deadlines_ns))
        self.leases[record.epoch] = lease
        for offset in record.offsets:
            before = self.epochs.get(offset)
            if before is None or before < record.epoch:
                self.epochs[offset] = record.epoch

    def restored(self) -> None:
        """End recovery: let everything wait that is not finished, leased or delayed."""
        self.log.restored()
        self._restore_leases()
        self.attempts = {o: a for o, a in self.attempts.items() if self.log.time_ms(o) is not None}
        self._usage.failed += len(self.attempts)
        self._usage.leased += len(self.epochs)
        if self.holding is not None:
            self.holding.restore_leased(list(self.epochs))
        for offset, attempt in self.attempts.items():
            if offset not in self.epochs:
                self.delayed[offset] = attempt.due_ns
                self._retries.add(attempt.due_ns, self.log.number, offset)
        lanes: dict[int, list[int]] = {}
        elsewhere = self.epochs.keys() | self.delayed.keys() if self.epochs or self.delayed else ()
        for segment in self.log.segments.values():
            first, finished = segment.first, segment.finished
            for offset, number in enumerate(segment.keys, first):
                if finished >> (offset - first) & 1:
                    continue
                if number in lanes:
                    lanes[number].append(offset)
                else:
                    lanes[number] = [offset]
        for number, offsets in lanes.items():
            key = self.key_at(number)
            key.live = len(offsets)
            self._usage.messages += len(offsets)
            key.weight = self._newest_weight(offsets[-1])
            waiting = [o for o in offsets if o not in elsewhere] if elsewhere else offsets
            if waiting or self.holding is not None:
                self._restore_key(key, offsets, waiting)
        self.discipline.restored()
        for key in list(self.keys.values()):
            self._forget(key)

    def _restore_key(self, key: Key, offsets: Sequence[int], waiting: Sequence[int]) -> None:
        """Let what a key has waiting wait again, with its place among the others."""
        plain = waiting
        if self.holding is not None:
            plain = self.holding.restore(key, offsets, waiting)
        if waiting:
            self.discipline.restore(key, plain)

    def _newest_weight(self, offset: int) -> int:
        weights = self.log.segments[offset >> BITS].weights
        return 1 if weights is None else weights[offset & MASK]

    def _restore_leases(self) -> None:
        for epoch, lease in list(self.leases.items()):
            held = 0
            for place, offset in enumerate(lease.offsets):
                if self.epochs.get(offset) == epoch:
                    if self.log.time_ms(offset) is None:
                        del self.epochs[offset]
                    else:
                        held |= 1 << place
            lease.held = held
            if not held:
                del self.leases[epoch]
                self._dirty[epoch] = lease
                continue
            known = self.log.key_number
            lease.numbers = [known(o) if held >> place & 1 else 0 for place, o in enumerate(lease.offsets)]
            self._wake_for(lease)
