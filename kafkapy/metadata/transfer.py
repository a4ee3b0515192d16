"""A whole tree from one home into another: what of it is carried, in what the two differ, and what makes them equal.

The cluster's id goes first and comes last. A broker refuses a tree that has none, so one that is only half there
serves nobody, and whoever looks at it sees that somebody stopped in the middle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kafkapy.metadata import paths
from kafkapy.metadata.batches import batches
from kafkapy.metadata.mirror import child_path
from kafkapy.metadata.tree import Create, Delete, NoNode, Operation, Set, Tree, split_path

# Notes of changes, for brokers that run while they are made. Whoever starts reads everything anyway.
_NOTES = (paths.CONFIG_CHANGES, paths.ISR_CHANGES, paths.LOG_DIR_EVENTS)


class Carried(NamedTuple):
    """What a node takes with it. Of its version only that of `/brokers/seqid` means anything: it is the number of
    broker ids given out."""

    data: bytes
    version: int = 0


Nodes = Mapping[str, Carried]


class Difference(NamedTuple):
    """Paths, parents before their children: only in the source, there with other data, only in the target."""

    missing: list[str]
    other: list[str]
    extra: list[str]
    broker_ids: int = 0  # given out in the source and not yet in the target

    def __bool__(self) -> bool:
        return bool(self.missing or self.other or self.extra or self.broker_ids)


def carried(tree: Tree) -> dict[str, Carried]:
    """Kafka's nodes that outlive a session, by path, parents before their children."""
    found: dict[str, Carried] = {}
    pending = [f"/{name}" for name in tree.children("/") if name in paths.TOP_LEVEL]
    while pending:
        path = pending.pop()
        node = tree.find(path)
        if node is None or node.ephemeral:
            continue
        found[path] = Carried(node.data, node.version if path == paths.BROKER_SEQUENCE else 0)
        if path in _NOTES:
            continue
        try:
            pending.extend(child_path(path, name) for name in tree.children(path))
        except NoNode:
            pass  # deleted while we looked
    return dict(sorted(found.items()))


def difference(source: Nodes, target: Nodes) -> Difference:
    """What keeps the target from being as the source. Empty nodes that every cluster has are no difference there."""
    always = _always_there()
    return Difference(
        [path for path in source if path not in target],
        [path for path in source if path in target and source[path].data != target[path].data],
        [path for path in target if path not in source and not (path in always and not target[path].data)],
        max(_broker_ids(source) - _broker_ids(target), 0),
    )


def is_unfinished(source: Nodes, target: Nodes) -> bool:
    """Whether the target, which has no cluster id, holds nothing but some of the source: all of it may be begun."""
    always = _always_there()
    found = difference(source, target)
    filled = [path for path in found.other if path not in always or target[path].data]
    return paths.CLUSTER_ID not in target and not filled and not found.extra


def changes(source: Nodes, target: Nodes) -> Iterator[list[Operation]]:
    """What makes the target as the source is, to be committed in this order, each list as a whole."""
    found = difference(source, target)
    if not found:
        return
    if paths.CLUSTER_ID in target:
        yield [Delete(paths.CLUSTER_ID)]
    steps: list[Operation] = [Delete(path) for path in reversed(found.extra)]
    steps += [Set(path, source[path].data) for path in found.other if path != paths.CLUSTER_ID]
    steps += [Create(path, source[path].data) for path in found.missing if path != paths.CLUSTER_ID]
    steps += [Set(paths.BROKER_SEQUENCE, b"")] * found.broker_ids
    yield from batches(steps)
    yield [Create(paths.CLUSTER_ID, source[paths.CLUSTER_ID].data)]


def _broker_ids(nodes: Nodes) -> int:
    return nodes[paths.BROKER_SEQUENCE].version if paths.BROKER_SEQUENCE in nodes else 0


def _always_there() -> set[str]:
    """Kafka's persistent nodes, with those above them."""
    found: set[str] = set()
    for path in paths.ROOTS:
        while path != "/":
            found.add(path)
            path = split_path(path)[0]
    return found
