"""The broker's settings: read from server.properties and overrides, parsed, checked, with dynamic settings on top.

`config["num.partitions"]` returns the value of any setting. The settings that the broker uses are also attributes, with
underscores for dots. An instance never changes: `with_dynamic` returns a new one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafkapy.log.config import LogConfig
from kafkapy.log.versions import format_can_be_chosen, newest_format
from kafkapy.runtime.config_def import ConfigError
from kafkapy.server.config import authorization
from kafkapy.server.config import rules as config_rules
from kafkapy.server.config import sasl as config_sasl
from kafkapy.server.config.keys import (
    BROKER_KEYS,
    DEFAULT_VALUES,
    LISTENER_PREFIX,
    key_of,
    listener_base,
    rivals,
    shown,
)
from kafkapy.server.config.listeners import Listener, parse_listeners, parse_per_ip, parse_protocol_map
from kafkapy.server.config.properties import PropertiesError, load_properties

# Settings that can be set for one listener. Others have no effect with a listener's prefix.
EFFECTIVE_PER_LISTENER = frozenset(
    {
        "connections.max.reauth.ms",
        "max.connection.creation.rate",
        "max.connections",
        "principal.builder.class",
    }
)

__all__ = ["BrokerConfig", "ConfigError", "PropertiesError"]


class BrokerConfig:
    """The checked settings of one broker.

    `static_values` has the texts of the settings from the file and the command line, `dynamic_default` those of the
    cluster-wide dynamic settings, `dynamic_broker` those of this broker's dynamic settings. `unknown` has the names
    that are not settings, `inert` the names of settings without effect in this broker. `broker_id` is -1 until the
    broker has generated its id. `log_dirs` are absolute paths without `.` and `..`, as in LogDirs. `listeners` has no
    KRaft controller listeners.
    """

    auto_create_topics_enable: bool
    background_threads: int
    broker_id: int
    broker_id_generation_enable: bool
    broker_rack: str | None
    connections_max_idle_ms: int
    default_replication_factor: int
    delete_topic_enable: bool
    fetch_max_bytes: int
    kafkapy_append_pool_threads: int
    kafkapy_decompressed_max_bytes: int
    kafkapy_disk_pool_threads: int
    kafkapy_log_level: str
    kafkapy_log_max_open_files: int
    kafkapy_metrics_listen: str
    kafkapy_read_ahead_bytes: int
    kafkapy_read_ahead_max_bytes: int
    kafkapy_drop_behind_enable: bool
    kafkapy_read_threads_per_disk: int
    kafkapy_retention_policy: str
    kafkapy_stall_threshold_ms: float
    kafkapy_zero_copy_enable: bool
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_initial_task_delay_ms: int
    log_retention_check_interval_ms: int
    max_connections: int
    max_connections_per_ip: int
    max_incremental_fetch_session_cache_slots: int
    message_max_bytes: int
    num_network_threads: int
    num_partitions: int
    num_recovery_threads_per_data_dir: int
    producer_id_expiration_check_interval_ms: int
    producer_id_expiration_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    reserved_broker_max_id: int
    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    socket_send_buffer_bytes: int

    def __init__(
        self,
        static_values: Mapping[str, Any] | None = None,
        dynamic_default: Mapping[str, str] | None = None,
        dynamic_broker: Mapping[str, str] | None = None,
    ) -> None:
        """Parse and check all settings. Raise ConfigError for the first invalid one."""
        self.static_values: dict[str, str] = {name: _text(value) for name, value in (static_values or {}).items()}
        _pair_ids(self.static_values)
        self.dynamic_default: dict[str, str] = dict(dynamic_default or {})
        self.dynamic_broker: dict[str, str] = dict(dynamic_broker or {})
        given = _merge(self.static_values, self.dynamic_default, self.dynamic_broker)
        self.values: dict[str, Any] = dict(DEFAULT_VALUES)
        self.unknown: list[str] = []
        self.inert: list[str] = []
        for name, text in given.items():
            self._take(name, text)
        self._given = given
        for name in _ATTRIBUTES:
            setattr(self, name, self.values[name.replace("_", ".")])
        self._derive()
        config_rules.check(self)

    @classmethod
    def load(cls, path: Path | None = None, overrides: Mapping[str, Any] | None = None) -> BrokerConfig:
        """Return the settings of a .properties file (None for no file), with `overrides` in place of those in the file.
        Raise OSError, PropertiesError or ConfigError."""
        settings: dict[str, Any] = dict(load_properties(path)) if path is not None else {}
        return cls(_override(settings, overrides or {}))

    def with_dynamic(self, default: Mapping[str, str], broker: Mapping[str, str]) -> BrokerConfig:
        """Return a BrokerConfig with the same static settings and with these dynamic ones: `default` has the
        cluster-wide settings, `broker` those of this broker. Raise ConfigError for an invalid setting."""
        return BrokerConfig(self.static_values, default, broker)

    def __getitem__(self, name: str) -> Any:
        """Return the parsed value of a setting. Raise KeyError for an unknown name."""
        return self.values[name]

    def given(self, name: str) -> str | None:
        """Return the text that a setting was given, None if its default applies."""
        return self._given.get(name)

    def of_listener(self, listener: str, name: str, mechanism: str = "") -> Any:
        """Return the parsed value of a setting for one listener, and one SASL mechanism if it is given.

        That is the value of `listener.name.LISTENER.MECHANISM.NAME`, else of `listener.name.LISTENER.NAME`, else of
        `NAME`.
        """
        text = self._given.get(self.name_in_use(listener, name, mechanism))
        return self.values[name] if text is None else BROKER_KEYS[name].parse(text)

    def name_in_use(self, listener: str, name: str, mechanism: str = "") -> str:
        """Return the name under which a setting is given for one listener; `name` if it has no value of its own."""
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        names = (f"{prefix}{mechanism.lower()}.{name}", f"{prefix}{name}") if mechanism else (f"{prefix}{name}",)
        return next((one for one in names if one in self._given), name)

    def protocol_of(self, listener: str) -> str:
        """Return the security protocol of a listener name, PLAINTEXT if the name is unknown."""
        return self._protocols.get(listener.upper(), "PLAINTEXT")

    def is_set(self, name: str) -> bool:
        """Return True if the setting was given a value, False if it was not, so that its default applies."""
        return name in self._given

    def warnings(self) -> list[str]:
        """Return lines to log at the start: unknown settings, settings without effect, and ignored message formats."""
        lines = []
        if self.unknown:
            lines.append("unknown settings, ignored: " + ", ".join(sorted(self.unknown)))
        if self.inert:
            lines.append("settings without effect in this broker: " + ", ".join(sorted(self.inert)))
        chosen, protocol_version = self["log.message.format.version"], self["inter.broker.protocol.version"]
        if newest_format(chosen) < 2 and not format_can_be_chosen(protocol_version):
            lines.append(
                f"log.message.format.version={chosen} is ignored: it cannot be chosen any more with "
                f"inter.broker.protocol.version={protocol_version}"
            )
        return lines + config_sasl.warnings(self) + authorization.warnings(self)

    def _take(self, name: str, text: str) -> None:
        key = key_of(name)
        if key is None:
            self.unknown.append(name)
            return
        base = listener_base(name)
        value = key.parse(text)
        if base is None and name in BROKER_KEYS:
            self.values[name] = value
        if not key.effect or (base is not None and not has_effect_per_listener(base)):
            self.inert.append(name)

    def _derive(self) -> None:
        """Set the attributes that are computed from several settings."""
        directories = self.values["log.dirs"] if self.values["log.dirs"] is not None else self.values["log.dir"] or ""
        self.log_dirs: tuple[Path, ...] = tuple(
            Path(os.path.abspath(part.strip())) for part in directories.split(",") if part.strip()
        )
        self.log_config: LogConfig = LogConfig.from_broker(self.values)
        self.max_connections_per_ip_overrides: dict[str, int] = parse_per_ip(
            "max.connections.per.ip.overrides", self.values["max.connections.per.ip.overrides"]
        )
        self._derive_listeners()

    def _derive_listeners(self) -> None:
        protocols = parse_protocol_map("listener.security.protocol.map", self.values["listener.security.protocol.map"])
        controllers = {name.strip().upper() for name in (self.values["controller.listener.names"] or "").split(",")}
        for name in controllers:
            protocols.setdefault(name, "PLAINTEXT")
        self._protocols = protocols
        listeners = parse_listeners("listeners", self.values["listeners"], protocols)
        advertised = listeners
        if self.values["advertised.listeners"] is not None:
            advertised = parse_listeners(
                "advertised.listeners", self.values["advertised.listeners"], protocols, distinct_ports=False
            )
        self.listeners: tuple[Listener, ...] = tuple(one for one in listeners if one.name not in controllers)
        self.advertised_listeners: tuple[Listener, ...] = tuple(
            one for one in advertised if one.name not in controllers
        )
        name = self.values["inter.broker.listener.name"] or self.values["security.inter.broker.protocol"]
        self.inter_broker_listener: str = name.upper()

    def __repr__(self) -> str:
        settings = {name: shown(name, text) for name, text in self._given.items()}
        return f"BrokerConfig({settings!r})"


def has_effect_per_listener(name: str) -> bool:
    """Return True if a setting has an effect with a listener's prefix."""
    return name in EFFECTIVE_PER_LISTENER or name.startswith(("ssl.", "sasl."))


_ATTRIBUTES = tuple(BrokerConfig.__annotations__)


def _text(value: Any) -> str:
    """Return a setting's Python value as the text that a .properties file would have."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)


def _pair_ids(settings: dict[str, str]) -> None:
    """Copy broker.id to node.id, or the reverse, where only one is set: both name the same setting."""
    for name, other in (("broker.id", "node.id"), ("node.id", "broker.id")):
        if name in settings:
            settings.setdefault(other, settings[name])


def _override(settings: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Set the overrides in `settings`, and return `settings`. An override also removes the other keys for the same
    value: an overriding log.roll.hours removes log.roll.ms, which would take precedence."""
    for name in overrides:
        for rival in rivals(name):
            settings.pop(rival, None)
    settings.update(overrides)
    return settings


def _merge(static: Mapping[str, str], default: Mapping[str, str], broker: Mapping[str, str]) -> dict[str, str]:
    return _override(_override(dict(static), default), broker)
