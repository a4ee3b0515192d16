"""Create, extend and delete topics, and reassign their partitions.

Every change is written to the metadata tree before it is sent to a broker. So after a crash in between, the next start
finishes the work: it creates missing logs, and deletes the logs of topics that are marked as deleted. The methods wait.
They run on the disk pool or at the start, one change at a time. Source: kafka.server.ZkAdminManager, KafkaController.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from kafkapy.controller.interface import Assignment
from kafkapy.controller.partition_states import Brokers, PartitionStates, elect
from kafkapy.controller.reassignment import check_target, moved
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.metadata.producer_ids import ProducerIdBlocks
from kafkapy.metadata.topics import (
    PartitionState,
    Topic,
    TopicRegistry,
    plan_more_partitions,
    plan_topic,
    validate_name,
)
from kafkapy.metadata.tree import wait

log = logging.getLogger("kafkapy.controller.topics")

# The most roles that one call at the start applies. Each may create a log, and a stop of the broker waits for the call.
_ROLES_AT_ONCE = 100


class TopicController:
    """The controller of a cluster of one broker, in this process. Implements
    kafkapy.controller.interface.Controller.
    """

    def __init__(
        self,
        topics: TopicRegistry,
        producer_ids: ProducerIdBlocks,
        brokers: Brokers,
        *,
        broker_id: int,
        next_epoch: Callable[[str, int], int],
        check_settings: Callable[[Mapping[str, str]], object],
        check_stored: Callable[[str], object],
        default_partitions: Callable[[], int],
        default_replication: Callable[[], int],
    ) -> None:
        """`next_epoch(topic, partition)` returns the leader epoch for a partition without a state node: later than all
        in its log, which only a cluster of one broker knows. Kafka begins with 0.

        `check_settings(settings)` checks the settings of a new topic, `check_stored(topic)` the stored settings of an
        existing topic. Both raise KafkaError INVALID_CONFIG.
        """
        self._topics = topics
        self._producer_ids = producer_ids
        self._broker_id = broker_id
        self._states = PartitionStates(topics, brokers, [broker_id])
        self._next_epoch = next_epoch
        self._check_settings = check_settings
        self._check_stored = check_stored
        self._default_partitions = default_partitions
        self._default_replication = default_replication
        self._changing = threading.Lock()
        # Held while the states of existing partitions are read and sent, so that no state is sent after a later one.
        # Taken after `_changing`.
        self._sending = threading.Lock()

    def check_active(self) -> None:
        """Do nothing: this is the controller."""

    def create(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication: int = -1,
        by_hand: Assignment | None = None,
        overrides: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        overrides = dict(overrides or {})
        with self._changing:
            self._topics.check_new(name)
            assignment = plan_topic(
                [self._broker_id],
                partitions,
                replication,
                by_hand,
                default_partitions=self._default_partitions(),
                default_replication=self._default_replication(),
            )
            self._check_settings(overrides)
            if validate_only:
                return Topic(name, bytes(16), assignment)
            topic: Topic = wait(self._topics.create, name, assignment, overrides)
            failures = self._states.lead(topic, topic.assignment, is_new=True)
            if failures:  # most often a full disk: no topic is better than a topic without logs
                self._finish_deletion(wait(self._topics.mark_deleted, name))
                raise failures[0]
        log.info("topic %s made with partitions: %d, settings: %s", name, len(assignment), overrides or "defaults")
        return topic

    def create_on_demand(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication: int = -1,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        self.create(name, partitions=partitions, replication=replication, overrides=overrides)

    def auto_create(self, names: Iterable[str]) -> dict[str, KafkaError]:
        errors = {}
        for name in names:
            try:
                self.create(name)
            except KafkaError as error:
                if error.code == Errors.NOT_CONTROLLER:  # after which clients would not fetch the metadata again
                    error = KafkaError(Errors.LEADER_NOT_AVAILABLE, error.message)
                if error.code != Errors.TOPIC_ALREADY_EXISTS or name not in self._topics:
                    errors[name] = error
        return errors

    def add_partitions(
        self, name: str, count: int, by_hand: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> None:
        with self._changing:
            topic = self._topics.get(name)
            if topic is None:
                raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
            added = plan_more_partitions(name, topic.assignment, [self._broker_id], count, by_hand)
            self._check_stored(name)
            if validate_only:
                return
            grown: Topic = wait(self._topics.add_partitions, topic, added)
            failures = self._states.lead(grown, added, is_new=True)
            if failures:  # the next start tries again to create the logs
                raise failures[0]
        log.info("topic %s has partitions now: %d", name, count)

    def reassign(self, name: str, index: int, target: Sequence[int] | None) -> None:
        with self._changing, self._sending:
            topic = self._topics.get(name)
            check_target(topic, index, target, [self._broker_id])
            assert topic is not None  # otherwise `check_target` has raised
            changed, state = moved(topic, index, target, self._state(name, index), self._topics.controller_epoch)
            if changed != topic:
                wait(self._topics.reassign, topic, changed, {} if state is None else {index: state})
                self._states.moved(changed, index)
        log.info(
            "%s-%d has replicas %s, and a move: %s", name, index, changed.assignment[index], changed.moves.get(index)
        )

    def delete(self, name: str) -> None:
        with self._changing:
            self._finish_deletion(wait(self._topics.mark_deleted, name))
        log.info("topic %s deleted", name)

    def elect_leader(self, name: str, index: int) -> None:
        topic = self._topics.get(name)
        if topic is None or index not in topic.assignment:
            raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}")
        elect(topic.assignment[index], self._state(name, index), [self._broker_id], self._topics.controller_epoch)
        raise KafkaError(Errors.ELECTION_NOT_NEEDED, "the leader is the preferred replica already")

    def _state(self, name: str, index: int) -> PartitionState | None:
        """Return the state (leader, leader epoch, ISR) of partition `index`, None if it has none.

        Raises KafkaError UNKNOWN_SERVER_ERROR if the partition's state node in the metadata tree is invalid.
        """
        try:
            return self._topics.state(name, index)
        except ValueError as error:
            raise KafkaError(Errors.UNKNOWN_SERVER_ERROR, str(error)) from error

    def allocate_producer_ids(self, broker_id: int, done: Callable[[range | Exception], object]) -> None:
        self._producer_ids.allocate(broker_id, done)

    # --- topics that other programs have written to the tree

    def follow(self, name: str, *, lead: bool = True) -> None:
        """Add the missing nodes of a topic that another program has created or extended in the metadata tree.

        If `lead`, leaders are elected for the new partitions, and the roles are sent to the brokers. Does nothing for a
        topic that is complete or marked as deleted. Raises ValueError if the nodes are not those of a topic, and
        KafkaError for an invalid topic.
        """
        with self._changing:
            known = self._topics.get(name)
            if any(topic.name == name for topic in self._topics.marked()):
                return
            if known is None:
                validate_name(name)
            elif (
                self._topics.read(name) == known
                and known.id != ZERO_ID
                and not self._topics.partitions_without_state(known, self._broker_id)
            ):
                return
            if lead:  # at the start each broker checks the settings of its own topics
                self._check_stored(name)
            topic: Topic = wait(self._topics.complete_topic, name, self._broker_id, self._next_epoch)
            if not lead:
                return
            added = [index for index in topic.assignment if known is None or index not in known.assignment]
            self._states.lead(topic, added, is_new=True)
        if added:
            log.info("topic %s was made or grown by others; partitions led now: %s", name, added)

    # --- the start of the broker, during which topics may be changed

    def start(self, topics: Iterable[Topic], stopping: Callable[[], bool]) -> bool:
        """Finish deletions that were interrupted, and send the roles of all partitions of these topics to the brokers.

        Returns False, before all roles are sent, if `stopping()` returns True. The roles do not wait for a long change
        of one topic, such as the creation of its logs. A broker refuses the role of a partition that was deleted
        meanwhile.
        """
        for topic in self._topics.marked():
            with self._changing:
                if not stopping() and topic in self._topics.marked():
                    self._finish_deletion(topic)
        for topic in topics:
            indexes = list(topic.assignment)
            for at in range(0, len(indexes), _ROLES_AT_ONCE):
                with self._sending:
                    now = self._topics.get(topic.name)
                    if now is None or now.id != topic.id:
                        break
                    if stopping():
                        return False
                    self._states.lead(now, indexes[at : at + _ROLES_AT_ONCE], is_new=False)
        return True

    def finish_marked(self, name: str) -> None:
        if all(topic.name != name for topic in self._topics.marked()):
            return
        with self._changing:
            for topic in self._topics.marked():
                if topic.name == name:
                    self._finish_deletion(topic)

    def _finish_deletion(self, topic: Topic) -> None:
        """Delete the logs of a topic that is marked as deleted, then its nodes. The nodes stay if a log cannot be
        deleted yet, and while other brokers have replicas: only a controller of those brokers can have them deleted.
        """
        left = self._states.delete(topic)
        elsewhere = sorted({one for replicas in topic.assignment.values() for one in replicas} - {self._broker_id})
        if elsewhere:
            left.append(f"its replicas on the brokers {elsewhere}, which are not alive")
        if left:
            log.warning("topic %s is deleted, but for what is out of reach for now: %s", topic.name, "; ".join(left))
        else:
            wait(self._topics.remove, topic.name)
