"""Groups the partitions of a topic by their leaders, and connects clients to the leaders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafkapy.client.cluster import Cluster
from kafkapy.client.raw.connection import RawConnection
from kafkapy.client.security import Security
from kafkapy.errors import name_of
from kafkapy.protocol.apis import Api
from kafkapy.tools.bench.jobs import CLIENT_ID
from kafkapy.tools.common.errors import ToolError


@dataclass(frozen=True)
class Place:
    """Partitions of a topic in a cluster."""

    servers: str
    security: Security
    topic: str
    partitions: tuple[int, ...]
    client_id: str = ""

    def of(self, partitions: tuple[int, ...]) -> Place:
        """Return the same topic with these partitions."""
        return replace(self, partitions=partitions)

    def cluster(self) -> Cluster:
        return Cluster(self.servers, client_id=self.client_id or CLIENT_ID, security=self.security)

    def by_leader(self, cluster: Cluster) -> dict[int, list[int]]:
        """Return the partitions of each broker that leads some of them."""
        found: dict[int, list[int]] = {}
        for partition in self.partitions:
            found.setdefault(cluster.leader_of(self.topic, partition), []).append(partition)
        return found


def open_raw(cluster: Cluster, node: int, api: Api, versions: tuple[int, int]) -> tuple[RawConnection, int]:
    """Return a connection to the broker `node`, logged in if the cluster's settings say so, and the newest version of
    the API that both the broker and `versions` (lowest, highest) allow. Raises ToolError if there is none."""
    broker = cluster.brokers[node]
    connection = cluster.connect_to(broker.host, broker.port)
    version = connection.version_of(api, versions[1])
    if version < versions[0]:
        connection.close()
        raise ToolError(
            f"the broker at {connection.address} has only version {version} of {api.name}, and this needs at least "
            f"{versions[0]}: the broker must be of Kafka 0.11 or newer"
        )
    lender = connection if cluster.security.login else None
    return RawConnection(connection.lend_socket(), cluster.client_id, lender), version


def refuse(topic: str, partition: int, code: int) -> None:
    """Raise ToolError if a response has an error code for a partition."""
    if code:
        raise ToolError(f"{topic}-{partition}: the broker answered {name_of(code)} ({code})")


def shared_out(partitions: Sequence[int], clients: int) -> list[tuple[int, ...]]:
    """Return the partitions of each client. If there are more clients than partitions, clients share partitions."""
    if clients >= len(partitions):
        return [(partitions[client % len(partitions)],) for client in range(clients)]
    return [tuple(partitions[client::clients]) for client in range(clients)]


def shares_of(count: int | None, clients: int) -> list[int | None]:
    """Return how many of `count` requests or records are for each client; None (no limit) if `count` is None."""
    return [None if count is None else len(range(client, count, clients)) for client in range(clients)]
