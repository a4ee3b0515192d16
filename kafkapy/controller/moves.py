"""Moves partitions to other replicas (KIP-455), in the phases of Kafka's KafkaController.onPartitionReassignment.

First the topic's node gets the old and the target replicas, and lists those that are added and removed. While not all
target replicas are in sync, all replicas get roles in a new leader epoch, and the added ones copy the records. When
all are in sync, a target replica becomes the leader if the present leader is being removed, the removed replicas are
deleted, and the node gets only the target replicas. Each step can be repeated, so another controller can continue at
any point.
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

        Raises the KafkaErrors of `check_target`, and those of a change of the metadata tree. As in KRaft, raises
        INVALID_REPLICA_ASSIGNMENT if all in-sync replicas would be deleted.
        """
        topic = self._topics.get(name)
        check_target(topic, index, target, self._cluster.live)
        assert topic is not None  # otherwise `check_target` has raised
        known = self._known(topic, index)
        changed = with_target(topic, index, target)
        if changed != topic:
            # Replicas of a move that is replaced or cancelled: no controller knows of them once the node is written.
            dropped = [one for one in topic.assignment[index] if one not in changed.assignment[index]]
            if dropped and known is not None and set(known.state.isr) <= set(dropped):
                raise KafkaError(
                    Errors.INVALID_REPLICA_ASSIGNMENT,
                    f"all in-sync replicas of partition {index}, {known.state.isr}, would be deleted; try again when "
                    f"one of {changed.assignment[index]} is in sync",
                )
            self._drop(topic, index, dropped)
            known = self._partitions.get(name, index) if dropped else None
            if known is not None:  # the leader must not take the dropped replicas into the ISR again
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
            for index in topic.moves:
                if wanted is None or not wanted.isdisjoint(target_of(topic, index)):
                    self._guarded(topic.name, index)

    def isr_changed(self, name: str, index: int) -> None:
        """Complete the move of a partition whose ISR has grown, if all target replicas are in sync now."""
        topic = self._topics.get(name)
        if topic is not None and index in topic.moves and self._is_ready(topic, index):
            self._guarded(name, index)

    def _guarded(self, name: str, index: int) -> None:
        topic = self._topics.get(name)  # the reassignment of another partition may just have changed it
        if topic is None:
            return
        try:
            self.resume(topic, index)
        except KafkaError as error:
            if error.code == Errors.NOT_CONTROLLER:
                raise
            log.error("the reassignment of %s-%d cannot continue: %s", name, index, error.message)

    def _known(self, topic: Topic, index: int) -> Partition | None:
        """Return a partition, or None if it never had a leader. Raise KafkaError if its state cannot be decoded: any of
        its replicas may be the only one that has the records.
        """
        known = self._partitions.get(topic.name, index)
        if known is None and self._topics.has_state(topic.name, index):
            raise KafkaError(
                Errors.UNKNOWN_SERVER_ERROR, f"the state of {topic.name}-{index} in the metadata cannot be decoded"
            )
        return known

    def _is_ready(self, topic: Topic, index: int) -> bool:
        """Return True if all target replicas are in sync, and one of them can lead."""
        known, target = self._partitions.get(topic.name, index), target_of(topic, index)
        is_online = partial(self._cluster.is_online, topic.name, index)
        return known is not None and set(target) <= set(known.state.isr) and any(map(is_online, target))

    def resume(self, topic: Topic, index: int) -> None:
        """Take the next step of a move: let the added replicas copy, or complete the move."""
        self._partitions.elect_offline([(topic.name, index)])  # the leader may have been a replica that is not wanted
        known = self._known(topic, index)
        # A partition that never had a leader has no records to copy, so its move is completed at once.
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
        if known is None:  # it never had a leader, and a target replica may be live
            self._partitions.bring_online([(topic.name, index)], is_new=True)
        self._partitions.inform([(topic.name, index)])

    def _led_by_target(self, known: Partition, target: Sequence[int]) -> Partition:
        is_online = partial(self._cluster.is_online, *known.key)
        if known.state.leader in target and is_online(known.state.leader):
            return known.in_state(elections.same_leader(known.state))
        elected = elections.elect_among(target, known.state, is_online)
        # None if no target replica is live and in sync. This happens only if the replicas are reordered or a move is
        # cancelled: any other move is completed only when a target replica can lead.
        return known.in_state(elections.same_leader(known.state) if elected is None else elected)

    def _drop(self, topic: Topic, index: int, replicas: Sequence[int]) -> None:
        """Take replicas that are not wanted any more out of the ISR, and delete them."""
        if not replicas:
            return
        for broker_id in replicas:
            self._partitions.take_offline(broker_id, [(topic.name, index)], leaving=replicas)
        known = self._partitions.get(topic.name, index)
        epoch = known.state.leader_epoch if known is not None else ANY_EPOCH
        self._requests.stop((topic.name, index), epoch, replicas, delete=True)
