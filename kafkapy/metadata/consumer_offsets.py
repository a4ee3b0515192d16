"""Offsets of the old consumers, kept in the tree: /consumers/GROUP/offsets/TOPIC/PARTITION, a decimal number each.

There can be hundreds of thousands of them, and nobody but their consumers wants to know: a broker in ZooKeeper neither
holds nor watches them, and looks there when it is asked. Source: Kafka's ConsumerOffset (ZkData),
KafkaZkClient.setOrCreateConsumerOffset and getConsumerOffset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kafkapy.metadata import paths
from kafkapy.metadata.tree import Create, Node, NodeExists, NoNode, Operation, Set, Tree, TreeError

# Several may make the first nodes of a group at once; each try finds what the others have made.
_TRIES = 5

Done = Callable[["Exception | None"], object]
# A number; None where nothing was committed; or a ValueError: what is there is no number.
Found = int | ValueError | None


class ConsumerOffsets:
    """From any thread; `done` is called on the tree's, or at once."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def get(
        self,
        group: str,
        partitions: Sequence[tuple[str, int]],
        done: Callable[[list[Found] | None, TreeError | None], object],
    ) -> None:
        """Gives what is kept for each (topic, partition). Raises ValueError: the group's name is no part of a path."""
        wanted = [_path(group, topic, partition) for topic, partition in partitions]

        def looked(nodes: list[Node | None] | None, error: TreeError | None) -> None:
            found = None if nodes is None else [_number(*one) for one in zip(wanted, nodes, strict=True)]
            done(found, error)

        self._tree.look(wanted, looked)

    def set(self, group: str, offsets: Sequence[tuple[str, int, int]], done: Done) -> None:
        """Keeps (topic, partition, offset) each, all or none of them. Raises ValueError as `get` does."""
        wanted = {_path(group, topic, partition): b"%d" % offset for topic, partition, offset in offsets}
        self._try(wanted, [Set(path, data) for path, data in wanted.items()], done, _TRIES)

    def _try(self, wanted: dict[str, bytes], operations: list[Operation], done: Done, tries: int) -> None:
        """Most are there: a look at what is missing comes only when something was."""

        def tried(results: list[Any] | None, error: TreeError | None) -> None:
            if isinstance(error, NodeExists | NoNode) and tries > 1:
                self._tree.look(needed, looked)
            else:
                done(error)

        def looked(nodes: list[Node | None] | None, error: TreeError | None) -> None:
            if nodes is None:
                done(error)
                return
            there = {path for path, node in zip(needed, nodes, strict=True) if node is not None}
            self._try(wanted, keeping(wanted, there), done, tries - 1)

        needed = list(dict.fromkeys(path for one in wanted for path in (*_ancestors(one), one)))
        self._tree.submit(operations, tried)


def keeping(wanted: Mapping[str, bytes], there: Collection[str]) -> list[Operation]:
    """The operations that keep `wanted`, by their paths, where these nodes are there already."""
    operations: list[Operation] = []
    made: set[str] = set()
    for path, data in wanted.items():
        if path in there:
            operations.append(Set(path, data))
            continue
        for ancestor in _ancestors(path):
            if ancestor not in made and ancestor not in there:
                made.add(ancestor)
                operations.append(Create(ancestor))
        operations.append(Create(path, data))
    return operations


def _path(group: str, topic: str, partition: int) -> str:
    if not group or "\0" in group or any(part in ("", ".", "..") for part in group.split("/")):
        raise ValueError(f"a group called {group!r} cannot keep offsets at a path of the metadata")
    return paths.consumer_offset(group, topic, partition)


def _number(path: str, node: Node | None) -> Found:
    if node is None:
        return None
    try:
        return int(node.data)
    except ValueError:
        return ValueError(f"what is at {path} is no offset: {node.data[:40]!r}")


def _ancestors(path: str) -> list[str]:
    """The nodes above, from the top."""
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(2, len(parts))]
