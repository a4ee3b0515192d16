"""Moves partitions to other replicas (KIP-455), in the phases of Kafka's KafkaController.onPartitionReassignment.

First the topic's node gets the replicas of before and after, and those that are added and removed. While not all
target replicas are in sync, all replicas get roles in a new leader epoch, and the added ones copy the records. When
they are in sync, a target replica becomes the leader if the present one leaves, the removed ones are deleted, and the
node gets the target replicas only. Each step can be repeated, so another controller can continue at any point.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from kafkapy.controller import elections
from kafkapy.controller.cluster import Cluster
from kafkapy.controller.partitions import Partitions
from kafkapy.controller.reassignment import check_target, target_of, with_target
from kafkapy.controller.requests import Requests
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.topics import PartitionState, Topic, TopicRegistry
from kafkapy.metadata.tree import wait

log = logging.getLogger("kafkapy.controller.moves")


class Moves:
    """The reassignments in progress. For the controller's thread only; all methods block."""

    def __init__(
        self,
        topics: TopicRegistry,
        cluster: Cluster,
        partitions: Partitions,
        requests: Requests,
        send: Callable[[], object],
    ) -> None:
        """`send()` sends the requests that were collected so far."""
        self._topics = topics
        self._cluster = cluster
        self._partitions = partitions
        self._requests = requests
        self._send = send

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
            known = self._partitions.state(name, index) if dropped else None
            if known is not None:  # the leader must not take them into the ISR again
                left = [one for one in topic.assignment[index] if one not in dropped]
                self._requests.role(changed, index, known.state, known.version, left, is_new=False)
            self._send()
            topic = wait(self._topics.reassign, topic, changed)
        self.resume(topic, index)
        log.info("%s-%d has the replicas %s; reassignment in progress: %s", name, index, *self._now(name, index))

    def _now(self, name: str, index: int) -> tuple[object, object]:
        topic = self._topics.get(name)
        return (None, None) if topic is None else (topic.assignment.get(index), topic.moves.get(index))

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
        known = self._partitions.state(topic.name, index)
        return known is not None and set(target_of(topic, index)) <= set(known.state.isr)

    def resume(self, topic: Topic, index: int) -> None:
        """Take the next step of a move: let the added replicas copy, or complete the move."""
        self._partitions.elect_offline([(topic.name, index)])  # the leader may have been a replica that is not wanted
        known = self._partitions.state(topic.name, index)
        if known is None:  # never led: the target replicas are the first ones
            self._complete(topic, index)
        elif index in topic.moves and not self._is_ready(topic, index):
            adding = topic.moves[index].adding
            self._partitions.change({(topic.name, index): known._replace(state=elections.same_leader(known.state))})
            self._partitions.send_roles([(topic.name, index)], adding, is_new=True)
        else:
            self._complete(topic, index)

    def _complete(self, topic: Topic, index: int) -> None:
        """Let a target replica lead, have the other replicas deleted, then write the target to the topic's node.

        In this order: once the node has the target only, no controller knows of the others any more.
        """
        key = topic.name, index
        target = target_of(topic, index)
        removed = [one for one in topic.assignment[index] if one not in target]
        moves = {other: one for other, one in topic.moves.items() if other != index}
        done = topic._replace(assignment={**topic.assignment, index: target}, moves=moves)
        known = self._partitions.state(*key)
        if known is not None:
            state = self._leader_of_target(topic, index, known.state, target)
            if key not in self._partitions.write({key: known._replace(state=state)}):
                return  # another program has changed the state: the controller will try again
        self._drop(topic, index, removed)
        known = self._partitions.state(*key)
        if known is not None:
            self._requests.role(done, index, known.state, known.version, target, is_new=False)
        self._send()
        if done != topic:
            wait(self._topics.reassign, topic, done)
        self._partitions.inform([key])

    def _leader_of_target(
        self, topic: Topic, index: int, state: PartitionState, target: Sequence[int]
    ) -> PartitionState:
        if state.leader in target and self._cluster.is_online(topic.name, index, state.leader):
            return elections.same_leader(state)
        elected = elections.elect_among(
            target, state, lambda broker_id: self._cluster.is_online(topic.name, index, broker_id)
        )
        if elected is None:
            raise KafkaError(
                Errors.LEADER_NOT_AVAILABLE,
                f"none of the target replicas {list(target)} is live and in the ISR {state.isr}",
            )
        return elected

    def _drop(self, topic: Topic, index: int, replicas: Sequence[int]) -> None:
        """Take replicas that are not wanted any more out of the ISR, and delete them."""
        if not replicas:
            return
        for broker_id in replicas:
            self._partitions.take_offline(broker_id, [(topic.name, index)], leaving=replicas)
        known = self._partitions.state(topic.name, index)
        epoch = known.state.leader_epoch if known is not None else -1
        self._requests.stop(topic.name, index, epoch, replicas, delete=True)
