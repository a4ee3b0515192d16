"""Which of a topic's partitions this broker leads, and in which leader epoch."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import LogConfig
from kafkapy.metadata.topics import PartitionState, Topic, TopicRegistry
from kafkapy.metadata.tree import wait
from kafkapy.replica.manager import ReplicaManager

log = logging.getLogger("kafkapy.controller.topics")


class Leading:
    """Waits for the tree and the disk."""

    def __init__(self, topics: TopicRegistry, replicas: ReplicaManager, broker_id: int) -> None:
        self._topics = topics
        self._replicas = replicas
        self._broker_id = broker_id

    def lead(self, topic: Topic, partitions: Iterable[int], config: LogConfig, *, is_new: bool) -> list[KafkaError]:
        """Leads these partitions; gives the errors of those whose logs could not be made or reached.

        Raises KafkaError if the tree does not take it that this broker leads what another led last.
        """
        failures: list[KafkaError] = []
        epochs: dict[int, int] = {}
        taken: dict[tuple[str, int], PartitionState] = {}
        for index in partitions:
            try:
                state = self._topics.state(topic.name, index)
                self._demand_leader(topic, index, state)
            except (KafkaError, ValueError) as error:
                refusal = error if isinstance(error, KafkaError) else None
                self._refuse(topic, index, refusal or KafkaError(Errors.LEADER_NOT_AVAILABLE, str(error)))
                continue
            epochs[index] = state.leader_epoch if state is not None else 0
            if state is not None and state.leader != self._broker_id:
                epochs[index] += 1
                taken[topic.name, index] = PartitionState(
                    self._broker_id, epochs[index], [self._broker_id], self._topics.controller_epoch
                )
        if taken:  # before the first record of the epoch: nobody else may ever lead in it
            wait(self._topics.set_states, taken)
        for index, epoch in epochs.items():
            try:
                self._replicas.make_leader(topic.name, index, topic.id, epoch, config, is_new=is_new)
            except KafkaError as error:  # its log directory is offline: answered partition by partition
                log.error("cannot lead %s-%d: %s", topic.name, index, error.message)
                failures.append(error)
                if not is_new and topic.name in self._topics:
                    self._replicas.refuse(topic.name, index, error)
        return failures

    def next_epoch(self, name: str, index: int) -> int:
        """In which epoch to lead a partition of which the tree does not say in which it is led.

        For one that is led, that epoch: only its node is gone. Else one behind all that its log has seen, so that no
        client and no log meets two different epochs of the same number.
        """
        led = self._replicas.led_epoch(name, index)
        return led if led is not None else self._replicas.log_manager.last_leader_epoch(name, index) + 1

    def _refuse(self, topic: Topic, index: int, refusal: KafkaError) -> None:
        log.error("cannot lead %s-%d: %s", topic.name, index, refusal.message)
        self._replicas.refuse(topic.name, index, refusal)

    def _demand_leader(self, topic: Topic, index: int, state: PartitionState | None) -> None:
        """A broker that holds no replica, or one that was not in sync, would lead without the records of others."""
        me, replicas = self._broker_id, topic.assignment[index]
        if me not in replicas:
            raise KafkaError(Errors.LEADER_NOT_AVAILABLE, f"its replicas are on brokers {replicas}, not on {me}")
        if state is not None and me not in (state.leader, *state.isr):
            raise KafkaError(
                Errors.LEADER_NOT_AVAILABLE, f"the replica here was not in sync, those of {state.isr} were"
            )
