"""Creates and extends topics, on request or after another program has written them to the metadata tree.

Source: kafka.server.ZkAdminManager, KafkaController.processTopicChange, processPartitionModifications.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kafkapy.controller.cluster import Cluster
from kafkapy.controller.moves import Moves
from kafkapy.controller.partition import TopicPartition
from kafkapy.controller.partitions import Partitions
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.metadata.topic_rules import Assignment, plan_more_partitions, plan_topic
from kafkapy.metadata.topics import Topic, TopicRegistry, validate_name
from kafkapy.metadata.tree import wait

log = logging.getLogger("kafkapy.controller")


class Settings(NamedTuple):
    """The settings that the controller uses, as functions. The checks raise KafkaError INVALID_CONFIG.

    check               checks the settings of a new topic
    check_stored        checks the stored settings of a topic
    partitions          num.partitions
    replication         default.replication.factor
    may_be_unclean      unclean.leader.election.enable of a topic; "": of topics without settings of their own
    imbalance           leader.imbalance.per.broker.percentage
    """

    check: Callable[[Mapping[str, str]], object]
    check_stored: Callable[[str], object]
    partitions: Callable[[], int]
    replication: Callable[[], int]
    may_be_unclean: Callable[[str], bool]
    imbalance: Callable[[], int] = lambda: 10


class TopicChanges:
    """Creates and extends topics. For the controller's thread only; all methods block.

    `own_failures` are the errors of roles on this broker, if it is the only one of the cluster.
    """

    def __init__(
        self, topics: TopicRegistry, cluster: Cluster, partitions: Partitions, moves: Moves, settings: Settings
    ) -> None:
        self._topics = topics
        self._cluster = cluster
        self._partitions = partitions
        self._moves = moves
        self._settings = settings
        self.own_failures: dict[TopicPartition, KafkaError] = {}

    def plan(self, partitions: int, replication: int, by_hand: Assignment | None) -> dict[int, list[int]]:
        """Return the replicas of each partition of a new topic. The parameters are those of Controller.create."""
        defaults = self._settings.partitions(), self._settings.replication()
        return plan_topic(
            self._racks(),
            partitions,
            replication,
            by_hand,
            default_partitions=defaults[0],
            default_replication=defaults[1],
        )

    def _racks(self) -> dict[int, str | None]:
        """Return the brokers that get replicas, with their racks. As in Kafka, these include brokers that are shutting
        down: they come back, and a topic with as many replicas as there are brokers can be created meanwhile.
        """
        return {one.broker.id: one.broker.rack for one in self._cluster.registered.values()}

    def create(
        self, name: str, plan: Callable[[], dict[int, list[int]]], overrides: Mapping[str, str], *, validate_only: bool
    ) -> Topic:
        """Create a topic with the replicas that `plan` returns, and send the roles."""
        self._topics.check_new(name)
        assignment = plan()
        self._settings.check(overrides)
        if validate_only:
            return Topic(name, ZERO_ID, assignment)
        states = self._partitions.first_states(name, assignment)
        topic: Topic = wait(self._topics.create, name, assignment, overrides, states=states)
        self._begin(topic, assignment)
        return topic

    def add_partitions(
        self, name: str, count: int, by_hand: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> list[int]:
        """Do what Controller.add_partitions describes, and return the indexes of the new partitions."""
        topic = self._topics.get(name)
        if self._topics.marked_topic(name) is not None:
            raise KafkaError(Errors.INVALID_TOPIC_EXCEPTION, f"topic {name} is being deleted")
        if topic is None:
            raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        if topic.moves:
            raise KafkaError(
                Errors.REASSIGNMENT_IN_PROGRESS, f"partitions {sorted(topic.moves)} of {name} are being reassigned"
            )
        added = plan_more_partitions(name, topic.assignment, self._racks(), count, by_hand)
        self._settings.check_stored(name)
        if validate_only:
            return []
        grown: Topic = wait(
            self._topics.add_partitions, topic, added, states=self._partitions.first_states(name, added)
        )
        self._begin(grown, added)
        return list(added)

    def _begin(self, topic: Topic, indexes: Iterable[int]) -> None:
        keys = [(topic.name, index) for index in indexes]
        for key in keys:
            self.own_failures.pop(key, None)
        self._partitions.bring_online(keys, is_new=True)

    def own_failure(self, name: str, indexes: Iterable[int]) -> KafkaError | None:
        """Return the error of one of these partitions, if any, and forget their errors. Any thread may call this."""
        failures = [self.own_failures.pop((name, index), None) for index in indexes]
        return next((one for one in failures if one is not None), None)

    def follow(self, name: str, *, lead: bool) -> None:
        """Do what ClusterController.follow describes."""
        known = self._topics.get(name)
        if self._topics.marked_topic(name) is not None:
            return
        if known is None:
            validate_name(name)
        elif self._topics.read(name) == known and known.id != ZERO_ID and not self._topics.without_state(known):
            return
        if lead:  # at the start each broker checks the settings of its own topics
            self._settings.check_stored(name)
        topic: Topic = wait(self._topics.complete_topic, name)
        if not lead:
            return
        before = {} if known is None else known.assignment
        added = [index for index in topic.assignment if index not in before or not self._topics.has_state(name, index)]
        self._partitions.bring_online([(name, index) for index in added], is_new=True)
        if known is not None and topic.moves != known.moves:
            self._moves.resume_all()
        if added:
            log.info("topic %s was created or extended by another program; new partitions: %s", name, added)
