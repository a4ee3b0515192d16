"""DescribeConfigs shows values, sources and synonyms of topic and broker settings as Kafka does."""

from kafkapy.log.config import TOPIC_KEYS
from kafkapy.runtime.config_def import ConfigType
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.server.config.describe import (
    Entry,
    Source,
    Synonym,
    describe_broker,
    describe_broker_default,
    describe_topic,
)
from kafkapy.server.config.keys import BROKER_KEYS


def one(entries: list[Entry], name: str) -> Entry:
    return next(entry for entry in entries if entry.name == name)


def test_a_topics_value_has_every_place_it_could_come_from_strongest_first() -> None:
    config = BrokerConfig({"log.segment.bytes": "4000"})
    config = config.with_dynamic({"log.segment.bytes": "3000"}, {"log.segment.bytes": "2000"})
    (entry,) = describe_topic(config, {"segment.bytes": "1000"}, ["segment.bytes"])
    assert entry == Entry(
        name="segment.bytes",
        value="1000",
        source=Source.DYNAMIC_TOPIC,
        read_only=False,
        sensitive=False,
        synonyms=(
            Synonym("segment.bytes", "1000", Source.DYNAMIC_TOPIC),
            Synonym("log.segment.bytes", "2000", Source.DYNAMIC_BROKER),
            Synonym("log.segment.bytes", "3000", Source.DYNAMIC_DEFAULT_BROKER),
            Synonym("log.segment.bytes", "4000", Source.STATIC_BROKER),
            Synonym("log.segment.bytes", "1073741824", Source.DEFAULT),
        ),
        type=ConfigType.WIRE_CODES[ConfigType.INT],
        documentation=TOPIC_KEYS["segment.bytes"].doc,
    )


def test_a_topics_value_without_an_override_is_the_brokers() -> None:
    config = BrokerConfig({"compression.type": "lz4"})
    entry = one(describe_topic(config, {}), "compression.type")
    assert (entry.value, entry.source) == ("lz4", Source.STATIC_BROKER)


def test_all_topic_settings_are_shown_by_name_and_some_on_request() -> None:
    assert [entry.name for entry in describe_topic(BrokerConfig(), {})] == sorted(TOPIC_KEYS)
    assert [entry.name for entry in describe_topic(BrokerConfig(), {}, [])] == sorted(TOPIC_KEYS)
    assert [entry.name for entry in describe_topic(BrokerConfig(), {}, ["segment.ms", "no.such", "flush.ms"])] == [
        "flush.ms",
        "segment.ms",
    ]


def test_a_value_set_only_by_a_synonym_is_shown_without_synonyms_as_in_kafka() -> None:
    # Apache Kafka 3.9 shows retention.ms with DEFAULT_CONFIG and no synonyms when only log.retention.hours is set.
    entry = one(describe_topic(BrokerConfig({"log.retention.hours": "2"}), {}), "retention.ms")
    assert (entry.value, entry.source, entry.synonyms) == ("7200000", Source.DEFAULT, ())


def test_a_topic_setting_without_a_broker_setting_is_a_default() -> None:
    entry = one(describe_topic(BrokerConfig(), {}), "remote.storage.enable")
    assert (entry.value, entry.source, entry.synonyms) == ("false", Source.DEFAULT, ())


def test_values_are_written_as_kafka_writes_them() -> None:
    entries = describe_topic(BrokerConfig(), {"cleanup.policy": "compact , delete"})
    assert one(entries, "cleanup.policy").value == "compact,delete"
    assert one(entries, "min.cleanable.dirty.ratio").value == "0.5"
    assert one(entries, "preallocate").value == "false"
    broker = describe_broker(BrokerConfig())
    assert one(broker, "log.cleaner.io.max.bytes.per.second").value == "1.7976931348623157E308"
    assert one(broker, "log.dirs").value is None


def test_a_broker_shows_every_setting_that_is_not_internal() -> None:
    names = [entry.name for entry in describe_broker(BrokerConfig())]
    assert names == sorted(name for name, key in BROKER_KEYS.items() if not key.internal)
    shown = one(describe_broker(BrokerConfig({"log.initial.task.delay.ms": "5"})), "log.initial.task.delay.ms")
    assert (shown.value, shown.source) == ("5", Source.STATIC_BROKER)


def test_a_brokers_value_has_its_sources_synonyms_and_update_mode() -> None:
    config = BrokerConfig({"log.retention.hours": "5", "log.retention.ms": "7"})
    entries = describe_broker(config.with_dynamic({}, {"log.retention.ms": "9"}))
    entry = one(entries, "log.retention.ms")
    assert (entry.value, entry.source, entry.read_only) == ("9", Source.DYNAMIC_BROKER, False)
    assert entry.synonyms == (
        Synonym("log.retention.ms", "9", Source.DYNAMIC_BROKER),
        Synonym("log.retention.ms", "7", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "5", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    )
    assert one(entries, "num.partitions").read_only
    assert one(entries, "num.partitions").source == Source.DEFAULT
    assert one(entries, "listeners").read_only


def test_values_of_secrets_and_unknown_settings_are_hidden() -> None:
    config = BrokerConfig(
        {"ssl.key.password": "geheim", "my.own": "geheim", "listener.name.in.ssl.keystore.password": "geheim"}
    )
    entries = describe_broker(config)
    for name in ("ssl.key.password", "my.own", "listener.name.in.ssl.keystore.password"):
        entry = one(entries, name)
        assert entry.sensitive
        assert entry.value is None
    assert "geheim" not in str(entries)
    assert one(entries, "my.own").type == ConfigType.UNKNOWN_CODE
    assert one(entries, "my.own").documentation is None


def test_a_listeners_own_setting_is_described_with_the_general_one_behind_it() -> None:
    config = BrokerConfig({"listener.name.in.ssl.protocol": "TLSv1.2"})
    entry = one(describe_broker(config), "listener.name.in.ssl.protocol")
    assert entry.value == "TLSv1.2"
    assert entry.synonyms == (
        Synonym("listener.name.in.ssl.protocol", "TLSv1.2", Source.STATIC_BROKER),
        Synonym("ssl.protocol", "TLSv1.3", Source.DEFAULT),
    )


def test_the_clusters_settings_are_only_those_that_are_set() -> None:
    config = BrokerConfig({"message.max.bytes": "1"}).with_dynamic({"message.max.bytes": "2"}, {})
    (entry,) = describe_broker_default(config)
    assert (entry.value, entry.source) == ("2", Source.DYNAMIC_DEFAULT_BROKER)
    assert entry.synonyms == (Synonym("message.max.bytes", "2", Source.DYNAMIC_DEFAULT_BROKER),)
    assert describe_broker_default(BrokerConfig()) == []
