"""Authorization and quotas: the checks that come before a request is handled.

The broker has no authorizer and no quotas yet (`Services.authorizer` and `Services.quotas` are None). The dispatcher is
the only caller, once for every request, including those that are handled together.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from kafkapy.server.call import Call


class Action(NamedTuple):
    """An operation on a resource, by Kafka's names: AclOperation, ResourceType, the resource's name."""

    operation: str
    resource_type: str
    name: str


class Authorizer(Protocol):
    """Authorizes the principal of a call's connection. Called on a network thread, so it must not block."""

    def denied(self, call: Call, actions: Collection[Action]) -> Collection[Action]:
        """Return the actions that are not allowed."""
        ...


class Quotas(Protocol):
    """Counts requests against the quotas. Called on a network thread, so it must not block."""

    def throttle_time_ms(self, call: Call, quota: str, size: int) -> int:
        """Count a request of `size` bytes against `quota`. Return how long to mute its connection in ms; 0 for none."""
        ...
