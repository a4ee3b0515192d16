"""The znodes of brokers and topics, as the original clients read them, in the two layouts that Kafka has had.

Source: ZkUtils of Kafka 0.8.2 and 0.7.2. Imports kazoo.
"""

from __future__ import annotations

import json
from typing import Protocol

from kafkapy.client.original.keeper_nodes import KeeperNodes, Watch
from kafkapy.client.original.layouts import Layout, layout_of_broker, partitions_07, partitions_in
from kafkapy.errors import KafkaError

BROKERS = "/brokers/ids"
TOPICS = "/brokers/topics"

Address = tuple[str, int]


class ClusterTree(Protocol):
    """Calls wait, and raise, as those of KeeperNodes."""

    layout: Layout

    def topics(self, watch: Watch | None = None) -> list[str]: ...

    def partitions(self, topic: str, watch: Watch | None = None) -> list[str]:
        """Their names, in their order; none of a topic that is not there or whose znode is broken."""

    def brokers(self, watch: Watch | None = None) -> dict[int, Address]:
        """Host and port of those that listen in plain text, in the order of their ids. What is broken is named in the
        log, and left out."""


def cluster_tree(nodes: KeeperNodes) -> ClusterTree:
    """By what the first broker has written that can be read; without one by the topics: it is of 0.7 if there are
    some, and none has anything in its znode."""
    for name in nodes.children(BROKERS):
        data = nodes.data(f"{BROKERS}/{name}") or b""
        try:
            address_of(data)
        except ValueError:
            continue
        return _OF[layout_of_broker(data)](nodes)
    held = [nodes.data(f"{TOPICS}/{name}") for name in nodes.children(TOPICS)]
    return ClusterTree07(nodes) if held and not any(held) else ClusterTree08(nodes)


class _Shared:
    layout: Layout

    def __init__(self, nodes: KeeperNodes) -> None:
        self._nodes = nodes

    def topics(self, watch: Watch | None = None) -> list[str]:
        return self._nodes.children(TOPICS, watch)

    def brokers(self, watch: Watch | None = None) -> dict[int, Address]:
        found: dict[int, Address] = {}
        for name in sorted(filter(str.isdecimal, self._nodes.children(BROKERS, watch)), key=int):
            path = f"{BROKERS}/{name}"
            data = self._nodes.data(path)
            if data is None:
                continue  # it has left
            try:
                found[int(name)] = address_of(data)
            except ValueError:
                self._nodes.say_once(path, data, f"{data[:200]!r} has no address of a broker that can be used")
        return found


class ClusterTree08(_Shared):
    """Topics have JSON with the partitions, which are numbers."""

    layout = Layout.V08

    def partitions(self, topic: str, watch: Watch | None = None) -> list[str]:
        path = f"{TOPICS}/{topic}"
        data = self._nodes.data(path, watch)
        if data is None:
            return []
        try:
            return partitions_in(path, data)
        except KafkaError as error:
            self._nodes.say_once(path, data, str(error))
            return []


class ClusterTree07(_Shared):
    """Topics have a child for each broker, with how many partitions it has: BROKER-0, BROKER-1, ..."""

    layout = Layout.V07

    def partitions(self, topic: str, watch: Watch | None = None) -> list[str]:
        path = f"{TOPICS}/{topic}"
        found: list[str] = []
        for broker in self._nodes.children(path, watch):
            data = self._nodes.data(f"{path}/{broker}")
            if data is None:
                continue  # it has left
            try:
                found += partitions_07(path, {broker: data})
            except KafkaError as error:
                self._nodes.say_once(f"{path}/{broker}", data, str(error))
        return sorted(found)


_OF: dict[Layout, type[ClusterTree08] | type[ClusterTree07]] = {
    Layout.V08: ClusterTree08,
    Layout.V07: ClusterTree07,
}


def address_of(data: bytes) -> Address:
    """Of a broker's znode: JSON since 0.8, creator:host:port in 0.7. Raises ValueError where there is none."""
    text = data.decode(errors="replace")
    try:
        if not text.startswith("{"):
            _, host, port = text.split(":")
            return host, int(port)
        node = json.loads(text)
        if node.get("host") and int(node["port"]) > 0:
            return node["host"], int(node["port"])
        plain = next(one for one in node["endpoints"] if one.startswith("PLAINTEXT://"))
        host, _, port = plain.partition("://")[2].rpartition(":")
        return host.strip("[]"), int(port)
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError):
        raise ValueError(f"{text[:200]!r} has no address of a broker that can be used") from None
