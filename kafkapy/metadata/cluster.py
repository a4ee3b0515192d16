"""The cluster in the metadata tree: its cluster id, registered brokers and controller.

Methods that change the tree block until the change is made, so they run only at the start of a broker and on threads
that may block.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from kafkapy.metadata import paths
from kafkapy.metadata.cache import LiveBroker
from kafkapy.metadata.controller_fence import ControllerFence, Term
from kafkapy.metadata.ids import new_cluster_id
from kafkapy.metadata.tree import BadVersion, Create, Delete, Node, NodeExists, NoNode, Operation, Set, Tree
from kafkapy.runtime.addresses import host_port

log = logging.getLogger("kafkapy.metadata.cluster")

_BROKER_VERSION = 5
_CONTROLLER_VERSION = 2
_FEATURE_VERSION = 2
_FEATURES_ENABLED = 1
NO_CONTROLLER = -1


class Endpoint(NamedTuple):
    """An advertised address of a broker: listener name, host, port and security protocol."""

    listener: str
    host: str
    port: int
    protocol: str

    def __str__(self) -> str:
        return f"{self.listener}://{host_port(self.host, self.port)}"


class ClusterRegistry:
    """Reads and writes the metadata nodes of the cluster id, the broker registrations and the controller. The
    constructor creates the nodes that exist in every cluster."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._decoded_features: tuple[Node, Mapping[str, Any] | None] | None = None  # see `_features`
        self._broker_epoch = -1  # of the last registration
        tree.ensure(*paths.ROOTS)

    def cluster_id(self) -> str | None:
        """Return the cluster id (22 characters), or None if the cluster has none yet. Raises ValueError if the node
        cannot be decoded."""
        node = self._tree.find(paths.CLUSTER_ID)
        return str(_field(node, paths.CLUSTER_ID, "id")) if node is not None else None

    def ensure_cluster_id(self, wanted: str | None = None) -> str:
        """Return the cluster id. If the cluster has none yet, store `wanted` (from meta.properties), or a random id, as
        the cluster id first."""
        while True:
            found = self.cluster_id()
            if found is not None:
                return found
            content = paths.to_json({"version": "1", "id": wanted or new_cluster_id()})
            try:
                self._tree.commit([Create(paths.CLUSTER_ID, content)])
            except NodeExists:
                pass  # another broker created it first

    def generate_broker_id(self, reserved_max: int) -> int:
        """Return a new broker id, unique in the cluster and greater than `reserved_max` (Kafka's
        broker.id.generation.enable)."""
        (node,) = self._tree.commit([Set(paths.BROKER_SEQUENCE, b"")])
        return reserved_max + int(node.version)

    def register_broker(self, broker_id: int, endpoints: Sequence[Endpoint], rack: str | None, time_ms: int) -> int:
        """Register a broker in an ephemeral node and return its broker epoch. Raises NodeExists if another process has
        registered this broker id. `time_ms` is the current time in milliseconds."""
        plain = next((endpoint for endpoint in endpoints if endpoint.protocol == "PLAINTEXT"), None)
        value = {
            "features": {},
            "listener_security_protocol_map": {endpoint.listener: endpoint.protocol for endpoint in endpoints},
            "endpoints": [str(endpoint) for endpoint in endpoints],
            "jmx_port": -1,
            "port": plain.port if plain is not None else -1,
            "host": plain.host if plain is not None else None,
            "version": _BROKER_VERSION,
            "timestamp": str(time_ms),
        }
        if rack is not None:
            value["rack"] = rack
        path = f"{paths.BROKER_IDS}/{broker_id}"
        data = paths.to_json(value)
        # In two steps as in Kafka, so that the node's version is 1 as there.
        register: list[Operation] = [Create(path, ephemeral=True), Set(path, data, 0)]
        try:
            self._tree.commit(register)
        except NodeExists:
            node = self._tree.find(path)
            if node is not None and node.mine:
                # Perhaps this session created the node before, and ZooKeeper's answer was lost.
                self._tree.commit([Set(path, data)])
            elif node is not None and node.created != self._broker_epoch:
                raise
            else:
                # An earlier session of this process created the node. The process has given the session up, for example
                # after a refused login, but it has not expired yet, or expires now. The node would vanish with that
                # session, so replace the node, as in Kafka (KAFKA-7165).
                if node is not None:
                    with suppress(NoNode):
                        self._tree.commit([Delete(path, node.version)])
                self._tree.commit(register)
        self._broker_epoch = self._tree.get(path).created
        return self._broker_epoch

    def broker_addresses(self, broker_id: int) -> list[tuple[str, int]]:
        """Return the host and port of each endpoint of a registered broker, [] if the broker is not registered or its
        node cannot be decoded."""
        node = self._tree.find(f"{paths.BROKER_IDS}/{broker_id}")
        try:
            endpoints = paths.from_json(node.data, paths.BROKER_IDS).get("endpoints") if node is not None else None
            split = [str(endpoint).partition("://")[2].rpartition(":") for endpoint in endpoints or ()]
            return [(host.strip("[]"), int(port)) for host, _, port in split if host]
        except (ValueError, TypeError):
            return []

    def broker_address(self, broker_id: int) -> tuple[str, int] | None:
        """Return the host and port of the first endpoint of a registered broker, or None if the broker is not
        registered or its node cannot be decoded."""
        return next(iter(self.broker_addresses(broker_id)), None)

    def finalized_features(self) -> Mapping[str, object]:
        """Return the features that the cluster has finalized, by name: no broker without them can join. {} if there are
        none, features are disabled, or the node cannot be decoded, which is logged."""
        _, value = self._features()
        features = value.get("features") if value is not None and _are_enabled(value) else None
        return features if isinstance(features, dict) else {}

    def features_epoch(self) -> int:
        """Return the epoch of the finalized features, the version of their node, for ApiVersions. -1 if there are none,
        features are disabled, or the node cannot be decoded."""
        node, value = self._features()
        return node.version if node is not None and value is not None and _are_enabled(value) else -1

    def _features(self) -> tuple[Node | None, Mapping[str, Any] | None]:
        """Return the features' node and its content: {} if there is none, None if it cannot be decoded.

        Each node is decoded once, and an error logged once: every client asks for the epoch of the features.
        """
        node = self._tree.find(paths.FEATURE)
        if node is None:
            return None, {}
        if self._decoded_features is None or self._decoded_features[0] != node:
            value: Mapping[str, Any] | None = None
            try:
                value = paths.from_json(node.data, paths.FEATURE)
            except ValueError as error:
                log.error("the cluster counts as one without features: %s", error)
            self._decoded_features = node, value
        return self._decoded_features

    def broker_ids(self) -> list[int]:
        """Return the ids of the registered brokers in ascending order."""
        return sorted(int(name) for name in self._tree.children(paths.BROKER_IDS) if name.isdecimal())

    def registered(self) -> dict[int, tuple[LiveBroker, int]]:
        """Return the registered brokers with their broker epochs, by id. A node that cannot be decoded is logged and
        left out.
        """
        found = {}
        for broker_id in self.broker_ids():
            path = f"{paths.BROKER_IDS}/{broker_id}"
            node = self._tree.find(path)
            if node is None:
                continue
            try:
                value = paths.from_json(node.data, path)
                found[broker_id] = LiveBroker(broker_id, _endpoints(value), value.get("rack")), node.created
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                log.error("broker %d is left out: the metadata at %s is invalid: %s", broker_id, path, error)
        return found

    def controller_id(self) -> int:
        """Return the broker id of the controller, or -1 if there is no controller. Raises ValueError if the node cannot
        be decoded."""
        node = self._tree.find(paths.CONTROLLER)
        return int(str(_field(node, paths.CONTROLLER, "brokerid"))) if node is not None else NO_CONTROLLER

    def controller_epoch(self) -> int:
        """Return the controller epoch, or 0 before the first election of a controller. Raises ValueError if the node
        cannot be decoded."""
        node = self._tree.find(paths.CONTROLLER_EPOCH)
        return _epoch(node) if node is not None else 0

    def become_controller(self, broker_id: int, time_ms: int) -> Term | None:
        """Try to make this broker the controller. Return the controller term that begins, or None if another broker is
        the controller. `time_ms` is the current time in milliseconds.

        Raises ValueError if the node of the controller or its epoch cannot be decoded.
        """
        value = {
            "version": _CONTROLLER_VERSION,
            "brokerid": broker_id,
            "timestamp": str(time_ms),
            "kraftControllerEpoch": -1,
        }
        controller = Create(paths.CONTROLLER, paths.to_json(value), ephemeral=True)
        while (held := self._tree.find(paths.CONTROLLER)) is None:
            node = self._tree.find(paths.CONTROLLER_EPOCH)
            epoch = self.controller_epoch() + 1
            number: list[Operation] = [Create(paths.CONTROLLER_EPOCH, b"0")] if node is None else []
            number.append(Set(paths.CONTROLLER_EPOCH, b"%d" % epoch, node.version if node is not None else 0))
            try:
                # One change, so that an epoch belongs to exactly one controller.
                results = self._tree.commit([controller, *number])
            except (NodeExists, BadVersion):
                continue  # another broker changed one of the two nodes first
            return Term(epoch, results[-1].version)
        node = self._tree.find(paths.CONTROLLER_EPOCH)
        if held.mine and self.controller_id() == broker_id and node is not None and node.changed == held.created:
            return Term(_epoch(node), node.version)  # elected before, but ZooKeeper's answer was lost
        return None

    def prepare_controller(self, fence: ControllerFence) -> None:
        """Do the first work of a new controller: enable an empty set of features, and delete the notifications that
        were meant for the previous controller. Blocks.

        The node of the features may be missing, disabled, or of an earlier version after an upgrade of Apache Kafka
        brokers. A node that cannot be decoded, or has features, is left as it is. Source:
        KafkaController.enableFeatureVersioning.
        """
        data = paths.to_json({"features": {}, "version": _FEATURE_VERSION, "status": _FEATURES_ENABLED})
        node, value = self._features()
        try:
            if node is None:
                self._tree.commit([Create(paths.FEATURE, data)])
            elif (
                value is not None
                and (value.get("version"), value.get("status")) != (_FEATURE_VERSION, _FEATURES_ENABLED)
                and not self.finalized_features()
            ):
                self._tree.commit([Set(paths.FEATURE, data, node.version)])
        except (NodeExists, BadVersion):
            pass  # written by another controller meanwhile
        for parent in (paths.ISR_CHANGES, paths.LOG_DIR_EVENTS):
            for name in self._tree.children(parent):
                fence.discard(f"{parent}/{name}")


def _endpoints(value: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """Return host and port by listener, of a broker's registration."""
    endpoints = {}
    for endpoint in value.get("endpoints") or ():
        listener, _, address = endpoint.partition("://")
        host, _, port = address.rpartition(":")
        endpoints[listener] = host.strip("[]"), int(port)
    if not endpoints and value.get("host") is not None:
        endpoints["PLAINTEXT"] = str(value["host"]), int(value["port"])
    return endpoints


def _field(node: Node, path: str, name: str) -> Any:
    try:
        return paths.from_json(node.data, path)[name]
    except KeyError:
        raise paths.Unreadable(f"the metadata at {path} has no field {name!r}") from None


def _are_enabled(features: Mapping[str, Any]) -> bool:
    return features.get("status") == _FEATURES_ENABLED


def _epoch(node: Node) -> int:
    try:
        return int(node.data)
    except ValueError:
        raise paths.Unreadable(
            f"the metadata at {paths.CONTROLLER_EPOCH} is not a number: {node.data[:40]!r}"
        ) from None
