"""What handlers can reach: one object, made by the composition root (`kafkapy.server.broker`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkapy.controller.topic_changes import TopicController
    from kafkapy.coordinator.groups.coordinator import GroupCoordinator
    from kafkapy.coordinator.offsets.manager import OffsetManager
    from kafkapy.coordinator.transactions.coordinator import TransactionCoordinator
    from kafkapy.log.manager import LogManager
    from kafkapy.metadata.configs import ConfigRegistry
    from kafkapy.metadata.consumer_offsets import ConsumerOffsets
    from kafkapy.metadata.producer_ids import ProducerIds
    from kafkapy.metadata.topics import TopicRegistry
    from kafkapy.replica.manager import ReplicaManager
    from kafkapy.replica.markers import MarkerWriter
    from kafkapy.replica.verification import TransactionVerifier
    from kafkapy.runtime.clock import Clock
    from kafkapy.runtime.counters import Registry
    from kafkapy.runtime.disk_pool import DiskPool
    from kafkapy.runtime.read_pools import ReadPools
    from kafkapy.server.config import BrokerConfig
    from kafkapy.server.coordinators import Coordinators
    from kafkapy.server.dynamic_config import DynamicConfig
    from kafkapy.server.fetch_sessions import FetchSessionCache
    from kafkapy.server.meters import RequestMeters


class Node(NamedTuple):
    """A broker as one of its listeners shows it to clients."""

    id: int
    host: str
    port: int
    rack: str | None


class Services:
    """The parts of a running broker. Attributes are set once, before the first request."""

    append_pool: DiskPool
    broker_id: int
    cluster_id: str
    clock: Clock
    config: BrokerConfig  # a dynamic change replaces the object
    configs: ConfigRegistry
    consumer_offsets: ConsumerOffsets
    controller: TopicController
    conversion_pool: DiskPool
    coordinators: Coordinators
    counters: Registry
    disk_pool: DiskPool
    dynamic_config: DynamicConfig
    fetch_sessions: FetchSessionCache
    log_manager: LogManager
    meters: RequestMeters
    producer_ids: ProducerIds
    read_pools: ReadPools
    replicas: ReplicaManager
    topics: TopicRegistry

    def __init__(self) -> None:
        self.stopping = False  # from then on no request is made to wait for data
        self._nodes: dict[str, list[Node]] = {}

    @property
    def groups(self) -> GroupCoordinator:
        return self.coordinators.groups

    @property
    def offsets(self) -> OffsetManager:
        return self.coordinators.offsets

    @property
    def transactions(self) -> TransactionCoordinator:
        return self.coordinators.transactions

    @property
    def markers(self) -> MarkerWriter:
        return self.coordinators.markers

    @property
    def verifier(self) -> TransactionVerifier:
        return self.coordinators.verifier

    @property
    def controller_id(self) -> int:
        """A cluster of one is its own controller."""
        return self.broker_id

    def advertise(self, listener: str, node: Node) -> None:
        """Sets the address under which clients of `listener` find this broker."""
        self._nodes[listener] = [node]

    def nodes(self, listener: str) -> list[Node]:
        """The brokers that a client of `listener` can reach."""
        return self._nodes.get(listener, [])
