"""Broker settings from a file, from overrides and from dynamic settings: defaults, rules, and warnings."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kafkapy.server.config.apply import zookeeper_settings
from kafkapy.server.config.broker_config import BrokerConfig, ConfigError, PropertiesError
from kafkapy.server.config.listeners import Listener

ConfigOf = Callable[..., BrokerConfig]


@pytest.fixture
def config_of(tmp_path: Path) -> ConfigOf:
    """Return a function that reads the settings of a server.properties file with the given text."""

    def read(text: str, overrides: Mapping[str, Any] | None = None) -> BrokerConfig:
        path = tmp_path / "server.properties"
        path.write_text(text)
        return BrokerConfig.load(path, overrides)

    return read


def test_nothing_set_means_kafkas_defaults() -> None:
    config = BrokerConfig()
    assert config.broker_id == -1
    assert config.num_partitions == config["num.partitions"] == 1
    assert config.socket_request_max_bytes == 104857600
    assert config.message_max_bytes == 1048588
    assert config.listeners == config.advertised_listeners == (Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert config.log_dirs == (Path("/tmp/kafka-logs"),)
    assert config.log_config.segment_bytes == 1024**3
    assert config.kafkapy_zero_copy_enable is True
    assert config.warnings() == []


def test_apache_kafkas_own_server_properties_can_be_read(config_of: ConfigOf) -> None:
    config = config_of(
        """
        # The settings of config/server.properties in Apache Kafka 3.9, without zookeeper.connect
        broker.id=0
        #listeners=PLAINTEXT://:9092
        num.network.threads=3
        num.io.threads=8
        socket.send.buffer.bytes=102400
        socket.receive.buffer.bytes=102400
        socket.request.max.bytes=104857600
        log.dirs=/tmp/kafka-logs
        num.partitions=1
        num.recovery.threads.per.data.dir=1
        offsets.topic.replication.factor=1
        transaction.state.log.replication.factor=1
        transaction.state.log.min.isr=1
        log.retention.hours=168
        log.retention.check.interval.ms=300000
        zookeeper.connection.timeout.ms=18000
        group.initial.rebalance.delay.ms=0
        """
    )
    assert config.broker_id == 0
    assert config.num_network_threads == 3
    assert config.unknown == []
    assert "num.io.threads" in config.inert
    assert "log.retention.hours" not in config.inert


def test_a_kraft_brokers_file_can_be_read_without_the_controllers_listener(config_of: ConfigOf) -> None:
    config = config_of(
        """
        process.roles=broker,controller
        node.id=1
        controller.quorum.voters=1@localhost:9093
        listeners=PLAINTEXT://:9092,CONTROLLER://:9093
        inter.broker.listener.name=PLAINTEXT
        advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
        controller.listener.names=CONTROLLER
        listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
        """
    )
    assert config.broker_id == 1
    assert [listener.name for listener in config.listeners] == ["PLAINTEXT"]
    assert config.advertised_listeners == (Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=3\nbroker.id=4\n")
    config = BrokerConfig.load(path, {"num.partitions": "5", "log.dirs": "/a,/b , /c"})
    assert config.num_partitions == 5
    assert config.broker_id == 4
    assert config.log_dirs == (Path("/a"), Path("/b"), Path("/c"))


def test_values_from_python_need_not_be_text() -> None:
    config = BrokerConfig({"num.partitions": 2, "auto.create.topics.enable": False, "log.dirs": ["/a", "/b"]})
    assert config.num_partitions == 2
    assert config.auto_create_topics_enable is False
    assert config.log_dirs == (Path("/a"), Path("/b"))
    assert config.static_values["auto.create.topics.enable"] == "false"


def test_the_two_names_of_the_brokers_number_are_one_setting(config_of: ConfigOf) -> None:
    assert BrokerConfig({"node.id": 3}).broker_id == 3
    assert BrokerConfig({"broker.id": 3})["node.id"] == 3
    with pytest.raises(ConfigError, match=r"^node\.id=4: must be the same as broker\.id, which is 3$"):
        BrokerConfig({"broker.id": 3, "node.id": 4})
    assert config_of("broker.id=1\nnode.id=1", {"broker.id": "2"}).broker_id == 2


def test_an_override_beats_the_other_names_of_what_it_sets(config_of: ConfigOf) -> None:
    config = config_of("log.retention.ms=1000", {"log.retention.hours": "2"})
    assert config.log_config.retention_ms == 2 * 3600 * 1000
    both = config_of("log.retention.ms=1000\nlog.retention.hours=2")
    assert both.log_config.retention_ms == 1000


def test_log_dir_stands_in_for_log_dirs() -> None:
    assert BrokerConfig({"log.dir": "/x"}).log_dirs == (Path("/x"),)
    assert BrokerConfig({"log.dir": "/x", "log.dirs": "/y"}).log_dirs == (Path("/y"),)


def test_log_directories_are_absolute_and_without_dots() -> None:
    assert BrokerConfig({"log.dirs": "a/../b,/c/../d"}).log_dirs == (Path.cwd() / "b", Path("/d"))


def test_unknown_settings_and_those_without_effect_are_named_once_each() -> None:
    config = BrokerConfig({"no.such": "1", "num.io.threads": "4", "listener.name.in.num.network.threads": "4"})
    assert config.warnings() == [
        "unknown settings, ignored: no.such",
        "settings without effect in this broker: listener.name.in.num.network.threads, num.io.threads",
    ]


def test_passwords_and_unknown_values_are_not_shown() -> None:
    config = BrokerConfig(
        {"ssl.key.password": "geheim", "my.password": "geheim", "listener.name.a.ssl.keystore.password": "geheim"}
    )
    assert "geheim" not in repr(config)
    assert config["ssl.key.password"] == "geheim"


@pytest.mark.parametrize(
    ("connect", "servers"),
    [
        ("one", [("one", 2181)]),
        ("one/kafka", [("one", 2181)]),
        ("one, two:2182 ,three/kafka", [("one", 2181), ("two", 2182), ("three", 2181)]),
        ("[::1],[::2]:2182/kafka", [("::1", 2181), ("::2", 2182)]),
    ],
)
def test_servers_of_zookeeper_without_a_port_have_port_2181(connect: str, servers: list[tuple[str, int]]) -> None:
    collect_hosts = pytest.importorskip("kazoo.hosts").collect_hosts
    settings = zookeeper_settings(BrokerConfig({"zookeeper.connect": connect}))
    assert collect_hosts(settings.servers + settings.chroot)[0] == servers


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num.network.threads": "0"}, r"num\.network\.threads=0: must be at least 1"),
        ({"num.partitions": "many"}, r"num\.partitions=many: must be a whole number of 32 bits"),
        ({"log.cleanup.policy": "shred"}, r"log\.cleanup\.policy=shred: must be one of compact, delete"),
        ({"zookeeper.connect": "one:2181,two:port"}, r"zookeeper\.connect=one:2181,two:port: must be HOST:PORT"),
        ({"zookeeper.connect": "one:65536"}, r"zookeeper\.connect=one:65536: must be HOST:PORT"),
        ({"zookeeper.connect": "::1:2181"}, r"zookeeper\.connect=::1:2181: must be HOST:PORT"),
        ({"zookeeper.connect": "one,,two"}, r"zookeeper\.connect=one,,two: must be HOST:PORT"),
        (
            {"zookeeper.connect": "one:2181", "zookeeper.set.acl": "true"},
            r"zookeeper\.set\.acl=true: needs an identity",
        ),
        (
            {
                "zookeeper.connect": "one:2181",
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.ssl.truststore.location": "/t.jks",
            },
            r"zookeeper\.ssl\.truststore\.location=/t\.jks: must be a PEM file",
        ),
        ({"zookeeper.connect": "one:2181/a//b"}, r"zookeeper\.connect=one:2181/a//b: must end in a path"),
        ({"process.roles": "controller"}, r"process\.roles=controller: must name the role broker"),
        ({"broker.id": "1001"}, r"broker\.id=1001: must be from -1 to reserved\.broker\.max\.id, which is 1000"),
        ({"broker.id.generation.enable": "false"}, r"broker\.id=-1: must be at least 0"),
        ({"log.dirs": ","}, r"log\.dirs=,: must name at least one directory"),
        ({"log.roll.ms": "0"}, r"log\.roll\.ms=0: must be at least 1"),
        ({"log.roll.jitter.ms": "-1"}, r"log\.roll\.jitter\.ms=-1: must be at least 0"),
        ({"log.retention.ms": "0"}, r"log\.retention\.ms=0: must be at least 1, or -1"),
        ({"log.flush.interval.ms": "-1"}, r"log\.flush\.interval\.ms=-1: must be at least 0"),
        ({"log.flush.scheduler.interval.ms": "-1"}, r"log\.flush\.scheduler\.interval\.ms=-1: must be at least 0"),
        ({"log.retention.hours": "0"}, r"log\.retention\.hours=0: must be at least 1"),
        (
            {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"},
            r"log\.cleaner\.min\.compaction\.lag\.ms=9: must be at most",
        ),
        ({"log.cleaner.dedupe.buffer.size": "1048576"}, r"log\.cleaner\.dedupe\.buffer\.size=1048576: must be over"),
        ({"listeners": ""}, r"listeners=: must have a listener"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, r"clients cannot connect to 0\.0\.0\.0"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, r"advertised\.listeners=.*clients cannot connect"),
        ({"advertised.listeners": "SSL://h:9092"}, r"advertised\.listeners=.*SSL is not in listeners"),
        ({"advertised.listeners": ""}, r"advertised\.listeners=: must have a listener"),
        ({"inter.broker.listener.name": "IN"}, r"inter\.broker\.listener\.name=IN: must be an advertised listener"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "must not be set together",
        ),
        ({"security.inter.broker.protocol": "TLS"}, r"security\.inter\.broker\.protocol=TLS: must be one of"),
        ({"replica.fetch.wait.max.ms": "30001"}, r"replica\.fetch\.wait\.max\.ms=30001: must be at most replica\.so"),
        ({"queued.max.request.bytes": "1000"}, r"queued\.max\.request\.bytes=1000: must be at least socket\.req"),
        ({"max.connections.per.ip": "0"}, r"max\.connections\.per\.ip=0: may be 0 only with"),
        ({"max.connections.per.ip.overrides": "x"}, r"max\.connections\.per\.ip\.overrides=x: must be a list"),
        ({"connections.max.idle.ms": "100"}, r"connection\.failed\.authentication\.delay\.ms=100: must be below"),
        ({"inter.broker.protocol.version": "9.0"}, r"inter\.broker\.protocol\.version=9\.0: must be a version"),
        (
            {"inter.broker.protocol.version": "0.10.2"},
            r"log\.message\.format\.version=3\.0-IV1: needs inter\.broker\.protocol\.version=0\.11\.0 or later, which",
        ),
        (
            {"inter.broker.protocol.version": "0.9.0", "log.message.format.version": "0.10.1"},
            r"log\.message\.format\.version=0\.10\.1: needs inter\.broker\.protocol\.version=0\.10\.0 or later",
        ),
        ({"kafkapy.metrics.listen": "9404"}, r"kafkapy\.metrics\.listen=9404: must be HOST:PORT"),
        ({"listener.name.in.ssl.enabled.protocols": "x", "controller.quorum.voters": "h:1"}, "must be a list of ID@"),
        ({"offsets.commit.required.acks": "4"}, r"offsets\.commit\.required\.acks=4: must be from -1 to"),
        (
            {"offsets.topic.compression.codec": "5"},
            r"offsets\.topic\.compression\.codec=5: must be one of 0 \(none\), 1",
        ),
    ],
)
def test_a_wrong_setting_is_refused_with_key_value_and_rule(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig(settings)


def test_limits_by_address_allow_a_general_limit_of_none() -> None:
    config = BrokerConfig({"max.connections.per.ip": 0, "max.connections.per.ip.overrides": "127.0.0.1:5"})
    assert config.max_connections_per_ip_overrides == {"127.0.0.1": 5}


def test_a_wildcard_address_needs_an_advertised_one() -> None:
    config = BrokerConfig(
        {"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised.listeners": "PLAINTEXT://broker.example:19092"}
    )
    assert config.advertised_listeners == (Listener("PLAINTEXT", "broker.example", 19092, "PLAINTEXT"),)


def test_several_plaintext_listeners_with_names_of_their_own() -> None:
    config = BrokerConfig(
        {
            "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "inter.broker.listener.name": "inside",
        }
    )
    assert [listener.name for listener in config.listeners] == ["INSIDE", "OUTSIDE"]
    assert config.inter_broker_listener == "INSIDE"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        BrokerConfig.load(tmp_path / "no.properties")
    path = tmp_path / "bad.properties"
    path.write_text("a=\\u1")
    with pytest.raises(PropertiesError, match=r"bad\.properties"):
        BrokerConfig.load(path)


def test_dynamic_settings_override_static_ones_and_a_brokers_own_override_the_clusters() -> None:
    static = BrokerConfig({"message.max.bytes": 1, "log.retention.ms": 5, "num.partitions": 4})
    config = static.with_dynamic({"message.max.bytes": "2", "log.roll.ms": "7"}, {"message.max.bytes": "3"})
    assert config.message_max_bytes == 3
    assert config.log_config.max_message_bytes == 3
    assert config.log_config.segment_ms == 7
    assert config.num_partitions == 4
    assert static.message_max_bytes == 1
    assert config.with_dynamic({}, {}).message_max_bytes == 1


def test_log_levels_are_those_of_logging() -> None:
    for level in ("DEBUG", "info", "Warning", "ERROR"):
        name = BrokerConfig({"kafkapy.log.level": level}).kafkapy_log_level
        assert isinstance(logging.getLevelName(name.upper()), int)


def test_an_ignored_message_format_is_warned_of_at_the_start() -> None:
    config = BrokerConfig({"log.message.format.version": "0.10.2"})
    assert config.log_config.record_magic == 2
    assert config.warnings() == [
        "log.message.format.version=0.10.2 is ignored: it cannot be chosen any more with "
        "inter.broker.protocol.version=3.9-IV0"
    ]
    old = BrokerConfig({"inter.broker.protocol.version": "2.8", "log.message.format.version": "0.10.2"})
    assert old.log_config.record_magic == 1
    assert old.warnings() == []
