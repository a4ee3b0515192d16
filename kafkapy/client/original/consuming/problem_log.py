"""Logging of problems that last: one log line each, not one for each retry."""

from __future__ import annotations

import logging
import threading


class ProblemLog:
    """Logs the problems of the consumer `name`. All methods may be called by any thread."""

    def __init__(self, log: logging.Logger, name: str) -> None:
        self._log = log
        self._name = name
        self._lock = threading.Lock()
        self._logged: dict[str, str] = {}

    def report(self, what: str, problem: str, *, level: int = logging.ERROR) -> None:
        """Log that `what` happens because of `problem`; at DEBUG if that is the last that was logged about `what`."""
        with self._lock:
            if self._logged.get(what) == problem:
                level = logging.DEBUG
            self._logged[what] = problem
        self._log.log(level, "%s: %s: %s", self._name, what, problem)

    def resolved(self, what: str) -> None:
        """Log that `what` is over, if it was logged."""
        with self._lock:
            problem = self._logged.pop(what, None)
        if problem is not None:
            self._log.info("%s: over: %s", self._name, what)
