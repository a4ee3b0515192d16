"""Reading the znodes of brokers and topics like the original clients, in the layouts of 0.7 and of 0.8 and later.

Source: ZkUtils of Kafka 0.8.2 and 0.7.2. Imports kazoo.
"""

from __future__ import annotations

import json
from typing import Protocol

from kafkapy.client.original.znodes.layouts import Layout, layout_of_broker, partitions_07, partitions_in
from kafkapy.client.original.znodes.nodes import Watch, Znodes
from kafkapy.errors import KafkaError

BROKERS = "/brokers/ids"
TOPICS = "/brokers/topics"

Address = tuple[str, int]


class ClusterTree(Protocol):
    """Reads the znodes of brokers and topics. Methods wait for ZooKeeper and raise its errors like those of Znodes."""

    layout: Layout

    def topics(self, watch: Watch | None = None) -> list[str]:
        """Return the names of all topics, sorted. `watch` is called when topics are created or deleted."""

    def partitions(self, topic: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a topic's partitions, in order.

        Return an empty list if the topic's znode is missing or malformed. `watch` is called when the partitions change.
        """

    def brokers(self, watch: Watch | None = None) -> dict[int, Address]:
        """Return the host and port of each broker, in ascending order of broker ids.

        They are those of the listener with the security protocol of this tree.

        Malformed registrations are logged and ignored.
        """


def cluster_tree(nodes: Znodes, protocol: str = "PLAINTEXT") -> ClusterTree:
    """Return a ClusterTree for the znode layout that the cluster uses, 0.7's or that of 0.8 and later.

    The first well-formed broker registration decides. Without brokers, the layout is 0.7's if there are topics and no
    topic znode has data. `protocol` is the security protocol of the listeners whose addresses `brokers` returns.
    """
    for name in nodes.children(BROKERS):
        data = nodes.data(f"{BROKERS}/{name}") or b""
        try:
            address_of(data, protocol)
        except ValueError:
            continue
        return _OF[layout_of_broker(data)](nodes, protocol)
    held = [nodes.data(f"{TOPICS}/{name}") for name in nodes.children(TOPICS)]
    return (ClusterTree07 if held and not any(held) else ClusterTree08)(nodes, protocol)


class _Shared:
    """The base class of the trees of both layouts, with the methods that do not depend on the layout."""

    layout: Layout

    def __init__(self, nodes: Znodes, protocol: str = "PLAINTEXT") -> None:
        self._nodes = nodes
        self._protocol = protocol

    def topics(self, watch: Watch | None = None) -> list[str]:
        return self._nodes.children(TOPICS, watch)

    def brokers(self, watch: Watch | None = None) -> dict[int, Address]:
        found: dict[int, Address] = {}
        for name in sorted(filter(str.isdecimal, self._nodes.children(BROKERS, watch)), key=int):
            path = f"{BROKERS}/{name}"
            data = self._nodes.data(path)
            if data is None:
                continue  # the broker has stopped meanwhile
            try:
                found[int(name)] = address_of(data, self._protocol)
            except ValueError:
                self._nodes.log_once(path, data, f"{data[:200]!r} has no usable broker address")
        return found


class ClusterTree08(_Shared):
    """The znode layout since Kafka 0.8: a topic's znode has JSON with the partitions, which are numbers."""

    layout = Layout.V08

    def partitions(self, topic: str, watch: Watch | None = None) -> list[str]:
        path = f"{TOPICS}/{topic}"
        data = self._nodes.data(path, watch)
        if data is None:
            return []
        try:
            return partitions_in(path, data)
        except KafkaError as error:
            self._nodes.log_once(path, data, str(error))
            return []


class ClusterTree07(_Shared):
    """The znode layout of Kafka 0.7.

    A topic's znode has a child for each broker, whose data is the topic's number of partitions on that broker. The
    partitions are named BROKER-0, BROKER-1, ...
    """

    layout = Layout.V07

    def partitions(self, topic: str, watch: Watch | None = None) -> list[str]:
        path = f"{TOPICS}/{topic}"
        found: list[str] = []
        for broker in self._nodes.children(path, watch):
            data = self._nodes.data(f"{path}/{broker}")
            if data is None:
                continue  # the node was deleted meanwhile
            try:
                found += partitions_07(path, {broker: data})
            except KafkaError as error:
                self._nodes.log_once(f"{path}/{broker}", data, str(error))
        return sorted(found)


_OF: dict[Layout, type[ClusterTree08] | type[ClusterTree07]] = {
    Layout.V08: ClusterTree08,
    Layout.V07: ClusterTree07,
}


def address_of(data: bytes, protocol: str = "PLAINTEXT") -> Address:
    """Return the host and port in the data of a broker's znode, of a listener with the security protocol `protocol`.

    Raise ValueError if it has no usable address.

    The data is JSON since 0.8, and creator:host:port in 0.7.
    """
    text = data.decode(errors="replace")
    try:
        if not text.startswith("{"):
            _, host, port = text.split(":")
            return host, int(port)
        node = json.loads(text)
        if protocol == "PLAINTEXT" and node.get("host") and int(node["port"]) > 0:
            return node["host"], int(node["port"])
        protocols = node.get("listener_security_protocol_map") or {}
        for endpoint in node["endpoints"]:
            name, _, address = endpoint.partition("://")
            if protocols.get(name, name) == protocol:
                break
        else:
            raise ValueError
        host, _, port = address.rpartition(":")
        return host.strip("[]"), int(port)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{text[:200]!r} has no usable broker address") from None
