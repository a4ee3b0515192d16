"""Settings that change while the broker runs."""

import json

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.producers.producer_state import BatchNote, ProducerEntry
from kafkapy.metadata import paths
from kafkapy.metadata.configs import encode_settings
from kafkapy.metadata.tree import Create, Set
from kafkapy.network.settings import UNLIMITED
from kafkapy.protocol.apis import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from kafkapy.server.config.alter import DELETE, SET, broker_operations, topic_operations
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.server.config.dynamic_keys import fitting
from tests.harness.raw import Connection, values
from tests.harness.wire import Wire
from tests.server.requests import start_broker


def test_dynamic_settings_apply_again_after_a_restart(tmp_path):
    server = start_broker(tmp_path, broker_id=0)
    server.services.dynamic_config.alter(
        lambda _: {"max.connections": "3", "log.segment.bytes": "5000"}, per_broker=False, validate_only=False
    )
    assert server._network.limits._most == 3
    server.stop()
    server = start_broker(tmp_path, broker_id=0)
    assert server._network.limits._most == 3
    assert server.services.log_manager.defaults.segment_bytes == 5000
    server.stop()


def test_limits_of_connections_can_be_changed_for_one_listener(tmp_path):
    server = start_broker(tmp_path, broker_id=0, **{"listener.name.plaintext.max.connections": 7})
    try:
        limits = server._network.limits
        assert limits._per_listener == {"PLAINTEXT": 7}
        set_for_all(
            server,
            {
                "max.connections": "9",
                "max.connection.creation.rate": "50",
                "listener.name.plaintext.max.connection.creation.rate": "20",
                "max.connections.per.ip": "5",
                "max.connections.per.ip.overrides": "no.such.host.invalid:1,127.0.0.1:6",
            },
        )
        assert (limits._most, limits._per_listener) == (9, {"PLAINTEXT": 7})
        assert (limits.rates._limit, limits.rates._per_listener) == (50, {"PLAINTEXT": 20})
        assert (limits.limit_of("127.0.0.1"), limits.limit_of("127.0.0.2")) == (6, 5)
        for name in ("max.connections", "listener.name.plaintext.max.connection.creation.rate"):
            with pytest.raises(KafkaError, match="must be at least 1 while the broker runs"):
                set_for_all(server, {name: "0"})
        set_for_all(server, {})
        assert limits.rates._limit == limits.rates._per_listener["PLAINTEXT"] == UNLIMITED
    finally:
        server.stop()


def test_the_time_after_which_producers_are_forgotten_can_be_changed(tmp_path):
    server = start_broker(tmp_path, broker_id=0)
    try:
        server.services.controller.create("t", partitions=1)
        log = server.services.replicas.get("t", 0).log
        before = server.services.clock.time_ms() - 60_000
        log.producers.put(ProducerEntry(7, 0, -1, before, -1, [BatchNote(0, 0, 0, before)]))
        log.expire_producers()
        assert 7 in log.producers.producers
        set_for_all(server, {"producer.id.expiration.ms": "1000"})
        log.expire_producers()
        assert 7 not in log.producers.producers
    finally:
        server.stop()
    server = start_broker(tmp_path, broker_id=0)
    try:
        assert server.wait_until_loaded(30)
        assert server.services.replicas.get("t", 0).log.producers.expiration_ms == 1000
    finally:
        server.stop()


OFF = {"transaction.partition.verification.enable": "false"}
TIGHT = {"log.cleaner.max.compaction.lag.ms": "50"}  # below the min.compaction.lag.ms of the topic "lag"


def with_a_lag(tmp_path):
    """Start a broker with the topics "lag", whose min.compaction.lag.ms is 100, and "zz", which comes after "lag"."""
    server = start_broker(tmp_path, broker_id=0)
    server.services.controller.create("lag", partitions=1, overrides={"min.compaction.lag.ms": "100"})
    server.services.controller.create("zz", partitions=1)
    return server


def set_for_all(server, values):
    server.services.dynamic_config.alter(lambda _: values, per_broker=False, validate_only=False)


def store_for_topic(server, topic, overrides):
    """Store settings without a check, as a tool that writes into ZooKeeper does."""
    server.services.configs.alter_topic(topic, lambda _: overrides)


