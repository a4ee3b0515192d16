"""An admin client for the quotas of a cluster (KIP-546)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kafkapy.client.cluster import ClusterClient
from kafkapy.client.responses import check
from kafkapy.protocol.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS

EXACT, ANY = 0, 2

# The owner of quotas: its names by entity type ("user", "client-id" or "ip"). None stands for the default.
Entity = Mapping[str, str | None]


class Usage(NamedTuple):
    """A quota that applies to a client on one broker, the entity for which it was set, and how much of it is used."""

    key: str
    entity: Entity
    limit: float
    used: float


class QuotaAdmin(ClusterClient):
    """A blocking admin client for quotas.

    Every method raises KafkaError for the first error in the broker's response, and ClientError if no response comes.
    """

    def list_quotas(self) -> list[tuple[Entity, dict[str, float]]]:
        """Return each entity that has quotas, with its quotas by name."""
        request = DESCRIBE_CLIENT_QUOTAS.Request(components=[], strict=False)
        return [(_entity(one), _values(one)) for one in self._described(self.cluster.any_connection(), request)]

    def alter(self, entity: Entity, changes: Mapping[str, float | None]) -> None:
        """Set quotas of an entity, or remove those whose value is None."""
        make = ALTER_CLIENT_QUOTAS.Request
        entry = make.Entries(
            entity=[make.Entries.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()],
            ops=[
                make.Entries.Ops(key=key, value=0.0 if value is None else value, remove=value is None)
                for key, value in changes.items()
            ],
        )
        response = self.cluster.any_connection().call(ALTER_CLIENT_QUOTAS, make(entries=[entry], validate_only=False))
        for one in response.entries:
            check(one.error_code, "the quotas", one.error_message)

    def usage(self, node_id: int, user: str, client_id: str) -> list[Usage]:
        """Return the quotas that apply to a client of a user on this broker, and how much of each is used.

        Raises KafkaError UNSUPPORTED_VERSION if the broker is Apache Kafka, which does not report usage.
        """
        make = DESCRIBE_CLIENT_QUOTAS.Request
        components = [
            make.Components(entity_type="user", match_type=EXACT, match=user),
            make.Components(entity_type="client-id", match_type=EXACT, match=client_id),
            make.Components(entity_type="kafkapy.usage", match_type=ANY, match=None),
        ]
        found = []
        for one in self._described(self.cluster.connection(node_id), make(components=components, strict=True)):
            values = _values(one)
            used = values.pop("kafkapy.used")
            ((key, limit),) = values.items()
            found.append(Usage(key, _entity(one), limit, used))
        return found

    def _described(self, connection: Any, request: Any) -> list[Any]:
        response = connection.call(DESCRIBE_CLIENT_QUOTAS, request)
        check(response.error_code, "the quotas", response.error_message)
        return list(response.entries or ())


def _entity(entry: Any) -> dict[str, str | None]:
    return {one.entity_type: one.entity_name for one in entry.entity}


def _values(entry: Any) -> dict[str, float]:
    return {one.key: one.value for one in entry.values}
