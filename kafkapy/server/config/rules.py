"""Checks rules between several broker settings: those of KafkaConfig.validateValues that apply to a broker without
KRaft."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafkapy.log.config import TOPIC_SYNONYMS, check_topic_values
from kafkapy.log.versions import first_with_format, format_can_be_chosen, newest_format
from kafkapy.metadata.zookeeper.properties import USER, certificate_file
from kafkapy.metadata.zookeeper.properties import check_security as check_zookeeper_security
from kafkapy.record.compression import NAMES
from kafkapy.runtime.config_def import ConfigError
from kafkapy.server.config import authorization, stored_passwords
from kafkapy.server.config import sasl as config_sasl
from kafkapy.server.config.listeners import ANY_ADDRESSES

if TYPE_CHECKING:
    from kafkapy.server.config.broker_config import BrokerConfig

_MIB = 1024 * 1024
# Without a port, kazoo takes 2181, as ZooKeeper's own client does (ConnectStringParser). IPv6 addresses need brackets.
_ZOOKEEPER_SERVER = re.compile(r"(\[[^\[\]]+\]|[^:\[\]]+)(:(?P<port>[0-9]+))?")


def check(config: BrokerConfig) -> None:
    """Raise ConfigError for the first rule between settings that the broker's settings break."""
    _check_zookeeper(config)
    _check_roles(config)
    _check_id(config)
    _check_log(config)
    _check_listeners(config)
    config_sasl.check(config)
    authorization.check(config)
    stored_passwords.check(config)
    _check_limits(config)
    _check_coordinators(config)


def _check_zookeeper(config: BrokerConfig) -> None:
    connect = (config["zookeeper.connect"] or "").strip()
    if not connect:
        return
    _check_zookeeper_address(connect)
    check_zookeeper_security(config)
    if config["zookeeper.set.acl"] and not config[USER] and not certificate_file(config):
        raise ConfigError(
            "zookeeper.set.acl",
            "true",
            f"needs an identity of this broker in ZooKeeper: set {USER}, or zookeeper.ssl.keystore.location",
        )


def _check_zookeeper_address(connect: str) -> None:
    servers, slash, chroot = connect.partition("/")
    for server in servers.split(","):
        parts = _ZOOKEEPER_SERVER.fullmatch(server.strip())
        if parts is None or int(parts["port"] or 0) > 65535:
            raise ConfigError("zookeeper.connect", connect, f"must be HOST:PORT with commas between ({server} is not)")
    path = chroot.rstrip("/")
    if slash and path and any(part in ("", ".", "..") for part in path.split("/")):
        raise ConfigError("zookeeper.connect", connect, f"must end in a path such as /kafka (/{chroot} is none)")


def _check_roles(config: BrokerConfig) -> None:
    roles = config["process.roles"]
    if roles and "broker" not in roles:
        raise ConfigError("process.roles", ",".join(roles), "must name the role broker; there is no controller here")


def _check_id(config: BrokerConfig) -> None:
    broker_id, highest = config.broker_id, config.reserved_broker_max_id
    if config["node.id"] != broker_id:
        raise ConfigError("node.id", config["node.id"], f"must be the same as broker.id, which is {broker_id}")
    if config.broker_id_generation_enable:
        if not -1 <= broker_id <= highest:
            raise ConfigError("broker.id", broker_id, f"must be from -1 to reserved.broker.max.id, which is {highest}")
    elif broker_id < 0:
        raise ConfigError("broker.id", broker_id, "must be at least 0 while broker.id.generation.enable=false")


