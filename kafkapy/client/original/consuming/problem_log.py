"""Logging of problems that persist over many retries, with one log line for each problem instead of each retry."""

from __future__ import annotations

import logging
import threading


class ProblemLog:
    """Logs the problems of the consumer `name`, each once until it is resolved.

    All methods may be called by any thread.
    """

    def __init__(self, log: logging.Logger, name: str) -> None:
        self._log = log
        self._name = name
        self._lock = threading.Lock()
        self._logged: dict[str, str] = {}

    def report(self, what: str, problem: str, *, level: int = logging.ERROR) -> None:
        """Log that `what` (such as "rebalancing failed") happens because of `problem`.

        If the last report for `what` had the same problem, log at DEBUG instead of `level`.
        """
        with self._lock:
            if self._logged.get(what) == problem:
                level = logging.DEBUG
            self._logged[what] = problem
        self._log.log(level, "%s: %s: %s", self._name, what, problem)

    def resolved(self, what: str) -> None:
        """Log that `what` is over, if `report` logged it before."""
        with self._lock:
            problem = self._logged.pop(what, None)
        if problem is not None:
            self._log.info("%s: over: %s", self._name, what)
