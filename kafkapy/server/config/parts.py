"""Converts the broker's settings into those of its parts, which do not know Kafka's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkapy.log.settings import LogSettings
from kafkapy.network.settings import NetworkSettings
from kafkapy.runtime.descriptors import half_of_the_descriptors
from kafkapy.server.config.retention_policy import load_policy

if TYPE_CHECKING:
    from kafkapy.server.config.broker_config import BrokerConfig


def log_settings(config: BrokerConfig) -> LogSettings:
    """Return the settings of the logs. Raise ConfigError for a retention policy that cannot be loaded."""
    return LogSettings(
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
    )


def network_settings(config: BrokerConfig) -> NetworkSettings:
    """Return the settings of the network."""
    return NetworkSettings(
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
    )
