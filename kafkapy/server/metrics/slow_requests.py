"""Requests that took longer than `kafkapy.slow.request.ms`: counted by principal, and logged, few lines a second."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from kafkapy.network.replies import Pending, Reply
from kafkapy.runtime.clock import Clock
from kafkapy.runtime.counters import Labels, Metric, Registry, metric_table
from kafkapy.runtime.line_limit import LineLimit
from kafkapy.server.call import Call

if TYPE_CHECKING:
    from kafkapy.network.connection import Connection

log = logging.getLogger("kafkapy.server.slow_requests")

MOST_PRINCIPALS = 100
OTHERS = "other"  # stands for all principals after the first MOST_PRINCIPALS
# Requests that wait for records, or for the other members of a group, because the client wants that. Only the time in
# their handler counts.
_WAIT_BY_DESIGN = frozenset({"Fetch", "JoinGroup", "SyncGroup"})

METRICS = metric_table(
    Metric("slow_requests", "counter", ("principal",),
           "Requests that took longer than kafkapy.slow.request.ms, of the first 100 principals that had one; those of "
           f"all others are of the principal `{OTHERS}`."),
)  # fmt: skip


class SlowRequests:
    """Finds requests that took longer than `longest_s` seconds from the call of their handler to their response. Any
    thread may call the methods; `clock()` returns monotonic seconds."""

    def __init__(self, registry: Registry, clock: Clock, longest_s: float) -> None:
        self.longest_s = longest_s
        self.clock: Callable[[], float] = clock.monotonic
        self._lines = LineLimit(clock)
        self._counts: dict[str, int] = {}
        registry.register_reader(METRICS.values(), self._read)

    def is_slow(self, started: float) -> bool:
        """Return True if requests whose handler was called at `started` have taken too long by now."""
        return self.clock() - started > self.longest_s

    def watch(self, calls: Sequence[Call], started: float, reply: Reply) -> None:
        """Check how long requests of one connection have taken, whose handler was called at `started` and returned
        `reply`. If the reply is pending, check again when it is complete. Need not be called if the reply is not
        pending and `is_slow` returns False."""
        seconds = self.clock() - started
        first, count = calls[0], len(calls)
        api, client_id, connection = first.served.api.name, first.client_id, first.connection
        if seconds > self.longest_s:
            self._found(api, client_id, connection, count, seconds)
        elif isinstance(reply, Pending) and api not in _WAIT_BY_DESIGN:
            before = reply.on_complete

            def complete() -> None:
                if before is not None:
                    before()
                seconds = self.clock() - started
                if seconds > self.longest_s:
                    self._found(api, client_id, connection, count, seconds)

            reply.on_complete = complete

    def _found(self, api: str, client_id: str | None, connection: Connection, count: int, seconds: float) -> None:
        principal = connection.principal
        if principal not in self._counts and len(self._counts) >= MOST_PRINCIPALS:
            principal = OTHERS
        self._counts[principal] = self._counts.get(principal, 0) + count
        left_out = self._lines.admit(connection.principal)
        if left_out is not None:
            log.warning(
                "a request %s of %s with the client id %r took %.0f ms%s",
                api,
                connection.principal,
                client_id,
                seconds * 1000,
                left_out,
                extra=connection.who,
            )

    def _read(self) -> Iterator[tuple[Metric, Labels, float]]:
        for principal, count in list(self._counts.items()):
            yield METRICS["slow_requests"], (principal,), count
