"""How changes of topic and broker settings are applied, checked and refused."""

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.server.config.alter import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    broker_operations,
    check_broker,
    check_topic,
    is_one_broker,
    repeated,
    replaced,
    topic_operations,
)
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.server.config.dynamic_keys import _PER_LISTENER, problem, usable
from kafkapy.server.config.keys import BROKER_KEYS


def refused(code: int, call: object, *arguments: object, **keywords: object) -> str:
    with pytest.raises(KafkaError) as caught:
        call(*arguments, **keywords)  # type: ignore[operator]
    assert caught.value.code == code
    return caught.value.message


def test_set_and_delete() -> None:
    current = {"retention.ms": "1", "segment.ms": "2"}
    assert topic_operations(current, [("retention.ms", DELETE, None), ("flush.ms", SET, "3")]) == {
        "segment.ms": "2",
        "flush.ms": "3",
    }
    assert topic_operations({}, [("retention.ms", DELETE, "ignored")]) == {}
    assert current == {"retention.ms": "1", "segment.ms": "2"}


@pytest.mark.parametrize(
    ("current", "operation", "value", "result"),
    [
        ({}, APPEND, "compact", "delete,compact"),
        ({}, APPEND, "delete", "delete"),
        ({"cleanup.policy": "compact"}, APPEND, "delete, compact", "compact,delete"),
        ({"cleanup.policy": "compact,delete"}, SUBTRACT, "delete", "compact"),
        ({"cleanup.policy": "compact"}, SUBTRACT, "delete", "compact"),
        ({}, SUBTRACT, "delete", ""),
        ({"cleanup.policy": ""}, APPEND, "compact", "compact"),
    ],
)
def test_lists_are_edited_from_the_current_value_or_else_the_default(
    current: dict[str, str], operation: int, value: str, result: str
) -> None:
    assert topic_operations(current, [("cleanup.policy", operation, value)]) == {"cleanup.policy": result}


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_only_lists_can_be_edited(operation: int) -> None:
    assert "retention.ms" in refused(Errors.INVALID_CONFIG, topic_operations, {}, [("retention.ms", operation, "1")])
    refused(Errors.INVALID_CONFIG, topic_operations, {}, [("no.such", operation, "1")])
    refused(Errors.INVALID_CONFIG, broker_operations, {}, [("message.max.bytes", operation, "1")])


@pytest.mark.parametrize(
    "operations",
    [
        [("a", SET, "1"), ("a", DELETE, None)],
        [("a", SET, None)],
        [("a", APPEND, None)],
        [("a", 4, "1")],
        [("a", -1, "1")],
    ],
)
def test_a_request_that_contradicts_itself_is_refused(operations: list[tuple[str, int, str | None]]) -> None:
    refused(Errors.INVALID_REQUEST, topic_operations, {}, operations)
    refused(Errors.INVALID_REQUEST, broker_operations, {}, operations)


def test_replacement_takes_every_name_once_and_no_nulls() -> None:
    assert replaced([("a", "1"), ("b", "2")]) == {"a": "1", "b": "2"}
    refused(Errors.INVALID_REQUEST, replaced, [("a", "1"), ("a", "2")])
    assert "a" in refused(Errors.INVALID_REQUEST, replaced, [("a", None)])


def test_a_resource_may_be_there_once() -> None:
    assert repeated([(2, "t"), (4, "t"), (2, "u"), (2, "t")]) == {(2, "t")}


def test_a_broker_resource_is_this_broker_or_all() -> None:
    assert is_one_broker("", 3) is False
    assert is_one_broker("3", 3) is True
    refused(Errors.INVALID_REQUEST, is_one_broker, "4", 3)
    refused(Errors.INVALID_REQUEST, is_one_broker, "x", 3)


def test_topic_settings_are_checked_with_the_brokers_behind_them() -> None:
    config = BrokerConfig({"log.cleaner.max.compaction.lag.ms": "100"})
    assert check_topic(config, {"segment.bytes": "1000"}).segment_bytes == 1000
    for overrides in (
        {"segment.bytes": "1"},
        {"no.such": "1"},
        {"min.compaction.lag.ms": "101"},
        {"remote.storage.enable": "true"},
    ):
        message = refused(Errors.INVALID_CONFIG, check_topic, config, overrides)
        assert next(iter(overrides)) in message


