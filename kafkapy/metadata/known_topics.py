"""An in-memory index, by name and by topic id, of the topics in the metadata tree. Topics that are being deleted are
kept apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.metadata.topic_nodes import PartitionState, Topic, decode_state, decode_topic
from kafkapy.metadata.topic_rules import check_collision, validate_name
from kafkapy.metadata.tree import Tree, TreeError, wait


class KnownTopics:
    """The topics in the metadata tree, by name and by topic id. Any thread may call the methods that read.

    If a topic's node cannot be decoded, the constructor raises ValueError. With `on_unreadable`, it calls
    `on_unreadable(name, error)` instead and adds the topic's name to `unreadable`.
    """

    def __init__(self, tree: Tree, on_unreadable: Callable[[str, ValueError], None] | None = None) -> None:
        self._tree = tree
        self._on_unreadable = on_unreadable
        # the last decoded state: when a broker starts, it reads the equal states of thousands of partitions
        self._last_state: tuple[bytes, PartitionState] | None = None
        self.reload()

    def reload(self) -> None:
        """Read all topics from the metadata tree again. No topic may be changed meanwhile; readers see the earlier
        topics until all are read.
        """
        unreadable: set[str] = set()
        by_name: dict[str, Topic] = {}
        marked: dict[str, Topic] = {}
        for name in self._tree.children(paths.TOPICS):
            try:
                topic = self.read(name)
            except ValueError as error:
                self._note_unreadable(name, error)
                unreadable.add(name)
            else:
                (marked if self._tree.exists(paths.deletion_mark(name)) else by_name)[name] = topic
        by_id = {topic.id: topic for topic in by_name.values() if topic.id != ZERO_ID}
        self._marked, self.unreadable, self._by_name, self._by_id = marked, unreadable, by_name, by_id

    def forget(self) -> None:
        """Forget all topics, except those that are being deleted, because this broker is not the controller any
        more."""
        self.unreadable, self._by_name, self._by_id = set(), {}, {}

    def stored(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return those of the named topics that are in the metadata tree now, including those that are being deleted.
        The topics are not added to this index. Topics that cannot be decoded are added to `unreadable`. Blocks; raises
        TreeError.
        """
        wanted = list(names)
        nodes = wait(self._tree.read_through, [paths.topic(name) for name in wanted])
        found: dict[str, Topic] = {}
        for name, node in zip(wanted, nodes, strict=True):
            if node is not None:
                try:
                    found[name] = decode_topic(name, node.data)
                except ValueError as error:
                    self._note_unreadable(name, error)
                    self.unreadable.add(name)
        return found

    def _note_unreadable(self, name: str, error: ValueError) -> None:
        if self._on_unreadable is None:
            raise error
        self._on_unreadable(name, error)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __len__(self) -> int:
        return len(self._by_name)

    def names(self) -> list[str]:
        """Return the names of all topics that are not being deleted."""
        return list(self._by_name)

    def all(self) -> list[Topic]:
        """Return all topics that are not being deleted."""
        return list(self._by_name.values())

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self._by_id.get(topic_id)
        return topic.name if topic is not None else None

    def marked(self) -> list[Topic]:
        """Return the topics that are being deleted. Their logs have to be deleted before `remove` is called."""
        return list(self._marked.values())

    def marked_topic(self, name: str) -> Topic | None:
        """Return the topic of this name that is being deleted; None if there is none."""
        return self._marked.get(name)

    def state(self, name: str, partition: int) -> PartitionState | None:
        """Return the leader, ISR and epochs of a partition, or None if the partition has no state node. Raises
        ValueError, which names the node's path, if the node cannot be decoded."""
        found = self.versioned_state(name, partition)
        return None if found is None else found[0]

    def versioned_state(self, name: str, partition: int) -> tuple[PartitionState, int] | None:
        """Return the state of a partition, and the version of its node, which is the partition epoch. Return None if
        the partition has no state node. Raises ValueError as `state` does."""
        path = paths.partition_state(name, partition)
        node = self._tree.find(path)
        if node is None:
            return None
        last = self._last_state
        if last is None or last[0] != node.data:
            self._last_state = last = node.data, decode_state(node.data, path)
        return last[1], node.version

    def refresh_states(self, partitions: Iterable[tuple[str, int]], done: Callable[[TreeError | None], object]) -> None:
        """Read the states of these partitions again, because another program has written them. Then call `done(None)`,
        or `done(error)`."""
        self._tree.refresh([paths.partition_state(*one) for one in partitions], done)

    def check_new(self, name: str) -> None:
        """Raise KafkaError if a topic of this name cannot be created: INVALID_TOPIC_EXCEPTION for an invalid or
        colliding name, TOPIC_ALREADY_EXISTS if the topic exists or is being deleted."""
        validate_name(name)
        if name in self._by_name:  # first: a topic that is marked in between is then found in `_marked`
            raise KafkaError(Errors.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
        if name in self._marked:
            raise KafkaError(Errors.TOPIC_ALREADY_EXISTS, f"topic {name} is being deleted")
        if "." in name or "_" in name:  # only such names can collide, and there may be thousands of topics
            check_collision(name, self.names())

    def read(self, name: str) -> Topic:
        """Return the topic decoded from its node as it is in the metadata tree now. Raises NoNode if the topic does not
        exist, ValueError, which names the node's path, if the node cannot be decoded."""
        return decode_topic(name, self._tree.get(paths.topic(name)).data)

    def without_state(self, topic: Topic) -> list[int]:
        """Return the partitions of the topic that have no state node, and therefore no leader yet."""
        return [partition for partition in topic.assignment if not self.has_state(topic.name, partition)]

    def has_state(self, name: str, partition: int) -> bool:
        """Return True if the partition has a state node, even if the node cannot be decoded."""
        return self._tree.exists(paths.partition_state(name, partition))

    def _put(self, topic: Topic) -> None:
        before = self._by_name.get(topic.name)
        if before is not None and before.id != topic.id:
            self._by_id.pop(before.id, None)
        self._by_name[topic.name] = topic
        if topic.id != ZERO_ID:
            self._by_id[topic.id] = topic
