"""Copies a whole metadata tree between its stores, SQLite and ZooKeeper: selects the nodes to copy, compares the source
with the target, and computes the changes to make.

The cluster id is deleted first and written last. A broker refuses a metadata tree without a cluster id, so a
half-copied tree is never used, and it can be recognized by the missing cluster id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kafkapy.metadata import acls, paths
from kafkapy.metadata.tree import Create, Delete, NoNode, Operation, Set, Tree, split_path
from kafkapy.metadata.zookeeper.batches import batches
from kafkapy.metadata.zookeeper.node_cache import child_path

# Notifications for running brokers; a starting broker reads everything.
_NOTIFICATIONS = (
    paths.CONFIG_CHANGES,
    paths.ISR_CHANGES,
    paths.LOG_DIR_EVENTS,
    paths.ACL_CHANGES,
    paths.EXTENDED_ACL_CHANGES,
)


class NodeData(NamedTuple):
    """The data of a node to be copied. `version` is 0 except for the node `/brokers/seqid`, whose version is the number
    of broker ids that were generated so far."""

    data: bytes
    version: int = 0


Nodes = Mapping[str, NodeData]


class Difference(NamedTuple):
    """The differences between a source tree and a target tree, as lists of node paths in which parents come before
    their children.

    missing      nodes that exist only in the source
    other        nodes that exist in both trees with different data
    extra        nodes that exist only in the target
    broker_ids   how many more broker ids were generated in the source than in the target
    """

    missing: list[str]
    other: list[str]
    extra: list[str]
    broker_ids: int = 0

    def __bool__(self) -> bool:
        return bool(self.missing or self.other or self.extra or self.broker_ids)


def persistent_nodes(tree: Tree) -> dict[str, NodeData]:
    """Return all nodes of Kafka's metadata that are not ephemeral, by path, with parents before their children.
    Notifications for running brokers are left out."""
    found: dict[str, NodeData] = {}
    pending = [f"/{name}" for name in tree.children("/") if name in paths.TOP_LEVEL]
    while pending:
        path = pending.pop()
        node = tree.find(path)
        if node is None or node.ephemeral:
            continue
        found[path] = NodeData(node.data, node.version if path == paths.BROKER_SEQUENCE else 0)
        if path in _NOTIFICATIONS:
            continue
        try:
            pending.extend(child_path(path, name) for name in tree.children(path))
        except NoNode:
            pass  # deleted meanwhile
    return dict(sorted(found.items()))


def difference(source: Nodes, target: Nodes) -> Difference:
    """Return the differences between the source tree and the target tree. Nodes without data that every cluster has are
    not listed as extra nodes of the target."""
    always = _always_there()
    return Difference(
        [path for path in source if path not in target],
        [path for path in source if path in target and source[path].data != target[path].data],
        [path for path in target if path not in source and not (path in always and not target[path].data)],
        max(_broker_ids(source) - _broker_ids(target), 0),
    )


def is_unfinished(source: Nodes, target: Nodes) -> bool:
    """Return True if the target is an unfinished copy of the source: the target has no cluster id, and all its data is
    also in the source."""
    always = _always_there()
    found = difference(source, target)
    filled = [path for path in found.other if path not in always or target[path].data]
    return paths.CLUSTER_ID not in target and not filled and not found.extra


def changes(source: Nodes, target: Nodes) -> Iterator[list[Operation]]:
    """Yield the changes that make the target equal to the source, as lists of operations. The caller must commit them
    in this order."""
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
    """Return the paths of the nodes that every cluster has, perhaps only with an authorizer, and of their ancestors."""
    found: set[str] = set()
    for path in (*paths.ROOTS, *acls.ROOTS):
        while path != "/":
            found.add(path)
            path = split_path(path)[0]
    return found