def test_broker_settings_can_be_changed_where_kafka_can_change_them() -> None:
    config = BrokerConfig({"broker.id": 1})
    assert check_broker(config, {"message.max.bytes": "5"}, per_broker=True).message_max_bytes == 5
    new = check_broker(config, {"log.retention.ms": "5"}, per_broker=False)
    assert new.log_config.retention_ms == 5
    assert new.dynamic_default == {"log.retention.ms": "5"}
    check_broker(config, {"plugin.setting": "x"}, per_broker=True)
    check_broker(config, {"follower.replication.throttled.rate": "5"}, per_broker=True)
    check_broker(config, {"listener.name.in.ssl.keystore.type": "JKS"}, per_broker=True)
    check_broker(config, {"listener.name.in.max.connections": "5"}, per_broker=False)


@pytest.mark.parametrize(
    ("values", "per_broker"),
    [
        ({"num.partitions": "5"}, True),
        ({"num.partitions": "5"}, False),
        ({"listeners": "PLAINTEXT://:9093"}, True),
        ({"message.max.bytes": "x"}, True),
        ({"message.max.bytes": "-1"}, False),
        ({"ssl.keystore.location": "/k"}, True),
        ({"listener.name.in.ssl.keystore.location": "/k"}, False),
        ({"listener.name.in.ssl.keystore.password": "geheim"}, False),
        ({"sasl.enabled.mechanisms": "PLAIN"}, False),
        ({"background.threads": "21"}, True),
        ({"background.threads": "4"}, True),
        ({"follower.replication.throttled.rate": "-1"}, True),
        ({"log.retention.ms": "0"}, True),
    ],
)
def test_invalid_changes_of_broker_settings_are_refused(values: dict[str, str], per_broker: bool) -> None:
    message = refused(Errors.INVALID_REQUEST, check_broker, BrokerConfig(), values, per_broker=per_broker)
    (name,) = values
    assert message.startswith(f"{name}=")
    assert message.count(f"{name}=") == 1
    assert "geheim" not in message


def test_of_the_settings_of_tls_only_stores_change_while_the_broker_runs() -> None:
    names = [name for name in BROKER_KEYS if name.startswith("ssl.")]
    for_one_listener = {name: problem(f"listener.name.x.{name}", "1", per_broker=True) for name in names}
    fixed = {name for name, why in for_one_listener.items() if why == "cannot be changed while the broker runs"}
    assert {name for name in names if name not in fixed} == _PER_LISTENER  # as documented in docs/configuration.md
    assert all(problem(name, "1", per_broker=True) for name in names)


def test_thread_pools_change_by_half_or_double_at_most() -> None:
    config = BrokerConfig()
    assert check_broker(config, {"num.io.threads": "16"}, per_broker=True)["num.io.threads"] == 16
    assert check_broker(config, {"num.io.threads": "4"}, per_broker=True)["num.io.threads"] == 4


def test_usable_stored_settings_are_separated_from_unusable_ones() -> None:
    stored = {"message.max.bytes": "5", "num.partitions": "3", "log.retention.ms": "x"}
    good, bad = usable(stored, per_broker=True)
    assert good == {"message.max.bytes": "5"}
    assert bad == {
        "num.partitions": "cannot be changed while the broker runs",
        "log.retention.ms": "must be a whole number of 64 bits",
    }


def test_partitions_with_the_same_overrides_share_their_settings():
    config = BrokerConfig({"log.dirs": "/tmp"})
    one = check_topic(config, {"retention.ms": "5"})
    assert one.retention_ms == 5
    assert check_topic(config, {"retention.ms": "5"}) is one
    assert check_topic(config, {"retention.ms": "6"}).retention_ms == 6
    assert check_topic(config, {}) is config.log_config
    changed = BrokerConfig({"log.dirs": "/tmp", "log.segment.bytes": "1000"})
    assert check_topic(changed, {"retention.ms": "5"}).segment_bytes == 1000
