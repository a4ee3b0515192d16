"""The cluster itself: its id, its brokers, its controller, and the blocks of producer ids.

Everything here waits for the tree: it is used at the start and on threads that may wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.ids import new_cluster_id
from kafkapy.metadata.tree import BadVersion, Create, Delete, NodeExists, NoNode, Operation, Set, Tree, TreeError
from kafkapy.runtime.addresses import host_port

_BROKER_VERSION = 5
_CONTROLLER_VERSION = 2
_FEATURE_VERSION = 2
_FEATURES_ENABLED = 1
NO_CONTROLLER = -1


class Endpoint(NamedTuple):
    """An advertised address of a broker."""

    listener: str
    host: str
    port: int
    protocol: str

    def __str__(self) -> str:
        return f"{self.listener}://{host_port(self.host, self.port)}"


class ClusterRegistry:
    """The cluster in the tree. The nodes that are always there are made by the first one to look."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        tree.ensure(*paths.ROOTS)

    def cluster_id(self) -> str | None:
        """22 characters, or None before anybody made one."""
        node = self._tree.find(paths.CLUSTER_ID)
        return paths.from_json(node.data, paths.CLUSTER_ID)["id"] if node is not None else None

    def ensure_cluster_id(self, wanted: str | None = None) -> str:
        """The cluster's id; made now if there is none, as `wanted` (from meta.properties) or a random one."""
        while True:
            found = self.cluster_id()
            if found is not None:
                return found
            made = paths.to_json({"version": "1", "id": wanted or new_cluster_id()})
            try:
                self._tree.commit([Create(paths.CLUSTER_ID, made)])
            except NodeExists:
                pass  # another broker was faster; take its id

    def generate_broker_id(self, reserved_max: int) -> int:
        """A number that no broker had before, above `reserved_max` (Kafka's broker.id.generation.enable)."""
        (node,) = self._tree.commit([Set(paths.BROKER_SEQUENCE, b"")])
        return reserved_max + int(node.version)

    def register_broker(self, broker_id: int, endpoints: Sequence[Endpoint], rack: str | None, time_ms: int) -> int:
        """Makes the broker known for as long as this process lives; gives its epoch. NodeExists if it is there."""
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
        # In two steps, as Kafka does it: so the node has its version, 1.
        self._tree.commit([Create(path, ephemeral=True), Set(path, paths.to_json(value), 0)])
        return self._tree.get(path).created

    def broker_address(self, broker_id: int) -> tuple[str, int] | None:
        """Where a registered broker's first endpoint is; None if that is unknown."""
        node = self._tree.find(f"{paths.BROKER_IDS}/{broker_id}")
        try:
            endpoints = paths.from_json(node.data, paths.BROKER_IDS).get("endpoints") if node is not None else None
            host, _, port = str(endpoints[0]).partition("://")[2].rpartition(":") if endpoints else ("", "", "")
            return (host.strip("[]"), int(port)) if host else None
        except (ValueError, TypeError, KeyError, IndexError):
            return None

    def broker_ids(self) -> list[int]:
        """The brokers that are alive."""
        return sorted(int(name) for name in self._tree.children(paths.BROKER_IDS) if name.isdecimal())

    def controller_id(self) -> int:
        """-1 while there is none."""
        node = self._tree.find(paths.CONTROLLER)
        return int(paths.from_json(node.data, paths.CONTROLLER)["brokerid"]) if node is not None else NO_CONTROLLER

    def controller_epoch(self) -> int:
        """How many controllers there have been."""
        node = self._tree.find(paths.CONTROLLER_EPOCH)
        return int(node.data) if node is not None else 0

    def become_controller(self, broker_id: int, time_ms: int) -> int | None:
        """The new controller epoch, or None if another broker is the controller."""
        value = {
            "version": _CONTROLLER_VERSION,
            "brokerid": broker_id,
            "timestamp": str(time_ms),
            "kraftControllerEpoch": -1,
        }
        controller = Create(paths.CONTROLLER, paths.to_json(value), ephemeral=True)
        while not self._tree.exists(paths.CONTROLLER):
            node = self._tree.find(paths.CONTROLLER_EPOCH)
            epoch = int(node.data) + 1 if node is not None else 1
            number: list[Operation] = [Create(paths.CONTROLLER_EPOCH, b"0")] if node is None else []
            number.append(Set(paths.CONTROLLER_EPOCH, b"%d" % epoch, node.version if node is not None else 0))
            try:
                # Both or neither: an epoch belongs to exactly one controller.
                self._tree.commit([controller, *number])
            except (NodeExists, BadVersion):
                continue  # another broker was faster with one of the two
            return epoch
        return None

    def take_office(self) -> None:
        """What a new controller does first: finalized features, and notes to its predecessor thrown away."""
        try:
            if not self._tree.exists(paths.FEATURE):
                value = {"features": {}, "version": _FEATURE_VERSION, "status": _FEATURES_ENABLED}
                self._tree.commit([Create(paths.FEATURE, paths.to_json(value))])
        except NodeExists:
            pass  # as good
        for above in (paths.ISR_CHANGES, paths.LOG_DIR_EVENTS):
            for name in self._tree.children(above):
                discard(self._tree, f"{above}/{name}")


def discard(tree: Tree, path: str) -> None:
    """Removes a node that others may remove too. Waits."""
    try:
        tree.commit([Delete(path)])
    except NoNode:
        pass


class ProducerIds:
    """Producer ids that no producer had before, from blocks of 1000 that are this broker's (ProducerIdManager)."""

    BLOCK_SIZE = 1000
    _LAST = 2**63 - 1

    def __init__(self, tree: Tree, broker_id: int) -> None:
        self._tree = tree
        self._broker_id = broker_id
        self._lock = threading.Lock()
        self._next = 0
        self._end = 0

    def next(self) -> int:
        """The next id; waits for the tree once in a thousand times. Raises KafkaError."""
        with self._lock:
            if self._next >= self._end:
                self._next = self._take_block()
                self._end = self._next + self.BLOCK_SIZE
            self._next += 1
            return self._next - 1

    def give(self, done: Callable[[int | KafkaError], object], in_pool: Callable[[Callable[[], None]], object]) -> None:
        """Calls `done` with the next id: at once where nobody has to wait for it, else on a thread of the pool."""
        if self._lock.acquire(blocking=False):
            found = None
            if self._next < self._end:
                found = self._next
                self._next += 1
            self._lock.release()
            if found is not None:
                done(found)
                return

        def wait() -> None:
            given: int | KafkaError
            try:
                given = self.next()
            except KafkaError as error:
                given = error
            done(given)

        in_pool(wait)

    def _take_block(self) -> int:
        """The first id of a block that is now this broker's."""
        path = paths.PRODUCER_ID_BLOCK
        while True:
            try:
                node = self._tree.get(path)
                current = paths.from_json(node.data, path)
                first = int(current["block_end"]) + 1 if current else 0
                if first > self._LAST - self.BLOCK_SIZE:
                    raise KafkaError(Errors.UNKNOWN_SERVER_ERROR, "there are no producer ids left")
                block = {
                    "version": 1,
                    "broker": self._broker_id,
                    "block_start": str(first),
                    "block_end": str(first + self.BLOCK_SIZE - 1),
                }
                self._tree.commit([Set(path, paths.to_json(block), node.version)])
            except BadVersion:
                continue  # another broker took a block in between
            except (TreeError, ValueError, KeyError) as error:
                raise KafkaError(Errors.UNKNOWN_SERVER_ERROR, f"no producer ids to be had: {error}") from error
            return first