def read_late(server, path, monkeypatch):
    """Keep the present node at `path` in the memory of the broker's tree, as a tree in ZooKeeper does until a watch has
    fired. Return a function that returns the stored settings."""
    tree, find = server._tree, server._tree.find
    kept = find(path)
    monkeypatch.setattr(tree, "find", lambda wanted: kept if wanted == path else find(wanted))
    monkeypatch.setattr(tree, "read_through", lambda wanted, done: done([find(one) for one in wanted], None))
    return lambda: json.loads(find(path).data)["config"]


def test_a_topic_s_setting_that_another_broker_has_just_changed_is_kept(tmp_path, monkeypatch):
    server = with_a_lag(tmp_path)
    try:
        path = paths.config("topics", "zz")
        stored = read_late(server, path, monkeypatch)
        server._tree.commit([Set(path, encode_settings({"retention.ms": "77"}))])

        def alter(name, value, validate_only=False):
            server.services.topic_settings.alter(
                "zz", lambda now: topic_operations(now, [(name, SET, value)]), validate_only=validate_only
            )

        alter("flush.ms", "66", validate_only=True)
        assert stored() == {"retention.ms": "77"}
        alter("segment.ms", "88")
        assert stored() == {"retention.ms": "77", "segment.ms": "88"}
        config = server.services.replicas.config_of("zz", 0)
        assert (config.retention_ms, config.segment_ms) == (77, 88)
        server.services.topic_settings.alter("zz", lambda _: {"flush.ms": "5"}, validate_only=False)  # AlterConfigs
        assert stored() == {"flush.ms": "5"}
    finally:
        server.stop()


@pytest.mark.parametrize("per_broker", [True, False])
def test_a_dynamic_setting_that_another_program_has_just_changed_is_kept(tmp_path, monkeypatch, per_broker):
    server = start_broker(tmp_path, broker_id=0)
    try:
        path = paths.config("brokers", "0" if per_broker else "<default>")
        stored = read_late(server, path, monkeypatch)
        server._tree.commit([Create(path, encode_settings({"message.max.bytes": "5000"}))])

        def alter(name, value, validate_only=False):
            server.services.dynamic_config.alter(
                lambda now: broker_operations(now, [(name, SET, value)]),
                per_broker=per_broker,
                validate_only=validate_only,
            )

        alter("log.flush.interval.ms", "66", validate_only=True)
        assert stored() == {"message.max.bytes": "5000"}
        alter("log.retention.ms", "88")
        assert stored() == {"message.max.bytes": "5000", "log.retention.ms": "88"}
    finally:
        server.stop()


def test_a_rule_between_settings_does_not_refuse_a_topic_that_exists(tmp_path):
    server = with_a_lag(tmp_path)
    try:
        set_for_all(server, TIGHT)
        assert server.services.replicas.config_of("lag", 0).max_compaction_lag_ms == 50
        set_for_all(server, {**TIGHT, "message.max.bytes": "5000"})
        assert server.services.replicas.config_of("zz", 0).max_message_bytes == 5000
        with pytest.raises(KafkaError, match=r"min\.compaction\.lag\.ms=100: must be at most") as refused:
            server.services.topic_settings.alter(
                "lag", lambda current: {**current, "flush.ms": "1"}, validate_only=False
            )
        assert refused.value.code == Errors.INVALID_CONFIG
        server.services.controller.add_partitions("lag", 2, None, validate_only=False)
    finally:
        server.stop()
    server = start_broker(tmp_path, broker_id=0)
    try:
        assert all(server.services.replicas.holds("lag", index) for index in (0, 1))
        assert server.services.replicas.config_of("lag", 0).max_compaction_lag_ms == 50
    finally:
        server.stop()


def test_one_topic_with_bad_settings_does_not_keep_a_change_from_the_others(tmp_path, caplog):
    server = with_a_lag(tmp_path)
    try:
        store_for_topic(server, "lag", {"segment.bytes": "none"})
        set_for_all(server, {"message.max.bytes": "5000", "max.connections": "7", **OFF})
        assert server.services.replicas.config_of("lag", 0).max_message_bytes != 5000
        assert server.services.replicas.config_of("zz", 0).max_message_bytes == 5000
        assert server._network.limits._most == 7
        assert not server.services.replicas.get("zz", 0).log.verifies_transactions
        assert "topic lag" in caplog.text
        assert "segment.bytes=none" in caplog.text
    finally:
        server.stop()


