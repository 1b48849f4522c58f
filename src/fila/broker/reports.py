"""What the host tells telemetry: figures of each step and commit, and nothing at all when nobody listens."""

import logging
from collections import Counter
from collections.abc import Callable

from fila.broker.clock import Clock
from fila.broker.commit import Written
from fila.core.outcome import Outcome
from fila.telemetry.metrics import Telemetry

logger = logging.getLogger(__name__)


class Reports:
    """Translates outcomes into calls of the telemetry port. A fault in there is shown once, and decides about nothing."""

    def __init__(self, telemetry: Telemetry, clock: Clock) -> None:
        self._telemetry = telemetry
        self._clock = clock
        self._failed = False

    def stepped(
        self, outcome: Outcome, commands: int, begin_ns: int, stepped_ns: int, written: Written
    ) -> Callable[[], None] | None:
        """Report a step; return what is to be called when its commit is durable."""
        if not self._telemetry.enabled:
            return None
        written_ns = self._clock.now_ns()
        self._guard(lambda: self._telemetry.step(commands, stepped_ns - begin_ns))

        def durable() -> None:
            self._guard(lambda: self._durable(outcome, begin_ns, stepped_ns, written_ns, written))

        if not outcome.must_sync:
            durable()
            return None
        return durable

    def _guard(self, report: Callable[[], None]) -> None:
        try:
            report()
        except Exception:
            if not self._failed:
                logger.exception("telemetry failed: figures are missing from now on")
            self._failed = True

    def _durable(
        self, outcome: Outcome, begin_ns: int, stepped_ns: int, written_ns: int, written: Written
    ) -> None:
        telemetry = self._telemetry
        end_ns = self._clock.now_ns()
        messages = 0
        retried: Counter[str] = Counter()
        for delivery in outcome.deliveries:
            if delivery.attempts:
                retried[delivery.queue_name] += sum(map(bool, delivery.attempts))
        for fact in outcome.facts:
            if fact.kind == "enqueue":
                messages += fact.count
                telemetry.enqueued(fact.queue, fact.count, fact.bytes)
            elif fact.kind == "deliver":
                telemetry.delivered(fact.queue, fact.count, retried[fact.queue])
            else:
                telemetry.settled(fact.queue, fact.kind, fact.count)
            telemetry.span(
                f"fila.{fact.kind}", begin_ns, end_ns, {"fila.queue": fact.queue, "fila.messages": fact.count}
            )
        if written.changes:
            telemetry.commit(messages, written.bytes, written_ns - stepped_ns, end_ns - written_ns)
            telemetry.span("fila.commit", stepped_ns, end_ns, {"fila.changes": written.changes})
