"""Converts the options of `kafkapy acls`, which are those of kafka-acls, to ACLs and filters.

Source: kafka.admin.AclCommand.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafkapy.security.acls.bindings import (
    ALL,
    ALLOW,
    ANY,
    CLUSTER_NAME,
    DENY,
    LITERAL,
    MATCH,
    OPERATIONS_OF,
    PATTERN_TYPES,
    PREFIXED,
    STORED_OPERATIONS,
    WILDCARD,
    Binding,
    Entry,
    Filter,
    Pattern,
    display_name,
    is_principal,
    name_of,
)
from kafkapy.security.acls.hosts import host_text
from kafkapy.tools.common.errors import CallError

# What a producer and a consumer need, by resource type.
PRODUCER: Final = {
    "TOPIC": ("WRITE", "DESCRIBE", "CREATE"),
    "TRANSACTIONAL_ID": ("WRITE", "DESCRIBE"),
}
CONSUMER: Final = {"TOPIC": ("READ", "DESCRIBE"), "GROUP": ("READ",)}
_IDEMPOTENT: Final = Pattern("CLUSTER", CLUSTER_NAME)


@dataclass
class Resources:
    """The resources that are named on the command line, and the pattern type of their names."""

    topics: Sequence[str] | None = None
    groups: Sequence[str] | None = None
    cluster: bool = False
    transactional_ids: Sequence[str] | None = None
    tokens: Sequence[str] | None = None
    users: Sequence[str] | None = None
    pattern_type: str = "literal"

    def kind(self, known: Iterable[str] = PATTERN_TYPES) -> str:
        """Return the pattern type. Raise CallError if `known` does not contain it."""
        kind = self.pattern_type.upper()
        if kind not in known:
            raise CallError(f"--resource-pattern-type {self.pattern_type!r} is none of {', '.join(known).lower()}")
        return kind

    def named(self) -> list[tuple[str, str]]:
        """Return the resource type and the name of each resource."""
        found = [
            (resource_type, name)
            for resource_type, names in (
                ("TOPIC", self.topics),
                ("GROUP", self.groups),
                ("TRANSACTIONAL_ID", self.transactional_ids),
                ("DELEGATION_TOKEN", self.tokens),
                ("USER", self.users),
            )
            for name in names or ()
        ]
        return [*found, ("CLUSTER", CLUSTER_NAME)] if self.cluster else found

    def patterns(self) -> list[Pattern]:
        """Return the resource patterns, for new ACLs. Raise CallError if no resource is named."""
        kind = self.kind((LITERAL, PREFIXED))
        found = [Pattern(*one, LITERAL if one[0] == "CLUSTER" else kind) for one in self.named()]
        if not found:
            raise CallError("name a resource: --topic, --group, --cluster, --transactional-id or another")
        return found

    def filters(self) -> list[Filter]:
        """Return a filter for each named resource. If none is named, return one filter for all ACLs."""
        kind = self.kind()
        return [Filter(resource_type, name, kind) for resource_type, name in self.named()] or [Filter()]


@dataclass
class Who:
    """The principals that are allowed or denied something, and from where."""

    allow: Sequence[str] = ()
    allow_hosts: Sequence[str] = ()
    deny: Sequence[str] = ()
    deny_hosts: Sequence[str] = ()
    operations: Sequence[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for principal in (*self.allow, *self.deny):
            principal_of(principal)
        for hosts, principals, word in ((self.allow_hosts, self.allow, "allow"), (self.deny_hosts, self.deny, "deny")):
            if hosts and not principals:
                raise CallError(f"--{word}-host is for --{word}-principal, which is missing")

    def entries(self, operations: Iterable[str]) -> list[Entry]:
        """Return the ACLs of all principals and hosts for these operations."""
        return [
            Entry(principal, host, operation, permission)
            for permission, principals, hosts in (
                (ALLOW, self.allow, self.allow_hosts),
                (DENY, self.deny, self.deny_hosts),
            )
            for principal in principals
            for host in hosts or (WILDCARD,)
            for operation in operations
        ]

    def warnings(self) -> list[str]:
        """Return a warning for each host that matches no client: hosts are compared as text with addresses."""
        lines = []
        for host in dict.fromkeys((*self.allow_hosts, *self.deny_hosts)):
            if "/" in host:
                lines.append(f"the host {host} is a network: it is stored, but it never matches a client's address")
            elif host != WILDCARD and not any(char in ".:" for char in host):
                lines.append(f"the host {host} is no IP address: it is stored, but it never matches a client's address")
            elif host != WILDCARD and host_text(host) != host:
                lines.append(f"the host {host} never matches: clients from there have the address {host_text(host)}")
        return lines


def wanted(resources: Resources, who: Who, *, producer: bool, consumer: bool, idempotent: bool) -> list[Binding]:
    """Return the ACLs that the options describe. Raise CallError for options that contradict each other."""
    if (producer or consumer) and (who.operations or who.deny):
        raise CallError(
            "--producer and --consumer choose the operations, and only allow: leave out --operation and --deny-…"
        )
    if idempotent and not producer:
        raise CallError("--idempotent is for --producer")
    if producer and not resources.topics:
        raise CallError("--producer needs a --topic")
    if consumer and not (resources.topics and resources.groups):
        raise CallError("--consumer needs a --topic and a --group")
    if not who.allow and not who.deny:
        raise CallError("say who is allowed or denied: --allow-principal or --deny-principal")
    patterns = resources.patterns()
    found: dict[Binding, None] = {}
    if not producer and not consumer:
        operations = [operation_of(name) for name in who.operations] or [ALL]
        for pattern in patterns:
            _check(pattern, operations)
            found |= dict.fromkeys(Binding(pattern, entry) for entry in who.entries(operations))
    for is_wanted, by_type in ((producer, PRODUCER), (consumer, CONSUMER)):
        for pattern in patterns if is_wanted else ():
            entries = who.entries(by_type.get(pattern.resource_type, ()))
            found |= dict.fromkeys(Binding(pattern, entry) for entry in entries)
    if idempotent:
        found |= dict.fromkeys(Binding(_IDEMPOTENT, entry) for entry in who.entries(["IDEMPOTENT_WRITE"]))
    return list(found)


def _check(pattern: Pattern, operations: Iterable[str]) -> None:
    known = (*OPERATIONS_OF[pattern.resource_type], ALL)
    for operation in operations:
        if operation not in known:
            raise CallError(
                f"--operation {display_name(operation)} makes no sense for {display_name(pattern.resource_type)}: "
                f"use {', '.join(map(display_name, known))}"
            )


def operation_of(text: str) -> str:
    """Return the operation that `text` names as in kafka-acls, in any case. Raise CallError for an unknown name."""
    operation = name_of(text.replace("-", "").replace("_", ""))
    if operation not in STORED_OPERATIONS:
        known = ", ".join(sorted(map(display_name, STORED_OPERATIONS)))
        raise CallError(f"{text!r} is no operation; use one of {known}")
    return operation


def principal_of(text: str) -> str:
    """Return a principal. Raise CallError if it is not TYPE:NAME."""
    if not is_principal(text):
        raise CallError(f"{text!r} is no principal: write User:{text}")
    return text


def resource_of(text: str) -> tuple[str, str]:
    """Return the resource type and the name in TYPE:NAME, such as topic:flights, or cluster. Raise CallError if there
    is no such type."""
    kind, _, name = text.partition(":")
    resource_type = {"token": "DELEGATION_TOKEN"}.get(kind.lower(), name_of(kind.replace("-", "").replace("_", "")))
    if resource_type == "CLUSTER" and name in ("", CLUSTER_NAME):
        return resource_type, CLUSTER_NAME
    if resource_type not in OPERATIONS_OF or not name:
        raise CallError(
            f"{text!r} is no resource: write topic:NAME, group:NAME, transactional-id:NAME, user:NAME, token:NAME or "
            "cluster"
        )
    return resource_type, name


def matching(resource_type: str, name: str) -> Filter:
    """Return the filter for all ACLs that apply to a resource."""
    return Filter(resource_type, name, MATCH, None, None, ANY, ANY)
