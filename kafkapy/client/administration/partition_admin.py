"""An admin client for the replicas of partitions: elections of leaders, and reassignments."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafkapy.client.cluster import ClusterClient, TopicPartition
from kafkapy.client.responses import check, error_of, grouped
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol import apis

PREFERRED, UNCLEAN = 0, 1  # Kafka's ElectionType


@dataclass(frozen=True)
class Reassignment:
    """The replicas of a partition while it is reassigned: all of them, those being added, and those being removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class PartitionAdmin(ClusterClient):
    """A blocking admin client.

    Every method raises KafkaError for an error of the whole request, and ClientError if no response comes.
    """

    def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, *, unclean: bool = False
    ) -> dict[TopicPartition, KafkaError | None]:
        """Have the controller elect the leaders of partitions (None: of all), and return the error of each, or None.

        The preferred leader, a partition's first replica, is elected if it is in sync; with `unclean`, any replica is,
        for a partition that has no leader. The error is ELECTION_NOT_NEEDED if the leader is right already; if all
        partitions are asked for, such partitions may be left out. Source: KIP-460.
        """
        shape = apis.ELECT_LEADERS.Request
        asked = None
        if partitions is not None:
            asked = [
                shape.TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in grouped(partitions).items()
            ]
        request = shape(
            election_type=UNCLEAN if unclean else PREFERRED, topic_partitions=asked, timeout_ms=self._timeout_ms
        )
        response = self._to_controller(apis.ELECT_LEADERS, request)
        return {
            (topic.topic, one.partition_id): error_of(
                one.error_code, f"{topic.topic}-{one.partition_id}", one.error_message
            )
            for topic in response.replica_election_results
            for one in topic.partition_result
        }

    def reassign(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Begin to move partitions to these brokers (None: cancel the reassignment of the partition), and return the
        error of each, or None. The first broker becomes the preferred leader. Source: KIP-455."""
        shape = apis.ALTER_PARTITION_REASSIGNMENTS.Request
        request = shape(
            timeout_ms=self._timeout_ms,
            topics=[
                shape.Topics(
                    name=topic,
                    partitions=[
                        shape.Topics.Partitions(partition_index=index, replicas=_listed(replicas[topic, index]))
                        for index in indexes
                    ],
                )
                for topic, indexes in grouped(replicas).items()
            ],
        )
        response = self._to_controller(apis.ALTER_PARTITION_REASSIGNMENTS, request)
        return {
            (topic.name, one.partition_index): error_of(
                one.error_code, f"{topic.name}-{one.partition_index}", one.error_message
            )
            for topic in response.responses
            for one in topic.partitions
        }

    def reassignments(self) -> dict[TopicPartition, Reassignment]:
        """Return the reassignments that are under way, by partition."""
        request = apis.LIST_PARTITION_REASSIGNMENTS.Request(timeout_ms=self._timeout_ms, topics=None)
        response = self._to_controller(apis.LIST_PARTITION_REASSIGNMENTS, request)
        return {
            (topic.name, one.partition_index): Reassignment(
                tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
            )
            for topic in response.topics
            for one in topic.partitions
        }

    def _to_controller(self, api: apis.Api, request: Any) -> Any:
        """Return the controller's response. While another broker is becoming the controller, ask again up to the
        cluster's time limit."""

        def ask() -> Any:
            response = self.cluster.controller().call(api, request)
            code = _error_code(api, response)
            if code == Errors.NOT_CONTROLLER:
                self.cluster.refresh([])
            check(code, "the controller", getattr(response, "error_message", None))
            return response

        return self.cluster.retry(ask)


def _error_code(api: apis.Api, response: Any) -> int:
    """Return the error code of a whole response. In a cluster with ZooKeeper, a broker that is not the controller
    returns NOT_CONTROLLER for each partition of an election instead."""
    if api is apis.ELECT_LEADERS:
        codes = {one.error_code for topic in response.replica_election_results for one in topic.partition_result}
        if codes == {Errors.NOT_CONTROLLER}:
            return Errors.NOT_CONTROLLER
    return int(response.error_code)


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)
