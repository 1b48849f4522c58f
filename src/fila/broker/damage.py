"""Deliveries whose bodies cannot be read: what is damaged backs off, the rest goes back, and their consumer goes on.

A page is also missing when all its messages were finished, or their queue deleted, by a step that was written before the
delivery was let out. Then nobody holds a lease under that epoch any more, which the core's answer says: nothing is lost.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fila import limits
from fila.core.commands import Command, Credit, Sent, SettleMessages
from fila.core.model import Action, Address
from fila.core.outcome import Delivery
from fila.errors import StoreError

logger = logging.getLogger(__name__)

# So many pages are remembered as reported.
PAGES_REPORTED_MAX = 10_000


class Damage:
    """Settles what cannot be delivered, through the same commands that consumers use."""

    def __init__(
        self, expect: Callable[[Callable[[Any], None]], int], submit: Callable[[Command], None]
    ) -> None:
        self._expect = expect
        self._submit = submit
        self._reported: set[tuple[int, int]] = set()

    def settle(self, delivery: Delivery, unreadable: Mapping[int, StoreError], *, refill: bool) -> None:
        """Nack the messages of the unreadable pages, release the others, and give the credit back. Raises FilaError."""
        places: dict[int, list[int]] = {}
        for place, page in enumerate(delivery.pages):
            places.setdefault(page if page in unreadable else -1, []).append(place)
        rest = places.pop(-1, [])
        for page, damaged in places.items():
            self._nack(delivery, page, damaged, unreadable[page])
        if rest:
            self._settle(delivery, rest, Action.RELEASE, _ignore)
        if refill:
            # The core gives the credit back as leases end, once it hears that nothing of the delivery waits here.
            self._submit(Sent(delivery.consumer, delivery.epoch))
        else:
            self._submit(Credit(delivery.consumer, len(delivery.offsets), sum(delivery.sizes)))

    def _nack(self, delivery: Delivery, page: int, places: Sequence[int], error: StoreError) -> None:
        def answer(reply: object) -> None:
            # An error for each: the leases had ended, and the page with them.
            if isinstance(reply, tuple) and None in reply:
                self._report(delivery, page, error)

        self._settle(delivery, places, Action.NACK, answer, error.message)

    def _settle(
        self,
        delivery: Delivery,
        places: Sequence[int],
        action: Action,
        answer: Callable[[Any], None],
        reason: str = "",
    ) -> None:
        addresses = [
            Address(delivery.queue, delivery.offsets[place], delivery.times_ms[place]) for place in places
        ]
        epochs = [delivery.epoch] * len(addresses)
        text = reason.encode()[: limits.ERROR_BYTES_MAX].decode(errors="ignore")
        self._submit(
            SettleMessages(self._expect(answer), delivery.queue_name, action, addresses, epochs, text)
        )

    def _report(self, delivery: Delivery, page: int, error: StoreError) -> None:
        """Log a page, the first time."""
        if (delivery.queue, page) in self._reported:
            return
        if len(self._reported) >= PAGES_REPORTED_MAX:
            self._reported.clear()
        self._reported.add((delivery.queue, page))
        logger.error(
            "messages of the queue %s cannot be read, and are tried again later: %s",
            delivery.queue_name,
            error,
        )


def _ignore(_reply: object) -> None:
    """Take an answer that changes nothing."""
