"""ACLs, the resource patterns that they belong to, and the filters that select them, with Kafka's names and codes.

Operations, resource types, pattern types and permissions are the names of Kafka's enums, such as "READ" and "TOPIC".
Source: org.apache.kafka.common.acl, org.apache.kafka.common.resource, AclEntry, SecurityUtils.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

OPERATIONS: Final = {
    "ANY": 1,
    "ALL": 2,
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
    "IDEMPOTENT_WRITE": 12,
    "CREATE_TOKENS": 13,
    "DESCRIBE_TOKENS": 14,
}
RESOURCE_TYPES: Final = {
    "ANY": 1,
    "TOPIC": 2,
    "GROUP": 3,
    "CLUSTER": 4,
    "TRANSACTIONAL_ID": 5,
    "DELEGATION_TOKEN": 6,
    "USER": 7,
}
PATTERN_TYPES: Final = {"ANY": 1, "MATCH": 2, "LITERAL": 3, "PREFIXED": 4}
PERMISSIONS: Final = {"ANY": 1, "DENY": 2, "ALLOW": 3}

ANY: Final = "ANY"
ALL: Final = "ALL"
LITERAL: Final = "LITERAL"
PREFIXED: Final = "PREFIXED"
MATCH: Final = "MATCH"
ALLOW: Final = "ALLOW"
DENY: Final = "DENY"
WILDCARD: Final = "*"  # a host or the name of a literal pattern that stands for all
EVERYBODY: Final = "User:*"  # the principal that stands for all users
CLUSTER_NAME: Final = "kafka-cluster"  # the name of the only resource of type CLUSTER

# The resource types, pattern types and so on that an ACL can have.
STORED_TYPES: Final = tuple(name for name in RESOURCE_TYPES if name != ANY)
STORED_OPERATIONS: Final = frozenset(OPERATIONS) - {ANY}

# The operations that make sense for each resource type (AclEntry.supportedOperations).
OPERATIONS_OF: Final = {
    "TOPIC": ("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    "GROUP": ("READ", "DELETE", "DESCRIBE"),
    "CLUSTER": (
        "CREATE",
        "ALTER",
        "DESCRIBE",
        "CLUSTER_ACTION",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
        "IDEMPOTENT_WRITE",
    ),
    "TRANSACTIONAL_ID": ("WRITE", "DESCRIBE"),
    "DELEGATION_TOKEN": ("DESCRIBE",),
    "USER": ("CREATE_TOKENS", "DESCRIBE_TOKENS"),
}

_VERSION = 1
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class Pattern(NamedTuple):
    """The resources that an ACL is about: those of one type with this name (LITERAL), or whose names begin with
    it (PREFIXED)."""

    resource_type: str
    name: str
    pattern_type: str = LITERAL


class Entry(NamedTuple):
    """An ACL without its resource pattern: an operation that a principal may do, or may not, from a host."""

    principal: str
    host: str
    operation: str
    permission: str


class Binding(NamedTuple):
    """An ACL: an entry and the pattern of the resources that it is about."""

    pattern: Pattern
    entry: Entry


class Filter(NamedTuple):
    """Selects ACLs. None and "ANY" match everything; the pattern type "MATCH" matches every pattern that a resource
    with this name matches."""

    resource_type: str = ANY
    name: str | None = None
    pattern_type: str = ANY
    principal: str | None = None
    host: str | None = None
    operation: str = ANY
    permission: str = ANY

    def matches_pattern(self, pattern: Pattern) -> bool:
        """Return True if ACLs of this pattern may be selected."""
        if self.resource_type not in (ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (ANY, MATCH, pattern.pattern_type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        if self.pattern_type != MATCH:
            return False
        return pattern.name == WILDCARD if pattern.pattern_type == LITERAL else self.name.startswith(pattern.name)

    def matches_entry(self, entry: Entry) -> bool:
        """Return True if an ACL with this entry is selected, provided that its pattern matches."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (ANY, entry.operation)
            and self.permission in (ANY, entry.permission)
        )

    @property
    def selects_all_entries(self) -> bool:
        """Return True if the filter selects all ACLs of the patterns that it matches."""
        return self[3:] == Filter()[3:]

    def patterns(self) -> list[Pattern]:
        """Return the patterns that can match, if the filter names them; otherwise []."""
        if self.resource_type not in STORED_TYPES or self.name is None:
            return []
        types = [one for one in (LITERAL, PREFIXED) if self.pattern_type in (ANY, one)]
        return [Pattern(self.resource_type, self.name, one) for one in types]


def display_name(name: str) -> str:
    """Return the name of an operation, resource type or permission as Kafka stores and prints it: "TransactionalId" for
    "TRANSACTIONAL_ID"."""
    return "".join(word.capitalize() for word in name.split("_"))


_BY_DISPLAY_NAME = {
    display_name(name).upper(): name for names in (OPERATIONS, RESOURCE_TYPES, PERMISSIONS) for name in names
}


def name_of(display: str) -> str:
    """Return the name in this module's tables for one that Kafka stores or prints, in any case; "" if it is unknown."""
    return _BY_DISPLAY_NAME.get(display.upper(), "")


def is_principal(text: str) -> bool:
    """Return True if the text is a principal, TYPE:NAME."""
    return ":" in text


def encode_entries(entries: Iterable[Entry]) -> bytes:
    """Return the data of the node with the ACLs of one resource pattern."""
    # One by one: json holds the GIL until it returns, for 6 ms with 10,000 ACLs.
    acls = ",".join(
        _encode(
            {
                "principal": entry.principal,
                "permissionType": display_name(entry.permission),
                "operation": display_name(entry.operation),
                "host": entry.host,
            }
        )
        for entry in sorted(entries)
    )
    return f'{{"version":{_VERSION},"acls":[{acls}]}}'.encode()


def decode_entries(data: bytes) -> frozenset[Entry]:
    """Return the ACLs in the data of a node. Raise ValueError if the data is not complete JSON of a known version, or
    if an ACL in it cannot be understood as a whole. As in Kafka, a node without any data has no ACLs."""
    if not data:
        return frozenset()
    try:
        found = json.loads(data.decode())
        if type(found["version"]) is not int or found["version"] != _VERSION:
            raise ValueError(f"version {found['version']!r} is unknown")
        return frozenset(map(_decode_entry, found["acls"]))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not what Kafka stores ({type(error).__name__}: {error})") from None


def _decode_entry(stored: dict[str, Any]) -> Entry:
    operation = name_of(stored["operation"])
    permission = name_of(stored["permissionType"])
    if operation not in STORED_OPERATIONS:
        raise ValueError(f"the operation {stored['operation']!r} is unknown")
    if permission not in (ALLOW, DENY):
        raise ValueError(f"the permission {stored['permissionType']!r} is unknown")
    principal, host = stored["principal"], stored["host"]
    if not isinstance(principal, str) or not is_principal(principal):
        raise ValueError(f"{principal!r} is not a principal")
    if not isinstance(host, str):
        raise ValueError(f"{host!r} is not a host")
    return Entry(principal, host, operation, permission)
