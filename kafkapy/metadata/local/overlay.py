"""Changes of the metadata tree that are made but not yet durable, as a layer on top of the durable nodes. Only the
tree's own thread uses it.

Readers see only durable nodes. `Overlay.apply` makes one change. If one of the change's operations fails, the whole
change is undone, and the changes made before it remain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkapy.metadata.tree import (
    ANY_VERSION,
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    BadVersion,
    Create,
    Delete,
    Event,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    split_path,
)

SEQUENCE_DIGITS = 10


class Overlay:
    """Changes on top of the durable `nodes` and of `sequences`, which has the next sequence number by parent path.
    `count_children` returns a node's number of durable children.

    changed         the new node of each changed path, None if the node was deleted
    new_sequences   the next sequence number of each parent path in which it has changed
    events          the events for watches, in order
    """

    def __init__(
        self, nodes: Mapping[str, Node], count_children: Callable[[str], int], sequences: Mapping[str, int]
    ) -> None:
        self._nodes = nodes
        self._count_children = count_children
        self._sequences = sequences
        self.changed: dict[str, Node | None] = {}
        self.new_sequences: dict[str, int] = {}
        self.events: list[Event] = []
        self._child_deltas: dict[str, int] = {}
        self._undo: list[tuple[dict[str, Any], str, Any]] = []

    def apply(self, operations: Sequence[Operation], number: int) -> list[Any]:
        """Make one change, a list of operations, and return the result of each operation. `number` is the zxid of the
        change. Raises TreeError or ValueError if an operation fails, and then undoes the whole change."""
        self._undo = []
        event_count = len(self.events)
        try:
            return [self._run(operation, number) for operation in operations]
        except Exception:
            for table, key, old in reversed(self._undo):
                if old is _ABSENT:
                    del table[key]
                else:
                    table[key] = old
            del self.events[event_count:]
            raise

    def find(self, path: str) -> Node | None:
        return self.changed[path] if path in self.changed else self._nodes.get(path)

    def _run(self, operation: Operation, number: int) -> Any:
        if isinstance(operation, Create):
            return self._create(operation, number)
        node = self.find(operation.path)
        if node is None:
            raise NoNode(operation.path)
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersion(operation.path, operation.version, node.version)
        if isinstance(operation, Set):
            new = node._replace(data=bytes(operation.data), version=node.version + 1, changed=number)
            self._put(self.changed, operation.path, new)
            self.events.append(Event(CHANGED, operation.path))
            return new
        if isinstance(operation, Delete):
            self._delete(operation.path)
            return None
        return node

    def _create(self, operation: Create, number: int) -> str:
        path = operation.path
        # A sequence node's name may consist of its number alone.
        parent, name = split_path(path + "0" if operation.sequence else path)
        parent_node = self.find(parent)
        if parent_node is None:
            raise NoNode(parent)
        if parent_node.ephemeral:
            raise NoChildrenForEphemerals(parent)
        if operation.sequence:
            sequence = self.new_sequences.get(parent, self._sequences.get(parent, 0))
            path = f"{path}{sequence:0{SEQUENCE_DIGITS}d}"
            self._put(self.new_sequences, parent, sequence + 1)
        elif not name:
            raise NodeExists(path)
        if self.find(path) is not None:
            raise NodeExists(path)
        self._put(
            self.changed, path, Node(bytes(operation.data), 0, number, number, operation.ephemeral, operation.ephemeral)
        )
        self._count(parent, 1)
        self.events += (Event(CREATED, path), Event(CHILDREN, parent))
        return path

    def _delete(self, path: str) -> None:
        if path == "/" or self._count_children(path) + self._child_deltas.get(path, 0) > 0:
            raise NotEmpty(path)
        parent, _ = split_path(path)
        self._put(self.changed, path, None)
        if self.new_sequences.get(path, self._sequences.get(path, 0)):
            self._put(self.new_sequences, path, 0)
        self._count(parent, -1)
        self.events += (Event(DELETED, path), Event(CHILDREN, parent))

    def _count(self, path: str, delta: int) -> None:
        self._put(self._child_deltas, path, self._child_deltas.get(path, 0) + delta)

    def _put(self, table: dict[str, Any], key: str, value: Any) -> None:
        self._undo.append((table, key, table.get(key, _ABSENT)))
        table[key] = value


_ABSENT = object()
