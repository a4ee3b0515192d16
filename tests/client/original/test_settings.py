"""The settings under their names of 0.8 and of 0.7, and values that are refused."""

import logging

import pytest

from kafkapy.client.original.consuming.settings import consumer_settings
from kafkapy.runtime.config_def import ConfigError

LEAST = {"zookeeper.connect": "zk:2181/kafka", "group.id": "g"}


def test_the_names_of_0_8_and_0_7_mean_the_same_settings() -> None:
    new = {**LEAST, "auto.commit.interval.ms": "7", "fetch.message.max.bytes": "8", "rebalance.max.retries": "9"}
    old = {"zk.connect": "zk:2181/kafka", "groupid": "g", "autocommit.interval.ms": "7", "fetch.size": "8"}
    assert consumer_settings(new) == consumer_settings({**old, "rebalance.retries.max": "9"})


def test_defaults_are_those_of_kafka() -> None:
    settings = consumer_settings(LEAST)
    assert (settings.auto_offset_reset, settings.offsets_storage, settings.consumer_timeout_ms) == (
        "largest",
        "zookeeper",
        -1,
    )
    assert not settings.dual_commit
    assert consumer_settings({**LEAST, "offsets.storage": "kafka"}).dual_commit
    assert not consumer_settings({**LEAST, "offsets.storage": "kafka", "dual.commit.enabled": "false"}).dual_commit


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"group.id": ""}, "group.id="),
        ({"group.id": "a/b"}, "group.id=a/b"),
        ({"consumer.id": "a b"}, "consumer.id=a b"),
        ({"auto.offset.reset": "earliest"}, "auto.offset.reset=earliest: must be largest or smallest"),
        ({"offsets.storage": "disk"}, "offsets.storage=disk: must be zookeeper or kafka"),
        ({"partition.assignment.strategy": "sticky"}, "must be range or roundrobin"),
        ({"rebalance.max.retries": "0"}, "rebalance.max.retries=0"),
        ({"fetch.size": "2147483648"}, "fetch.size=2147483648: is too large: 2147483647 at most"),
        ({"consumer.timeout.ms": "99999999999"}, "consumer.timeout.ms=99999999999: is too large"),
        ({"consumer.timeout.ms": "-2"}, "consumer.timeout.ms=-2"),
        ({"fetch.size": "many"}, "fetch.size=many"),
        ({"fetch.size": "1", "fetch.message.max.bytes": "1"}, "is the old name of fetch.message.max.bytes"),
    ],
)
def test_an_unusable_setting_is_named_in_the_error(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        consumer_settings({**LEAST, **wrong})
    assert message in str(raised.value)


@pytest.mark.parametrize("missing", LEAST)
def test_missing_required_settings_are_named(missing: str) -> None:
    with pytest.raises(ConfigError, match=f"{missing}=null: must be set"):
        consumer_settings({name: value for name, value in LEAST.items() if name != missing})


def test_unknown_settings_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        consumer_settings({**LEAST, "num.consumer.fetchers": "2", "group.idd": "g"})
    assert [record.getMessage().split()[2] for record in caplog.records] == ["group.idd"]
