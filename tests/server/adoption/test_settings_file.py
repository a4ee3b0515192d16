"""Topic settings from a file: kafkapy's own forms, and the output of Kafka's tools of several releases."""

import json

import pytest

from kafkapy.server.adoption.settings_file import SettingsFileError, parse_settings

WANTED = {"plain": {}, "flights": {"cleanup.policy": "compact,delete", "retention.ms": "604800000"}}


def test_json():
    assert parse_settings(json.dumps(WANTED)) == WANTED


def test_json_numbers_booleans_and_lists_are_as_in_settings():
    text = '{"t": {"retention.ms": -1, "preallocate": true, "cleanup.policy": ["compact", "delete"]}}'
    assert parse_settings(text)["t"] == {
        "retention.ms": "-1",
        "preallocate": "true",
        "cleanup.policy": "compact,delete",
    }


def test_properties():
    text = "# settings\nplain/=\nflights/cleanup.policy=compact,delete\nflights/retention.ms: 604800000\n"
    assert parse_settings(text) == WANTED


def test_nothing_at_all():
    assert parse_settings("") == {}


def test_kafka_configs_of_3_9():
    text = """\
Dynamic configs for topic plain are:
Dynamic configs for topic flights are:
  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}
  retention.ms=604800000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=604800000}
"""  # noqa: E501
    assert parse_settings(text) == WANTED


def test_kafka_configs_with_all_takes_what_the_topic_has_of_its_own():
    text = """\
All configs for topic plain are:
  compression.lz4.level=9 sensitive=false synonyms={DEFAULT_CONFIG:compression.lz4.level=9}
  compression.type=producer sensitive=false synonyms={DEFAULT_CONFIG:compression.type=producer}
  retention.ms=3600000 sensitive=false synonyms={STATIC_BROKER_CONFIG:log.retention.ms=3600000}
All configs for topic flights are:
  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete}
  preallocate=false sensitive=false synonyms={}
  retention.ms=604800000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=604800000}
"""
    assert parse_settings(text) == WANTED


def test_kafka_configs_of_brokers_is_passed_over():
    text = """\
Dynamic configs for broker 1 are:
  log.retention.ms=5 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.retention.ms=5}
Default configs for brokers in the cluster are:
  log.retention.ms=5 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=5}
Dynamic configs for topic plain are:
"""
    assert parse_settings(text) == {"plain": {}}


@pytest.mark.parametrize("head", ["Configs for topic 'flights' are", "Configs for topic:flights are"])
def test_kafka_configs_of_older_releases(head):
    text = f"{head} cleanup.policy=compact,delete,retention.ms=604800000\nConfigs for topic 'plain' are \n"
    assert parse_settings(text) == WANTED


def test_kafka_topics():
    text = (
        "Topic: plain\tTopicId: AAAAAAAAAAAAAAAAAAAAAQ\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: \n"
        "\tTopic: plain\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: \n"
        "Topic: levels\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: a.b=1,compression.lz4.level=9\n"
        "Topic:flights\tPartitionCount:2\tReplicationFactor:1\t"
        "Configs:cleanup.policy=compact,delete,retention.ms=604800000\n"
        "\tTopic: flights\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\n"
    )
    assert parse_settings(text) == {**WANTED, "levels": {"a.b": "1", "compression.lz4.level": "9"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"t": ', "not JSON"),
        ('{"t": 5}', "t has 5 where"),
        ("retention.ms=5", "'retention.ms' is not TOPIC/KEY"),
        ("Dynamic configs for topic t are:\nwhat is this", "what is this"),
    ],
)
def test_text_in_none_of_the_known_forms_is_refused_with_the_reason(text, message):
    with pytest.raises(SettingsFileError, match=message):
        parse_settings(text)
