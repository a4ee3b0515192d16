"""Which of the quotas in a list apply to a client."""

from collections.abc import Iterable, Mapping

from kafkapy.client.administration.quota_admin import Entity
from kafkapy.metadata.quotas import CLIENT_KEYS, DEFAULT, is_usable
from kafkapy.metadata.users import path_name
from kafkapy.server.quotas.levels import applied


def applying(
    quotas: Iterable[tuple[Entity, Mapping[str, float]]], user: str, client_id: str
) -> dict[str, tuple[Entity, float]]:
    """Return the quotas that apply to a client of a user, by name, each with the entity for which it was set."""
    of_clients = {
        (_in_paths(entity, "user"), _in_paths(entity, "client-id")): (entity, values)
        for entity, values in quotas
        if "ip" not in entity
    }
    found: dict[str, tuple[Entity, float]] = {}
    for key in CLIENT_KEYS:
        limits = {
            pair: values[key] for pair, (_, values) in of_clients.items() if is_usable(key, values.get(key, -1.0))
        }
        one = applied(limits, path_name(user), path_name(client_id))
        if one.entity is not None and one.limit is not None:
            found[key] = of_clients[one.entity][0], one.limit
    return found


def _in_paths(entity: Entity, kind: str) -> str:
    if kind not in entity:
        return ""
    name = entity[kind]
    return DEFAULT if name is None else path_name(name)
