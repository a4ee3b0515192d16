"""Structured log lines on standard error, through the logging module.

    2026-01-01T12:00:00.123Z INFO  network.acceptor  refused a connection  peer=10.0.0.7:4711 limit=100

The logger's name in a line is the module's path without the package name. Fields follow the message as key=value,
quoted if the value has spaces or quotes: `log.info("refused a connection", extra=fields(peer=peer))`.

Messages, fields and exceptions may contain text that a client has sent. Such text can neither forge a log line nor
control the terminal that shows the log: unprintable characters (control characters, bidirectional marks and the like)
are written as Python escapes such as `\\x1b`.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from kafkapy.runtime.printable import printable

AUDIT_LOGGER = "kafka.authorizer.logger"  # Kafka's name of the log of what clients may do, and may not

_ROOT = "kafkapy"
_FIELDS = "kafkapy_fields"
_JSON = "kafkapy_json"
_NEEDS_QUOTES = frozenset(' "=\t\r\n\\')

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def fields(**values: object) -> dict[str, Any]:
    """Return the `extra` argument for a logging call, which adds these fields to the log line."""
    return {_FIELDS: values}


def as_json(values: Mapping[str, object]) -> dict[str, Any]:
    """Return the `extra` argument for a logging call whose line in JSON has these values in place of the message."""
    return {_JSON: values}


def set_up(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Write kafkapy's log lines from `level` up to `stream` (default: standard error).

    Replaces an earlier set-up, and does not affect other packages' loggers. Raises ValueError for an unknown level.
    """
    name = level.upper()
    if name not in LEVELS:
        raise ValueError(f"{level!r} is not a log level; use one of {', '.join(LEVELS)}")
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(LineFormatter())
    for root in (_ROOT, AUDIT_LOGGER):
        logger = logging.getLogger(root)
        logger.handlers[:] = [handler]
        logger.setLevel(name)
        logger.propagate = False


class LineFormatter(logging.Formatter):
    """Formats a logging record as one line, followed by the indented lines of a traceback if it has one."""

    def format(self, record: logging.LogRecord) -> str:
        name = record.name.removeprefix(_ROOT + ".")
        line = f"{_time(record)} {record.levelname:<5} {name}  {printable(record.getMessage())}"
        values = getattr(record, _FIELDS, None)
        if values:
            line += "  " + " ".join(f"{key}={_quoted(value)}" for key, value in values.items())
        if record.exc_info:
            line += "".join("\n  " + printable(text) for text in self.formatException(record.exc_info).split("\n"))
        return line


class JsonFormatter(logging.Formatter):
    """Formats a logging record as one line of JSON: time, level and logger, then the values of `as_json`, or the
    message."""

    def format(self, record: logging.LogRecord) -> str:
        values = getattr(record, _JSON, None) or {"message": record.getMessage(), **getattr(record, _FIELDS, {})}
        line = {"time": _time(record), "level": record.levelname, "logger": record.name, **values}
        return json.dumps(line, default=str)


def _time(record: logging.LogRecord) -> str:
    seconds, millis = divmod(int(record.created * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{millis:03d}Z"


def _quoted(value: object) -> str:
    text = str(value)
    if not text or not text.isprintable() or not _NEEDS_QUOTES.isdisjoint(text):
        return json.dumps(text)
    return text
