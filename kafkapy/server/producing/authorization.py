"""Authorizes Produce requests. Asks the authorizer only if the remembered rights of the client are not enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkapy.server.admission import Action, rights_of
from kafkapy.server.checks import ask_in_order

if TYPE_CHECKING:
    from kafkapy.server.call import Call
    from kafkapy.server.services import Services


def writes(broker: Services, call: Call) -> list[Action]:
    """Return the actions that the client of a Produce request must be allowed."""
    request = call.request
    actions = [Action("WRITE", "TOPIC", topic) for topic, _ in request.topics]
    if request.in_transaction and request.transactional_id is not None:
        actions.insert(0, Action("WRITE", "TRANSACTIONAL_ID", request.transactional_id))
    return actions


def authorize_transactional(broker: Services, call: Call) -> None:
    """Authorize a Produce request with records of a transaction, unless the remembered rights allow all of it."""
    rights, request = rights_of(broker, call), call.request
    if request.transactional_id not in rights.ids or not rights.writes.issuperset([one for one, _ in request.topics]):
        authorize(broker, call)


def authorize(broker: Services, call: Call) -> None:
    """Ask the authorizer for all actions of a Produce request. Set `call.denied`, and remember the allowed actions."""
    assert broker.authorizer is not None
    rights = rights_of(broker, call)
    call.denied = ask_in_order(broker.authorizer, call, writes(broker, call))
    if call.is_denied("TRANSACTIONAL_ID"):
        return  # the authorizer was not asked about the topics, since the transactional id is denied
    denied = call.denied_names("TOPIC")
    request = call.request
    broker.rights.remember(rights.writes, [topic for topic, _ in request.topics if topic not in denied])
    if request.in_transaction and request.transactional_id is not None:
        broker.rights.remember(rights.ids, [request.transactional_id])
