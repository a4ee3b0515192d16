"""Structured, levelled log lines on standard error, through the standard logging module.

    2026-01-01T12:00:00.123Z INFO  network.acceptor  refused a connection  peer=10.0.0.7:4711 limit=100

The logger is the module's path without the package name; fields follow the message as key=value, quoted
where a value has spaces or quotes in it: `log.info("refused a connection", extra=fields(peer=peer))`.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, TextIO

_ROOT = "kafkapy"
_FIELDS = "kafkapy_fields"
_NEEDS_QUOTES = frozenset(' "=\t\r\n\\')

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def fields(**values: object) -> dict[str, Any]:
    """The `extra` argument of a logging call that carries these fields."""
    return {_FIELDS: values}


def set_up(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Sends the log lines of kafkapy's loggers from `level` up to `stream` (standard error).

    Replaces an earlier set-up. Raises ValueError for an unknown level. Lines of other packages are not touched.
    """
    name = level.upper()
    if name not in LEVELS:
        raise ValueError(f"{level!r} is not a log level; use one of {', '.join(LEVELS)}")
    logger = logging.getLogger(_ROOT)
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(LineFormatter())
    logger.handlers[:] = [handler]
    logger.setLevel(name)
    logger.propagate = False


class LineFormatter(logging.Formatter):
    """One line a record; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        seconds, millis = divmod(int(record.created * 1000), 1000)
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        name = record.name.removeprefix(_ROOT + ".")
        line = f"{when}.{millis:03d}Z {record.levelname:<5} {name}  {_one_line(record.getMessage())}"
        values = getattr(record, _FIELDS, None)
        if values:
            line += "  " + " ".join(f"{key}={_quoted(value)}" for key, value in values.items())
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _one_line(text: str) -> str:
    # What a peer sent may be part of a message: it must not be able to forge a line of its own.
    return (
        text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r") if "\n" in text or "\r" in text else text
    )


def _quoted(value: object) -> str:
    text = str(value)
    if not text or not text.isprintable() or not _NEEDS_QUOTES.isdisjoint(text):
        return json.dumps(text)
    return text
