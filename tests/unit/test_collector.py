"""What is said of a collector, and how often."""

import logging
import socket

import pytest

from fila.telemetry.collector import Collector


@pytest.fixture
def lines(caplog):
    """The log, as level and text."""
    caplog.set_level(logging.INFO, "fila.telemetry.collector")
    return lambda: [(record.levelname, record.getMessage()) for record in caplog.records]


AWAY = ("WARNING", "telemetry cannot be sent to http://c:4317: the broker works on without it")
AGAIN = ("INFO", "telemetry is sent to http://c:4317 again")


def test_a_collector_that_goes_and_comes_back_is_told_of_once_each(lines):
    """However many exports fail in between; and nothing is said while all is well."""
    collector = Collector("http://c:4317")

    for arrived in (True, False, False, False, True, True, False):
        collector.report("metrics", arrived=arrived)

    assert lines() == [AWAY, AGAIN, AWAY]


def test_a_collector_that_takes_metrics_alone_does_not_come_and_go(lines):
    """Each kind is remembered: all must arrive before it works again."""
    collector = Collector("http://c:4317")

    for _ in range(3):
        collector.report("spans", arrived=False)
        collector.report("metrics", arrived=True)
    assert lines() == [AWAY]
    collector.report("spans", arrived=True)
    assert lines() == [AWAY, AGAIN]


def test_a_port_says_whether_somebody_listens():
    """A closed port is known at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert Collector(endpoint).is_reachable(5)

    assert not Collector(endpoint).is_reachable(5)