@pytest.mark.parametrize("clean", [True, False])
def test_a_topic_with_bad_settings_is_served_again_as_soon_as_they_are_corrected(tmp_path, clean):
    server = with_a_lag(tmp_path)
    with Connection(server.bootstrap_servers) as wire:
        assert wire.produce("lag", 0, values(b"a", b"b"), version=7) == (Errors.NONE, 0)
    store_for_topic(server, "lag", {"segment.bytes": "none", "retention.ms": "-1"})
    server._stop(clean=clean)
    server = start_broker(tmp_path, broker_id=0)
    try:
        assert server.wait_until_loaded(30)
        with pytest.raises(KafkaError, match=r"segment\.bytes=none"):
            server.services.replicas.get("lag", 0)
        server.services.topic_settings.alter("lag", lambda now: now | {"segment.bytes": "10000"}, validate_only=False)
        with Connection(server.bootstrap_servers) as wire:
            assert wire.produce("lag", 0, values(b"c"), version=7) == (Errors.NONE, 2)
        config = server.services.replicas.config_of("lag", 0)
        assert (config.segment_bytes, config.retention_ms) == (10000, -1)
    finally:
        server.stop()
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_topic_with_bad_settings_is_described_as_an_error(tmp_path):
    server = with_a_lag(tmp_path)
    try:
        store_for_topic(server, "lag", {"segment.bytes": "none"})
        wire = Wire(server.bootstrap_servers)
        make = DESCRIBE_CONFIGS.Request
        request = make(resources=[make.Resources(resource_type=2, resource_name=name) for name in ("lag", "zz")])
        lag, other = wire.call(DESCRIBE_CONFIGS, 4, request).results
        assert (lag.error_code, other.error_code) == (Errors.INVALID_CONFIG, Errors.NONE)
        assert "segment.bytes=none" in lag.error_message
        wire.close()
    finally:
        server.stop()


def test_settings_that_no_topic_has_are_left_alone_where_they_are_stored(tmp_path):
    server = with_a_lag(tmp_path)
    store_for_topic(server, "lag", {"of.a.newer.kafka": "1", "flush.ms": "5"})
    server.stop()
    server = start_broker(tmp_path, broker_id=0)
    try:
        config = server.services.replicas.config_of("lag", 0)
        assert config.flush_ms == 5
        assert "flush.ms=5" in repr(config)
        with pytest.raises(KafkaError, match=r"of\.a\.newer\.kafka"):
            server.services.topic_settings.alter("lag", lambda current: current, validate_only=False)
    finally:
        server.stop()


def test_a_topic_with_bad_settings_gets_no_partitions_in_the_tree_either(tmp_path):
    server = with_a_lag(tmp_path)
    try:
        store_for_topic(server, "lag", {"segment.bytes": "none"})
        with pytest.raises(KafkaError, match=r"segment\.bytes=none"):
            server.services.controller.add_partitions("lag", 2, None, validate_only=False)
        assert list(server.services.topics.get("lag").assignment) == [0]
        assert list(server.services.topics.read("lag").assignment) == [0]
    finally:
        server.stop()


@pytest.mark.parametrize("per_broker", [True, False])
def test_a_stored_setting_that_is_ignored_does_not_keep_others_from_being_changed(tmp_path, per_broker):
    server = start_broker(tmp_path, broker_id=0)
    configs = server.services.configs
    stored = {"log.retention.ms": "x", "listener.name.in.ssl.keystore.password": "ciphertext", "message.max.bytes": "5"}
    if per_broker:
        configs.alter_broker(0, lambda _: stored)
    else:
        configs.alter_broker_default(lambda _: stored)
    server.stop()
    server = start_broker(tmp_path, broker_id=0)
    services = server.services

    def alter(*operations):
        services.dynamic_config.alter(
            lambda current: broker_operations(current, operations), per_broker=per_broker, validate_only=False
        )
        return services.configs.broker(0) if per_broker else services.configs.broker_default()

    try:
        assert services.config.message_max_bytes == 5
        stored["message.max.bytes"] = "6"
        assert alter(("message.max.bytes", SET, "6")) == stored
        assert services.config.message_max_bytes == 6
        with pytest.raises(KafkaError, match=r"log\.retention\.ms=x: must be"):
            alter(("log.retention.ms", SET, "x"))
        stored["log.retention.ms"] = "7"
        assert alter(("log.retention.ms", SET, "7")) == stored
        assert services.config.log_config.retention_ms == 7
        del stored["listener.name.in.ssl.keystore.password"]
        assert alter(("listener.name.in.ssl.keystore.password", DELETE, None)) == stored
    finally:
        server.stop()


