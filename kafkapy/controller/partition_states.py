"""Choose the leader and the ISR of each partition, write them to the metadata tree, then send them to the brokers.

Source: Kafka's PartitionStateMachine, Election and ControllerBrokerRequestBatch.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.cache import LEADER_DURING_DELETE
from kafkapy.metadata.roles import NO_LEADER, TOPIC_DELETED, PartitionRole, StopPartition
from kafkapy.metadata.topics import PartitionState, Topic, TopicRegistry
from kafkapy.metadata.tree import wait

log = logging.getLogger("kafkapy.controller.topics")


class Brokers(Protocol):
    """The brokers to which a controller sends partition roles: this broker by a function call, other brokers by
    requests.
    """

    def apply(
        self, controller_epoch: int, changes: Sequence[PartitionRole | StopPartition]
    ) -> Mapping[tuple[str, int], KafkaError]:
        """Have the brokers carry out the changes of roles; return the errors of failed changes, by (topic,
        partition).
        """
        ...

    def update_metadata(self, controller_epoch: int, partitions: Sequence[PartitionRole]) -> None:
        """Send the leaders of these partitions to all brokers, which need them for Metadata responses."""
        ...


def elect(replicas: Sequence[int], state: PartitionState | None, live: Collection[int], epoch: int) -> PartitionState:
    """Return the state (leader, leader epoch, ISR) of a partition with a live leader: `state` itself if its leader and
    its whole ISR are live.

    Otherwise a new leader epoch begins, and the ISR keeps its live replicas only. The leader stays if it is live, else
    the first replica that is live and in the ISR becomes the leader. A partition
    without a state gets the first live replica as its leader, and all live replicas as its ISR. `live` are broker ids,
    and `epoch` is the controller epoch of a new state. Raises KafkaError LEADER_NOT_AVAILABLE if no such replica is
    live: any other replica may lack acknowledged records.
    """
    alive = [one for one in replicas if one in live]
    if not alive:
        brokers = ", ".join(map(str, sorted(live)))
        raise KafkaError(Errors.LEADER_NOT_AVAILABLE, f"its replicas are on brokers {list(replicas)}, not on {brokers}")
    if state is None:
        return PartitionState(alive[0], 0, alive, epoch)
    if state.leader in alive and all(one in alive for one in state.isr):
        return state
    leader = state.leader if state.leader in alive else next((one for one in alive if one in state.isr), None)
    if leader is None:
        raise KafkaError(
            Errors.LEADER_NOT_AVAILABLE, f"the live replicas {alive} were not in sync, those of {state.isr} were"
        )
    return PartitionState(leader, state.leader_epoch + 1, [one for one in state.isr if one in alive], epoch)


class PartitionStates:
    """Elects leaders of partitions and sends the roles to the brokers. Methods wait for the metadata tree and for the
    brokers.
    """

    def __init__(self, topics: TopicRegistry, brokers: Brokers, live: Collection[int]) -> None:
        """`live` are the ids of the brokers that can lead partitions."""
        self._topics = topics
        self._brokers = brokers
        self._live = frozenset(live)

    def lead(self, topic: Topic, partitions: Iterable[int], *, is_new: bool) -> list[KafkaError]:
        """Elect a leader for each of these partitions of a topic whose leader is not live, then send all roles to the
        brokers.

        Returns the errors of roles that the brokers could not apply. Raises KafkaError if the states of new leaders
        cannot be written to the metadata tree.
        """
        states: dict[int, PartitionState | None] = {}
        elected: dict[tuple[str, int], PartitionState] = {}
        for index in partitions:
            before = state = None
            try:
                before = self._topics.state(topic.name, index)
                state = elect(topic.assignment[index], before, self._live, self._topics.controller_epoch)
                if before is not None and state is not before:
                    elected[topic.name, index] = state
            except (KafkaError, ValueError) as error:
                reason = error.message if isinstance(error, KafkaError) else error
                log.error("there is no leader for %s-%d: %s", topic.name, index, reason)
                if before is not None:
                    state = before._replace(leader=NO_LEADER)
            states[index] = state
        if elected:  # before the roles: a leader must not append in an epoch that another may still get
            wait(self._topics.set_states, elected)
        return self._send([self._role(topic, index, state, is_new) for index, state in states.items()])

    def moved(self, topic: Topic, index: int) -> None:
        """Send the role of a partition to the brokers after a reassignment has changed its replicas and its leader
        epoch.

        Errors of the brokers are logged.
        """
        for error in self._send([self._role(topic, index, self._topics.state(topic.name, index), is_new=False)]):
            log.error("the new replicas of %s-%d are not applied: %s", topic.name, index, error.message)

    def _send(self, roles: Sequence[PartitionRole]) -> list[KafkaError]:
        """Send roles to the live replicas, then the leaders to all brokers. Return the errors of roles that failed."""
        epoch = self._topics.controller_epoch
        failures = self._brokers.apply(epoch, [role for role in roles if not self._live.isdisjoint(role.replicas)])
        self._brokers.update_metadata(epoch, roles)
        return list(failures.values())

    def delete(self, topic: Topic) -> list[str]:
        """Have the brokers remove the topic from their metadata and delete its logs.

        Return an error message for each log that could not be deleted.
        """
        epoch = self._topics.controller_epoch
        stops = [StopPartition(topic.name, index, TOPIC_DELETED, delete=True) for index in topic.assignment]
        # The metadata is updated first, as in Kafka: while a partition is in the metadata but not on its own disks, a
        # broker assumes that other brokers have the partition.
        self._brokers.update_metadata(
            epoch,
            [
                PartitionRole(topic.name, index, topic.id, LEADER_DURING_DELETE, -1, 0, [], replicas)
                for index, replicas in topic.assignment.items()
            ],
        )
        return [error.message for error in self._brokers.apply(epoch, stops).values()]

    def _role(self, topic: Topic, index: int, state: PartitionState | None, is_new: bool) -> PartitionRole:
        replicas = topic.assignment[index]
        version = self._topics.state_version(topic.name, index)
        if state is None:
            return PartitionRole(topic.name, index, topic.id, NO_LEADER, -1, version, [], replicas, is_new)
        return PartitionRole(
            topic.name, index, topic.id, state.leader, state.leader_epoch, version, state.isr, replicas, is_new
        )
