"""Topic settings: their defaults and rules, the settings of the broker behind them, and overrides that are refused."""

from pathlib import Path

import pytest

from kafkapy.log.config import LONG_MAX, TOPIC_KEYS, TOPIC_SYNONYMS, LogConfig, check_overrides
from kafkapy.log.versions import metadata_version
from kafkapy.runtime.config_def import ConfigError

FACTS = Path(__file__).parents[1] / "data" / "configs" / "kafka-3.9.1.tsv"


def test_every_topic_setting_of_kafka_is_here_with_its_type_default_rule_and_importance() -> None:
    rows = [line.split("\t") for line in FACTS.read_text().splitlines() if line.startswith("topic\t")]
    expected = {row[1]: tuple(row[2:6]) for row in rows}
    ours = {
        name: (key.type, f"={key.format(key.default)}", str(key.validator or ""), key.importance)
        for name, key in TOPIC_KEYS.items()
    }
    assert ours == expected


def test_every_key_has_a_sentence_and_an_attribute() -> None:
    config = LogConfig()
    for name, key in TOPIC_KEYS.items():
        assert key.doc.endswith(".")
        assert hasattr(config, name.replace(".", "_"))


def test_defaults_of_the_keys_pass_their_own_rules() -> None:
    for key in TOPIC_KEYS.values():
        assert key.parse(key.format(key.default)) == key.default


def test_overrides_replace_the_broker_settings() -> None:
    broker = LogConfig.from_broker({"log.segment.bytes": 5000, "log.retention.ms": 77})
    config = LogConfig.from_overrides(broker, {"segment.bytes": "1000", "cleanup.policy": "compact, delete"})
    assert config.segment_bytes == 1000
    assert config.retention_ms == 77
    assert config.cleanup_policy == {"compact", "delete"}
    assert config.compact
    assert config.delete
    assert config.overridden == {"segment.bytes", "cleanup.policy"}
    assert broker.segment_bytes == 5000


def test_a_topic_without_overrides_shares_the_broker_settings() -> None:
    broker = LogConfig()
    assert LogConfig.from_overrides(broker, {}) is broker


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"log.retention.ms": 5, "log.retention.minutes": 7, "log.retention.hours": 9}, 5),
        ({"log.retention.ms": None, "log.retention.minutes": 7, "log.retention.hours": 9}, 7 * 60_000),
        ({"log.retention.hours": 9}, 9 * 3_600_000),
        ({"log.retention.hours": -1}, -1),
        ({"log.retention.ms": -5}, -1),
    ],
)
def test_retention_falls_back_from_ms_to_minutes_to_hours(values: dict[str, int], expected: int) -> None:
    assert LogConfig.from_broker(values).retention_ms == expected


def test_flush_interval_falls_back_to_the_scheduler_interval() -> None:
    assert LogConfig.from_broker({"log.flush.scheduler.interval.ms": 900}).flush_ms == 900


def test_every_synonym_belongs_to_a_topic_setting() -> None:
    without = {name for name in TOPIC_KEYS if name not in TOPIC_SYNONYMS}
    assert without == {  # LogConfig.CONFIGS_WITH_NO_SERVER_DEFAULTS
        "remote.storage.enable",
        "remote.log.delete.on.disable",
        "remote.log.copy.disable",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }
    assert set(TOPIC_SYNONYMS) < set(TOPIC_KEYS)