def test_a_stored_setting_that_clashes_is_ignored_alone(tmp_path, caplog):
    server = start_broker(tmp_path, broker_id=0)
    stored = {"log.cleaner.max.compaction.lag.ms": "50", "message.max.bytes": "5000"}
    set_for_all(server, stored)
    server.stop()
    server = start_broker(tmp_path, broker_id=0, log_cleaner_min_compaction_lag_ms=100)
    try:
        assert "log.cleaner.min.compaction.lag.ms=100: must be at most" in caplog.text
        assert server.services.config.dynamic_default == {"message.max.bytes": "5000"}

        def alter(*operations, validate_only=False):
            server.services.dynamic_config.alter(
                lambda now: broker_operations(now, operations), per_broker=False, validate_only=validate_only
            )
            return server.services.configs.broker_default()

        stored["message.max.bytes"] = "6000"
        assert alter(("message.max.bytes", SET, "6000")) == stored
        assert server.services.config.message_max_bytes == 6000
        with pytest.raises(KafkaError, match=r"compaction\.lag\.ms"):
            alter(("log.cleaner.max.compaction.lag.ms", SET, "60"))
        # with this change the stored setting is valid again, and applies
        stored["log.cleaner.min.compaction.lag.ms"] = "10"
        assert alter(("log.cleaner.min.compaction.lag.ms", SET, "10")) == stored
        assert server.services.config.log_config.max_compaction_lag_ms == 50
        stored["log.cleaner.max.compaction.lag.ms"] = "70"
        assert alter(("log.cleaner.max.compaction.lag.ms", SET, "70")) == stored
    finally:
        server.stop()


def test_stored_settings_that_are_valid_only_together_apply_in_any_order():
    config = BrokerConfig({"log.cleaner.min.compaction.lag.ms": "100"})
    both = {"log.cleaner.max.compaction.lag.ms": "50", "log.cleaner.min.compaction.lag.ms": "10"}
    bad = {"queued.max.request.bytes": "1", "log.retention.ms": "x"}
    fits, errors = fitting(config, {"log.cleaner.max.compaction.lag.ms": "5", "message.max.bytes": "7"}, both | bad)
    assert fits.dynamic_broker == both
    assert fits.message_max_bytes == 7
    assert fits.log_config.max_compaction_lag_ms == 50
    assert sorted(errors) == ["log.retention.ms", "queued.max.request.bytes"]


def test_the_message_of_a_refused_change_names_the_setting_once(tmp_path):
    server = start_broker(tmp_path, broker_id=0)
    try:
        wire = Wire(server.bootstrap_servers)
        make = INCREMENTAL_ALTER_CONFIGS.Request
        change = make.Resources.Configs(name="log.retention.ms", config_operation=SET, value="abc")
        request = make(resources=[make.Resources(resource_type=4, resource_name="0", configs=[change])])
        (answer,) = wire.call(INCREMENTAL_ALTER_CONFIGS, 1, request).responses
        assert answer.error_code == Errors.INVALID_REQUEST
        assert answer.error_message == "log.retention.ms=abc: must be a whole number of 64 bits"
        wire.close()
    finally:
        server.stop()


def test_a_value_that_may_be_a_password_is_not_logged(tmp_path, caplog):
    caplog.set_level("DEBUG")
    server = start_broker(tmp_path, broker_id=0)
    try:
        set_for_all(server, {"plugin.secret": "xyzzy", "message.max.bytes": "5000"})
        assert server.services.config.dynamic_default["plugin.secret"] == "xyzzy"
        assert "'plugin.secret': '[hidden]', 'message.max.bytes': '5000'" in caplog.text
        assert "xyzzy" not in caplog.text
    finally:
        server.stop()
