"""The interfaces of an authorizer and of quotas, and the functions with which handlers ask the authorizer.

`Services.authorizer` is None if everybody may do everything; the authorizers are in `kafkapy.server.authorization`.
`Services.quotas` is None as long as no quota is set.

A request is authorized in one of two ways. If the request itself names the resources, the registration of its handler
says how (`checks=`, see `kafkapy.server.checks`): the dispatcher asks the authorizer once for every request, also for
requests that are handled together, and stores the denied actions in `Call.denied`. Resources that only the handler
knows are checked by the handler with `denied_names`: the partitions of a fetch session, the topics of a request for all
topics, or an operation that either of two permissions allows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kafkapy.errors import Errors, KafkaError
from kafkapy.security.acls.bindings import CLUSTER_NAME, OPERATIONS, OPERATIONS_OF

if TYPE_CHECKING:
    from kafkapy.metadata.acls import Deletion
    from kafkapy.runtime.disk_pool import DiskPool
    from kafkapy.security.acls.bindings import Binding, Filter
    from kafkapy.server.call import Call, Usage
    from kafkapy.server.quotas.client_quotas import Mutations
    from kafkapy.server.rights import Rights
    from kafkapy.server.services import Services

CLUSTER: Final = CLUSTER_NAME  # the name of the only resource of type CLUSTER


class Action(NamedTuple):
    """An operation on a resource, such as ("READ", "TOPIC", "flights"): the names of Kafka's AclOperation and
    ResourceType, and the name of the resource."""

    operation: str
    resource_type: str
    name: str


class Authorizer(Protocol):
    """The interface of an authorizer, which decides what the principal of a call's connection may do.

    `pool` is None if it never blocks: then it is called from any thread, also from network threads. Otherwise all
    requests that it has to be asked for are handled on this pool.
    """

    @property
    def pool(self) -> DiskPool | None: ...

    @property
    def generation(self) -> int | None:
        """Return a number that is different after every change of the access rules. Callers may keep earlier decisions
        as long as the number stays the same. None: decisions must not be kept."""
        ...

    def denied(
        self, call: Call, actions: Collection[Action], *, logged: bool = True, grants: bool = True
    ) -> Collection[Action]:
        """Return those of `actions` that the principal of the call may not do.

        An action may be listed several times, such as once for each partition of a topic: it is decided once, and the
        audit log has the number. `logged` is False if a denial must not be logged, because the check only chooses what
        a response shows, or because another permission may allow the operation. `grants` is False if nothing is done
        that an allowed action permits, because the decisions only become a bit field of authorized operations.
        """
        ...

    def allowed_on_some(self, call: Call, operation: str, resource_type: str) -> bool:
        """Return True if there can be a resource of this type on which the principal of the call may do the operation
        (Kafka's authorizeByResourceType)."""
        ...

    def find(self, which: Filter) -> Iterable[Binding]:
        """Return the ACLs that a filter selects. This and the next two may block, so they are called on a pool. They
        raise KafkaError if this authorizer has no ACLs."""
        ...

    def create(self, call: Call, acls: Sequence[Binding]) -> list[KafkaError | None]:
        """Store ACLs. Return the error of each, None if it is stored and counts from now on."""
        ...

    def delete(self, call: Call, filters: Sequence[Filter]) -> list[Deletion]:
        """Delete the ACLs that the filters select. Return what each filter has deleted."""
        ...

    def close(self) -> None:
        """End the authorizer's threads, when the broker stops."""
        ...


class Quotas(Protocol):
    """The interface of the quotas. Each method that begins with `respond` counts a request whose response is made now,
    sets the call's `throttle_time_ms`, and mutes its connection for that time: nothing is read from it. They are called
    on any thread, also on network threads, so they must not block. Implemented by `quotas.client_quotas.ClientQuotas`.
    """

    @property
    def count_time(self) -> bool:
        """Return True if the time of handlers has to be measured."""
        ...

    def begin(self, call: Call, size: int, now: float = 0.0) -> bool:
        """Set the `usage` of a call whose frame has `size` bytes; callers pass the usage to the other methods. It stays
        None if no quota applies to the request, or if this method has counted all of the request. `now` is the
        monotonic time in seconds if that is known, otherwise 0.

        Return True for a Produce request that may exceed the quota of bytes, so that the requests behind it must wait.
        """
        ...

    def respond(self, call: Call, usage: Usage, *, exempt: bool = False) -> None:
        """Count a request of any API but Produce and Fetch, or one that is exempt from throttling."""
        ...

    def respond_to_produce(self, call: Call, usage: Usage) -> None:
        """Count a Produce request."""
        ...

    def may_empty_fetch(self, usage: Usage, size: int) -> bool:
        """Return False if a Fetch response with `size` bytes will be sent as it is."""
        ...

    def respond_to_fetch(self, call: Call, usage: Usage, size: int) -> bool:
        """Count a consumer's Fetch request, whose response has `size` bytes. Return False if an empty response must be
        sent instead."""
        ...

    def count_fetch(self, usage: Usage, size: int) -> None:
        """Count a consumer's Fetch request for which `may_empty_fetch` has returned False. It is not throttled."""
        ...

    def mutations(self, call: Call, usage: Usage, strict_since: int) -> Mutations:
        """Return the object that counts the partitions that a request creates and deletes. In versions of the API from
        `strict_since` on, it refuses those beyond the quota."""
        ...


def denied_names(
    broker: Services, call: Call, operation: str, resource_type: str, names: Collection[str], *, logged: bool = True
) -> Collection[str]:
    """Return those of `names`, resources of one type, on which the principal of the call may not do the operation.
    Return () if the broker has no authorizer."""
    if broker.authorizer is None or not names:
        return ()
    actions = [Action(operation, resource_type, name) for name in names]
    return {action.name for action in broker.authorizer.denied(call, actions, logged=logged)}


def is_denied(broker: Services, call: Call, operation: str, *, logged: bool = True) -> bool:
    """Return True if the principal of the call may not do the operation on the cluster. False if the broker has no
    authorizer."""
    return bool(denied_names(broker, call, operation, "CLUSTER", [CLUSTER], logged=logged))


def may_on_some(broker: Services, call: Call, operation: str, resource_type: str) -> bool:
    """Return True if there can be a resource of this type on which the principal of the call may do the operation, and
    if the broker has no authorizer."""
    return broker.authorizer is None or broker.authorizer.allowed_on_some(call, operation, resource_type)


OPERATIONS_NOT_ASKED: Final = -(2**31)  # in responses to requests that did not ask for the authorized operations


def authorized_operations(broker: Services, call: Call, resource_type: str, name: str = CLUSTER) -> int:
    """Return the operations that the principal of the call may do on a resource, as a bit field: bit n is the operation
    with the AclOperation code n (KIP-430). Without an authorizer these are all operations of the type."""
    operations: Collection[str] = OPERATIONS_OF[resource_type]
    if broker.authorizer is not None:
        actions = [Action(operation, resource_type, name) for operation in operations]
        denied = {action.operation for action in broker.authorizer.denied(call, actions, logged=False, grants=False)}
        operations = [operation for operation in operations if operation not in denied]
    return sum(1 << OPERATIONS[operation] for operation in operations)


_REFUSALS: Final = {  # Kafka's messages; clients show them
    Errors.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    Errors.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    Errors.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
NO_MESSAGE: Final = ""  # the message of denials in responses in which Kafka's have none


def refusal(code: int) -> KafkaError:
    """Return the error for a client that lacks a right, with the message of Kafka."""
    return KafkaError(code, _REFUSALS[code])


def rights_of(broker: Services, call: Call) -> Rights:
    """Return the remembered rights of the client of the call. After each change of the access rules, and for another
    principal, this is another object. The broker must have an authorizer.

    Call this before asking the authorizer: what the authorizer then decides, under these rules or later ones, may be
    remembered in the object. An object of rules that have changed meanwhile is not used again.
    """
    assert broker.authorizer is not None
    generation, connection = broker.authorizer.generation, call.connection
    rights: Rights | None = connection.rights
    if rights is None or rights.generation != generation or rights.principal != connection.principal:
        where = f"{connection.listener}://{connection.peer[0]}"  # a class of the operator may look at the listener
        rights = connection.rights = broker.rights.of(connection.principal, where, generation)
    return rights
