"""The declarations of what a principal must be allowed to do for the requests of an API. Each handler is registered
with one; docs/security.md has a table that is made from them (`kafkapy.tools.authorization_docs`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkapy.server.admission import CLUSTER, Action

if TYPE_CHECKING:
    from kafkapy.server.admission import Authorizer
    from kafkapy.server.call import Call
    from kafkapy.server.services import Services

Names = Callable[[Any], Iterable[str]]


class Right(NamedTuple):
    """An operation on the resources of one type, by the names of Kafka's AclOperation and ResourceType."""

    operation: str
    resource_type: str


class Check(NamedTuple):
    """A right that a request needs.

    denial  what a client without the right gets, for the documentation.
    names   `names(request)` returns the names of the resources; the dispatcher asks the authorizer for them, and the
            handler finds the denied ones in `Call.denied`. None if only the handler knows the resources, or has to ask
            for another right first: then it asks with the functions of `kafkapy.server.admission`.
    unless  another right that is enough; the authorizer is asked for it first.
    only    the requests that need the right, for the documentation; "" if all requests do.
    """

    right: Right
    denial: str
    names: Names | None = None
    unless: Right | None = None
    only: str = ""


class NoCheck(NamedTuple):
    """The declaration of an API that anybody may use, with the reason for the documentation."""

    reason: str


Checks = Sequence[Check] | NoCheck

CLUSTER_DENIED: Final = "CLUSTER_AUTHORIZATION_FAILED"
TOPIC_DENIED: Final = "TOPIC_AUTHORIZATION_FAILED"
GROUP_DENIED: Final = "GROUP_AUTHORIZATION_FAILED"
TRANSACTIONAL_ID_DENIED: Final = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


def _cluster(request: Any) -> tuple[str]:
    return (CLUSTER,)


def on_cluster(operation: str, denial: str = CLUSTER_DENIED) -> list[Check]:
    """Return the declaration of an API whose requests all need one right on the cluster."""
    return [Check(Right(operation, "CLUSTER"), denial, _cluster)]


def ask(authorizer: Authorizer, call: Call, actions: Collection[Action]) -> Collection[Action]:
    """Ask the authorizer for the actions of a call, in order if the API is registered with `in_order`. Return the
    denied ones."""
    return ask_in_order(authorizer, call, actions) if call.served.in_order else authorizer.denied(call, actions)


def ask_in_order(authorizer: Authorizer, call: Call, actions: Iterable[Action]) -> Collection[Action]:
    """Ask the authorizer for actions, one type of resource after the other, and return the denied ones.

    If all actions on one type are denied, the later types are not asked for: as in Kafka, a client that may not use a
    group causes no lines in the audit log about its topics.
    """
    denied: list[Action] = []
    for _, of_type in groupby(actions, attrgetter("resource_type")):
        asked = list(of_type)
        refused = authorizer.denied(call, asked)
        denied += refused
        if refused and set(asked).issubset(refused):
            break
    return denied


def actions_of(checks: Checks) -> Callable[[Services, Call], list[Action]] | None:
    """Return the function that lists the actions of a call for which the dispatcher asks the authorizer, None if there
    are none."""
    if isinstance(checks, NoCheck):
        return None
    asked = [(*check.right, check.names) for check in checks if check.names is not None]
    if not asked:
        return None

    def actions(broker: Services, call: Call) -> list[Action]:
        request = call.request
        return [Action(operation, kind, name) for operation, kind, names in asked for name in names(request)]

    return actions
