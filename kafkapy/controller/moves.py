"""Moves partitions to other replicas (KIP-455), in the phases of Kafka's KafkaController.onPartitionReassignment.

First the topic's node gets the replicas of before and after, and those that are added and removed. While not all
target replicas are in sync, all replicas get roles in a new leader epoch, and the added ones copy the records. When
they are in sync, a target replica becomes the leader if the present one leaves, the removed ones are deleted, and the
node gets the target replicas only. Each step can be repeated, so another controller can continue at any point.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial

from kafkapy.controller import elections
from kafkapy.controller.cluster import Cluster
from kafkapy.controller.partition import Partition
from kafkapy.controller.partitions import Partitions
from kafkapy.controller.reassignment import check_target, target_of, with_target
from kafkapy.controller.requests import Requests
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.roles import ANY_EPOCH
from kafkapy.metadata.topics import Topic, TopicRegistry
from kafkapy.metadata.tree import wait

log = logging.getLogger("kafkapy.controller.moves")


class Moves:
    """The reassignments in progress. For the controller's thread only; all methods block."""

    def __init__(self, topics: TopicRegistry, cluster: Cluster, partitions: Partitions, requests: Requests) -> None:
        self._topics = topics
        self._cluster = cluster
        self._partitions = partitions
        self._requests = requests

    def begin(self, name: str, index: int, target: Sequence[int] | None) -> None:
        """Move a partition to the replicas `target` (broker ids); None cancels the move in progress.

        Raises the KafkaErrors of `check_target`, and those of a change of the metadata tree.
        """
        topic = self._topics.get(name)
        check_target(topic, index, target, self._cluster.live)
        assert topic is not None  # otherwise `check_target` has raised
        changed = with_target(topic, index, target)
        if changed != topic:
            # Replicas of a move that is replaced or cancelled: no controller knows of them once the node is written.
            dropped = [one for one in topic.assignment[index] if one not in changed.assignment[index]]
            self._drop(topic, index, dropped)
            known = self._partitions.get(name, index) if dropped else None
            if known is not None:  # the leader must not take them into the ISR again
                left = [one for one in topic.assignment[index] if one not in dropped]
                self._requests.role(known._replace(topic=changed), left)
            self._requests.send()
            topic = wait(self._topics.reassign, topic, changed)
        self.resume(topic, index)
        now = self._topics.get(name)
        if now is not None:
            replicas, move = now.assignment.get(index), now.moves.get(index)
            log.info("%s-%d has the replicas %s; reassignment in progress: %s", name, index, replicas, move)

    def resume_all(self, brokers: Iterable[int] | None = None) -> None:
        """Continue the moves in progress, or those with a target replica on one of `brokers`, which are live again."""
        wanted = None if brokers is None else set(brokers)
        for topic in self._topics.all():
            for index in list(topic.moves):
                if wanted is None or not wanted.isdisjoint(target_of(topic, index)):
                    self._guarded(topic, index)

    def isr_changed(self, name: str, index: int) -> None:
        """Complete the move of a partition whose ISR has grown, if all target replicas are in sync now."""
        topic = self._topics.get(name)
        if topic is not None and index in topic.moves and self._is_ready(topic, index):
            self._guarded(topic, index)

    def _guarded(self, topic: Topic, index: int) -> None:
        try:
            self.resume(topic, index)
        except KafkaError as error:
            if error.code == Errors.NOT_CONTROLLER:
                raise
            log.error("the reassignment of %s-%d cannot continue: %s", topic.name, index, error.message)

    def _is_ready(self, topic: Topic, index: int) -> bool:
        known = self._partitions.get(topic.name, index)
        return known is not None and set(target_of(topic, index)) <= set(known.state.isr)

    def resume(self, topic: Topic, index: int) -> None:
        """Take the next step of a move: let the added replicas copy, or complete the move."""
        self._partitions.elect_offline([(topic.name, index)])  # the leader may have been a replica that is not wanted
        known = self._partitions.get(topic.name, index)
        # A partition that was never led has the target replicas as its first ones.
        if known is not None and index in topic.moves and not self._is_ready(topic, index):
            self._partitions.change([known.in_state(elections.same_leader(known.state))])
            self._partitions.send_roles([known.key], topic.moves[index].adding, is_new=True)
        else:
            self._complete(topic, index)

    def _complete(self, topic: Topic, index: int) -> None:
        """Let a target replica lead, have the other replicas deleted, then write the target to the topic's node.

        In this order: once the node has the target only, no controller knows of the others any more.
        """
        target = target_of(topic, index)
        removed = [one for one in topic.assignment[index] if one not in target]
        moves = {other: one for other, one in topic.moves.items() if other != index}
        done = topic._replace(assignment={**topic.assignment, index: target}, moves=moves)
        known = self._partitions.get(topic.name, index)
        if known is not None and not self._partitions.write([self._led_by_target(known, target)]):
            return  # another program has changed the state: the controller will try again
        self._drop(topic, index, removed)
        known = self._partitions.get(topic.name, index)
        if known is not None:
            self._requests.role(known._replace(topic=done), target)
        self._requests.send()
        if done != topic:
            wait(self._topics.reassign, topic, done)
        self._partitions.inform([(topic.name, index)])

    def _led_by_target(self, known: Partition, target: Sequence[int]) -> Partition:
        is_online = partial(self._cluster.is_online, *known.key)
        if known.state.leader in target and is_online(known.state.leader):
            return known.in_state(elections.same_leader(known.state))
        elected = elections.elect_among(target, known.state, is_online)
        if elected is None:
            raise KafkaError(
                Errors.LEADER_NOT_AVAILABLE,
                f"none of the target replicas {list(target)} is live and in the ISR {known.state.isr}",
            )
        return known.in_state(elected)

    def _drop(self, topic: Topic, index: int, replicas: Sequence[int]) -> None:
        """Take replicas that are not wanted any more out of the ISR, and delete them."""
        if not replicas:
            return
        for broker_id in replicas:
            self._partitions.take_offline(broker_id, [(topic.name, index)], leaving=replicas)
        known = self._partitions.get(topic.name, index)
        epoch = known.state.leader_epoch if known is not None else ANY_EPOCH
        self._requests.stop((topic.name, index), epoch, replicas, delete=True)
