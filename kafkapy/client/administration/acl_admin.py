"""An admin client for the ACLs of a cluster (KIP-140)."""

from collections.abc import Iterable
from typing import Any

from kafkapy.client.cluster import ClusterClient
from kafkapy.client.responses import check
from kafkapy.protocol import apis
from kafkapy.security.acls.bindings import (
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    RESOURCE_TYPES,
    Binding,
    Entry,
    Filter,
    Pattern,
    display_name,
)

_OPERATIONS = {code: name for name, code in OPERATIONS.items()}
_RESOURCE_TYPES = {code: name for name, code in RESOURCE_TYPES.items()}
_PATTERN_TYPES = {code: name for name, code in PATTERN_TYPES.items()}
_PERMISSIONS = {code: name for name, code in PERMISSIONS.items()}


def creation(acl: Binding) -> Any:
    """Return the entry of a CreateAcls request that stores an ACL."""
    pattern, entry = acl
    return apis.CREATE_ACLS.Request.Creations(
        resource_type=RESOURCE_TYPES[pattern.resource_type],
        resource_name=pattern.name,
        resource_pattern_type=PATTERN_TYPES[pattern.pattern_type],
        principal=entry.principal,
        host=entry.host,
        operation=OPERATIONS[entry.operation],
        permission_type=PERMISSIONS[entry.permission],
    )


class AclAdmin(ClusterClient):
    """A blocking admin client for ACLs.

    Every method raises KafkaError for the first error in the broker's response, and ClientError if no response comes.
    """

    def list_acls(self, which: Filter | None = None) -> list[Binding]:
        """Return the ACLs that a filter selects, sorted; all ACLs without a filter."""
        chosen = which or Filter()
        request = apis.DESCRIBE_ACLS.Request(**_fields(chosen), pattern_type_filter=PATTERN_TYPES[chosen.pattern_type])
        response = self.cluster.any_connection().call(apis.DESCRIBE_ACLS, request)
        check(response.error_code, "the ACLs", response.error_message)
        return sorted(
            Binding(
                Pattern(
                    _RESOURCE_TYPES[resource.resource_type],
                    resource.resource_name,
                    _PATTERN_TYPES[resource.pattern_type],
                ),
                Entry(acl.principal, acl.host, _OPERATIONS[acl.operation], _PERMISSIONS[acl.permission_type]),
            )
            for resource in response.resources
            for acl in resource.acls
        )

    def create_acls(self, acls: Iterable[Binding]) -> None:
        """Store ACLs. Those of one resource pattern are stored together or not at all."""
        asked = list(acls)
        creations = [creation(acl) for acl in asked]
        response = self.cluster.any_connection().call(apis.CREATE_ACLS, apis.CREATE_ACLS.Request(creations=creations))
        for (pattern, _), result in zip(asked, response.results, strict=True):
            check(result.error_code, f"the ACLs of {shown(pattern)}", result.error_message)

    def delete_acls(self, filters: Iterable[Filter]) -> list[Binding]:
        """Delete the ACLs that any of the filters selects, and return them, sorted."""
        shape = apis.DELETE_ACLS.Request
        asked = [
            shape.Filters(**_fields(which), pattern_type_filter=PATTERN_TYPES[which.pattern_type]) for which in filters
        ]
        response = self.cluster.any_connection().call(apis.DELETE_ACLS, shape(filters=asked))
        deleted = []
        for result in response.filter_results:
            check(result.error_code, "the ACLs", result.error_message)
            for acl in result.matching_acls:
                pattern = Pattern(
                    _RESOURCE_TYPES[acl.resource_type], acl.resource_name, _PATTERN_TYPES[acl.pattern_type]
                )
                check(acl.error_code, f"the ACLs of {shown(pattern)}", acl.error_message)
                entry = Entry(acl.principal, acl.host, _OPERATIONS[acl.operation], _PERMISSIONS[acl.permission_type])
                deleted.append(Binding(pattern, entry))
        return sorted(deleted)


def shown(pattern: Pattern) -> str:
    """Return a resource pattern for people, such as "Topic flights" or "Topic fl* (prefixed)"."""
    name = f"{pattern.name}* (prefixed)" if pattern.pattern_type == "PREFIXED" else pattern.name
    return f"{display_name(pattern.resource_type)} {name}"


def _fields(which: Filter) -> dict[str, Any]:
    return {
        "resource_type_filter": RESOURCE_TYPES[which.resource_type],
        "resource_name_filter": which.name,
        "principal_filter": which.principal,
        "host_filter": which.host,
        "operation": OPERATIONS[which.operation],
        "permission_type": PERMISSIONS[which.permission],
    }
