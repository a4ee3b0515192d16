"""Which of the eight levels of quotas applies to a client, and with whom the client shares it.

Source: ClientQuotaManager. Users and client ids are named as in paths (`path_name`), so that no name equals DEFAULT.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from kafkapy.metadata.paths import DEFAULT_ENTITY as DEFAULT

Pair = tuple[str, str]  # a user and a client id; "" for none
Kind = tuple[bool, bool]  # whether an entity has a user, and a client id
Limits = Mapping[Pair, float]  # of one kind of quota, by the entity that has it


class Applied(NamedTuple):
    """The quota that applies to a client. Clients with the same `shares` share the quota. `entity` is the user and
    client id for which it was set, None if there is no limit."""

    shares: Pair
    entity: Pair | None
    limit: float | None


def levels(user: str, client_id: str) -> list[tuple[Pair, Pair]]:
    """Return the entities whose quotas can apply to a client, in the order of precedence, each with the pair of user
    and client id that shares it.

    A quota for a user and a client id, each named or the default, applies to each such pair by itself. A quota for a
    user alone is shared by all client ids of the user, a quota for a client id alone by all users with this client id.
    As in Kafka, only quotas for users apply to a client without a client id.
    """
    if not client_id:
        return [((user, ""), (user, "")), ((DEFAULT, ""), (user, ""))]
    both = (user, client_id)
    return [
        ((user, client_id), both),
        ((user, DEFAULT), both),
        ((user, ""), (user, "")),
        ((DEFAULT, client_id), both),
        ((DEFAULT, DEFAULT), both),
        ((DEFAULT, ""), (user, "")),
        (("", client_id), ("", client_id)),
        (("", DEFAULT), ("", client_id)),
    ]


def applied(limits: Limits, user: str, client_id: str, kinds: Collection[Kind] = ()) -> Applied:
    """Return the quota that applies to a client: the quota of the first level that has one.

    `kinds` are the kinds of the entities that have quotas, or had some earlier. As in Kafka, they decide with which
    other clients a client without a limit is counted.
    """
    for entity, shares in levels(user, client_id):
        limit = limits.get(entity)
        if limit is not None:
            return Applied(shares, entity, limit)
    return Applied(_shared_without_limit(limits, user, client_id, set(kinds)), None, None)


def kind_of(entity: Pair) -> Kind:
    """Return whether an entity has a user, and whether it has a client id."""
    return entity[0] != "", entity[1] != ""


def _shared_without_limit(limits: Limits, user: str, client_id: str, kinds: set[Kind]) -> Pair:
    if kinds == {(True, False)}:
        return user, ""
    if kinds == {(True, True)}:
        return user, client_id
    if not client_id and ((user, DEFAULT) in limits or (DEFAULT, DEFAULT) in limits):
        return user, ""
    return "", client_id
