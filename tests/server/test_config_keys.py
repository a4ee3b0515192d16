"""The table of broker settings has the names, types, defaults, rules and update modes of Kafka 3.9.1."""

from pathlib import Path

import pytest

from kafkapy.server.config.keys import (
    BROKER_KEYS,
    DEFAULTS_HERE,
    READ_ONLY_HERE,
    key_of,
    listener_base,
    rivals,
    synonyms,
)

FACTS = Path(__file__).parents[1] / "data" / "configs" / "kafka-3.9.1.tsv"
# Kafka does not define these settings but passes them to the authorizer.
AUTHORIZERS = {"super.users", "allow.everyone.if.no.acl.found"}
NARROWER = {"replica.selector.class"}  # Kafka accepts every class, kafkapy two of Kafka's
KAFKA = {row[1]: row[2:] for row in (line.split("\t") for line in FACTS.read_text().splitlines()) if row[0] == "broker"}


def test_every_broker_setting_of_kafka_is_here_and_nothing_else_but_our_own() -> None:
    assert {name for name in BROKER_KEYS if not name.startswith("kafkapy.")} == {*KAFKA, *AUTHORIZERS}


@pytest.mark.parametrize("name", KAFKA)
def test_type_default_rule_importance_and_update_mode_are_kafkas(name: str) -> None:
    key = BROKER_KEYS[name]
    type, default, valid, importance, internal, mode = KAFKA[name]
    text = key.format(key.default)
    assert key.type == type
    if name in DEFAULTS_HERE:
        assert key.default == DEFAULTS_HERE[name]
    else:
        assert ("null" if text is None else f"={text}") == default
    if name not in NARROWER:
        assert str(key.validator or "") == valid
    assert key.importance == importance
    assert str(key.internal).lower() == internal
    assert key.mode == ("read-only" if name in READ_ONLY_HERE else mode)


@pytest.mark.parametrize("name", BROKER_KEYS)
def test_a_default_passes_its_own_rule_and_the_meaning_is_a_sentence(name: str) -> None:
    key = BROKER_KEYS[name]
    if key.default is not None:
        assert key.parse(key.format(key.default)) == key.default
    assert key.doc.endswith(".")
    assert len(key.doc) < 130


def test_differences_from_kafka_are_the_documented_ones() -> None:
    assert DEFAULTS_HERE == {
        "num.network.threads": 1,
        "replica.socket.receive.buffer.bytes": -1,
        "socket.listen.backlog.size": 4096,
        "socket.receive.buffer.bytes": -1,
        "socket.send.buffer.bytes": 204800,
    }


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("listener.name.internal.ssl.keystore.location", "ssl.keystore.location"),
        ("listener.name.internal.plain.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.internal", None),
        ("ssl.keystore.location", None),
    ],
)
def test_a_listener_has_settings_of_its_own(name: str, base: str | None) -> None:
    assert listener_base(name) == base
    if base is not None:
        assert key_of(name) is BROKER_KEYS[base]
        assert synonyms(name) == (name, base)


def test_synonyms_and_rivals_are_those_of_kafka() -> None:
    assert synonyms("log.retention.hours") == ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    assert synonyms("log.flush.interval.ms") == ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
    assert synonyms("num.partitions") == ("num.partitions",)
    assert rivals("log.roll.hours") == ("log.roll.ms", "log.roll.hours")
    assert rivals("log.flush.interval.ms") == ()


def test_an_unknown_name_has_no_definition() -> None:
    assert key_of("no.such.setting") is None
    assert key_of("listener.name.x.no.such.setting") is None
