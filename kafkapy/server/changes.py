"""The lines of the audit log about changes: which principal has changed which ACLs, users, quotas and settings, and
from which host.

Values are shown, except secrets: passwords, keys, and the values of unknown settings.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from kafkapy.log.config import TOPIC_KEYS
from kafkapy.runtime.config_def import HIDDEN
from kafkapy.runtime.logs import AUDIT_LOGGER, as_json
from kafkapy.runtime.printable import one_word
from kafkapy.server.config.alter import APPEND, BROKER_LOGGER_RESOURCE, BROKER_RESOURCE, DELETE, SUBTRACT
from kafkapy.server.config.keys import shown

if TYPE_CHECKING:
    from kafkapy.server.call import Call
    from kafkapy.server.config.alter import Operation

log = logging.getLogger(AUDIT_LOGGER + ".changes")

MOST = 50  # changes in a line
LONGEST = 300  # characters of a change, and of the name of the changed resource


def changed(call: Call, what: str, changes: Iterable[str]) -> None:
    """Log that the client of the call has changed `what`, such as "topic flights". `changes` are short texts, such as
    "retention.ms=1000". The caller passes names and values in them that a client may choose through `one_word`."""
    from kafkapy.security.acls.hosts import host_text  # changes are rare, and this takes a while to import

    if not log.isEnabledFor(logging.INFO):
        return
    iterator = iter(changes)
    texts = [_cut(one) for one in islice(iterator, MOST)]
    more = sum(1 for _ in iterator)
    if more:
        texts.append(f"and {more} more")
    what = _cut(what)
    principal, host, api = call.connection.principal, host_text(call.connection.peer[0]), call.served.api.name
    values = {"principal": principal, "host": host, "request": api, "resource": what, "changes": texts}
    log.info(
        "Principal = %s has changed %s from host = %s for request = %s: %s",
        one_word(principal),
        what,
        host,
        api,
        ", ".join(texts),
        extra=as_json({"event": "change", **values}),
    )


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "..."


def replaced_settings(resource_type: int, settings: Iterable[tuple[str, str | None]]) -> list[str]:
    """Return the changes of an AlterConfigs request, which replaces all settings of a resource."""
    return ["all settings replaced", *(_set(resource_type, name, value) for name, value in settings)]


def changed_settings(resource_type: int, operations: Sequence[Operation]) -> list[str]:
    """Return the changes of one resource of an IncrementalAlterConfigs request."""
    return [_operation(resource_type, *one) for one in operations]


def _operation(resource_type: int, name: str, operation: int, value: str | None) -> str:
    if operation == DELETE:
        return f"{one_word(name)} deleted"
    if operation in (APPEND, SUBTRACT):
        how = "appended to" if operation == APPEND else "removed from"
        return f"{_shown(resource_type, name, value)} {how} {one_word(name)}"
    return _set(resource_type, name, value)


def _set(resource_type: int, name: str, value: str | None) -> str:
    return f"{one_word(name)}={_shown(resource_type, name, value)}"


def _shown(resource_type: int, name: str, value: str | None) -> str:
    if value is None:
        return "null"
    if resource_type == BROKER_RESOURCE:
        return one_word(shown(name, value))
    is_known = resource_type == BROKER_LOGGER_RESOURCE or name in TOPIC_KEYS
    return one_word(value) if is_known else HIDDEN
