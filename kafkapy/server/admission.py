"""Authorization and quotas: whether a request may be done, and how long its connection is throttled.

The broker has no authorizer and no quotas yet (`Services.authorizer` and `Services.quotas` are None).

Authorization has two ways. What a request itself names is declared where its handler is registered (`authorizes=`):
the dispatcher asks once for every request, including those that are handled together, and `Call.denied` has the answer.
What only the handler knows, such as the partitions of a fetch session, the topics of a request for all topics, or an
operation that one of two rights allows, the handler asks for itself (`denied_names`).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from kafkapy.server.call import Call
    from kafkapy.server.services import Services

CLUSTER: Final = "kafka-cluster"  # the name of the only resource of type CLUSTER


class Action(NamedTuple):
    """An operation on a resource, by Kafka's names: AclOperation, ResourceType, the resource's name."""

    operation: str
    resource_type: str
    name: str


class Authorizer(Protocol):
    """Authorizes the principal of a call's connection. Called from any thread, also network threads: must not block."""

    @property
    def generation(self) -> int:
        """Return a number that every change of the rules changes, so that what was decided before can be kept."""
        ...

    def denied(self, call: Call, actions: Collection[Action], *, logged: bool = True) -> Collection[Action]:
        """Return the actions that are not allowed.

        `logged` is False for a check that only chooses what a response shows, or that another right may make up for.
        """
        ...


class Quotas(Protocol):
    """Counts requests against the quotas. Called on a network thread, so it must not block."""

    def throttle_time_ms(self, call: Call, quota: str, size: int) -> int:
        """Count a request of `size` bytes against `quota`. Return how long to mute its connection in ms; 0 for none."""
        ...


def denied_names(
    broker: Services, call: Call, operation: str, resource_type: str, names: Collection[str], *, logged: bool = True
) -> Collection[str]:
    """Return the names of the resources on which the principal of a call may not do an operation."""
    if broker.authorizer is None or not names:
        return ()
    actions = [Action(operation, resource_type, name) for name in names]
    return {action.name for action in broker.authorizer.denied(call, actions, logged=logged)}


def is_denied(broker: Services, call: Call, operation: str, *, logged: bool = True) -> bool:
    """Return True if the principal of a call may not do an operation on the cluster."""
    return bool(denied_names(broker, call, operation, "CLUSTER", [CLUSTER], logged=logged))


def rights_of(broker: Services, call: Call) -> Hashable:
    """Return what the rights of a call depend on: equal values mean the same rights."""
    assert broker.authorizer is not None
    connection = call.connection
    return connection.principal, connection.peer[0], broker.authorizer.generation
