"""Decides which denials the audit log has a line for, so that a flood of denied requests fills neither the log nor the
time of the broker.

The same denial (principal, host, operation, resource) is one line in each window of time; its repetitions are counted,
and logged with their number when the window ends. So are the denials of one client for more different resources than
`DIFFERENT` in a window.
"""

from __future__ import annotations

import threading
from itertools import takewhile
from typing import NamedTuple

from kafkapy.runtime.clock import Clock

DIFFERENT = 100  # lines of one principal at one host in a window
MOST = 10_000  # lines in a window
MOST_CLIENTS = 1_000  # pairs of principal and host whose denials beyond the lines are counted on their own
LONGEST_NAME = 500  # of a resource in a line; topics and groups have at most 249 characters, but a client may send more
EVERYBODY = "several principals"


class Denied(NamedTuple):
    """A denied operation, and the client that asked for it. All names are as the line shows them."""

    principal: str
    host: str
    operation: str
    resource_type: str
    pattern_type: str
    name: str


class Repeated(NamedTuple):
    """A denial that was logged, the API and the number of references in its line, and how often it was repeated."""

    denied: Denied
    api: str
    references: int
    times: int


class LeftOut(NamedTuple):
    """How many denials of one client were not logged one by one."""

    principal: str
    host: str
    times: int


class _Line:
    """A denial that has its line in the present window. `times` counts its repetitions."""

    __slots__ = ("api", "ends_at", "references", "times")

    def __init__(self, api: str, references: int, ends_at: float) -> None:
        self.api = api
        self.references = references
        self.ends_at = ends_at
        self.times = 0


class _Client:
    """The lines of one client in the present window, and its denials without a line."""

    __slots__ = ("ends_at", "lines", "times")

    def __init__(self, ends_at: float) -> None:
        self.ends_at = ends_at
        self.lines = 0
        self.times = 0


class Denials:
    """The denials of the present window of `window_s` seconds; 0: every denial is logged. Any thread may use it."""

    def __init__(self, clock: Clock, window_s: float) -> None:
        self._clock = clock
        self.window_s = window_s
        self._lock = threading.Lock()
        # Both in the order of `ends_at`: the window is the same for all.
        self._lines: dict[Denied, _Line] = {}
        self._clients: dict[tuple[str, str], _Client] = {}

    def is_new(self, denied: Denied, api: str, references: int) -> bool:
        """Return True if the denial is to be logged now. Otherwise `due` returns it later."""
        if not self.window_s:
            return True
        with self._lock:
            line = self._lines.get(denied)
            if line is not None:
                line.times += 1
                return False
            ends_at = self._clock.monotonic() + self.window_s
            client = self._client((denied.principal, denied.host), ends_at)
            if client.lines >= DIFFERENT or len(self._lines) >= MOST:
                client.times += 1
                return False
            client.lines += 1
            self._lines[denied] = _Line(api, references, ends_at)
            return True

    def due(self, *, everything: bool = False) -> list[Repeated | LeftOut]:
        """Return what was counted in the windows that have ended, or in all windows if `everything`. Begin these
        windows again."""
        found: list[Repeated | LeftOut] = []
        with self._lock:
            now = float("inf") if everything else self._clock.monotonic()
            # Not one by one: after many deletions, finding the first key of a dict takes long.
            for denied, line in list(takewhile(lambda item: item[1].ends_at <= now, self._lines.items())):
                del self._lines[denied]
                if line.times:
                    found.append(Repeated(denied, line.api, line.references, line.times))
            for key, client in list(takewhile(lambda item: item[1].ends_at <= now, self._clients.items())):
                del self._clients[key]
                if client.times:
                    found.append(LeftOut(*key, client.times))
        return found

    def _client(self, key: tuple[str, str], ends_at: float) -> _Client:
        client = self._clients.get(key)
        if client is None:
            if len(self._clients) >= MOST_CLIENTS:
                key = EVERYBODY, "*"
                client = self._clients.get(key)
            if client is None:
                client = self._clients[key] = _Client(ends_at)
        return client


def shown_name(name: str) -> str:
    """Return the name of a resource as a line of the audit log shows it."""
    return name if len(name) <= LONGEST_NAME else name[:LONGEST_NAME] + "..."
