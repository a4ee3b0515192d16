"""Applies the broker's settings to its parts: converts them into the settings of logs, cleaner, network and ZooKeeper.

The parts do not know the names that Kafka gives to the settings.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from kafkapy.log.cleaner.settings import CleanerSettings
from kafkapy.log.retention import RetentionPolicy
from kafkapy.log.settings import LogSettings
from kafkapy.network.settings import NetworkSettings
from kafkapy.replica.throttles import ReplicationThrottles
from kafkapy.runtime.config_def import ConfigError
from kafkapy.runtime.descriptors import half_of_the_descriptors
from kafkapy.runtime.rates import Windows
from kafkapy.server.config.keys import DYNAMIC_ONLY_KEYS

if TYPE_CHECKING:
    from kafkapy.metadata.zookeeper.client import ZooKeeperSettings
    from kafkapy.runtime.clock import Clock
    from kafkapy.server.config.broker_config import BrokerConfig

_POLICY = "kafkapy.retention.policy"


def log_settings(config: BrokerConfig) -> LogSettings:
    """Return the settings of the log manager. Raise ConfigError for a retention policy that cannot be loaded."""
    return LogSettings(
        recovery_threads_per_dir=config.num_recovery_threads_per_data_dir,
        initial_task_delay_ms=config.log_initial_task_delay_ms,
        retention_check_ms=config.log_retention_check_interval_ms,
        flush_check_ms=config.log_flush_scheduler_interval_ms,
        recovery_checkpoint_ms=config.log_flush_offset_checkpoint_interval_ms,
        start_offset_checkpoint_ms=config.log_flush_start_offset_checkpoint_interval_ms,
        high_watermark_checkpoint_ms=config.replica_high_watermark_checkpoint_interval_ms,
        producer_expiration_ms=config.producer_id_expiration_ms,
        max_producers=config["kafkapy.max.producer.ids"],
        producer_expiration_check_ms=config.producer_id_expiration_check_interval_ms,
        max_decompressed=config.kafkapy_decompressed_max_bytes,
        max_open_files=config.kafkapy_log_max_open_files or half_of_the_descriptors(),
        retention=load_policy(config.kafkapy_retention_policy),
    )


def load_policy(name: str) -> RetentionPolicy | None:
    """Return a retention policy: a new instance of the class that `name` gives as MODULE:CLASS. Return None if `name`
    is empty. Raise ConfigError if the class cannot be imported or instantiated, or is not a policy."""
    if not name:
        return None
    module, _, attribute = name.partition(":")
    try:
        policy = getattr(importlib.import_module(module), attribute)()
    except Exception as error:  # the operator's code may raise anything
        raise ConfigError(_POLICY, name, f"the policy cannot be made: {type(error).__name__}: {error}") from error
    if not callable(getattr(policy, "rules", None)):
        raise ConfigError(_POLICY, name, "a policy has a method rules(log, now_ms), as kafkapy.log.retention says")
    return cast("RetentionPolicy", policy)


def cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    """Return the settings of the log cleaner, from the broker's settings."""
    return CleanerSettings(
        enable=config["log.cleaner.enable"],
        threads=config["log.cleaner.threads"],
        dedupe_buffer=config["log.cleaner.dedupe.buffer.size"],
        load_factor=config["log.cleaner.io.buffer.load.factor"],
        io_buffer=config["log.cleaner.io.buffer.size"],
        max_bytes_per_second=config["log.cleaner.io.max.bytes.per.second"],
        backoff_ms=config["log.cleaner.backoff.ms"],
    )


def replication_throttles(config: BrokerConfig, clock: Clock) -> ReplicationThrottles:
    """Return the throttles of replication and of moves between log directories, with their limits."""
    throttles = ReplicationThrottles(
        clock,
        samples=config["replication.quota.window.num"],
        sample_s=config["replication.quota.window.size.seconds"],
        log_dir_samples=config["alter.log.dirs.replication.quota.window.num"],
        log_dir_sample_s=config["alter.log.dirs.replication.quota.window.size.seconds"],
    )
    throttles.set_limits(throttle_limits(config))
    return throttles


def throttle_limits(config: BrokerConfig) -> dict[str, int]:
    """Return the limits of the throttles that are set, in bytes per second, by the names of their settings. These
    settings exist only as dynamic ones."""
    texts = {**config.dynamic_default, **config.dynamic_broker}
    return {name: key.parse(texts[name]) for name, key in DYNAMIC_ONLY_KEYS.items() if name in texts}


def network_settings(config: BrokerConfig) -> NetworkSettings:
    """Return the settings of the network threads and sockets, from the broker's settings."""
    return NetworkSettings(
        num_network_threads=config.num_network_threads,
        socket_request_max_bytes=config.socket_request_max_bytes,
        queued_max_request_bytes=config["queued.max.request.bytes"],
        socket_send_buffer_bytes=config.socket_send_buffer_bytes,
        socket_receive_buffer_bytes=config.socket_receive_buffer_bytes,
        socket_listen_backlog_size=config.socket_listen_backlog_size,
        max_connections=config.max_connections,
        max_connections_per_listener=of_listeners(config, "max.connections"),
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=config.max_connections_per_ip_overrides,
        max_connection_creation_rate=config["max.connection.creation.rate"],
        max_connection_creation_rate_per_listener=of_listeners(config, "max.connection.creation.rate"),
        quota_windows=quota_windows(config),
        connections_max_idle_ms=config.connections_max_idle_ms,
        inter_broker_listener=config.inter_broker_listener,
        authentication_timeout_ms=config["kafkapy.authentication.timeout.ms"],
        max_connections_authenticating=config["kafkapy.max.connections.authenticating"],
        zero_copy=config.kafkapy_zero_copy_enable,
        read_ahead_bytes=config.kafkapy_read_ahead_bytes,
        read_ahead_max_bytes=config.kafkapy_read_ahead_max_bytes,
        drop_behind=config.kafkapy_drop_behind_enable,
    )


def of_listeners(config: BrokerConfig, name: str) -> dict[str, int]:
    """Return the value of a setting for each listener."""
    return {listener.name: config.of_listener(listener.name, name) for listener in config.listeners}


def mutation_windows(config: BrokerConfig) -> Windows:
    """Return the windows over which the rates of created and deleted partitions are measured."""
    return Windows(config["controller.quota.window.num"], config["controller.quota.window.size.seconds"] * 1000)


def quota_windows(config: BrokerConfig) -> Windows:
    """Return the windows over which the rates of clients with quotas, and of new connections, are measured."""
    return Windows(config["quota.window.num"], config["quota.window.size.seconds"] * 1000)


def zookeeper_settings(config: BrokerConfig) -> ZooKeeperSettings:
    """Return the settings of the ZooKeeper client. Raise ImportError if kazoo is not installed.

    The connection time-out is zookeeper.connection.timeout.ms if set, otherwise the session time-out.
    """
    from kafkapy.metadata.zookeeper.client import ZooKeeperSettings  # imports kazoo, which not every broker needs

    session_ms = config["zookeeper.session.timeout.ms"]
    connection_ms = config["zookeeper.connection.timeout.ms"]
    settings = ZooKeeperSettings(
        config["zookeeper.connect"].strip(),
        session_timeout_ms=session_ms,
        connection_timeout_ms=session_ms if connection_ms is None else connection_ms,
        max_in_flight=config["zookeeper.max.in.flight.requests"],
        set_acl=config["zookeeper.set.acl"],
    )
    return settings.with_security(config)
