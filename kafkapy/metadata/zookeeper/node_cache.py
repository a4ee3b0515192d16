"""A cache in memory of the nodes of a ZooKeeper tree. It also computes the events for watches when nodes have changed.

One thread writes to the cache with `apply`; any thread may read. The nodes read from ZooKeeper in one go are applied
together, and their events fire only afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kafkapy.metadata.tree import CHANGED, CHILDREN, CREATED, DELETED, Event, Node, NoNode, split_path


class NodeCache:
    """The cached nodes of a ZooKeeper tree, by path. The root "/" is always cached."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0, 0, False)}
        self._children: dict[str, dict[str, None]] = {}

    def children(self, path: str) -> list[str]:
        """Return the sorted names of the children of the cached node at this path. Raises NoNode if the node is not
        cached."""
        names = self._children.get(path)
        if names is None:
            if path not in self.nodes:
                raise NoNode(path)
            return []
        return sorted(names)

    def child_paths(self, path: str) -> list[str]:
        """Return the sorted paths of the children of the cached node at this path. Raises NoNode if the node is not
        cached."""
        return [child_path(path, name) for name in self.children(path)]

    def subtree(self, path: str) -> Iterator[str]:
        """Yield the path of a node and the paths of all cached nodes below it, parents before their children."""
        yield path
        for name in self._children.get(path, ()):
            yield from self.subtree(child_path(path, name))

    def apply(self, found: Mapping[str, Node | None]) -> list[Event]:
        """Store the nodes that were read at these paths (None: there is no node), and return the events of the changes.

        If a node is gone, all nodes below it are removed too, even those that come later in `found`. Events are
        returned in an order that could have happened: first deletions, children before parents, then all other events,
        parents before children.
        """
        events: list[Event] = []
        removed: dict[str, None] = {}
        for path, node in found.items():
            if path != "/" and path not in removed and self._was_replaced(path, node):
                removed.update(dict.fromkeys(self.subtree(path)))
        for path in reversed(_parents_first(removed)):
            self._remove(path)
            events += (Event(DELETED, path), Event(CHILDREN, split_path(path)[0]))
        for path in _parents_first(found):
            node = found[path]
            if node is not None:
                events += self._put(path, node)
        return events

    def discard_below(self, path: str) -> None:
        """Remove all nodes below this node, without events."""
        if path not in self.nodes:
            return
        for child in self.child_paths(path):
            self.discard_below(child)
            self._remove(child)

    def _was_replaced(self, path: str, node: Node | None) -> bool:
        """Return True if the cached node at this path was deleted, or was deleted and created again."""
        before = self.nodes.get(path)
        return before is not None and (node is None or node.created != before.created != 0)

    def _put(self, path: str, node: Node) -> Iterable[Event]:
        before = self.nodes.get(path)
        parent, name = split_path(path)
        if before is None:
            if parent not in self.nodes:
                return ()
            self.nodes[path] = node
            self._children.setdefault(parent, {})[name] = None
            return (Event(CREATED, path), Event(CHILDREN, parent))
        self.nodes[path] = node
        return (Event(CHANGED, path),) if node.changed != before.changed else ()

    def _remove(self, path: str) -> None:
        del self.nodes[path]
        self._children.pop(path, None)
        parent, name = split_path(path)
        names = self._children.get(parent)
        if names is not None:
            names.pop(name, None)


def child_path(parent: str, name: str) -> str:
    return f"/{name}" if parent == "/" else f"{parent}/{name}"


def _parents_first(paths: Iterable[str]) -> list[str]:
    """Return the paths by their depth. Not sorted at once: with thousands of paths that would hold the GIL for long."""
    by_depth: dict[int, list[str]] = {}
    for path in paths:
        by_depth.setdefault(path.count("/") if path != "/" else 0, []).append(path)
    return [path for depth in sorted(by_depth) for path in by_depth[depth]]
