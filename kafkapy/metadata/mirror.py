"""What a process knows of a tree that lives elsewhere: nodes in memory, and the events of what has become different.

One thread writes (`apply`), any may read. Reads of the far tree come one by one, so that a batch of them is applied
as a whole and told only then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kafkapy.metadata.tree import CHANGED, CHILDREN, CREATED, DELETED, Event, Node, NoNode, split_path


class Mirror:
    """The nodes by path; "/" is always there."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0, 0, False)}
        self._children: dict[str, dict[str, None]] = {}

    def children(self, path: str) -> list[str]:
        """Sorted names; raises NoNode."""
        names = self._children.get(path)
        if names is None:
            if path not in self.nodes:
                raise NoNode(path)
            return []
        return sorted(names)

    def child_paths(self, path: str) -> list[str]:
        """As `children`, but whole paths."""
        return [child_path(path, name) for name in self.children(path)]

    def subtree(self, path: str) -> Iterator[str]:
        """A node that is known and all that are known below it, parents before their children."""
        yield path
        for name in self._children.get(path, ()):
            yield from self.subtree(child_path(path, name))

    def apply(self, found: Mapping[str, Node | None]) -> list[Event]:
        """Makes these paths what was found, None for nothing, and gives the events in an order that can have been.

        A path whose parent is gone is gone too, whatever was found. First come the deletions, children before their
        parents, then the rest, parents before their children.
        """
        events: list[Event] = []
        gone: set[str] = set()
        for path, node in found.items():
            if path != "/" and path not in gone and self._is_new(path, node):
                gone.update(self.subtree(path))
        for path in sorted(gone, key=_depth, reverse=True):
            self._remove(path)
            events += (Event(DELETED, path), Event(CHILDREN, split_path(path)[0]))
        for path, node in sorted(found.items(), key=lambda item: _depth(item[0])):
            if node is not None:
                events += self._put(path, node)
        return events

    def _is_new(self, path: str, node: Node | None) -> bool:
        """Whether the node that was there is not the one found."""
        before = self.nodes.get(path)
        return before is not None and (node is None or node.created != before.created)

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


def _depth(path: str) -> tuple[int, str]:
    return path.count("/") if path != "/" else 0, path
