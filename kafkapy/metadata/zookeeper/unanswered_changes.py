"""Finds out whether a change was made although ZooKeeper's answer was lost with the connection.

All nodes that a change creates or sets get the number (zxid) of that change. This number is greater than any number
known when the change was sent. So the change was made if all its nodes have the expected data and the same, later zxid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafkapy.metadata.tree import Create, Delete, Node, Operation, Set

Find = Callable[[str], "Node | None"]
Children = Callable[[str], "list[str]"]


def results_if_applied(operations: Sequence[Operation], since: int, find: Find, children: Children) -> list[Any] | None:
    """Return the results of a change's operations if the nodes show that the change was made after zxid `since`, else
    None.

    If another process has changed one of the nodes again meanwhile, this returns None. The retried change then fails
    with a version conflict, as after any concurrent change. Deletions leave no zxid, so a change that consists only of
    deletions counts as made if the nodes are gone. `find` and `children` read the cached tree.
    """
    numbers: set[int] = set()
    results: list[Any] = []
    written = {each.path: each.data for each in operations if isinstance(each, Create | Set)}  # the last one counts
    for operation in operations:
        result: Any = None
        if isinstance(operation, Create):
            result = _created_path(operation, written[operation.path], since, find, children)
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


def _created_path(operation: Create, data: bytes, since: int, find: Find, children: Children) -> str | None:
    """Return the path of the node that this Create operation has created after zxid `since`, or None if there is no
    such node. `data` is what the change has left in the node; other data mean that another process has created it."""
    if not operation.sequence:
        node = find(operation.path)
        if node is None or node.created <= since or (node.changed == node.created and node.data != data):
            return None
        return operation.path
    parent, _, prefix = operation.path.rpartition("/")
    if find(parent or "/") is None:
        return None
    for name in children(parent or "/"):
        path = f"{parent}/{name}"
        node = find(path)
        if name.startswith(prefix) and node is not None and node.created > since and node.data == operation.data:
            return path
    return None