def test_the_deprecated_timestamp_difference_applies_if_the_newer_limits_are_not_set() -> None:
    config = LogConfig.from_overrides(LogConfig(), {"message.timestamp.difference.max.ms": "10"})
    assert (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == (10, 10)
    config = LogConfig.from_overrides(
        LogConfig(), {"message.timestamp.difference.max.ms": "10", "message.timestamp.after.max.ms": "3"}
    )
    assert (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == (10, 3)
    assert LogConfig().message_timestamp_after_max_ms == LONG_MAX


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("segment.bytes", "13"),
        ("cleanup.policy", "shred"),
        ("retention.ms", "-2"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("compression.type", "brotli"),
        ("compression.gzip.level", "0"),
        ("message.timestamp.type", "createtime"),
        ("leader.replication.throttled.replicas", "0:1,x"),
        ("message.format.version", "9.9"),
        ("remote.storage.enable", "true"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LogConfig.from_overrides(LogConfig(), {key: value})
    assert str(caught.value).startswith(f"{key}={value}: ")


def test_compaction_lags_must_not_cross() -> None:
    with pytest.raises(ConfigError, match=r"^min\.compaction\.lag\.ms=10: must be at most"):
        check_overrides(LogConfig(), {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"})


def test_rules_between_settings_are_not_for_a_topic_that_exists() -> None:
    config = LogConfig.from_overrides(LogConfig(), {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"})
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (10, 9)


def test_a_name_that_no_setting_has_is_refused_when_it_is_set_and_ignored_where_it_is_stored() -> None:
    overrides = {"no.such.key": "1", "flush.ms": "5"}
    with pytest.raises(ConfigError, match=r"^no\.such\.key=1: is not a topic setting"):
        check_overrides(LogConfig(), overrides)
    config = LogConfig.from_overrides(LogConfig(), overrides)
    assert config.overridden == {"flush.ms"}
    assert repr(config) == "LogConfig(flush.ms=5)"


def test_throttled_replicas_take_a_star_or_pairs() -> None:
    for value in ("*", "0:1,1:2", ""):
        LogConfig.from_overrides(LogConfig(), {"leader.replication.throttled.replicas": value})


def test_a_compacted_log_rolls_before_its_compaction_lag_ends() -> None:
    config = LogConfig.from_overrides(LogConfig(), {"cleanup.policy": "compact", "max.compaction.lag.ms": "500"})
    assert config.max_segment_ms == 500
    assert LogConfig.from_overrides(LogConfig(), {"max.compaction.lag.ms": "500"}).max_segment_ms == 604_800_000


def test_jitter_stays_below_the_smaller_of_jitter_and_segment_age() -> None:
    config = LogConfig.from_overrides(LogConfig(), {"segment.jitter.ms": "50", "segment.ms": "10"})
    assert {config.random_segment_jitter() for _ in range(200)} <= set(range(10))
    assert LogConfig().random_segment_jitter() == 0


def test_the_level_belongs_to_the_codec() -> None:
    assert LogConfig().compression_level is None
    config = LogConfig.from_overrides(LogConfig(), {"compression.type": "zstd", "compression.zstd.level": "7"})
    assert config.compression_level == 7


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("3.9", "3.9-IV0"),
        ("3.9.1", "3.9-IV0"),
        ("3.0", "3.0-IV1"),
        ("3.0-IV0", "3.0-IV0"),
        ("0.10.2.1", "0.10.2-IV0"),
        ("0.8.2.2", "0.8.2"),
        ("0.10", None),
        ("", None),
        ("5.0", None),
    ],
)
def test_short_versions_mean_the_newest_of_their_line(short: str, full: str | None) -> None:
    assert metadata_version(short) == full


@pytest.mark.parametrize(
    ("protocol", "version", "magic"),
    [
        ("2.8", "0.8.2", 0),
        ("2.8", "0.9.0", 0),
        ("2.8", "0.9.0.1", 0),
        ("2.8", "0.10.0-IV0", 1),
        ("2.8-IV0", "0.10.2.2", 1),
        ("2.8", "0.11.0", 2),
        ("3.0-IV0", "0.10.2", 1),
        ("3.0-IV1", "0.10.2", 2),
        ("3.0", "0.8.2", 2),
        ("3.9", "0.8.2", 2),
    ],
)
def test_the_message_format_can_be_chosen_before_protocol_version_3_0(protocol: str, version: str, magic: int) -> None:
    broker = LogConfig.from_broker({"inter.broker.protocol.version": protocol, "log.message.format.version": "2.0"})
    config = LogConfig.from_overrides(broker, {"message.format.version": version})
    assert config.record_magic == magic
    assert config.message_format_version == version  # as DescribeConfigs shows it, whether it counts or not


def test_the_brokers_message_format_applies_to_topics_without_their_own() -> None:
    broker = LogConfig.from_broker(
        {"inter.broker.protocol.version": "2.8", "log.message.format.version": "0.10.2", "log.segment.bytes": 100}
    )
    assert (broker.record_magic, broker.message_format_version) == (1, "0.10.2-IV0")
    assert LogConfig.from_overrides(broker, {"segment.bytes": "50"}).record_magic == 1
    newer = LogConfig.from_broker({"inter.broker.protocol.version": "3.0", "log.message.format.version": "0.10.2"})
    assert (newer.record_magic, newer.message_format_version) == (2, "3.0-IV1")


def test_an_ignored_message_format_is_warned_of() -> None:
    broker = LogConfig.from_broker({"inter.broker.protocol.version": "0.10.2", "log.message.format.version": "0.9.0"})
    newer = LogConfig.from_overrides(broker, {"message.format.version": "1.0"})
    assert newer.record_magic == 0  # the broker's
    assert newer.format_ignored() == (
        "message.format.version=1.0 is ignored: it is newer than inter.broker.protocol.version=0.10.2-IV0"
    )
    latest = LogConfig.from_overrides(LogConfig(), {"message.format.version": "0.9.0"})
    assert "cannot be chosen any more with inter.broker.protocol.version=3.9-IV0" in (latest.format_ignored() or "")
    for silent in ({"message.format.version": "2.0"}, {"segment.bytes": "100"}):
        assert LogConfig.from_overrides(LogConfig(), silent).format_ignored() is None


def test_zstd_needs_brokers_of_2_1() -> None:
    assert LogConfig().stores_zstd
    assert LogConfig.from_broker({"inter.broker.protocol.version": "2.1-IV0"}).stores_zstd
    assert not LogConfig.from_broker({"inter.broker.protocol.version": "2.0"}).stores_zstd
