"""The topics of a tree as a process knows them: by name and by id, those that are being deleted apart."""

from __future__ import annotations

from collections.abc import Callable

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.metadata.topic_nodes import PartitionState, Topic, decode_state, decode_topic
from kafkapy.metadata.topic_rules import check_collision, validate_name
from kafkapy.metadata.tree import Tree


class KnownTopics:
    """Reads come from memory, from any thread.

    A topic that cannot be read raises ValueError, or is named to `on_unreadable` and left alone: it is in `unreadable`
    then.
    """

    def __init__(self, tree: Tree, on_unreadable: Callable[[str, ValueError], None] | None = None) -> None:
        self._tree = tree
        self.unreadable: set[str] = set()
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._marked: dict[str, Topic] = {}
        self._last_state: tuple[bytes, PartitionState] | None = None  # a start asks for thousands that are the same
        for name in tree.children(paths.TOPICS):
            try:
                self._load(name)
            except ValueError as error:
                if on_unreadable is None:
                    raise
                self.unreadable.add(name)
                on_unreadable(name, error)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __len__(self) -> int:
        return len(self._by_name)

    def names(self) -> list[str]:
        """Of all topics that are not being deleted."""
        return list(self._by_name)

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self._by_id.get(topic_id)
        return topic.name if topic is not None else None

    def marked(self) -> list[Topic]:
        """Topics that are being deleted: their logs have to go, and then `remove` them."""
        return list(self._marked.values())

    def state(self, name: str, partition: int) -> PartitionState | None:
        """None if there is no such partition; raises ValueError naming the path of a state that cannot be read."""
        path = paths.partition_state(name, partition)
        node = self._tree.find(path)
        if node is None:
            return None
        last = self._last_state
        if last is None or last[0] != node.data:
            self._last_state = last = node.data, decode_state(node.data, path)
        return last[1]

    def check_new(self, name: str) -> None:
        """KafkaError if no topic of this name can be made now."""
        validate_name(name)
        if name in self._marked:
            raise KafkaError(Errors.TOPIC_ALREADY_EXISTS, f"topic {name} is being deleted")
        if name in self._by_name:
            raise KafkaError(Errors.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
        if "." in name or "_" in name:  # no other name can collide, and there may be thousands
            check_collision(name, self.names())

    def read(self, name: str) -> Topic:
        """The topic as it is in the tree now; raises NoNode, or ValueError naming the path."""
        return decode_topic(name, self._tree.get(paths.topic(name)).data)

    def stateless(self, topic: Topic, broker_id: int) -> list[int]:
        """The partitions with a replica on this broker of which the tree does not say who leads them."""
        return [
            partition
            for partition, replicas in topic.assignment.items()
            if broker_id in replicas and not self._tree.exists(paths.partition_state(topic.name, partition))
        ]

    def _load(self, name: str) -> None:
        topic = self.read(name)
        if self._tree.exists(f"{paths.DELETE_TOPICS}/{name}"):
            self._marked[name] = topic
        else:
            self._put(topic)

    def _put(self, topic: Topic) -> None:
        before = self._by_name.get(topic.name)
        if before is not None and before.id != topic.id:
            self._by_id.pop(before.id, None)
        self._by_name[topic.name] = topic
        if topic.id != ZERO_ID:
            self._by_id[topic.id] = topic
