"""Offsets of the old consumers, kept in the tree: /consumers/GROUP/offsets/TOPIC/PARTITION, a decimal number each.

Source: Kafka's ConsumerOffset (ZkData), KafkaZkClient.setOrCreateConsumerOffset and getConsumerOffset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkapy.metadata import paths
from kafkapy.metadata.tree import Create, NodeExists, NoNode, Operation, Set, Tree, TreeError

# Several may make the first nodes of a group at once; each try finds what the others have made.
_TRIES = 5

Done = Callable[["Exception | None"], object]


class ConsumerOffsets:
    """Reads come from memory, from any thread; `set` calls `done(error)` on the tree's thread."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def get(self, group: str, topic: str, partition: int) -> int | None:
        """None where nothing was committed. Raises ValueError: the group's name is no part of a path, or what is
        there is no number."""
        path = _path(group, topic, partition)
        node = self._tree.find(path)
        if node is None:
            return None
        try:
            return int(node.data)
        except ValueError:
            raise ValueError(f"what is at {path} is no offset: {node.data[:40]!r}") from None

    def set(self, group: str, offsets: Sequence[tuple[str, int, int]], done: Done) -> None:
        """Keeps (topic, partition, offset) each, all or none of them. Raises ValueError as `get` does."""
        wanted = {_path(group, topic, partition): b"%d" % offset for topic, partition, offset in offsets}
        self._try(wanted, done, _TRIES)

    def _try(self, wanted: dict[str, bytes], done: Done, tries: int) -> None:
        def tried(results: list[Any] | None, error: TreeError | None) -> None:
            if isinstance(error, NodeExists | NoNode) and tries > 1:
                self._try(wanted, done, tries - 1)
            else:
                done(error)

        self._tree.submit(self.operations(wanted), tried)

    def operations(self, wanted: Mapping[str, bytes]) -> list[Operation]:
        """What keeps `wanted`, by their paths, in the tree as it is now."""
        operations: list[Operation] = []
        made: set[str] = set()
        for path, data in wanted.items():
            if self._tree.exists(path):
                operations.append(Set(path, data))
                continue
            for ancestor in _ancestors(path):
                if ancestor not in made and not self._tree.exists(ancestor):
                    made.add(ancestor)
                    operations.append(Create(ancestor))
            operations.append(Create(path, data))
        return operations


def _path(group: str, topic: str, partition: int) -> str:
    if not group or "\0" in group or any(part in ("", ".", "..") for part in group.split("/")):
        raise ValueError(f"a group called {group!r} cannot keep offsets at a path of the metadata")
    return paths.consumer_offset(group, topic, partition)


def _ancestors(path: str) -> list[str]:
    """The nodes above, from the top."""
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(2, len(parts))]
