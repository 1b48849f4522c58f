"""A consumer of the core, as the streams and Lease see it: where its deliveries wait, and how it leaves.

No lease may be lost between the core and the socket. What was delivered but never sent is released; what is delivered while the
consumer leaves is released as well, unless the core does that itself. Leaving never awaits, so that a cancelled call can leave.
"""

import asyncio
from collections import deque
from contextlib import suppress

from fila.broker.loop import Broker
from fila.core.commands import Attach, Detach, SettleMessages, Stop
from fila.core.model import Action, Address
from fila.core.outcome import Attached, Delivery
from fila.errors import FilaError


class Consumer:
    """A sink for deliveries. `wake` is set whenever there may be something new to see."""

    def __init__(self, broker: Broker, queue: str, wake: asyncio.Event, *, once: bool = False) -> None:
        self._broker = broker
        self._queue = queue
        self._wake = wake
        self._once = once
        self._attached = False
        self._detached = False
        self._stopped = False
        self._left = False
        self._kept = False
        self.number = broker.open_consumer(self)
        # The last delivery of which anything may have reached the client.
        self._seen = 0
        self.deliveries: deque[tuple[Delivery, list[bytes]]] = deque()
        self.error: FilaError | None = None
        self.gone = False

    def deliver(self, delivery: Delivery, bodies: list[bytes]) -> None:
        """Take a delivery in, or give it back when nobody is there to send it."""
        if self._once:
            # With its first delivery the core has forgotten this consumer.
            self._attached = False
        if self._stopped:
            # The core releases it: it was not sent.
            return
        if not self._left:
            self.deliveries.append((delivery, bodies))
            self._wake.set()
        elif self._kept:
            self._give_back(delivery)

    def close(self, error: FilaError) -> None:
        """Hear that this consumer must end: its queue is gone, or the broker stops or has failed."""
        self.error = error
        self._wake.set()

    def begin_write(self, delivery: Delivery) -> None:
        """Take note that a delivery may reach the client from now on."""
        self._seen = delivery.epoch

    async def attach(self, *, credit_messages: int, credit_bytes: int, refill: bool = False) -> Attached:
        """Begin to consume. Raises QueueNotFoundError and whatever else the core answers."""
        # Until the answer is there the core may already have begun: then leaving must tell it.
        self._attached = True
        try:
            attached: Attached = await self._broker.ask(
                lambda request: Attach(
                    request,
                    self.number,
                    self._queue,
                    credit_messages,
                    credit_bytes,
                    refill=refill,
                    once=self._once,
                )
            )
        except FilaError:
            self._attached = False
            raise
        return attached

    def stop(self) -> None:
        """Take nothing more: credit is void, and what was not sent goes back."""
        if self._stopped or self._left:
            return
        self._stopped = True
        self.deliveries.clear()
        # A broker that has failed has dropped all leases itself.
        with suppress(FilaError):
            self._broker.submit(Stop(self.number, self._seen))

    def finish(self) -> None:
        """End this consumer; until `gone`, take what the core had already leased to it."""
        self._detach(lost=False, keep=True)

    def leave(
        self, *, lost: bool = False, keep: bool = False, keep_begun: bool = False, sent: int = 0
    ) -> None:
        """End this consumer, once. Of the first delivery that still waits, `sent` messages were sent already."""
        if self._left:
            return
        self._left = True
        self._kept = keep
        if keep:
            # Else the core releases what was never sent.
            for delivery, _ in self.deliveries:
                self._give_back(delivery, sent)
                sent = 0
        self.deliveries.clear()
        self._detach(lost=lost, keep=keep, keep_begun=keep_begun)

    def _detach(self, *, lost: bool, keep: bool, keep_begun: bool = False) -> None:
        if self._detached:
            return
        self._detached = True
        if not self._attached:
            self._gone()
            return
        request = self._broker.expect(self._gone)
        try:
            self._broker.submit(
                Detach(request, self.number, lost=lost, keep=keep, keep_begun=keep_begun, seen=self._seen)
            )
        except FilaError:
            # The broker has stopped: what is leased is its own to end.
            self._gone()

    def _give_back(self, delivery: Delivery, first: int = 0) -> None:
        """Release a delivery, from place `first` on, by address: the core may have forgotten the consumer."""
        offsets = delivery.offsets[first:]
        times_ms = delivery.times_ms[first:]
        if not offsets:
            return
        addresses = [
            Address(delivery.queue, offset, time_ms)
            for offset, time_ms in zip(offsets, times_ms, strict=True)
        ]
        epochs = [delivery.epoch] * len(addresses)
        request = self._broker.expect(_ignore)
        try:
            self._broker.submit(SettleMessages(request, self._queue, Action.RELEASE, addresses, epochs))
        except FilaError:
            # The broker has stopped: what is leased is its own to end.
            return

    def _gone(self, _reply: object = None) -> None:
        self.gone = True
        self._broker.close_consumer(self.number)
        self._wake.set()


def _ignore(_reply: object) -> None:
    """Take an answer that nobody waits for."""
