"""The visible state of a cluster: all nodes in ZooKeeper, and the Metadata of a broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafkapy.protocol import apis
from tests.cluster.story_names import Names
from tests.harness.wire import Wire


def nodes(tree: KazooClient, names: Names) -> dict[str, Any]:
    """Return the content of all nodes, by path."""
    found: dict[str, Any] = {}
    level = ["/"]
    while level:
        waiting = [(path, tree.get_async(path), tree.get_children_async(path)) for path in level]
        level = []
        for path, data, children in waiting:
            try:
                content, below = data.get()[0], children.get()
            except NoNodeError:
                continue
            if path != "/":
                is_hidden = path.startswith("/brokers/topics/random-")
                found[path] = "random" if is_hidden else names.node(path, content)
            level += [f"{path.rstrip('/')}/{name}" for name in below if f"{path}{name}" != "/zookeeper"]
    return dict(sorted(found.items()))


def metadata(address: str, names: Names, epochs: Mapping[str, int]) -> dict[str, Any]:
    """Return a broker's Metadata: topics by name, brokers by id, the controller. Leader epochs are relative to
    `epochs`, which are by "topic-partition".
    """
    with Wire(address, 60) as wire:
        found = names.message(wire.call(apis.METADATA, 12, topics=None, allow_auto_topic_creation=False))
    topics = {one["name"]: one for one in found["topics"]}
    for name, one in topics.items():
        one["partitions"] = {part["partition_index"]: part for part in one["partitions"]}
        for index, part in one["partitions"].items():
            part["leader_epoch"] -= epochs.get(f"{name}-{index}", 0)
        if is_random(name):
            one["partitions"] = [len(part["isr_nodes"]) for part in one["partitions"].values()]
    return {
        "topics": topics,
        "brokers": {one["node_id"]: (one["port"], one["rack"]) for one in found["brokers"]},
        "controller": found["controller_id"],
    }


def with_leader(metadata: Mapping[str, Any]) -> dict[Any, Any]:
    """Return the partitions with a leader in Metadata, by topic and index, and the brokers."""
    found: dict[Any, Any] = {"brokers": metadata["brokers"], "controller": metadata["controller"]}
    for name, topic in metadata["topics"].items():
        if not is_random(name):
            parts = topic["partitions"]
            found.update(((name, index), part) for index, part in parts.items() if part["leader_id"] >= 0)
    return found


def different(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the keys whose values differ, with both values."""
    for key in {*one, *other}:
        if one.get(key) != other.get(key):
            yield key, one.get(key), other.get(key)


def is_random(topic: str) -> bool:
    """Return True for a topic whose replicas the controller has assigned at random."""
    return topic.startswith("random-")
