"""DescribeAcls (versions 0 to 3), CreateAcls (versions 0 to 3) and DeleteAcls (versions 0 to 3): who may do what.

Source: kafka.server.AclApis, AclAuthorizer.

Differences from Kafka:

- Resources and ACLs are sorted in responses; in Kafka they have no order.
- DeleteAcls returns an error for a filter that matches ACLs which cannot be read. A filter that names their resource
  pattern, and nothing else, deletes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors, KafkaError, ProtocolError
from kafkapy.protocol.apis import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from kafkapy.runtime.printable import one_word
from kafkapy.security.acls.bindings import (
    ANY,
    CLUSTER_NAME,
    MATCH,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    RESOURCE_TYPES,
    Binding,
    Entry,
    Filter,
    Pattern,
    display_name,
    is_principal,
)
from kafkapy.server.admission import refusal
from kafkapy.server.api_table import serves
from kafkapy.server.changes import changed
from kafkapy.server.checks import CLUSTER_DENIED, on_cluster

if TYPE_CHECKING:
    from kafkapy.metadata.acls import Deletion
    from kafkapy.server.call import Call
    from kafkapy.server.services import Services

_REFUSED = refusal(Errors.CLUSTER_AUTHORIZATION_FAILED)
_UNKNOWN = ""  # the name of a code that Kafka 3.9 does not know: it matches nothing, and is not stored


def _names(codes: Mapping[str, int]) -> dict[int, str]:
    return {code: name for name, code in codes.items()}


_OPERATIONS = _names(OPERATIONS)
_RESOURCE_TYPES = _names(RESOURCE_TYPES)
_PATTERN_TYPES = _names(PATTERN_TYPES)
_PERMISSIONS = _names(PERMISSIONS)


@serves(DESCRIBE_ACLS, pooled=True, decoded_late=True, checks=on_cluster("DESCRIBE"))
def describe(broker: Services, call: Call, request: Any) -> Any:
    """Handle DescribeAcls on the disk pool: return the ACLs that a filter selects, by resource pattern."""
    make = DESCRIBE_ACLS.Response
    which = _filter(call, request)
    if call.denied:
        return make(error_code=_REFUSED.code, error_message=_REFUSED.message, resources=[])
    if broker.authorizer is None:
        message = "No Authorizer is configured on the broker"
        return make(error_code=Errors.SECURITY_DISABLED, error_message=message, resources=[])
    try:
        found = sorted(broker.authorizer.find(which))
    except KafkaError as error:
        return make(error_code=error.code, error_message=error.message, resources=[])
    return make(
        error_code=Errors.NONE,
        error_message="",  # as Kafka, which leaves it at its default
        resources=[
            make.Resources(
                resource_type=RESOURCE_TYPES[pattern.resource_type],
                resource_name=pattern.name,
                pattern_type=PATTERN_TYPES[pattern.pattern_type],
                acls=[
                    make.Resources.Acls(
                        principal=entry.principal,
                        host=entry.host,
                        operation=OPERATIONS[entry.operation],
                        permission_type=PERMISSIONS[entry.permission],
                    )
                    for _, entry in acls
                ],
            )
            for pattern, acls in groupby(found, key=lambda binding: binding.pattern)
        ],
    )


@serves(CREATE_ACLS, pooled=True, decoded_late=True, checks=on_cluster("ALTER", CLUSTER_DENIED + " for each ACL"))
def create(broker: Services, call: Call, request: Any) -> Any:
    """Handle CreateAcls on the disk pool: store ACLs, and return a result for each. The valid ACLs of one resource
    pattern are stored together or not at all."""
    for one in request.creations:
        _check_known(call, one.resource_type, one.resource_pattern_type, one.operation, one.permission_type)
    refused: KafkaError | None = None
    if call.denied:
        refused = _REFUSED
    elif broker.authorizer is None:
        refused = KafkaError(Errors.SECURITY_DISABLED, "No Authorizer is configured.")
    acls = [_binding(one) for one in request.creations]
    if refused is None and any(map(_is_for_filters, acls)):
        refused = KafkaError(Errors.UNKNOWN_SERVER_ERROR, None)
    errors: dict[Binding, KafkaError | None] = {}
    if refused is not None:
        errors = dict.fromkeys(acls, refused)
    else:
        assert broker.authorizer is not None
        errors = {one: error for one in acls if (error := _invalid(one)) is not None}
        of_bad_users = {one.pattern for one in acls if one not in errors and not is_principal(one.entry.principal)}
        for one in acls:
            if one.pattern in of_bad_users:
                errors.setdefault(one, KafkaError(Errors.UNKNOWN_SERVER_ERROR, None))
        valid = list(dict.fromkeys(one for one in acls if one not in errors))
        try:
            errors |= zip(valid, broker.authorizer.create(call, valid), strict=True)
        except KafkaError as error:
            errors |= dict.fromkeys(valid, error)
        _log_changes(call, "added", [one for one in valid if errors[one] is None])
    return CREATE_ACLS.Response(results=[_result(errors[one]) for one in acls])


def _result(error: KafkaError | None) -> Any:
    if error is None:
        return CREATE_ACLS.Response.Results(error_code=Errors.NONE, error_message="")
    return CREATE_ACLS.Response.Results(error_code=error.code, error_message=_shown(error))


@serves(DELETE_ACLS, pooled=True, decoded_late=True, checks=on_cluster("ALTER", CLUSTER_DENIED + " for each filter"))
def delete(broker: Services, call: Call, request: Any) -> Any:
    """Handle DeleteAcls on the disk pool: delete the ACLs that filters select, and return what each has deleted."""
    filters = [_filter(call, one) for one in request.filters]
    make = DELETE_ACLS.Response.FilterResults
    if call.denied or broker.authorizer is None:
        code, message = _REFUSED.code, _REFUSED.message
        if not call.denied:
            code, message = Errors.SECURITY_DISABLED, "No Authorizer is configured."
        results = [make(error_code=code, error_message=message, matching_acls=[]) for _ in filters]
    else:
        try:
            deletions = broker.authorizer.delete(call, filters)
            deleted = (acl for one in deletions for acl, problem in one.acls.items() if problem is None)
            _log_changes(call, "deleted", dict.fromkeys(deleted))
            results = [_deleted(one) for one in deletions]
        except KafkaError as error:
            results = [make(error_code=error.code, error_message=error.message, matching_acls=[]) for _ in filters]
    return DELETE_ACLS.Response(filter_results=results)


def _log_changes(call: Call, how: str, acls: Iterable[Binding]) -> None:
    """Log who has added or deleted ACLs, a line for each resource pattern."""
    for pattern, of_pattern in groupby(sorted(acls), key=lambda acl: acl.pattern):
        changed(
            call,
            f"ACLs of {display_name(pattern.resource_type)}:{pattern.pattern_type}:{one_word(pattern.name)}",
            [
                f"{how}: {display_name(entry.permission)} {display_name(entry.operation)} "
                f"to {one_word(entry.principal)} from host = {one_word(entry.host)}"
                for _, entry in of_pattern
            ],
        )


def _deleted(deletion: Deletion) -> Any:
    make = DELETE_ACLS.Response.FilterResults
    error = deletion.error
    return make(
        error_code=Errors.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        matching_acls=[
            make.MatchingAcls(
                error_code=Errors.NONE if problem is None else problem.code,
                error_message=_shown(problem),
                resource_type=RESOURCE_TYPES[pattern.resource_type],
                resource_name=pattern.name,
                pattern_type=PATTERN_TYPES[pattern.pattern_type],
                principal=entry.principal,
                host=entry.host,
                operation=OPERATIONS[entry.operation],
                permission_type=PERMISSIONS[entry.permission],
            )
            for (pattern, entry), problem in sorted(deletion.acls.items(), key=lambda item: item[0])
        ],
    )


def _filter(call: Call, request: Any) -> Filter:
    """Return the filter in a DescribeAcls request, or in a part of a DeleteAcls request."""
    codes = request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
    _check_known(call, *codes)
    return Filter(
        _RESOURCE_TYPES.get(request.resource_type_filter, _UNKNOWN),
        request.resource_name_filter,
        _PATTERN_TYPES.get(request.pattern_type_filter, _UNKNOWN),
        request.principal_filter,
        request.host_filter,
        _OPERATIONS.get(request.operation, _UNKNOWN),
        _PERMISSIONS.get(request.permission_type, _UNKNOWN),
    )


def _check_known(call: Call, *codes: int) -> None:
    """Raise ProtocolError for the code 0 (UNKNOWN): for Kafka, a request with it cannot be parsed."""
    if 0 in codes:
        raise ProtocolError(f"{call.served.api.name} v{call.version}: an ACL or a filter has the code 0 (UNKNOWN)")


def _binding(one: Any) -> Binding:
    return Binding(
        Pattern(
            _RESOURCE_TYPES.get(one.resource_type, _UNKNOWN),
            one.resource_name,
            _PATTERN_TYPES.get(one.resource_pattern_type, _UNKNOWN),
        ),
        Entry(
            one.principal,
            one.host,
            _OPERATIONS.get(one.operation, _UNKNOWN),
            _PERMISSIONS.get(one.permission_type, _UNKNOWN),
        ),
    )


def _is_for_filters(acl: Binding) -> bool:
    """Return True if an ACL has a value that only filters can have."""
    pattern, entry = acl
    return ANY in (pattern.resource_type, pattern.pattern_type, entry.operation, entry.permission) or (
        pattern.pattern_type == MATCH
    )


def _invalid(acl: Binding) -> KafkaError | None:
    """Return the reason why an ACL cannot be stored, None if it can."""
    pattern, entry = acl
    if pattern.resource_type == "CLUSTER" and pattern.name != CLUSTER_NAME:
        why = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not pattern.name:
        why = "Invalid empty resource name"
    elif _UNKNOWN in (pattern.resource_type, pattern.pattern_type, entry.operation, entry.permission) or (
        "/" in pattern.name
    ):
        why = "Failed to create ACL"
    else:
        return None
    return KafkaError(Errors.INVALID_REQUEST, why)


def _shown(error: KafkaError | None) -> str | None:
    """Return the message of an error. Return None for UNKNOWN_SERVER_ERROR: as in Kafka, clients do not get the message
    of an unexpected error."""
    return None if error is None or error.code == Errors.UNKNOWN_SERVER_ERROR else error.message