def _check_log(config: BrokerConfig) -> None:
    if not config.log_dirs:
        raise ConfigError("log.dirs", config["log.dirs"], "must name at least one directory")
    log = config.log_config
    if log.segment_ms < 1:
        raise ConfigError(*_behind(config, "segment.ms"), "must be at least 1")
    if log.segment_jitter_ms < 0:
        raise ConfigError(*_behind(config, "segment.jitter.ms"), "must be at least 0")
    if log.retention_ms < 1 and log.retention_ms != -1:
        raise ConfigError(*_behind(config, "retention.ms"), "must be at least 1, or -1 for no limit")
    if log.flush_ms < 0:
        raise ConfigError(*_behind(config, "flush.ms"), "must be at least 0")
    try:
        check_topic_values(log.values)
    except ConfigError as error:
        raise ConfigError(*_behind(config, error.key), error.rule) from None
    protocol_version, chosen = config["inter.broker.protocol.version"], config["log.message.format.version"]
    if format_can_be_chosen(protocol_version) and newest_format(chosen) > newest_format(protocol_version):
        raise ConfigError(
            "log.message.format.version",
            chosen,
            f"needs inter.broker.protocol.version={first_with_format(newest_format(chosen))} or later, which is "
            f"{protocol_version}",
        )
    memory, threads = config["log.cleaner.dedupe.buffer.size"], config["log.cleaner.threads"]
    if threads and memory // threads <= _MIB:
        raise ConfigError("log.cleaner.dedupe.buffer.size", memory, f"must be over {_MIB} for each cleaner thread")


def _behind(config: BrokerConfig, topic_key: str) -> tuple[str, object]:
    """Return the name and the value of the broker setting that is the default of a topic setting."""
    for name, _ in TOPIC_SYNONYMS[topic_key]:
        if config[name] is not None:
            return name, config[name]
    raise AssertionError(f"{topic_key} has no value")


def _check_listeners(config: BrokerConfig) -> None:
    given = config["listeners"]
    if not config.listeners:
        raise ConfigError("listeners", given, "must have a listener for clients")
    names = {listener.name for listener in config.listeners}
    advertised = {listener.name for listener in config.advertised_listeners}
    given = config["advertised.listeners"]
    if not advertised:
        raise ConfigError("advertised.listeners", given, "must have a listener for clients")
    if not advertised <= names:
        unknown = ", ".join(sorted(advertised - names))
        raise ConfigError("advertised.listeners", given, f"{unknown} is not in listeners")
    for listener in config.advertised_listeners:
        # Kafka uses listeners if advertised.listeners is not set, and refuses the wildcard address in both.
        if listener.host in ANY_ADDRESSES:
            raise ConfigError(
                "listeners" if given is None else "advertised.listeners",
                config["listeners"] if given is None else given,
                f"clients cannot connect to {listener.host}; put a real host into advertised.listeners",
            )
    if config.is_set("inter.broker.listener.name") and config.is_set("security.inter.broker.protocol"):
        raise ConfigError(
            "inter.broker.listener.name",
            config["inter.broker.listener.name"],
            "must not be set together with security.inter.broker.protocol",
        )
    if config.inter_broker_listener not in advertised:
        raise ConfigError(
            "inter.broker.listener.name",
            config.inter_broker_listener,
            f"must be an advertised listener: one of {', '.join(sorted(advertised))}",
        )


def _check_limits(config: BrokerConfig) -> None:
    wait = config["replica.fetch.wait.max.ms"]
    for name in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        if wait > config[name]:
            raise ConfigError("replica.fetch.wait.max.ms", wait, f"must be at most {name}, which is {config[name]}")
    queued, largest = config["queued.max.request.bytes"], config.socket_request_max_bytes
    if 0 < queued < largest:
        raise ConfigError("queued.max.request.bytes", queued, f"must be at least socket.request.max.bytes ({largest})")
    if config.max_connections_per_ip == 0 and not config.max_connections_per_ip_overrides:
        raise ConfigError("max.connections.per.ip", 0, "may be 0 only with max.connections.per.ip.overrides")
    delay, idle = config["connection.failed.authentication.delay.ms"], config.connections_max_idle_ms
    if 0 <= idle <= delay:
        raise ConfigError(
            "connection.failed.authentication.delay.ms", delay, f"must be below connections.max.idle.ms ({idle})"
        )


def _check_coordinators(config: BrokerConfig) -> None:
    acks, replicas = config["offsets.commit.required.acks"], config["offsets.topic.replication.factor"]
    if not -1 <= acks <= replicas:
        raise ConfigError(
            "offsets.commit.required.acks",
            acks,
            f"must be from -1 to offsets.topic.replication.factor, which is {replicas}",
        )
    codec = config["offsets.topic.compression.codec"]
    if not 0 <= codec < len(NAMES):
        codecs = ", ".join(f"{number} ({name})" for number, name in enumerate(NAMES))
        raise ConfigError("offsets.topic.compression.codec", codec, f"must be one of {codecs}")
