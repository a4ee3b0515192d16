"""The rules of authorization: pure functions of an index of ACLs. Source: Kafka's AclAuthorizer."""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkapy.security.acls.bindings import (
    ALL,
    ALLOW,
    DENY,
    EVERYBODY,
    LITERAL,
    PREFIXED,
    WILDCARD,
    Binding,
    Entry,
)
from kafkapy.security.acls.index import AclIndex

# By operation, the operations whose permission implies it. A denial implies nothing.
IMPLIED_BY: Final = {
    "DESCRIBE": frozenset({"DESCRIBE", "READ", "WRITE", "DELETE", "ALTER", ALL}),
    "DESCRIBE_CONFIGS": frozenset({"DESCRIBE_CONFIGS", "ALTER_CONFIGS", ALL}),
}

_MOST_ANSWERS: Final = 1000  # that an index remembers


class Client(NamedTuple):
    """The client that asks: its principal, such as "User:alice", and its address as Java writes it (see
    `hosts.host_text`). `is_super_user` is True if everything is allowed."""

    principal: str
    host: str
    is_super_user: bool = False


class Decision(NamedTuple):
    """Whether an operation is allowed, and the ACL that decided: None for a super user, and if no ACL matched."""

    is_allowed: bool
    acl: Binding | None = None


def decide(
    index: AclIndex, client: Client, operation: str, resource_type: str, name: str, *, everyone_without_acls: bool
) -> Decision:
    """Decide whether a client may do an operation on a resource.

    everyone_without_acls: a resource that no ACL matches is open to everybody (allow.everyone.if.no.acl.found).
    """
    if client.is_super_user:
        return Decision(True)
    patterns = index.matching(resource_type, name)
    if not patterns:
        return Decision(everyone_without_acls)
    allowed = None
    allowing = IMPLIED_BY.get(operation, (operation, ALL))
    for acls in patterns:
        for entry in (*acls.of(client.principal), *acls.of(EVERYBODY)):
            if entry.host not in (client.host, WILDCARD):
                continue
            if entry.permission == DENY:
                if entry.operation in (operation, ALL):
                    return Decision(False, Binding(acls.pattern, entry))
            elif allowed is None and entry.operation in allowing:
                allowed = Binding(acls.pattern, entry)
    return Decision(allowed is not None, allowed)


def is_allowed_on_some(
    index: AclIndex, client: Client, operation: str, resource_type: str, *, everyone_without_acls: bool
) -> bool:
    """Return True if there can be a resource of this type on which the client may do the operation (Kafka's
    authorizeByResourceType). Implied operations do not count.

    The index remembers the answer: finding it takes time in proportion to the number of ACLs of the client.
    """
    if client.is_super_user:
        return True
    question = (client.principal, client.host, operation, resource_type, everyone_without_acls)
    known = index.answers.get(question)
    if known is None:
        if len(index.answers) >= _MOST_ANSWERS:
            index.answers.clear()
        known = index.answers[question] = _is_allowed_on_some(
            index, client, operation, resource_type, everyone_without_acls
        )
    return known


def _is_allowed_on_some(
    index: AclIndex, client: Client, operation: str, resource_type: str, everyone_without_acls: bool
) -> bool:
    denied = _names(index, client, operation, resource_type, LITERAL, DENY)
    if WILDCARD in denied:
        return False
    if everyone_without_acls:
        return True
    literal = _names(index, client, operation, resource_type, LITERAL, ALLOW)
    if WILDCARD in literal:
        return True
    allowed = (literal - denied) | _names(index, client, operation, resource_type, PREFIXED, ALLOW)
    prohibited = _names(index, client, operation, resource_type, PREFIXED, DENY)
    if not prohibited:
        return bool(allowed)
    lengths = sorted(set(map(len, prohibited)))

    def is_dominated(name: str) -> bool:
        return any(name[:length] in prohibited for length in lengths if length <= len(name))

    return not all(map(is_dominated, allowed))


def _names(
    index: AclIndex, client: Client, operation: str, resource_type: str, pattern_type: str, permission: str
) -> frozenset[str]:
    """Return the pattern names of the ACLs for this client or everybody, and for this operation or all."""
    return frozenset().union(
        *(
            index.names(resource_type, pattern_type, Entry(principal, host, which, permission))
            for principal in (client.principal, EVERYBODY)
            for host in (client.host, WILDCARD)
            for which in (operation, ALL)
        )
    )
