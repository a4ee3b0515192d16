"""The log levels of this process, which clients can read and change while it runs (BROKER_LOGGER, KIP-412).

A logger has the name that log lines show ("network.acceptor"), a package such as "network" has a logger too, "root" is
the logger of kafkapy itself, and "kafka.authorizer.logger" is the audit log. Levels have Kafka's names. A change lasts
until the process ends.
Source: kafka.server.logger.RuntimeLoggerManager, kafka.utils.Log4jController.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from kafkapy.errors import Errors, KafkaError
from kafkapy.runtime.logs import AUDIT_LOGGER
from kafkapy.server.config.alter import DELETE, SET, Operation, check_operations

ROOT = "root"
LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}

_PACKAGE = "kafkapy"

log = logging.getLogger("kafkapy.server.log_levels")

# Called after each change of levels.
on_change: list[Callable[[], object]] = []


def levels(names: Collection[str] | None = None) -> dict[str, str]:
    """Return the log level of each logger by name, sorted by name. `names` selects some loggers; None or empty selects
    all.

    A logger without its own level has the level of its closest ancestor that has one.
    """
    return {
        name: _name_of(_logger(name).getEffectiveLevel()) for name in sorted(_names()) if not names or name in names
    }


def alter(operations: Sequence[Operation], *, validate_only: bool) -> None:
    """Set the log levels of loggers, or delete levels, so that the loggers inherit their levels. If an operation is
    invalid, raise KafkaError and change nothing. With `validate_only`, only check the operations."""
    check_operations(operations)
    known = _names()
    for name, operation, level in operations:
        if operation not in (SET, DELETE):
            raise KafkaError(Errors.INVALID_REQUEST, f"{name}: a log level can be set or deleted, it is not a list")
        if name not in known:
            raise KafkaError(Errors.INVALID_CONFIG, f"there is no logger {name}")
        if operation == SET and level not in LEVELS:
            raise KafkaError(Errors.INVALID_CONFIG, f"{name}={level}: must be one of {', '.join(LEVELS)}")
        if operation == DELETE and name == ROOT:
            raise KafkaError(Errors.INVALID_REQUEST, f"{ROOT} has no logger above it, so its level cannot be deleted")
    if validate_only:
        return
    for name, operation, level in operations:
        _logger(name).setLevel(LEVELS[level] if operation == SET and level is not None else logging.NOTSET)
        log.warning("the log level of %s is now %s", name, _name_of(_logger(name).getEffectiveLevel()))
    for changed in on_change:
        changed()


def _names() -> set[str]:
    prefix = _PACKAGE + "."
    loggers = list(logging.root.manager.loggerDict)
    return {ROOT, AUDIT_LOGGER, *(name.removeprefix(prefix) for name in loggers if name.startswith(prefix))}


def _logger(name: str) -> logging.Logger:
    if name == AUDIT_LOGGER:
        return logging.getLogger(name)
    return logging.getLogger(_PACKAGE if name == ROOT else f"{_PACKAGE}.{name}")


def _name_of(level: int) -> str:
    """Return the name of the first Kafka level that is at least as severe as a Python level: the least severe one that
    is logged."""
    return next((name for name, number in LEVELS.items() if number >= level), "FATAL")
