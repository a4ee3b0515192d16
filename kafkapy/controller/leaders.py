"""Elections that a client requests, and those that rebalance partitions to their preferred leaders.

Source: KafkaController.processReplicaLeaderElection, checkAndTriggerAutoLeaderRebalance.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkapy.controller import elections
from kafkapy.controller.cluster import Cluster
from kafkapy.controller.partition import Partition, TopicPartition
from kafkapy.controller.partitions import Partitions
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.topics import PartitionState, TopicRegistry

PREFERRED, UNCLEAN = 0, 1  # kinds of elections that clients may ask for


class LeaderElections:
    """Holds elections. For the controller's thread only; all methods block."""

    def __init__(self, topics: TopicRegistry, cluster: Cluster, partitions: Partitions) -> None:
        self._topics = topics
        self._cluster = cluster
        self._partitions = partitions

    def elect(self, kind: int, partitions: Iterable[TopicPartition] | None) -> dict[TopicPartition, KafkaError | None]:
        """Do what Controller.elect describes."""
        results: dict[TopicPartition, KafkaError | None] = {}
        due = []
        for one in self._partitions.all() if partitions is None else partitions:
            refusal = self._refusal(kind, *one)
            if refusal is None:
                due.append(one)
            elif partitions is not None:
                results[one] = refusal

        def choose(one: Partition, is_online: elections.IsOnline) -> PartitionState | None:
            if kind == PREFERRED:
                return elections.elect_preferred(one.replicas, one.state, is_online)
            return elections.elect_offline(one.replicas, one.state, is_online, unclean=True)

        code = Errors.PREFERRED_LEADER_NOT_AVAILABLE if kind == PREFERRED else Errors.ELIGIBLE_LEADERS_NOT_AVAILABLE
        for (name, index), is_elected in self._partitions.elect(due, choose).items():
            refused = KafkaError(code, f"no replica of {name}-{index} can be elected; live: {self._cluster.live}")
            results[name, index] = None if is_elected else refused
        return results

    def _refusal(self, kind: int, name: str, index: int) -> KafkaError | None:
        known = self._partitions.get(name, index)
        if known is None:
            if self._topics.marked_topic(name) is not None:
                return KafkaError(Errors.INVALID_TOPIC_EXCEPTION, f"topic {name} is being deleted")
            return KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}")
        leader = known.state.leader
        if kind == PREFERRED and leader == known.replicas[0]:
            return KafkaError(Errors.ELECTION_NOT_NEEDED, "the leader is the preferred replica already")
        if kind == UNCLEAN and leader in self._cluster.live:
            return KafkaError(Errors.ELECTION_NOT_NEEDED, f"broker {leader} leads the partition")
        return None

    def rebalance(self, percentage: int) -> None:
        """Elect each live broker as leader of its preferred partitions if others lead more than `percentage` % of them.
        Partitions that are being reassigned count, but get no election.
        """
        by_preferred: dict[int, list[TopicPartition]] = {}
        moving = {(topic.name, index) for topic in self._topics.all() for index in topic.moves}
        for topic in self._topics.all():
            for index, replicas in topic.assignment.items():
                by_preferred.setdefault(replicas[0], []).append((topic.name, index))
        for broker_id, partitions in by_preferred.items():
            if broker_id not in self._cluster.live:
                continue
            led = set(self._partitions.led_by(broker_id, partitions))
            elsewhere = [one for one in partitions if one not in led]
            if elections.is_imbalanced(len(partitions), len(elsewhere), percentage):
                self.elect(PREFERRED, [one for one in elsewhere if one not in moving])
