"""The composition root: makes the parts of a broker, wires them, starts and stops them in order."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kafkapy.controller.topic_changes import TopicController
from kafkapy.log.files import Files
from kafkapy.log.manager import LogManager
from kafkapy.log.settings import LogSettings
from kafkapy.metadata.cluster import ClusterRegistry, Endpoint
from kafkapy.metadata.configs import ConfigRegistry
from kafkapy.metadata.consumer_offsets import ConsumerOffsets
from kafkapy.metadata.office import Office
from kafkapy.metadata.producer_ids import ProducerIds
from kafkapy.metadata.topics import TopicRegistry
from kafkapy.metadata.tree import Tree
from kafkapy.network.settings import Listener, NetworkSettings
from kafkapy.network.socket_server import SocketServer
from kafkapy.replica.manager import ReplicaManager
from kafkapy.runtime.clock import SYSTEM_CLOCK, Clock
from kafkapy.runtime.counters import Registry
from kafkapy.runtime.descriptors import half_of_the_descriptors, raise_descriptor_limit
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.logs import fields
from kafkapy.runtime.read_pools import ReadPools
from kafkapy.runtime.scheduler import Scheduler
from kafkapy.runtime.timer import Timer
from kafkapy.server.cleaner import cleaner_settings
from kafkapy.server.config import BrokerConfig
from kafkapy.server.config_alter import check_topic
from kafkapy.server.config_listeners import ANY_ADDRESSES
from kafkapy.server.coordinators import Coordinators
from kafkapy.server.dispatcher import Dispatcher
from kafkapy.server.dynamic_config import DynamicConfig
from kafkapy.server.fetch_sessions import FetchSessionCache
from kafkapy.server.gauges import register_gauges
from kafkapy.server.log_start import LogStart
from kafkapy.server.metadata_home import StartError, home_of, open_tree
from kafkapy.server.meters import RequestMeters
from kafkapy.server.metrics import MetricsPage
from kafkapy.server.retention_policy import load_policy
from kafkapy.server.services import Node, Services

if TYPE_CHECKING:
    from kafkapy.server.shared_cluster import SharedCluster

__all__ = ["BrokerServer", "StartError"]

log = logging.getLogger("kafkapy.server.broker")


# For produce requests that are long work: what old producers send is converted here, up to hundreds of megabytes at a
# time for each thread, and for seconds. It must not hold up the appends of others, nor cold reads.
CONVERSION_THREADS = 4


class BrokerServer:
    """A broker in this process, on threads of its own. `start` once, `stop` once.

    `on_failure(reason)` is called, from any thread, when a running broker cannot go on: the directory that holds
    its metadata failed, or the last of its log directories did. `files` are the operations on the logs' disk.
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
        services.meters = RequestMeters(services.counters, timed=bool(config.kafkapy_metrics_listen))
        services.fetch_sessions = FetchSessionCache(config.max_incremental_fetch_session_cache_slots)
        services.disk_pool = DiskPool(config.kafkapy_disk_pool_threads)
        services.read_pools = ReadPools(config.kafkapy_read_threads_per_disk)
        services.append_pool = DiskPool(config.kafkapy_append_pool_threads, "append")
        services.conversion_pool = DiskPool(CONVERSION_THREADS, "conversion")
        # Syncs of rolled segments have threads of their own: a flood of small segments must not hold up the appends
        # and the administration that wait for the disk pool.
        self._background_pool = DiskPool(2, "background")
        self._on_failure = on_failure
        self._files = files
        self._scheduler = Scheduler(clock, config.background_threads)
        self._timer = Timer(clock)
        self._tree: Tree | None = None
        self._shared: SharedCluster | None = None  # with ZooKeeper
        self._network: SocketServer | None = None
        self._metrics: MetricsPage | None = None
        self._logs: LogManager | None = None
        self._log_start: LogStart | None = None

    @property
    def bootstrap_servers(self) -> str:
        """host:port of each listener, as clients take it."""
        return ",".join(listener.partition("://")[2] for listener in self.listeners)

    @property
    def metrics_address(self) -> str | None:
        """HOST:PORT of the metrics page, if there is one."""
        return self._metrics.address if self._metrics is not None else None

    # --- start

    def start(self) -> None:
        """Returns when clients can connect; logs are recovered behind it, and served as each is ready.

        Raises what stands in the way, and then nothing is left running.
        """
        began = time.monotonic()
        try:
            self._start()
        except BaseException:
            self._stop(clean=False)
            raise
        log.info("started", extra=fields(broker=self.services.broker_id, seconds=f"{time.monotonic() - began:.3f}"))

    def _start(self) -> None:
        services = self.services
        raise_descriptor_limit()
        for line in services.config.warnings():
            log.warning(line)
        self._timer.start()
        logs = self._open_directories()
        tree = self._tree = open_tree(services.config, logs, self._metadata_failed)
        cluster = ClusterRegistry(tree)
        office = Office(tree)
        self._identify(cluster, logs)
        services.configs = ConfigRegistry(tree)
        services.dynamic_config = DynamicConfig(services, services.configs, self._apply_config)
        services.dynamic_config.load()  # before the parts are made that take their settings from it
        logs.defaults = services.config.log_config
        logs.compaction.configure(cleaner_settings(services.config))
        self._network = network = self._make_network()
        ports = network.bind()  # before the logs are read: a port that is in use is told at once
        if services.config["zookeeper.connect"]:
            from kafkapy.server.shared_cluster import SharedCluster

            self._shared = SharedCluster(services, tree, cluster, office, self._fail)
            self._shared.wait_for_place(ports.values())
        services.topics = TopicRegistry(tree, self._shared.unreadable if self._shared is not None else None, office)
        services.consumer_offsets = ConsumerOffsets(tree)
        services.producer_ids = ProducerIds(tree, services.broker_id)
        self._take_office(cluster, office)
        self._lead()
        if self._shared is not None:
            self._shared.settle()
        self._log_start = LogStart(services, self._fail)
        self._register(cluster, ports)
        services.log_manager.start()
        register_gauges(services)
        if services.config.kafkapy_metrics_listen:
            self._metrics = MetricsPage(services.config.kafkapy_metrics_listen, services.counters, services)
        network.start()
        self._log_start.start()
        if self._shared is not None:
            self._shared.start(lambda: self._enter(cluster), lambda: self._take_office(cluster, office))

    def wait_until_loaded(self, timeout: float | None = None) -> bool:
        """After `start`: until every partition is served, or known not to be; False if the time is up."""
        assert self._log_start is not None
        return self._log_start.wait(timeout)

    def _open_directories(self) -> LogManager:
        services, config = self.services, self.services.config
        services.log_manager = self._logs = LogManager(
            config.log_dirs,
            config.log_config,
            clock=services.clock,
            scheduler=self._scheduler,
            disk_pool=self._background_pool,
            settings=LogSettings(
                recovery_threads_per_dir=config.num_recovery_threads_per_data_dir,
                initial_task_delay_ms=config.log_initial_task_delay_ms,
                retention_check_ms=config.log_retention_check_interval_ms,
                flush_check_ms=config.log_flush_scheduler_interval_ms,
                recovery_checkpoint_ms=config.log_flush_offset_checkpoint_interval_ms,
                start_offset_checkpoint_ms=config.log_flush_start_offset_checkpoint_interval_ms,
                high_watermark_checkpoint_ms=config.replica_high_watermark_checkpoint_interval_ms,
                producer_expiration_ms=config.producer_id_expiration_ms,
                producer_expiration_check_ms=config.producer_id_expiration_check_interval_ms,
                max_decompressed=config.kafkapy_decompressed_max_bytes,
                max_open_files=config.kafkapy_log_max_open_files or half_of_the_descriptors(),
                retention=load_policy(config.kafkapy_retention_policy),
            ),
            files=self._files,
            on_dir_failure=self._directory_failed,
        )
        return self._logs

    def _identify(self, cluster: ClusterRegistry, logs: LogManager) -> None:
        """Broker id and cluster id, from the settings, the tree and each directory's meta.properties, which agree."""
        services, config = self.services, self.services.config
        services.cluster_id = cluster.ensure_cluster_id(logs.dirs.stored_cluster_id())
        broker_id = config.broker_id
        if broker_id < 0:
            stored = logs.dirs.stored_broker_id()
            broker_id = stored if stored is not None else cluster.generate_broker_id(config.reserved_broker_max_id)
        services.broker_id = broker_id
        logs.dirs.stamp(broker_id, services.cluster_id, services.clock.time_ms())

    def _make_network(self) -> SocketServer:
        services, config = self.services, self.services.config
        return SocketServer(
            [Listener(one.name, one.host, one.port) for one in config.listeners],
            Dispatcher(services),
            NetworkSettings(
                num_network_threads=config.num_network_threads,
                socket_request_max_bytes=config.socket_request_max_bytes,
                socket_send_buffer_bytes=config.socket_send_buffer_bytes,
                socket_receive_buffer_bytes=config.socket_receive_buffer_bytes,
                socket_listen_backlog_size=config.socket_listen_backlog_size,
                max_connections=config.max_connections,
                max_connections_per_ip=config.max_connections_per_ip,
                max_connections_per_ip_overrides=config.max_connections_per_ip_overrides,
                connections_max_idle_ms=config.connections_max_idle_ms,
                inter_broker_listener=config.inter_broker_listener,
                zero_copy=config.kafkapy_zero_copy_enable,
                read_ahead_bytes=config.kafkapy_read_ahead_bytes,
                read_ahead_max_bytes=config.kafkapy_read_ahead_max_bytes,
            ),
            services.counters,
            services.disk_pool,
            services.read_pools,
            services.clock,
        )

    def _lead(self) -> None:
        services = self.services
        services.replicas = ReplicaManager(
            services.log_manager,
            broker_id=services.broker_id,
            timer=self._timer,
            append_pool=services.append_pool,
            conversion_pool=services.conversion_pool,
            stall_threshold=services.config.kafkapy_stall_threshold_ms / 1000,
        )
        services.replicas.verify_transactions(services.config["transaction.partition.verification.enable"])
        services.controller = TopicController(
            services.topics,
            services.configs,
            services.replicas,
            broker_id=services.broker_id,
            check_config=lambda overrides: check_topic(services.config, overrides),
            default_partitions=lambda: services.config.num_partitions,
            default_replication=lambda: services.config.default_replication_factor,
        )
        services.coordinators = coordinators = Coordinators(services, self._timer, self._scheduler)
        services.replicas.on_led = coordinators.led
        services.replicas.on_lost = coordinators.lost
        services.controller.on_deleted = coordinators.topic_deleted

    def _take_office(self, cluster: ClusterRegistry, office: Office) -> None:
        """Becomes the controller, unless another is."""
        term = cluster.become_controller(self.services.broker_id, self.services.clock.time_ms())
        office.enter(term)
        if term is not None:
            cluster.take_office(office)

    def _enter(self, cluster: ClusterRegistry) -> None:
        """The session has expired and another begun: the registration has to be made again."""
        config = self.services.config
        cluster.register_broker(
            self.services.broker_id, self._endpoints, config.broker_rack, self.services.clock.time_ms()
        )

    def _register(self, cluster: ClusterRegistry, ports: Mapping[str, int]) -> None:
        """Makes the addresses known: to clients, and in the tree."""
        services, config = self.services, self.services.config
        bound = {one.name: one for one in config.listeners}
        endpoints = []
        for one in config.advertised_listeners:
            host = one.host
            if not host or host in ANY_ADDRESSES:
                host = socket.getfqdn()
            port = one.port or ports[one.name]
            endpoints.append(Endpoint(one.name, host, port, one.protocol))
            services.advertise(one.name, Node(services.broker_id, host, port, config.broker_rack))
        for name, listener in bound.items():
            self.listeners.append(str(listener._replace(port=ports[name])))
            if not services.nodes(name):  # not advertised: its clients see the first one that is
                first = endpoints[0]
                services.advertise(name, Node(services.broker_id, first.host, first.port, config.broker_rack))
        self._endpoints = endpoints
        cluster.register_broker(services.broker_id, endpoints, config.broker_rack, services.clock.time_ms())

    # --- changes while it runs

    def _apply_config(self, config: BrokerConfig) -> None:
        """Dynamic settings changed: those that are not read anew at each use are handed on."""
        assert self._network is not None
        self.services.log_manager.defaults = config.log_config
        self.services.log_manager.compaction.configure(cleaner_settings(config))
        self.services.controller.refresh_configs()
        self.services.replicas.verify_transactions(config["transaction.partition.verification.enable"])
        self._network.update_limits(
            max_connections=config.max_connections,
            max_connections_per_ip=config.max_connections_per_ip,
            overrides=config.max_connections_per_ip_overrides,
        )

    def _directory_failed(self, directory: Path, error: BaseException) -> None:
        if hasattr(self.services, "replicas"):
            self.services.replicas.directory_failed(directory, error)
        if directory == home_of(self.services.config):
            self._fail(f"the directory with the metadata failed: {error}")
        elif not self.services.log_manager.online_dirs():
            self._fail(f"the last log directory failed: {error}")

    def _metadata_failed(self, error: Exception) -> None:
        self._fail(f"the metadata in {home_of(self.services.config)} cannot be written any more: {error}")

    def _fail(self, reason: str) -> None:
        log.critical("the broker cannot go on: %s", reason)
        if self._on_failure is not None:
            self._on_failure(reason)

    # --- stop

    def stop(self) -> None:
        """Answers what is under way, flushes, marks the directories as cleanly closed."""
        began = time.monotonic()
        self._stop(clean=True)
        log.info("stopped", extra=fields(seconds=f"{time.monotonic() - began:.3f}"))

    def _stop(self, *, clean: bool) -> None:
        if self._network is not None:
            self._network.stop_accepting()
            self.services.stopping = True
            if self._log_start is not None:
                self._log_start.stop()
            if self._shared is not None:
                self._shared.stop()
            if hasattr(self.services, "coordinators"):
                self.services.coordinators.stop()
            if clean:
                if hasattr(self.services, "replicas"):
                    self.services.replicas.answer_waiting()
                self._network.stop()
            if hasattr(self.services, "replicas"):
                self.services.replicas.end_long_work()
        if self._metrics is not None:
            self._metrics.stop()
        self._scheduler.stop()
        self._timer.stop()
        self.services.disk_pool.stop()
        self.services.read_pools.stop()
        self.services.conversion_pool.stop()
        self.services.append_pool.stop()
        self._background_pool.stop()
        if self._tree is not None:
            self._tree.close()
        if self._logs is not None:
            self._logs.close()  # the last: it gives the directories up to others
