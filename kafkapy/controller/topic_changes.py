"""Making, growing, changing and deleting topics.

Every change is in the metadata tree before anything happens to a log, so a crash in between leaves work that the
next start finishes: a topic without logs gets them, a topic marked as deleted loses them. All methods block; they
run on the disk pool or at the start, one change at a time. Source: kafka.server.ZkAdminManager, KafkaController.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from kafkapy.controller.leading import Leading
from kafkapy.controller.reassignment import check_target, moved
from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import LogConfig
from kafkapy.metadata.configs import ConfigRegistry
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.metadata.topics import (
    Topic,
    TopicRegistry,
    plan_more_partitions,
    plan_topic,
    validate_name,
)
from kafkapy.metadata.tree import wait
from kafkapy.replica.manager import ReplicaManager

log = logging.getLogger("kafkapy.controller.topics")

Assignment = Mapping[int, Sequence[int]]
# A topic's overrides -> the settings of its logs, or KafkaError INVALID_CONFIG.
CheckConfig = Callable[[Mapping[str, str]], LogConfig]
Overrides = dict[str, str]


class TopicController:
    """The topics of a cluster of one: this broker is the controller and leads every partition."""

    def __init__(
        self,
        topics: TopicRegistry,
        configs: ConfigRegistry,
        replicas: ReplicaManager,
        *,
        broker_id: int,
        check_config: CheckConfig,
        default_partitions: Callable[[], int],
        default_replication: Callable[[], int],
    ) -> None:
        self._topics = topics
        self._configs = configs
        self._replicas = replicas
        self._broker_id = broker_id
        self._leading = Leading(topics, replicas, broker_id)
        self._check_config = check_config
        self._default_partitions = default_partitions
        self._default_replication = default_replication
        self._changing = threading.Lock()
        # Told of a deleted topic and its partitions, while nothing else may change: it must not wait.
        self.on_deleted: Callable[[str, Collection[int]], object] = _nothing

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
        """Makes a topic and its logs; -1 means the broker's default. Raises KafkaError for what is refused."""
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
            config = self._check_config(overrides)
            if validate_only:
                return Topic(name, bytes(16), assignment)
            _warn(name, config)
            topic: Topic = wait(self._topics.create, name, assignment, overrides)
            failures = self._leading.lead(topic, topic.assignment, config, is_new=True)
            if failures:  # a full disk, most often: better no topic than one without logs
                self._finish_deletion(wait(self._topics.mark_deleted, name))
                raise failures[0]
        log.info("topic %s made with partitions: %d, settings: %s", name, len(assignment), overrides or "defaults")
        return topic

    def auto_create(self, names: Iterable[str]) -> dict[str, KafkaError]:
        """Makes topics that a client asked the metadata of; gives the errors of those that could not be made."""
        errors = {}
        for name in names:
            try:
                self.create(name)
            except KafkaError as error:
                if error.code != Errors.TOPIC_ALREADY_EXISTS or name not in self._topics:
                    errors[name] = error
        return errors

    def add_partitions(
        self, name: str, count: int, by_hand: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> None:
        """Brings a topic to `count` partitions."""
        with self._changing:
            topic = self._topics.get(name)
            if topic is None:
                raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
            added = plan_more_partitions(name, topic.assignment, [self._broker_id], count, by_hand)
            if validate_only:
                return
            grown: Topic = wait(self._topics.add_partitions, topic, added)
            failures = self._leading.lead(grown, added, self._check_config(self._configs.topic(name)), is_new=True)
            if failures:  # the next start tries again to make their logs
                raise failures[0]
        log.info("topic %s has partitions now: %d", name, count)

    def reassign(self, name: str, index: int, target: Sequence[int] | None) -> None:
        """Moves a partition to these replicas, or back (None); see `controller.reassignment`. Raises KafkaError."""
        with self._changing:
            topic = self._topics.get(name)
            check_target(topic, index, target, [self._broker_id])
            assert topic is not None  # or it would have been refused
            try:
                changed, state = moved(topic, index, target, self._topics.state(name, index))
            except ValueError as error:
                raise KafkaError(Errors.UNKNOWN_SERVER_ERROR, str(error)) from error
            if changed != topic:
                wait(self._topics.reassign, topic, changed, {} if state is None else {index: state})
        log.info(
            "%s-%d has replicas %s, and a move: %s", name, index, changed.assignment[index], changed.moves.get(index)
        )

    def delete(self, name: str) -> None:
        """Deletes a topic: gone for clients at once, its directories later (`file.delete.delay.ms`)."""
        with self._changing:
            self._finish_deletion(wait(self._topics.mark_deleted, name))
        log.info("topic %s deleted", name)

    def alter_topic(self, name: str, change: Callable[[Overrides], Overrides], *, validate_only: bool) -> None:
        """Replaces a topic's overrides by `change(overrides)`, if they pass the check."""
        with self._changing:
            if not name:
                raise KafkaError(Errors.INVALID_REQUEST, "a topic's settings need its name")
            if name not in self._topics:
                raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
            overrides = change(self._configs.topic(name))
            config = self._check_config(overrides)
            if validate_only:
                return
            wait(self._configs.set_topic, name, overrides)
            self._replicas.update_config(name, config)
        _warn(name, config)
        log.info("settings of topic %s are now: %s", name, overrides or "defaults")

    # --- what others write

    def follow(self, name: str, *, lead: bool = True) -> None:
        """A topic that others have made or grown in the tree: it gets what it lacks, and is led (unless not yet).

        Raises ValueError for nodes that are not those of a topic, KafkaError for what no topic may be.
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
                and not self._topics.stateless(known, self._broker_id)
            ):
                return
            topic: Topic = wait(self._topics.settle, name, self._broker_id, self._leading.next_epoch)
            if not lead:
                return
            added = [index for index in topic.assignment if known is None or index not in known.assignment]
            self._leading.lead(topic, added, self._check_config(self._configs.topic(name)), is_new=True)
        if added:
            log.info("topic %s was made or grown by others; partitions led now: %s", name, added)

    def follow_config(self, name: str) -> None:
        """Settings of a topic that others may have changed; raises KafkaError for those that cannot be used."""
        with self._changing:
            if name in self._topics:
                self._replicas.update_config(name, self._check_config(self._configs.topic(name)))

    # --- the start: while logs are loading, topics can be changed

    def expect_all(self) -> None:
        """First of all: what is in the tree is this broker's, and is led as soon as it can be."""
        for name in self._topics.names():
            topic = self._topics.get(name)
            if topic is not None:
                self._replicas.expect(name, topic.assignment)

    def take_over(self, missing: Iterable[tuple[str, int]], stopping: Callable[[], bool]) -> None:
        """Finishes deletions, and leads the partitions that have no log yet (`missing`), until `stopping()`."""
        for topic in self._topics.marked():
            with self._changing:
                if not stopping() and topic in self._topics.marked():
                    self._finish_deletion(topic)
        for name, index in missing:
            if not stopping():
                self.lead(name, index)

    def lead(self, name: str, index: int) -> None:
        """Leads an expected partition whose log is there now, or is known not to be.

        Takes no lock, so that a long change of other topics does not hold it up. If its own topic is deleted
        meanwhile, the replica manager refuses it; if its settings were changed since the loading began, it gets them
        anew.
        """
        topic = self._topics.get(name)
        if topic is None or index not in topic.assignment:
            self.finish_marked(name)
            return
        try:
            config = self._check_config(self._configs.topic(name))
        except KafkaError as error:
            log.error("cannot lead %s-%d: %s", name, index, error.message)
            self._replicas.refuse(name, index, error)
            return
        if self._leading.lead(topic, [index], config, is_new=False):
            self._clear_away(topic, index)
            return
        log_config = self._replicas.config_of(name, index)
        now = self._check_config(self._configs.topic(name))
        if log_config is not None and log_config is not now and log_config.values != now.values:
            with self._changing:
                self._replicas.update_config(name, self._check_config(self._configs.topic(name)))

    def _clear_away(self, topic: Topic, index: int) -> None:
        """The partition cannot be led: because its topic was deleted meanwhile, after which its log was made anew?

        The deletion was over before there was that log, so nobody else removes it, and a new topic of the name could
        not have one.
        """
        if self._topics.get(topic.name) is topic:
            return
        with self._changing:
            current = self._topics.get(topic.name)
            if current is None or current.id != topic.id:
                self._replicas.discard(topic.name, index, topic.id)

    def finish_marked(self, name: str) -> None:
        """If the topic was deleted while a log of it was being recovered, or its deletion was cut short."""
        if all(topic.name != name for topic in self._topics.marked()):
            return
        with self._changing:
            for topic in self._topics.marked():
                if topic.name == name:
                    self._finish_deletion(topic)

    def refresh_configs(self) -> None:
        """The broker's defaults changed: gives every log its settings anew."""
        with self._changing:
            for name in self._topics.names():
                self._replicas.update_config(name, self._check_config(self._configs.topic(name)))

    def _finish_deletion(self, topic: Topic) -> None:
        """Removes the logs, then the topic's nodes. With a log out of reach the mark stays, for the next start."""
        left = self._replicas.delete_topic(topic.name, topic.assignment)
        self.on_deleted(topic.name, topic.assignment.keys())
        if left:
            log.warning("topic %s is deleted, but for what is out of reach for now: %s", topic.name, "; ".join(left))
        else:
            wait(self._topics.remove, topic.name)


def _nothing(name: str, partitions: Collection[int]) -> None:
    """Nobody wants to know."""


def _warn(name: str, config: LogConfig) -> None:
    """Says it when a topic's message format is not what its settings ask for."""
    ignored = config.format_ignored()
    if ignored is not None:
        log.warning("topic %s: %s", name, ignored)
