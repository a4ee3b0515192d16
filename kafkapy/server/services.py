"""Services, the object through which handlers reach the parts of the broker. `kafkapy.server.broker` creates it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.metadata.cache import LiveBroker, MetadataCache
from kafkapy.server.rights import RememberedRights

if TYPE_CHECKING:
    from kafkapy.controller.interface import Controller
    from kafkapy.coordinator.groups.coordinator import GroupCoordinator
    from kafkapy.coordinator.offsets.manager import OffsetManager
    from kafkapy.coordinator.transactions.coordinator import TransactionCoordinator
    from kafkapy.log.manager import LogManager
    from kafkapy.metadata.configs import ConfigRegistry
    from kafkapy.metadata.consumer_offsets import ConsumerOffsets
    from kafkapy.metadata.producer_ids import ProducerIds
    from kafkapy.metadata.quotas import QuotaRegistry
    from kafkapy.metadata.topics import TopicRegistry
    from kafkapy.metadata.users import UserRegistry
    from kafkapy.network.connection_rates import ConnectionRates
    from kafkapy.replica.log_dir_moves import LogDirMoves
    from kafkapy.replica.manager import ReplicaManager
    from kafkapy.replica.markers import MarkerWriter
    from kafkapy.replica.roles import Roles
    from kafkapy.replica.throttles import ReplicationThrottles
    from kafkapy.replica.verification import TransactionVerifier
    from kafkapy.runtime.clock import Clock
    from kafkapy.runtime.counters import Registry
    from kafkapy.runtime.disk_pool import DiskPool
    from kafkapy.runtime.read_pools import ReadPools
    from kafkapy.runtime.timer import Timer
    from kafkapy.server.admission import Authorizer, Quotas
    from kafkapy.server.config.broker_config import BrokerConfig
    from kafkapy.server.config.dynamic import DynamicConfig
    from kafkapy.server.config.topics import TopicSettings
    from kafkapy.server.coordinators import Coordinators
    from kafkapy.server.fetching.sessions import FetchSessionCache
    from kafkapy.server.following import Following
    from kafkapy.server.logins.listeners import SaslLogins
    from kafkapy.server.metrics.requests import RequestMeters
    from kafkapy.server.peers import Peers
    from kafkapy.server.quotas.client_quotas import ClientQuotas
    from kafkapy.server.secured_listeners import SecuredListeners


class Services:
    """The parts of a running broker. Each attribute is set once, before the first request, unless a comment says
    otherwise."""

    append_pool: DiskPool
    authorizer: Authorizer | None = None
    broker_epoch: int = -1  # of the present registration, replaced when the broker registers again
    broker_id: int
    client_quotas: ClientQuotas
    cluster_id: str
    clock: Clock
    cluster_pool: DiskPool
    config: BrokerConfig  # replaced by each change of dynamic settings
    configs: ConfigRegistry
    connection_rates: ConnectionRates
    consumer_offsets: ConsumerOffsets
    controller_pool: DiskPool
    controller: Controller  # replaced when this broker becomes or ceases to be the controller
    conversion_pool: DiskPool
    coordinators: Coordinators
    counters: Registry
    disk_pool: DiskPool
    dynamic_config: DynamicConfig
    features_epoch: Callable[[], int]  # see ClusterRegistry.features_epoch
    fetch_sessions: FetchSessionCache
    following: Following
    is_topic_gone: Callable[[str, bytes], bool]  # see topics.look_if_gone
    log_dir_moves: LogDirMoves
    log_manager: LogManager
    logins: SaslLogins | None = None  # None: no listener has SASL
    meters: RequestMeters
    peers: Peers
    producer_ids: ProducerIds
    quota_registry: QuotaRegistry
    quotas: Quotas | None = None  # None: no quota is set; replaced when that changes
    read_pools: ReadPools
    replicas: ReplicaManager
    roles: Roles
    secured: SecuredListeners | None = None  # None: all listeners are PLAINTEXT
    this: LiveBroker  # this broker, as its own clients see it
    throttles: ReplicationThrottles
    timer: Timer
    topic_settings: TopicSettings
    topics: TopicRegistry
    users: UserRegistry

    def __init__(self) -> None:
        # The controller epoch and the connection of the latest controller's request: see handlers.controller_requests.
        self.controller_source = (-1, 0)
        self.metadata_epoch = -1  # the broker epoch of the latest registration for which all topics have been sent
        self.stopping = False  # True: fetches do not wait for data any more
        self.cache = MetadataCache()
        self.rights = RememberedRights()

    @property
    def is_controller(self) -> bool:
        """Return True if this broker is the controller of its cluster."""
        return self.cache.controller_id == self.broker_id

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
