"""The broker: creates its parts, connects them to each other, starts them in order and stops them in order."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kafkapy.controller.cluster import Registered
from kafkapy.controller.controller import ClusterController
from kafkapy.controller.topic_changes import Settings
from kafkapy.log.manager import LogManager
from kafkapy.log.storage.files import Files
from kafkapy.metadata.cluster import ClusterRegistry, Endpoint
from kafkapy.metadata.configs import ConfigRegistry
from kafkapy.metadata.consumer_offsets import ConsumerOffsets
from kafkapy.metadata.controller_fence import ControllerFence
from kafkapy.metadata.producer_ids import ProducerIdBlocks, ProducerIds
from kafkapy.metadata.topics import TopicRegistry, is_gone, look_if_gone
from kafkapy.metadata.tree import NodeExists, Tree
from kafkapy.metadata.users import UserRegistry
from kafkapy.network.settings import Listener
from kafkapy.network.socket_server import SocketServer
from kafkapy.replica.followed_partition import FollowedPartition
from kafkapy.replica.in_sync_replicas import IsrEnvironment
from kafkapy.replica.isr_changes import IsrChanges
from kafkapy.replica.log_dir_moves import LogDirMoves
from kafkapy.replica.manager import ReplicaManager
from kafkapy.replica.partition import Partition
from kafkapy.replica.roles import Roles
from kafkapy.runtime.clock import SYSTEM_CLOCK, Clock
from kafkapy.runtime.config_def import ConfigError
from kafkapy.runtime.counters import Registry
from kafkapy.runtime.descriptors import raise_descriptor_limit
from kafkapy.runtime.disk_pool import DiskPool, PoolStopped
from kafkapy.runtime.logs import fields
from kafkapy.runtime.metrics_page import MetricsPage
from kafkapy.runtime.purgatory import Purgatory
from kafkapy.runtime.read_pools import ReadPools
from kafkapy.runtime.scheduler import Scheduler
from kafkapy.runtime.threads import NoThread
from kafkapy.runtime.timer import Timer
from kafkapy.server.authorization.audit_log import AuditLog
from kafkapy.server.broker_channels import BrokerChannels
from kafkapy.server.config.apply import (
    cleaner_settings,
    log_settings,
    network_settings,
    of_listeners,
    replication_throttles,
    throttle_limits,
)
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.server.config.dynamic import DynamicConfig
from kafkapy.server.config.listeners import SASL_PROTOCOLS
from kafkapy.server.config.security import check as check_security
from kafkapy.server.config.security import warnings as security_warnings
from kafkapy.server.config.topics import TopicSettings
from kafkapy.server.controller_elsewhere import ControllerElsewhere
from kafkapy.server.controllership import Controllership
from kafkapy.server.coordinators import Coordinators
from kafkapy.server.dispatcher import Dispatcher
from kafkapy.server.fetching.sessions import FetchSessionCache
from kafkapy.server.following import Following
from kafkapy.server.identity import advertise, identify
from kafkapy.server.log_loading import LogLoading
from kafkapy.server.metadata_store import StartError, check_libraries, metadata_directory, open_tree
from kafkapy.server.metrics import broker as broker_metrics
from kafkapy.server.metrics import controller as controller_metrics
from kafkapy.server.metrics.requests import RequestMeters
from kafkapy.server.metrics.slow_requests import SlowRequests
from kafkapy.server.new_followers import NewFollowers
from kafkapy.server.peers import Peers
from kafkapy.server.producer_id_requests import ask_for_producer_ids
from kafkapy.server.quotas.following import follow_quotas
from kafkapy.server.services import Services
from kafkapy.server.unadopted import why_kafka_07s

if TYPE_CHECKING:
    from kafkapy.network.transports import Prepare
    from kafkapy.server.kafka07.part import Kafka07
    from kafkapy.server.shared_cluster import SharedCluster

__all__ = ["BrokerServer", "StartError"]

log = logging.getLogger("kafkapy.server.broker")


# Threads that convert old message formats in produce requests, and append very large requests. A conversion can take
# seconds, and hundreds of megabytes per thread. Conversions must not delay the appends of other requests, nor reads
# from disk.
CONVERSION_THREADS = 4
OUTDATED_RIGHTS_S = 60.0  # how often rights that connections remember from earlier access rules are forgotten
RESOLVE_S = 60.0  # how often host names in connection limits that had no address are looked up again


class BrokerServer:
    """A broker in this process, with its own threads. Call `start` once and `stop` once.

    `on_failure(reason)` is called from any thread when a running broker cannot continue, for example because the
    directory that holds its metadata has failed, or its last log directory has. `files` are the file operations for
    the logs.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock = SYSTEM_CLOCK,
        on_failure: Callable[[str], None] | None = None,
        files: Files | None = None,
    ) -> None:
        self.listeners: list[str] = []
        self._endpoints: list[Endpoint] = []
        self.services = services = Services()
        services.config = config
        services.clock = clock
        services.counters = Registry()
        slow_ms = config["kafkapy.slow.request.ms"]
        services.meters = RequestMeters(
            services.counters,
            timed=bool(config.kafkapy_metrics_listen),
            slow=SlowRequests(services.counters, clock, slow_ms / 1000) if slow_ms else None,
        )
        services.fetch_sessions = FetchSessionCache(
            config.max_incremental_fetch_session_cache_slots,
            wake=lambda session: services.replicas.fetch_purgatory.check(session),
        )
        services.disk_pool = DiskPool(config.kafkapy_disk_pool_threads)
        services.read_pools = ReadPools(config.kafkapy_read_threads_per_disk)
        services.append_pool = DiskPool(config.kafkapy_append_pool_threads, "append")
        services.conversion_pool = DiskPool(CONVERSION_THREADS, "conversion")
        services.controller_pool = DiskPool(4, "controller")  # a controlled shutdown needs a thread until its end
        services.cluster_pool = DiskPool(1, "cluster")  # one thread keeps the controller's requests in order
        # Rolled segments are synced on separate threads: many small segments must not delay the appends and the
        # administrative requests that use the disk pool.
        self._background_pool = DiskPool(2, "background")
        self._on_failure = on_failure
        self._files = files
        self._scheduler = Scheduler(clock, config.background_threads)
        self._timer = services.timer = Timer(clock)
        self._audit_log = AuditLog(config, clock, services.counters, self._scheduler)
        self._tree: Tree | None = None
        self._shared: SharedCluster | None = None  # only if the metadata is in ZooKeeper
        self._network: SocketServer | None = None
        self._metrics: MetricsPage | None = None
        self._logs: LogManager | None = None
        self._log_loading: LogLoading | None = None
        self._following: Following | None = None
        self._channels: BrokerChannels | None = None
        self._isr_changes: IsrChanges | None = None
        self._kafka07: Kafka07 | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Return the listeners as a client's bootstrap.servers: HOST:PORT with commas between."""
        return ",".join(listener.partition("://")[2] for listener in self.listeners)

    # --- start

    def start(self) -> None:
        """Start the broker. Return when clients can connect.

        Logs are loaded and recovered in the background; a partition is served as soon as its log is loaded. If the
        start fails, stop everything that was started and raise the error.
        """
        began = time.monotonic()
        try:
            self._start()
        except BaseException:
            try:
                self._stop(clean=False)
            except Exception:  # log it: the caller gets the error that made the start fail
                log.exception("stopping after a failed start failed")
            raise
        log.info("started", extra=fields(broker=self.services.broker_id, seconds=f"{time.monotonic() - began:.3f}"))

    def _start(self) -> None:
        services = self.services
        check_security(services.config)
        check_libraries(services.config)  # before anything is created in log.dirs
        reason = why_kafka_07s(services.config.log_dirs)
        if reason is not None:
            raise StartError(reason)
        raise_descriptor_limit()
        for line in (*services.config.warnings(), *security_warnings(services.config)):
            log.warning(line)
        self._audit_log.start()
        self._timer.start()
        logs = self._open_directories()
        self._open_kafka_07()
        tree = self._tree = open_tree(services.config, logs, self._metadata_failed)
        cluster = ClusterRegistry(tree)
        services.features_epoch = cluster.features_epoch
        fence = ControllerFence(tree)
        identify(services, cluster, logs.dirs)
        services.configs = ConfigRegistry(tree)
        services.users = UserRegistry(tree, services.configs)
        self._make_authorizer(tree)
        services.dynamic_config = DynamicConfig(services, services.configs, self._apply_config)
        services.dynamic_config.load()  # first, because the parts below are created with these settings
        logs.defaults = services.config.log_config
        logs.compaction.configure(cleaner_settings(services.config))
        logs.set_producer_expiration(services.config.producer_id_expiration_ms)
        self._network = network = self._make_network()
        services.peers = Peers(services, network)
        services.connection_rates = network.limits.rates
        follow_quotas(services, tree, self._scheduler)
        self._scheduler.schedule("limited-hosts", self._resolve_hosts, RESOLVE_S, RESOLVE_S)
        services.cache.on_controller_replaced = services.peers.forget_controller
        ports = network.bind()  # before the logs are loaded, so that a port in use is reported at once
        self.listeners = [str(one._replace(port=ports[one.name])) for one in services.config.listeners]
        self._endpoints, services.this = advertise(services, ports)
        controllership = Controllership(services, tree, cluster, fence)
        is_alone = True
        if services.config["zookeeper.connect"]:
            from kafkapy.server.shared_cluster import SharedCluster

            self._shared = SharedCluster(services, tree, cluster, fence, controllership, self._fail)
            is_alone = self._shared.check_start(self._endpoints, ports.values())
        if is_alone:
            controllership.stand()
        services.topics = TopicRegistry(tree, self._shared.unreadable if self._shared is not None else None, fence)
        services.consumer_offsets = ConsumerOffsets(tree)
        services.producer_ids = ProducerIds(
            lambda done: services.controller.allocate_producer_ids(services.broker_id, done),
            lambda: tree.is_reachable or not services.is_controller,  # another controller is asked by a request
        )
        self._make_replicas(tree, fence)
        self._make_controllers(tree, cluster, fence, controllership)
        if self._shared is not None:
            self._shared.complete_topics(self._controller)
        self._log_loading = LogLoading(services, self._controller, self._fail)
        self._register(cluster)
        logs.dirs.write_identity(services.broker_id, services.cluster_id, services.clock.time_ms())
        services.log_manager.start()
        broker_metrics.register(services)
        controller_metrics.register(self._controller, services.counters)
        self._serve_metrics()
        if self._kafka07 is not None:
            self._kafka07.start(ports[self._kafka07.listener.name])  # its clients are served once it is registered
        network.start()
        self._log_loading.start()
        if self._shared is not None:
            self._shared.start(lambda: self._enter(cluster))

    def wait_until_loaded(self, timeout: float | None = None) -> bool:
        """Wait until every partition either is served or has failed to load. Return False if the broker stops before
        that, or if `timeout` (seconds) has passed."""
        assert self._log_loading is not None
        return self._log_loading.wait(timeout)

    def _serve_metrics(self) -> None:
        listen = self.services.config.kafkapy_metrics_listen
        host, _, port = listen.rpartition(":")
        if port:
            try:
                self._metrics = MetricsPage(host.strip("[]"), int(port), self.services.counters)
            except OSError as error:
                reason = f"cannot listen there: {error.strerror or error}"
                raise ConfigError("kafkapy.metrics.listen", listen, reason) from error
            log.info("metrics are served at http://%s/metrics", self._metrics.address)

    def _open_directories(self) -> LogManager:
        services, config = self.services, self.services.config
        services.log_manager = self._logs = LogManager(
            config.log_dirs,
            config.log_config,
            clock=services.clock,
            scheduler=self._scheduler,
            disk_pool=self._background_pool,
            settings=log_settings(config),
            files=self._files,
            on_dir_failure=self._directory_failed,
        )
        return self._logs

    def _make_authorizer(self, tree: Tree) -> None:
        services = self.services
        if services.config["authorizer.class.name"]:
            from kafkapy.server.authorization.start import make_authorizer

            authorizer = make_authorizer(services.config, tree, self._audit_log.make_audit())
            services.authorizer = authorizer
            if authorizer is not None:
                self._scheduler.schedule(
                    "outdated-rights",
                    lambda: services.rights.forget_outdated(authorizer.generation),
                    OUTDATED_RIGHTS_S,
                    OUTDATED_RIGHTS_S,
                )

    def _open_kafka_07(self) -> None:
        """Open the directory of Kafka 0.7, if a server.properties of 0.7 is set."""
        file = self.services.config["kafkapy.kafka07.properties"]
        if file:
            from kafkapy.server.kafka07.part import Kafka07

            self._kafka07 = Kafka07(self.services, Path(file), self._scheduler, self._background_pool)

    def _make_network(self) -> SocketServer:
        services, config = self.services, self.services.config
        dispatcher = Dispatcher(services)
        listeners = [Listener(one.name, one.host, one.port) for one in config.listeners]
        prepare = dict(self._secure(dispatcher))
        if services.authorizer is not None:
            from kafkapy.server.authorization.start import warn_of_refused_brokers

            warn_of_refused_brokers(config, services.authorizer, services.secured)
        if self._kafka07 is not None:
            listeners.append(self._kafka07.listener)
            prepare[self._kafka07.listener.name] = self._kafka07.prepare
        return SocketServer(
            listeners,
            dispatcher,
            network_settings(config),
            services.counters,
            services.disk_pool,
            services.read_pools,
            services.clock,
            prepare=prepare,
        )

    def _secure(self, dispatcher: Dispatcher) -> Mapping[str, Prepare]:
        """Load the key and trust stores of the listeners. Return the functions that prepare the connections of
        listeners with TLS or SASL, by the listeners' names."""
        services = self.services
        if all(one.protocol == "PLAINTEXT" for one in services.config.listeners):
            return {}  # and the start needs no TLS library
        from kafkapy.server.secured_listeners import SecuredListeners

        services.secured = SecuredListeners(services.config, services.counters)
        prepare = services.secured.prepare()
        with_login = [one.name for one in services.config.listeners if one.protocol in SASL_PROTOCOLS]
        if with_login:
            from kafkapy.server.logins.listeners import SaslLogins

            services.logins = logins = SaslLogins(services, dispatcher)
            prepare |= {name: logins.prepare(name, prepare[name]) for name in with_login}
        return prepare

    def _make_replicas(self, tree: Tree, fence: ControllerFence) -> None:
        services = self.services
        services.is_topic_gone = partial(look_if_gone, tree)

        def is_deleted(topic: str, topic_id: bytes) -> bool:
            if not fence.is_held:
                return False
            known = services.topics.get(topic)
            if known is not None and known.id == topic_id:
                return False
            # The term is checked again: after its end the tree does not show topics, and all would look deleted.
            return is_gone(tree, topic, topic_id) and fence.is_held

        services.replicas = ReplicaManager(
            services.log_manager,
            broker_id=services.broker_id,
            timer=self._timer,
            append_pool=services.append_pool,
            conversion_pool=services.conversion_pool,
            stall_threshold=services.config.kafkapy_stall_threshold_ms / 1000,
            is_known=services.cache.has,
            is_deleted=is_deleted,
            isr_env=self._isr_environment(),
        )
        services.replicas.verify_transactions(services.config["transaction.partition.verification.enable"])
        services.throttles = throttles = replication_throttles(services.config, services.clock)
        services.log_dir_moves = LogDirMoves(
            services.log_manager,
            threads=services.config["num.replica.alter.log.dirs.threads"] or len(services.config.log_dirs),
            throttle=throttles.log_dirs,
            is_known=services.cache.has,
            on_moved=services.replicas.moved,
        )
        services.topic_settings = settings = TopicSettings(services)
        services.roles = Roles(
            services.replicas,
            settings.of,
            settings.reload,
            services.cache,
            self._later_on_the_cluster_pool,
            self._ask_for_roles,
        )
        services.coordinators = coordinators = Coordinators(services, self._timer, self._scheduler)
        new_followers = NewFollowers(services.fetch_sessions, services.replicas.fetch_purgatory, self._timer)

        def became_leader(partition: Partition) -> None:
            coordinators.became_leader(partition)
            new_followers.became_leader(partition)

        services.replicas.on_became_leader = became_leader
        services.replicas.on_lost_leadership = coordinators.lost_leadership
        services.following = following = self._following = Following(services, self._timer)

        def followed(partition: FollowedPartition) -> None:
            coordinators.followed(partition)
            following.follow(partition)

        services.replicas.on_followed = followed
        services.replicas.on_unfollowed = following.stop
        services.cache.on_deleted = self._topic_deleted
        services.cache.on_brokers_gone = services.replicas.brokers_gone
        settings.load_throttles()

    def _ask_for_roles(self) -> None:
        """Ask the controller to send all roles of this broker again."""
        if self._shared is not None:
            self._shared.directory_failed()  # the controller cannot be asked in another way

    def _later_on_the_cluster_pool(self, delay_s: float, work: Callable[[], object]) -> None:
        """Call `work()` after a delay, on the thread that carries out the controller's requests."""

        def submit() -> None:
            try:
                self.services.cluster_pool.submit(work)
            except PoolStopped:
                return  # the broker stops
            except NoThread:
                self._timer.schedule(delay_s, submit)

        self._timer.schedule(delay_s, submit)

    def _make_controllers(
        self, tree: Tree, cluster: ClusterRegistry, fence: ControllerFence, controllership: Controllership
    ) -> None:
        services, settings = self.services, self.services.topic_settings
        channels = self._channels = BrokerChannels(services, self._timer)
        self._controller = ClusterController(
            fence,
            services.topics,
            ProducerIdBlocks(tree),
            channels,
            broker_id=services.broker_id,
            registered=lambda: {one: Registered(*found) for one, found in cluster.registered().items()},
            wait_for_own=channels.wait_for_own,
            first_epoch=services.replicas.next_epoch,
            later=self._timer.schedule,
            settings=Settings(
                check=settings.check,
                check_stored=settings.of,
                partitions=lambda: services.config.num_partitions,
                replication=lambda: services.config.default_replication_factor,
                may_be_unclean=settings.may_be_unclean,
                imbalance=lambda: int(services.config["leader.imbalance.per.broker.percentage"]),
            ),
        )
        elsewhere = ControllerElsewhere(
            tree,
            services.cache,
            check_settings=settings.check,
            default_partitions=lambda: services.config.num_partitions,
            default_replication=lambda: services.config.default_replication_factor,
            allocate_producer_ids=partial(ask_for_producer_ids, services),
        )
        controllership.connect(self._controller, elsewhere)
        if services.config["zookeeper.connect"] and services.config["auto.leader.rebalance.enable"]:
            interval_s = services.config["leader.imbalance.check.interval.seconds"]
            self._scheduler.schedule("leader-rebalance", self._rebalance, interval_s, interval_s)

    def _rebalance(self) -> None:
        if self.services.is_controller:
            self._controller.rebalance()

    def _topic_deleted(self, topic: str, partitions: Collection[int]) -> None:
        self.services.coordinators.topic_deleted(topic, partitions)
        self.services.throttles.set_topic(topic, (), (), self.services.broker_id)

    def _isr_environment(self) -> IsrEnvironment:
        """Return what partitions with several replicas need: which brokers are alive, and how to ask the controller to
        change an ISR."""
        services, config = self.services, self.services.config
        changes = self._isr_changes = IsrChanges(
            services.peers.controller,
            services.broker_id,
            lambda: services.broker_epoch,
            self._timer,
            config["controller.socket.timeout.ms"] / 1000,
        )
        max_lag_s = config["replica.lag.time.max.ms"] / 1000
        self._scheduler.schedule("isr-shrinking", self._shrink_isrs, max_lag_s / 2, max_lag_s / 2)
        return IsrEnvironment(
            services.clock,
            max_lag_s,
            services.cache.is_alive,
            changes.submit,
            Purgatory("delete records", self._timer),
        )

    def _shrink_isrs(self) -> None:
        self.services.replicas.shrink_isrs()

    def _enter(self, cluster: ClusterRegistry) -> None:
        """Register this broker in the metadata tree. In ZooKeeper the registration ends with this broker's session."""
        services = self.services
        services.broker_epoch = cluster.register_broker(
            services.broker_id, self._endpoints, services.config.broker_rack, services.clock.time_ms()
        )

    def _register(self, cluster: ClusterRegistry) -> None:
        """Register this broker for the first time. Raise StartError if another broker has its id."""
        try:
            self._enter(cluster)
        except NodeExists:
            if self._shared is None:
                raise
            raise StartError(self._shared.taken()) from None

    # --- changes while it runs

    def _resolve_hosts(self) -> None:
        """Look up again the host names in connection limits that had no address."""
        if self._network is not None:
            self._network.limits.resolve_missing(self.services.disk_pool.submit)

    def _apply_config(self, config: BrokerConfig) -> None:
        """Pass changed dynamic settings to the parts of the broker that keep copies of settings. The changes are stored
        already, so this must not fail halfway."""
        assert self._network is not None
        self.services.log_manager.defaults = config.log_config
        self.services.log_manager.compaction.configure(cleaner_settings(config))
        self.services.log_manager.set_producer_expiration(config.producer_id_expiration_ms)
        self.services.replicas.verify_transactions(config["transaction.partition.verification.enable"])
        self.services.throttles.set_limits(throttle_limits(config))
        self._network.limits.update(
            max_connections=config.max_connections,
            max_connections_per_ip=config.max_connections_per_ip,
            overrides=config.max_connections_per_ip_overrides,
            per_listener=of_listeners(config, "max.connections"),
        )
        self._network.limits.rates.set_limits(
            config["max.connection.creation.rate"], of_listeners(config, "max.connection.creation.rate")
        )
        self.reload_stores()
        if self.services.logins is not None:
            self.services.logins.configure(config)
        self.services.topic_settings.refresh_all()
        if self._following is not None:
            self._following.resize()

    def reload_stores(self) -> None:
        """Use the key and trust stores that have changed, also if only a file has changed, for later connections.

        If one of them cannot be used, log that and change nothing."""
        if self.services.secured is not None:
            try:
                self.services.secured.reload(self.services.config)
            except ConfigError as error:
                log.error("the new key and trust stores are not used: %s", error)

    def _directory_failed(self, directory: Path, error: BaseException) -> None:
        if hasattr(self.services, "replicas"):
            self.services.replicas.directory_failed(directory, error)
        if directory == metadata_directory(self.services.config):
            self._fail(f"the directory with the metadata failed: {error}")
        elif not self.services.log_manager.online_dirs():
            self._fail(f"the last log directory failed: {error}")
        elif self._shared is not None:
            self._shared.directory_failed()

    def _metadata_failed(self, error: Exception) -> None:
        self._fail(f"the metadata in {metadata_directory(self.services.config)} cannot be written any more: {error}")

    def _fail(self, reason: str) -> None:
        log.critical("the broker cannot continue: %s", reason)
        if self._on_failure is not None:
            self._on_failure(reason)

    # --- stop

    def stop(self) -> None:
        """Stop the broker: answer pending requests, flush the logs, and mark the directories as cleanly closed."""
        began = time.monotonic()
        if self._shared is not None and not self.services.stopping:
            from kafkapy.server.leaving import move_leadership_away

            move_leadership_away(self.services)
        self._stop(clean=True)
        log.info("stopped", extra=fields(seconds=f"{time.monotonic() - began:.3f}"))

    def _stop(self, *, clean: bool) -> None:
        if self._network is not None:
            self._network.stop_accepting()
            self.services.stopping = True
            if self._kafka07 is not None:
                self._kafka07.leave()
            if self._log_loading is not None:
                self._log_loading.stop()
            if self._shared is not None:
                self._shared.stop()
            if hasattr(self.services, "coordinators"):
                self.services.coordinators.stop()
            if clean and hasattr(self.services, "replicas"):
                self.services.replicas.answer_waiting(self.services.fetch_sessions)
            if self._following is not None:
                self._following.close()
            self.services.peers.close()
            self._network.stop()
            if hasattr(self.services, "replicas"):
                self.services.replicas.end_long_work()
        if self.services.secured is not None:
            self.services.secured.stop()
        if self.services.authorizer is not None:
            self.services.authorizer.close()
        if self.services.logins is not None:
            self.services.logins.stop()
        if self._metrics is not None:
            self._metrics.stop()
        if self._isr_changes is not None:
            self._isr_changes.stop()
        if self._channels is not None:
            self._controller.stop()
            self._channels.close()
        self._scheduler.stop()
        self._timer.stop()
        self.services.cluster_pool.stop()
        self.services.controller_pool.stop()
        self.services.disk_pool.stop()
        self.services.read_pools.stop()
        self.services.conversion_pool.stop()
        if hasattr(self.services, "log_dir_moves"):
            self.services.log_dir_moves.stop()
        self.services.append_pool.stop()
        self._background_pool.stop()
        self._audit_log.stop()
        if self._tree is not None:
            self._tree.close()
        if self._kafka07 is not None:
            self._kafka07.stop(clean=clean)
        if self._logs is not None:
            self._logs.close()  # last, because it releases the locks of the directories
