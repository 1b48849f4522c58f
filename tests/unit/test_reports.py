"""What telemetry hears of a step, and what that costs."""

from fila.broker.clock import Clock
from fila.broker.commit import NOTHING
from fila.broker.reports import Reports
from fila.core.outcome import Delivery, Fact, Outcome
from fila.telemetry.metrics import NoTelemetry


class Listener(NoTelemetry):
    """Keeps what it hears of deliveries."""

    enabled = True

    def __init__(self):
        self.figures = []

    def delivered(self, *figures):
        self.figures.append(figures)


class Counted(list):
    """A list that counts how often somebody goes through it."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        return super().__iter__()


def delivery(queue, attempts):
    return Delivery(1, 1, queue, 1, 0, 0, [0], [0], [1], [0], ["k"], [0], None, attempts)


def test_retries_of_all_queues_are_counted_in_one_pass():
    """A step that delivers from many queues costs telemetry no more for each of them."""
    queues = [f"q{number}" for number in range(50)]
    deliveries = Counted([delivery(name, [0, 3, 1]) for name in queues] + [delivery("q0", None)])
    facts = [Fact("deliver", name, 3) for name in queues]
    telemetry = Listener()

    Reports(telemetry, Clock()).stepped(
        Outcome(step=1, now_ns=0, deliveries=deliveries, facts=facts), 1, 0, 0, NOTHING
    )

    assert telemetry.figures == [(name, 3, 2) for name in queues]
    assert deliveries.passes == 1
