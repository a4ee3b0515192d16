"""Reads the metadata of an Apache Kafka cluster from ZooKeeper: topics with settings, ids, replicas and leader epochs
(Kafka's ZkData), broker settings, and the offsets that old consumers have committed there.

Nothing is written. The tree is read through the two functions of `Nodes`, so this module needs the ZooKeeper library
only when a ZooKeeper is named.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from kafkapy.metadata import paths
from kafkapy.metadata.ids import decode_id
from kafkapy.server.adoption.errors import AdoptionError
from kafkapy.server.adoption.knowledge import Knowledge, KnownTopic

CONNECT_TIMEOUT_S = 10.0


class Nodes(Protocol):
    """The interface for reading a tree of nodes, such as ZooKeeper's. Both methods return None for a node that does not
    exist."""

    def data(self, path: str) -> bytes | None: ...

    def children(self, path: str) -> list[str] | None: ...


def read_cluster(nodes: Nodes, source: str) -> Knowledge:
    """Return the metadata of the Kafka cluster in a ZooKeeper tree. `source` names the tree in messages. Raise
    AdoptionError if the tree has no node for topics, or if a node is malformed."""
    names = nodes.children(paths.TOPICS)
    if names is None:
        raise AdoptionError(
            f"{source} has no {paths.TOPICS}: is the chroot of the cluster missing, as in HOST:2181/kafka?"
        )
    deleting = set(nodes.children(paths.DELETE_TOPICS) or ())
    found = Knowledge(
        topics={name: _topic(nodes, name, deleting=name in deleting) for name in sorted(names)},
        cluster_id=_json(nodes, paths.CLUSTER_ID).get("id"),
        last_producer_id=int(_json(nodes, paths.PRODUCER_ID_BLOCK).get("block_end", -1)),
        live_brokers=sorted(int(name) for name in nodes.children(paths.BROKER_IDS) or ()),
        consumer_offsets=dict(_consumer_offsets(nodes)),
    )
    epoch = nodes.data(paths.CONTROLLER_EPOCH)
    found.controller_epoch = int(epoch) if epoch else None
    found.add_settings({name: _settings(nodes, "topics", name) for name in names}, source)
    for entity in nodes.children(f"{paths.CONFIG}/brokers") or ():
        found.broker_settings[entity] = _settings(nodes, "brokers", entity)
    return found


def _topic(nodes: Nodes, name: str, *, deleting: bool) -> KnownTopic:
    value = _json(nodes, paths.topic(name))
    try:
        assignment = {int(partition): list(replicas) for partition, replicas in value["partitions"].items()}
        topic_id = decode_id(value["topic_id"]) if value.get("topic_id") else None
        epochs = {}
        for partition in assignment:
            state = _json(nodes, paths.partition_state(name, partition))
            if state:
                epochs[partition] = int(state["leader_epoch"])
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise AdoptionError(f"ZooKeeper's node {paths.topic(name)} is not that of a topic: {error}") from None
    return KnownTopic(topic_id, assignment, epochs, deleting)


def _consumer_offsets(nodes: Nodes) -> Iterator[tuple[tuple[str, str, int], bytes]]:
    for group in nodes.children(paths.CONSUMERS) or ():
        above = paths.consumer_offsets(group)
        for topic in nodes.children(above) or ():
            for partition in nodes.children(f"{above}/{topic}") or ():
                offset = nodes.data(f"{above}/{topic}/{partition}")
                if offset and partition.isdecimal():
                    yield (group, topic, int(partition)), offset


def _settings(nodes: Nodes, kind: str, entity: str) -> dict[str, str]:
    stored = _json(nodes, paths.config(kind, entity)).get("config", {})
    return {str(key): str(value) for key, value in stored.items()}


def _json(nodes: Nodes, path: str) -> dict[str, Any]:
    """Return the JSON object in a node; {} if the node is empty or does not exist. Raise AdoptionError for malformed
    JSON."""
    data = nodes.data(path)
    try:
        return paths.from_json(data, path) if data else {}
    except ValueError as error:
        raise AdoptionError(f"ZooKeeper: {error}") from None


@contextmanager
def connected(address: str) -> Iterator[Nodes]:
    """Connect to ZooKeeper at HOST:PORT[,HOST:PORT][/chroot] for the duration of a with block, which gets the nodes.
    Raise AdoptionError if ZooKeeper does not answer or returns an error, ModuleNotFoundError if kazoo is not installed.
    """
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    # kazoo logs and warns about each attempt to connect; the caller reports a single error instead.
    silent = logging.Logger("kazoo", logging.CRITICAL + 1)
    client = KazooClient(hosts=address, read_only=True, timeout=CONNECT_TIMEOUT_S, logger=silent)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            client.start(timeout=CONNECT_TIMEOUT_S)
        yield _KazooNodes(client)
    except KazooTimeoutError:
        raise AdoptionError(
            f"ZooKeeper at {address} does not answer within {CONNECT_TIMEOUT_S:.0f} s: is the address right?"
        ) from None
    except KazooException as error:
        raise AdoptionError(f"ZooKeeper at {address}: {type(error).__name__}: {error}") from error
    finally:
        client.stop()
        client.close()


class _KazooNodes:
    def __init__(self, client: Any) -> None:
        from kazoo.exceptions import NoNodeError

        self._client = client
        self._no_node = NoNodeError

    def data(self, path: str) -> bytes | None:
        try:
            data: bytes | None = self._client.get(path)[0]
        except self._no_node:
            return None
        return data

    def children(self, path: str) -> list[str] | None:
        try:
            names: list[str] = self._client.get_children(path)
        except self._no_node:
            return None
        return names
