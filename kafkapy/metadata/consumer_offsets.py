"""Offsets that the original (ZooKeeper-based) consumers commit to ZooKeeper. The node
/consumers/GROUP/offsets/TOPIC/PARTITION holds an offset as a decimal number.

There can be hundreds of thousands of these nodes, and only the consumers use them. So a broker with ZooKeeper neither
caches nor watches the nodes, but reads them on request. Source: Kafka's ConsumerOffset (ZkData),
KafkaZkClient.setOrCreateConsumerOffset and getConsumerOffset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kafkapy.metadata import paths
from kafkapy.metadata.tree import Create, Node, NodeExists, NoNode, Operation, Set, Tree, TreeError

# Several consumers may create the first nodes of a group at once; each try reads again which nodes exist.
_TRIES = 5

Done = Callable[["Exception | None"], object]
# An offset; None if none was committed; a ValueError if the node does not hold a number.
Found = int | ValueError | None


class ConsumerOffsets:
    """Reads and writes the offsets that consumers have committed to ZooKeeper. Any thread may call the methods. `done`
    is called on the metadata tree's thread, or before the method returns."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def get(
        self,
        group: str,
        partitions: Sequence[tuple[str, int]],
        done: Callable[[list[Found] | None, TreeError | None], object],
    ) -> None:
        """Read the group's offset of each (topic, partition) and call `done(offsets, None)` or `done(None, error)`.

        An offset is None if none was committed, and a ValueError object if the node does not hold a number. Raises
        ValueError if the group id cannot be part of a path.
        """
        wanted = [_path(group, topic, partition) for topic, partition in partitions]

        def finished(nodes: list[Node | None] | None, error: TreeError | None) -> None:
            found = None if nodes is None else [_number(*target) for target in zip(wanted, nodes, strict=True)]
            done(found, error)

        self._tree.read_through(wanted, finished)

    def set(self, group: str, offsets: Sequence[tuple[str, int, int]], done: Done) -> None:
        """Write the group's offsets, given as (topic, partition, offset), all or none, and call `done` with None or the
        error. Raises ValueError if the group id cannot be part of a path."""
        wanted = {_path(group, topic, partition): b"%d" % offset for topic, partition, offset in offsets}
        self._try(wanted, [Set(path, data) for path, data in wanted.items()], done, _TRIES)

    def _try(self, wanted: dict[str, bytes], operations: list[Operation], done: Done, tries: int) -> None:
        """Apply the operations. If they fail because nodes are missing or exist already, read which nodes exist, and
        try again with other operations, up to `tries` times.

        Most nodes exist, so the first try assumes that all of them do.
        """

        def tried(results: list[Any] | None, error: TreeError | None) -> None:
            if isinstance(error, NodeExists | NoNode) and tries > 1:
                self._tree.read_through(needed, looked)
            else:
                done(error)

        def looked(nodes: list[Node | None] | None, error: TreeError | None) -> None:
            if nodes is None:
                done(error)
                return
            present = {path for path, node in zip(needed, nodes, strict=True) if node is not None}
            self._try(wanted, offset_operations(wanted, present), done, tries - 1)

        needed = list(dict.fromkeys(path for target in wanted for path in (*_ancestors(target), target)))
        self._tree.submit(operations, tried)


def offset_operations(wanted: Mapping[str, bytes], present: Collection[str]) -> list[Operation]:
    """Return the operations that write offsets to ZooKeeper. `wanted` has the data by node path; `present` has the
    paths of nodes that exist already. Missing nodes and their missing ancestors are created."""
    operations: list[Operation] = []
    created: set[str] = set()
    for path, data in wanted.items():
        if path in present:
            operations.append(Set(path, data))
            continue
        for ancestor in _ancestors(path):
            if ancestor not in created and ancestor not in present:
                created.add(ancestor)
                operations.append(Create(ancestor))
        operations.append(Create(path, data))
    return operations


def _path(group: str, topic: str, partition: int) -> str:
    if not group or "\0" in group or any(part in ("", ".", "..") for part in group.split("/")):
        raise ValueError(f"the group id {group!r} cannot be part of a ZooKeeper path, so it cannot store offsets there")
    return paths.consumer_offset(group, topic, partition)


def _number(path: str, node: Node | None) -> Found:
    if node is None:
        return None
    try:
        return int(node.data)
    except ValueError:
        return ValueError(f"the node {path} does not hold an offset: {node.data[:40]!r}")


def _ancestors(path: str) -> list[str]:
    """Return the paths of all ancestors of a node except the root, the topmost first."""
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(2, len(parts))]
