"""Structured logs: one line per record, whatever is in it."""

import io
import json
import logging

import pytest

from fila.telemetry import logs


@pytest.fixture
def log(request):
    """Return a function that logs with `configure(...)` and gives back the lines."""
    root = logging.getLogger()
    before = root.level, list(root.handlers)

    def run(action, **options):
        stream = io.StringIO()
        logs.configure(stream=stream, **options)
        action(logging.getLogger("fila.test"))
        return stream.getvalue().splitlines()

    yield run
    root.setLevel(before[0])
    root.handlers[:] = before[1]


def test_fields_follow_the_message_as_key_and_value(log):
    """What grep and people read."""
    lines = log(lambda logger: logger.info("store opened", extra={"queues": 3, "path": "a b"}))

    assert len(lines) == 1
    assert lines[0].endswith('INFO    fila.test store opened queues=3 path="a b"')
    assert lines[0][:4].isdigit()
    assert "Z INFO" in lines[0]


def test_json_holds_the_same_in_one_object(log):
    """What machines read."""
    lines = log(
        lambda logger: logger.warning("slow", extra={"sync_ms": 40, "time": "mine"}), log_format="json"
    )

    document = json.loads(lines[0])
    assert document["message"] == "slow"
    assert document["level"] == "WARNING"
    assert document["logger"] == "fila.test"
    assert document["sync_ms"] == 40
    assert document["time"] != "mine"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_value_breaks_out_of_its_line(log, log_format):
    """A queue name or an error text of a client cannot forge a record."""
    forged = 'x" level=ERROR\r\n2026-01-01T00:00:00Z ERROR fila forged\u2028\x1b[31m'

    lines = log(
        lambda logger: logger.info("nack %s", forged, extra={"reason": forged}), log_format=log_format
    )

    assert len(lines) == 1
    assert "\x1b" not in lines[0]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_failure_stays_on_one_line(log, log_format):
    """A traceback belongs to its record."""

    def fail(logger):
        try:
            raise ValueError("wrong\nvalue")
        except ValueError:
            logger.exception("failed")

    lines = log(fail, log_format=log_format)

    assert len(lines) == 1
    assert "ValueError: wrong" in lines[0]
    assert "Traceback" in lines[0]


def test_configuring_twice_does_not_log_twice(log):
    """The later call wins."""
    first = io.StringIO()
    logs.configure(stream=first)

    lines = log(lambda logger: logger.info("once"))

    assert len(lines) == 1
    assert first.getvalue() == ""


def test_what_is_below_the_level_is_not_written(log):
    """A level is a level."""
    assert log(lambda logger: logger.info("quiet"), level="WARNING") == []


def test_what_the_exporter_says_at_every_attempt_is_left_out(log):
    """A collector that is away is told of once, by fila itself."""

    def fail(_logger):
        logging.getLogger("opentelemetry.exporter.otlp.proto.grpc.exporter").error("Failed to export")
        logging.getLogger("opentelemetry.sdk._shared_internal").warning("Queue full, dropping Span.")
        logging.getLogger("opentelemetry.sdk.metrics").warning("something else")

    (line,) = log(fail)

    assert "something else" in line
