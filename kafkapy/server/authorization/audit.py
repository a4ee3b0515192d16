"""The audit log: a line for each decision of the authorizer, in Kafka's words and with Kafka's levels.

Denied: INFO, allowed: DEBUG. A check that only chooses what a response shows is logged with TRACE.
Source: AclAuthorizer.logAuditMessage.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kafkapy.runtime.logs import AUDIT_LOGGER
from kafkapy.security.acls.bindings import display_name

if TYPE_CHECKING:
    from kafkapy.security.acls.rules import Client
    from kafkapy.server.admission import Action
    from kafkapy.server.call import Call

TRACE: Final = 5

log = logging.getLogger(AUDIT_LOGGER)


class Audit:
    """Writes the audit log. Called from any thread, also from network threads."""

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
        level = usual if is_shown else TRACE
        if log.isEnabledFor(level):
            log.log(
                level,
                "Principal = %s is %s Operation = %s from host = %s on resource = %s:%s:%s for request = %s "
                "with resourceRefCount = %d",
                client.principal,
                "Allowed" if is_allowed else "Denied",
                display_name(action.operation),
                client.host,
                display_name(action.resource_type),
                pattern_type,
                action.name,
                call.served.api.name,
                count,
            )
