"""Decides which nodes of ZooKeeper's tree are in the cache, and which of them have a watch."""

from __future__ import annotations

from collections.abc import Collection

from kafkapy.metadata.tree import split_path

# (path, True) reads the names of a node's children, (path, False) its data.
Read = tuple[str, bool]


class FollowedNodes:
    """The nodes whose top-level name is in `roots` (None: all nodes), without the nodes below the paths in `leaves`.

    Below each child of the node at `topics` there are only nodes `partitions/NUMBER/state`. Only this process, which is
    the controller, writes them. So they are read without watches, and only `state` is read for its data. With `topics`
    None all nodes are watched.
    """

    def __init__(self, roots: Collection[str] | None, leaves: Collection[str], topics: str | None) -> None:
        self._roots = roots
        self._leaves = set(leaves)
        self._below_topics = None if topics is None else f"{topics}/"

    def exclude_below(self, paths: Collection[str]) -> None:
        """Leave out the nodes below these paths from now on."""
        self._leaves.update(paths)

    def include_below(self, paths: Collection[str]) -> None:
        self._leaves.difference_update(paths)

    def includes_root(self, name: str) -> bool:
        return self._roots is None or name in self._roots

    def includes(self, read: Read) -> bool:
        path, of_children = read
        if not self._leaves:
            return True
        if path in self._leaves:
            return not of_children
        while path != "/":
            path = split_path(path)[0]
            if path in self._leaves:
                return False
        return True

    def is_watched(self, path: str) -> bool:
        return self._depth_below_topics(path) < 1

    def is_topic(self, path: str) -> bool:
        return self._depth_below_topics(path) == 0

    def is_partitions(self, path: str) -> bool:
        """Return True for a node whose children are a topic's partitions."""
        return self._depth_below_topics(path) == 1

    def reads_of_new(self, path: str) -> tuple[Read, ...]:
        """Return the reads that load a node of which only the name is known, and the names of the nodes below it."""
        depth = self._depth_below_topics(path)
        if depth == 0:
            return (path, False), (f"{path}/partitions", True)
        if depth == 2:  # a partition
            return ((f"{path}/state", False),)
        return both(path)

    def reads_again(self, path: str) -> tuple[Read, ...]:
        """Return the reads that set the watches of a known node again. A node without watches needs none."""
        depth = self._depth_below_topics(path)
        if depth < 0:
            return both(path)
        return ((path, False),) if depth == 0 else ()

    def _depth_below_topics(self, path: str) -> int:
        """Return 0 for a topic, 1 for its node `partitions`, 2 for a partition, 3 for its state, -1 for all others."""
        if self._below_topics is None or not path.startswith(self._below_topics):
            return -1
        return path.count("/", len(self._below_topics))


def both(path: str) -> tuple[Read, Read]:
    """Return the two reads of the node at this path: that of its data and that of its children's names."""
    return (path, False), (path, True)
