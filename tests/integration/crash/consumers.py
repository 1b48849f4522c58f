"""Consumers of the crash test: they lease and settle until the server dies, and tell the oracle what was answered."""

import asyncio
import time
from contextlib import suppress
from random import Random

import grpc
from tests.integration.crash.oracle import CLOCK_SLACK_MS, Lease, Oracle

from fila.wire.ids import message_id
from fila.wire.v1 import messages_pb2 as messages
from fila.wire.v1 import service_pb2 as service

# Whatever has failed this often is acked: the waits between attempts double.
ATTEMPTS_MAX = 4
# Deliveries that a stream holds before the oldest is settled, so that settling and delivering overlap.
HELD_DELIVERIES_MAX = 2
# Beyond every queue's timeout, so that an extension moves the deadline on.
EXTEND_MS = 2_500
# With less than this left a call by id alone could meet a later lease.
BY_ID_MARGIN_MS = 400


def now_ms():
    return time.time_ns() // 1_000_000


class Consumer:
    """Takes messages from one queue in one of three ways."""

    def __init__(self, stub, oracle: Oracle, queue: str, random: Random, *, drain: bool = False):
        self._stub = stub
        self._oracle = oracle
        self._queue = queue
        self._random = random
        self._drain = drain

    def _choose(self, lease: Lease) -> str:
        """Say what becomes of a message; "" leaves it to its deadline."""
        if self._drain or lease.attempts >= ATTEMPTS_MAX:
            return "ack"
        return self._random.choices(("ack", "nack", "release", "extend", ""), (75, 8, 8, 5, 4))[0]

    # --- Subscribe ------------------------------------------------------------------------------------

    async def subscribe(self):
        """Consume on a stream, with credit."""
        stream = self._stub.Subscribe()
        await stream.write(
            service.SubscribeRequest(queue=self._queue, credit_messages=200, credit_bytes=4 << 20)
        )
        number = (await stream.read()).subscribed.queue_number
        frames: dict[int, dict[tuple[int, int], tuple[str, Lease]]] = {}
        held: list[tuple[int, list[Lease]]] = []
        sequence = 0
        while (response := await stream.read()) is not grpc.aio.EOF:
            if response.HasField("settled"):
                self._confirm(frames, response.settled)
            if response.HasField("delivery"):
                held.append((response.delivery.epoch, self._delivered(stream, number, response.delivery)))
            while len(held) >= (1 if self._drain else HELD_DELIVERIES_MAX):
                sequence += 1
                request, frames[sequence] = self._settling_frame(sequence, *held.pop(0))
                # A write to a broken stream says nothing of why; the next read does, after all that was still answered.
                with suppress(grpc.RpcError, asyncio.InvalidStateError):
                    await stream.write(request)

    def _delivered(self, stream, number, delivery) -> list[Lease]:
        begin, leases = 0, []
        times = delivery.enqueued_at_ms
        for place, size in enumerate(delivery.sizes):
            body = messages.Body.FromString(delivery.bodies[begin : begin + size])
            begin += size
            offset = delivery.offsets[place] if delivery.offsets else delivery.first_offset + place
            leases.append(
                self._oracle.delivered(
                    id(stream),
                    self._queue,
                    id=message_id(number, offset, times[place if len(times) > 1 else 0]),
                    offset=offset,
                    epoch=delivery.epoch,
                    attempts=delivery.attempts[place] if delivery.attempts else 0,
                    key=delivery.keys[delivery.key_index[place] if delivery.key_index else 0],
                    weight=delivery.weights[place] if delivery.weights else 1,
                    headers=dict(body.headers),
                    payload=body.payload,
                    leased_at_ms=delivery.leased_at_ms,
                    deadline_ms=delivery.lease_expires_at_ms,
                )
            )
        assert begin == len(delivery.bodies)
        return leases

    def _settling_frame(self, sequence, epoch, leases):
        """Settle a delivery in parts, in as many ways as chance wants."""
        places: dict[str, list[int]] = {}
        for place, lease in enumerate(leases):
            places.setdefault(self._choose(lease), []).append(place)
        places.pop("", None)
        runs = {
            action: messages.LeaseRuns(epochs=[epoch], positions=chosen) for action, chosen in places.items()
        }
        settled = {}
        for action, chosen in places.items():
            for place in chosen:
                self._oracle.settling(leases[place], action)
                settled[epoch, place] = (action, leases[place])
        request = service.SubscribeRequest(
            sequence=sequence,
            credit_messages=len(leases),
            credit_bytes=sum(len(lease.message.payload) + 64 for lease in leases),
            ack=runs.get("ack"),
            nack=[service.NackRuns(runs=runs["nack"], error="no luck")] if "nack" in runs else [],
            extend=[service.ExtendRuns(runs=runs["extend"], timeout_ms=EXTEND_MS)]
            if "extend" in runs
            else [],
            release=runs.get("release"),
        )
        return request, (now_ms(), settled)

    def _confirm(self, frames, answer):
        refused = set()
        for each in answer.refused:
            runs = each.runs
            epochs = runs.epochs if len(runs.epochs) > 1 else [runs.epochs[0]] * len(runs.positions)
            for epoch, position, count in zip(epochs, runs.positions, runs.counts, strict=True):
                refused.update((each.sequence, epoch, position + place) for place in range(count))
        for sequence in sorted(frames):
            if sequence > answer.sequence:
                return
            sent_ms, settled = frames.pop(sequence)
            for place, (action, lease) in settled.items():
                self._answered(lease, action, (sequence, *place) not in refused, sent_ms)

    def _answered(self, lease, action, done, sent_ms, **fields):
        if done:
            self._oracle.settled(
                lease, action, at_ms=now_ms(), until_ms=sent_ms + EXTEND_MS - CLOCK_SLACK_MS, **fields
            )
        else:
            self._oracle.refused(lease, action, at_ms=now_ms())

    # --- Consume, Ack, Nack -----------------------------------------------------------------------------

    async def consume(self):
        """Consume on the classic stream, and settle by id."""
        stream = self._stub.Consume(service.ConsumeRequest(queue=self._queue, window=20))
        async for response in stream:
            lease = self._message(id(stream), response.message)
            action = self._choose(lease)
            if lease.deadline_ms - now_ms() < BY_ID_MARGIN_MS:
                await self._settle("ack", [lease])
            elif action in {"ack", "nack"}:
                await self._settle_by_id(action, lease)

    def _message(self, call, message) -> Lease:
        metadata, times = message.metadata, message.timestamps
        return self._oracle.delivered(
            call,
            metadata.queue_id,
            id=message.id,
            offset=metadata.offset,
            epoch=metadata.lease_epoch,
            attempts=metadata.attempt_count,
            key=metadata.fairness_key,
            weight=metadata.weight,
            headers=dict(message.headers),
            payload=message.payload,
            leased_at_ms=times.leased_at.ToMilliseconds(),
            deadline_ms=times.lease_expires_at.ToMilliseconds(),
        )

    async def _settle_by_id(self, action, lease):
        self._oracle.settling(lease, action, by_epoch=False)
        sent_ms = now_ms()
        try:
            if action == "ack":
                await self._stub.Ack(service.AckRequest(queue=self._queue, message_id=lease.id))
            else:
                await self._stub.Nack(
                    service.NackRequest(queue=self._queue, message_id=lease.id, error="no luck")
                )
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise
            self._answered(lease, action, False, sent_ms)
        else:
            self._answered(lease, action, True, sent_ms, by_epoch=False)

    # --- Lease, AckBatch and its like -------------------------------------------------------------------

    async def lease(self, left: list[Lease]):
        """Take some, settle them by id and epoch; `left` has what an earlier life of the server leased and nobody settled."""
        while left:
            await self._settle("ack", left[:1])
            del left[0]
        call = 0
        while True:
            call += 1
            answer = await self._stub.Lease(
                service.LeaseRequest(queue=self._queue, max_messages=30, wait_ms=100)
            )
            leases = [self._message((id(self), call), message) for message in answer.messages]
            left.extend(leases)
            parts: dict[str, list[Lease]] = {}
            for lease in leases:
                parts.setdefault(self._choose(lease), []).append(lease)
            for action in ("extend", "ack", "nack"):
                if action in parts:
                    await self._settle(action, parts[action])
                    if action != "extend":
                        left[:] = [lease for lease in left if lease not in parts[action]]
            left.clear()

    async def _settle(self, action, leases):
        call = {"ack": self._stub.AckBatch, "nack": self._stub.NackBatch, "extend": self._stub.ExtendLease}
        request = {
            "ack": service.AckBatchRequest,
            "nack": service.NackBatchRequest,
            "extend": service.ExtendLeaseRequest,
        }
        more = {"ack": {}, "nack": {"error": "no luck"}, "extend": {"timeout_ms": EXTEND_MS}}
        for lease in leases:
            self._oracle.settling(lease, action)
        sent_ms = now_ms()
        answer = await call[action](
            request[action](
                queue=self._queue,
                message_ids=[lease.id for lease in leases],
                lease_epochs=[lease.epoch for lease in leases],
                **more[action],
            )
        )
        for lease, result in zip(leases, answer.results, strict=True):
            assert result.error_code in {0, grpc.StatusCode.NOT_FOUND.value[0]}, result
            self._answered(lease, action, not result.error_code, sent_ms)
