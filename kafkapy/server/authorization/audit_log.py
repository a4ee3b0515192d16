"""Where the audit log goes: with the other log lines, or to a file of its own (`kafkapy.audit.file`)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from kafkapy.runtime.config_def import ConfigError
from kafkapy.runtime.counters import Metric, metric_table
from kafkapy.runtime.log_file import LogFile
from kafkapy.runtime.logs import AUDIT_LOGGER, JsonFormatter, LineFormatter
from kafkapy.server.log_levels import LEVELS

if TYPE_CHECKING:
    from kafkapy.runtime.clock import Clock
    from kafkapy.runtime.counters import Registry
    from kafkapy.runtime.scheduler import Scheduler
    from kafkapy.server.authorization.audit import Audit
    from kafkapy.server.config.broker_config import BrokerConfig

FILE = "kafkapy.audit.file"
LEVEL = "kafkapy.audit.level"
_LOOK_S = 1.0  # how often to look for counted repetitions that have to be logged

_LOGGER = logging.getLogger(AUDIT_LOGGER)
# All brokers of a process share the logger. _CHANGED_BY has the AuditLogs that have changed it, _BEFORE its handlers,
# whether it propagated, and its level before the first change.
_CHANGED_BY: list[AuditLog] = []
_BEFORE: list[tuple[list[logging.Handler], bool, int]] = []

METRICS = metric_table(
    Metric("authorizer_denied", "counter", (), "Operations that the authorizer has denied."),
    Metric("audit_lines_lost", "counter", (),
           "Lines of the audit log that were not written to kafkapy.audit.file: the disk was full or too slow."),
)  # fmt: skip


class AuditLog:
    """The audit log of a broker. Call `start`, and `stop` when nothing is decided any more.

    `audit` is the Audit to which the authorizer writes; None until `make_audit` was called.
    """

    def __init__(self, config: BrokerConfig, clock: Clock, counters: Registry, scheduler: Scheduler) -> None:
        self._config = config
        self._clock = clock
        self._scheduler = scheduler
        self._file: LogFile | None = None
        self.audit: Audit | None = None
        counters.register(METRICS["authorizer_denied"], lambda: self.audit.denied if self.audit is not None else 0)
        counters.register(METRICS["audit_lines_lost"], lambda: self._file.lost if self._file is not None else 0)

    def start(self) -> None:
        """Open the file of the audit log, if it has one. Raise ConfigError if that is not possible."""
        config = self._config
        path = config[FILE]
        if path:
            try:
                self._file = LogFile(
                    Path(path),
                    JsonFormatter() if config["kafkapy.audit.format"] == "json" else LineFormatter(),
                    max_bytes=config["kafkapy.audit.file.max.bytes"],
                    count=config["kafkapy.audit.file.count"],
                )
            except OSError as error:
                raise ConfigError(FILE, path, f"cannot be opened: {error.strerror}") from error
        if path or config.is_set(LEVEL):
            self._change_logger()

    def make_audit(self) -> Audit:
        """Return the new Audit of this broker's authorizer."""
        from kafkapy.server.authorization.audit import Audit  # not needed without an authorizer

        self.audit = Audit(self._clock, self._config["kafkapy.audit.repeat.seconds"])
        self._scheduler.schedule("audit-repetitions", self.audit.log_repeated, _LOOK_S, _LOOK_S)
        return self.audit

    def stop(self) -> None:
        """Write what was counted, and close the file."""
        if self.audit is not None:
            self.audit.log_repeated(at_end=True)
        if self in _CHANGED_BY:
            self._restore_logger()
        if self._file is not None:
            self._file.close()

    def _change_logger(self) -> None:
        if not _CHANGED_BY:
            _BEFORE.append((_LOGGER.handlers[:], _LOGGER.propagate, _LOGGER.level))
        _CHANGED_BY.append(self)
        if self._file is not None:
            if not any(isinstance(handler, LogFile) for handler in _LOGGER.handlers):
                _LOGGER.handlers.clear()
                _LOGGER.propagate = False
            _LOGGER.addHandler(self._file)
        _LOGGER.setLevel(LEVELS[self._config[LEVEL]])

    def _restore_logger(self) -> None:
        _CHANGED_BY.remove(self)
        if self._file is not None:
            _LOGGER.removeHandler(self._file)
        if not _CHANGED_BY:
            _LOGGER.handlers[:], _LOGGER.propagate, level = _BEFORE.pop()
            _LOGGER.setLevel(level)
