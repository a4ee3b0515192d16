"""The audit log: a line for each decision of the authorizer, in Kafka's words and with Kafka's levels.

Denied: INFO, allowed: DEBUG. A check that only chooses what a response shows is logged with TRACE.
Source: AclAuthorizer.logAuditMessage. Unlike in Kafka, a repeated denial has one line in each window of time, and one
more with the number of its repetitions (see `denials`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from kafkapy.runtime.clock import SYSTEM_CLOCK, Clock
from kafkapy.runtime.logs import AUDIT_LOGGER, as_json
from kafkapy.runtime.printable import one_word
from kafkapy.security.acls.bindings import display_name
from kafkapy.server.authorization.denials import Denials, Denied, LeftOut, shown_name

if TYPE_CHECKING:
    from kafkapy.security.acls.rules import Client
    from kafkapy.server.admission import Action
    from kafkapy.server.call import Call

TRACE: Final = 5
_KAFKAS_LINE: Final = (
    "Principal = %s is %s Operation = %s from host = %s on resource = %s:%s:%s for request = %s "
    "with resourceRefCount = %d"
)

log = logging.getLogger(AUDIT_LOGGER)


class Audit:
    """Writes the audit log. Called from any thread, also from network threads.

    Repetitions of a denial are counted for `repeat_s` seconds before their number is logged; 0: each has its own line.
    The owner calls `log_repeated` at short intervals, and when the log ends.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, repeat_s: float = 10.0) -> None:
        self._denials = Denials(clock, repeat_s)
        self.denied = 0  # how many operations were denied, not counting checks that only choose what a response shows

    @property
    def notes_allowed(self) -> bool:
        """True if allowed operations are logged, too: then no decision may be remembered, because each is a line."""
        return log.isEnabledFor(logging.DEBUG)

    def decided(
        self,
        call: Call,
        client: Client,
        action: Action,
        is_allowed: bool,
        count: int,
        *,
        logged: bool = True,
        grants: bool = True,
        pattern_type: str = "LITERAL",
    ) -> None:
        """Log a decision. `count` is how often the request refers to the resource; `logged` and `grants` are explained
        at `Authorizer.denied`."""
        usual, is_shown = (logging.DEBUG, grants) if is_allowed else (logging.INFO, logged)
        is_denial = logged and not is_allowed
        self.denied += is_denial
        level = usual if is_shown else TRACE
        if not log.isEnabledFor(level):
            return
        decided = Denied(
            client.principal,
            client.host,
            display_name(action.operation),
            display_name(action.resource_type),
            pattern_type,
            shown_name(action.name),
        )
        api = call.served.api.name
        if not is_denial or self._denials.is_new(decided, api, count):
            _log(level, decided, "Allowed" if is_allowed else "Denied", api, count)

    def log_repeated(self, *, at_end: bool = False) -> None:
        """Log how often denials were repeated in the windows that have ended, or in all windows if `at_end`."""
        for one in self._denials.due(everything=at_end):
            if isinstance(one, LeftOut):
                values = {"event": "denials left out", "principal": one.principal, "host": one.host}
                log.info(
                    "Principal = %s was denied %d more operations from host = %s on different resources, which are not "
                    "logged one by one",
                    one_word(one.principal),
                    one.times,
                    one.host,
                    extra=as_json(values | {"repeated": one.times}),
                )
            else:
                _log(logging.INFO, one.denied, "Denied", one.api, one.references, one.times)


def _log(level: int, decided: Denied, result: str, api: str, count: int, times: int = 0) -> None:
    principal, host, operation, resource_type, pattern_type, name = decided
    text = _KAFKAS_LINE + (" (repeated %d times)" if times else "")
    # Kafka does not quote: with spaces, the name of a group could look like the rest of the line.
    who, which = one_word(principal), one_word(name)
    values: list[Any] = [who, result, operation, host, resource_type, pattern_type, which, api, count]
    log.log(
        level,
        text,
        *values,
        *([times] if times else []),
        extra=as_json(
            {
                "event": "authorization",
                "principal": principal,
                "result": result,
                "operation": operation,
                "host": host,
                "resource_type": resource_type,
                "pattern_type": pattern_type,
                "resource": name,
                "request": api,
                "references": count,
                **({"repeated": times} if times else {}),
            }
        ),
    )
