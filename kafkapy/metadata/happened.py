"""Whether a change was made whose answer was lost with the connection.

All that one change makes or sets has the change's own number (zxid), greater than any known when it was sent. So the
nodes tell: all there with the data asked for, touched by one and the same later change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafkapy.metadata.tree import Create, Delete, Node, Operation, Set

Find = Callable[[str], "Node | None"]
Children = Callable[[str], "list[str]"]


def happened(operations: Sequence[Operation], since: int, find: Find, children: Children) -> list[Any] | None:
    """The results that the change gave, if the nodes show that it was made after `since`; None if they do not.

    A node that somebody else has changed again in between hides it: then the change is tried again, and fails as one
    of two that were made at the same time. One that only deletes leaves no number: what it was to delete is gone, and
    that is all that can be asked for.
    """
    numbers: set[int] = set()
    results: list[Any] = []
    for operation in operations:
        result: Any = None
        if isinstance(operation, Create):
            result = _made(operation, since, find, children)
            node = find(result) if result is not None else None
            if node is None:
                return None
            numbers.add(node.created)
        elif isinstance(operation, Set):
            result = find(operation.path)
            if result is None or result.data != operation.data or result.changed <= since:
                return None
            numbers.add(result.changed)
        elif not isinstance(operation, Delete):
            result = find(operation.path)
        elif find(operation.path) is not None:
            return None
        results.append(result)
    deletes_only = not numbers and any(isinstance(operation, Delete) for operation in operations)
    return results if deletes_only or len(numbers) == 1 else None


def _made(operation: Create, since: int, find: Find, children: Children) -> str | None:
    """The path of the node that this operation made, if there is one."""
    if not operation.sequence:
        node = find(operation.path)
        return operation.path if node is not None and node.created > since else None
    parent, _, prefix = operation.path.rpartition("/")
    if find(parent or "/") is None:
        return None
    for name in children(parent or "/"):
        path = f"{parent}/{name}"
        node = find(path)
        if name.startswith(prefix) and node is not None and node.created > since and node.data == operation.data:
            return path
    return None
