"""Structured logs on stderr with nothing but the standard library.

Code logs as ever, `logger.info("store opened", extra={"queues": 3})`: the fields of `extra` follow the message
as key=value, or stand in one JSON object per line. A value cannot break out of its line.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

LogFormat = Literal["text", "json"]
# They log each attempt to send and each span that is dropped; `collector.py` says it once.
_TALKATIVE: Final = ("opentelemetry.exporter.", "opentelemetry.sdk._shared_internal")

# What every record has is not a field of the caller's.
_STANDARD_ATTRIBUTES: Final = frozenset(vars(logging.makeLogRecord({}))) | {"asctime", "message", "taskName"}
_PLAIN: Final = re.compile(r"[^\s\"=\\\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def configure(
    *, level: str = "INFO", log_format: LogFormat = "text", stream: TextIO | None = None
) -> logging.Handler:
    """Send the logs of the process to `stream` (stderr), and return the handler.

    Replaces the handler of an earlier call; leaves handlers of others alone.
    """
    handler = _FilaHandler(stream or sys.stderr)
    handler.addFilter(lambda record: not record.name.startswith(_TALKATIVE))
    handler.setFormatter(JsonFormatter() if log_format == "json" else KeyValueFormatter())
    root = logging.getLogger()
    for earlier in [each for each in root.handlers if isinstance(each, _FilaHandler)]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    root.setLevel(level)
    return handler


class _FilaHandler(logging.StreamHandler[TextIO]):
    """A type of its own, so that `configure` finds its handler again."""


class KeyValueFormatter(logging.Formatter):
    """Write `time level logger message key=value ...` on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of one record."""
        fields = {**_fields(record), **_failure(self, record)}
        line = f"{_timestamp(record)} {record.levelname:<7} {record.name} {_one_line(record.getMessage())}"
        return " ".join([line, *(f"{key}={_value(value)}" for key, value in fields.items())])


class JsonFormatter(logging.Formatter):
    """Write one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of one record."""
        document = {
            "time": _timestamp(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_failure(self, record),
        }
        # A field of the caller's never replaces what every line has.
        fields = {key: value for key, value in _fields(record).items() if key not in document}
        return json.dumps({**document, **fields}, default=str)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD_ATTRIBUTES}


def _failure(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, object]:
    failure: dict[str, object] = {}
    if record.exc_info and record.exc_info[0] is not None:
        failure["error"] = f"{record.exc_info[0].__name__}: {record.exc_info[1]}"
        failure["traceback"] = formatter.formatException(record.exc_info)
    if record.stack_info:
        failure["stack"] = record.stack_info
    return failure


def _timestamp(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def _one_line(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+", lambda match: json.dumps(match[0])[1:-1], text)


def _value(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
