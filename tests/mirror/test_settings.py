"""The settings that a mirror reads from properties files."""

import pytest

from kafkapy.mirror.properties import BadProperty
from kafkapy.mirror.source_settings import GroupSource, ZooKeeperSource, read_source
from kafkapy.mirror.target_settings import read_target

GROUP = {"bootstrap.servers": "127.0.0.1:9092", "group.id": "g"}
ZOOKEEPER = {"zookeeper.connect": "127.0.0.1:2181/chroot", "group.id": "g"}


def test_by_default_a_source_begins_at_the_earliest_record_and_reads_committed():
    source = read_source(GROUP)
    assert isinstance(source, GroupSource)
    assert (source.auto_offset_reset, source.isolation) == ("earliest", "read_committed")
    given = {"auto.offset.reset": "latest", "isolation.level": "read_uncommitted", "max.poll.interval.ms": "1500"}
    source = read_source({**GROUP, **given})
    assert isinstance(source, GroupSource)
    assert (source.auto_offset_reset, source.isolation) == ("latest", "read_uncommitted")
    assert source.max_poll_interval_s == 1.5


def test_assignors_can_be_named_by_kafkas_classes_or_by_their_names():
    java = "org.apache.kafka.clients.consumer.RoundRobinAssignor, sticky"
    source = read_source({**GROUP, "partition.assignment.strategy": java})
    assert isinstance(source, GroupSource)
    assert source.assignors == ("roundrobin", "sticky")


def test_zookeeper_connect_makes_the_source_a_member_in_zookeeper_without_auto_commit():
    source = read_source({"zk.connect": "127.0.0.1:2181", "groupid": "g", "fetch.size": "1000"})
    assert isinstance(source, ZooKeeperSource)
    settings = source.settings
    assert (settings.auto_offset_reset, settings.auto_commit_enable) == ("smallest", False)
    assert settings.fetch_message_max_bytes == 1000
    largest = read_source({**ZOOKEEPER, "auto.offset.reset": "largest"})
    assert isinstance(largest, ZooKeeperSource)
    assert largest.settings.auto_offset_reset == "largest"


def test_tls_settings_for_zookeeper_are_passed_to_the_connector():
    source = read_source({**ZOOKEEPER, "zookeeper.ssl.client.enable": "false"})
    assert isinstance(source, ZooKeeperSource)
    assert source.properties["zookeeper.ssl.client.enable"] == "false"


def test_each_stream_has_its_own_id_if_a_client_id_is_given():
    source = read_source({**GROUP, "group.instance.id": "i"})
    assert isinstance(source, GroupSource)
    assert source.of_stream(1, 2).instance_id == "i-1"
    assert source.of_stream(0, 1).instance_id == "i"
    old = read_source({**ZOOKEEPER, "consumerid": "c"})
    assert isinstance(old, ZooKeeperSource)
    assert old.of_stream(1, 2).properties["consumer.id"] == "c-1"
    assert "consumerid" not in old.of_stream(1, 2).properties
    assert old.of_stream(0, 1) == old


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "src: it names no cluster; set bootstrap.servers, or zookeeper.connect for a group in ZooKeeper"),
        ({**GROUP, **ZOOKEEPER}, "src: zookeeper.connect and bootstrap.servers exclude each other"),
        ({"bootstrap.servers": "a:1"}, "src: group.id is missing; add it, as in group.id=mirror"),
        ({"zookeeper.connect": "a:1"}, "src: group.id"),
        (
            {**GROUP, "bootstrap.servers": "nowhere"},
            "src: bootstrap.servers is 'nowhere': the address 'nowhere' is not",
        ),
        ({**GROUP, "gruop.id": "x"}, r"src: gruop.id is not a property of Kafka's consumer; did you mean group.id\?"),
        (
            {**ZOOKEEPER, "fetch.sise": "1"},
            "fetch.sise is not a property of Kafka's consumer in ZooKeeper; did you mean",
        ),
        ({**GROUP, "enable.auto.commit": "true"}, "enable.auto.commit cannot be set for a mirror: the mirror commits"),
        ({**ZOOKEEPER, "auto.commit.enable": "true"}, "auto.commit.enable cannot be set for a mirror"),
        ({**GROUP, "exclude.internal.topics": "false"}, "brokers refuse records for their internal topics"),
        ({**GROUP, "session.timeout.ms": "soon"}, "session.timeout.ms is 'soon'; it must be a whole number from 1 to"),
        ({**GROUP, "heartbeat.interval.ms": "45000"}, "heartbeat.interval.ms is 45000; it must be below"),
        ({**GROUP, "auto.offset.reset": "first"}, "auto.offset.reset is 'first'; it can be earliest, latest, none"),
        ({**GROUP, "partition.assignment.strategy": "my.Own"}, "partition.assignment.strategy is 'my.Own'; it can be"),
        ({**GROUP, "security.protocol": "TLS"}, "security.protocol is 'TLS'; it can be PLAINTEXT, SSL"),
        ({**ZOOKEEPER, "fetch.wait.max.ms": "x"}, "src: fetch.wait.max.ms"),
    ],
)
def test_an_invalid_source_is_reported_in_a_sentence_with_the_files_name(given, says):
    with pytest.raises(BadProperty, match=says):
        read_source(given, "src")


def test_by_default_a_target_loses_nothing():
    target = read_target({"bootstrap.servers": "a:1"})
    assert (target.acks, target.idempotent) == (-1, True)
    assert target.delivery_timeout_s > 2_000_000
    given = {"acks": "1", "compression.type": "ZSTD", "batch.size": "16384", "delivery.timeout.ms": "5000"}
    target = read_target({"bootstrap.servers": "a:1", **given})
    assert (target.acks, target.idempotent, target.codec) == (1, False, 4)
    assert (target.batch_bytes, target.delivery_timeout_s) == (16384, 5.0)


def test_property_names_of_the_original_producer_are_understood():
    old = {"metadata.broker.list": "a:1,b:2", "request.required.acks": "-1", "compression.codec": "gzip"}
    target = read_target({**old, "producer.type": "async"})
    assert (target.bootstrap_servers, target.acks, target.codec) == ("a:1,b:2", -1, 1)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "dst: bootstrap.servers is missing; add it, as in bootstrap.servers=127.0.0.1:9092"),
        ({"bootstrap.servers": "a:1", "metadata.broker.list": "b:1"}, "metadata.broker.list is the old name of boot"),
        (
            {"bootstrap.servers": "a:1", "ack": "1"},
            r"dst: ack is not a property of Kafka's producer; did you mean acks\?",
        ),
        ({"bootstrap.servers": "a:1", "acks": "2"}, "acks is '2'; it can be all, -1, 1, 0"),
        ({"bootstrap.servers": "a:1", "acks": "1", "enable.idempotence": "true"}, "enable.idempotence needs acks=all"),
        ({"bootstrap.servers": "a:1", "transactional.id": "x"}, "each source partition has its own"),
        ({"bootstrap.servers": "a:1", "compression.type": "rar"}, "compression.type is 'rar'; it can be none, gzip"),
    ],
)
def test_an_invalid_target_is_reported_in_a_sentence_with_the_files_name(given, says):
    with pytest.raises(BadProperty, match=says):
        read_target(given, "dst")


def test_properties_without_effect_are_logged_as_a_warning(caplog):
    read_source({**GROUP, "max.poll.records": "7", "ssl.truststore.location": "x"}, "src")
    read_target({"bootstrap.servers": "a:1", "retries": "3"}, "dst")
    assert [record.getMessage() for record in caplog.records] == [
        "src: max.poll.records has no effect on a mirror",
        "src: ssl.truststore.location has no effect with the protocol PLAINTEXT",
        "dst: retries has no effect on a mirror",
    ]


def test_properties_without_effect_on_a_member_in_zookeeper_are_logged_and_left_out(caplog):
    source = read_source(
        {**ZOOKEEPER, "consumer.timeout.ms": "soon", "autocommit.interval.ms": "7", "ssl.keystore.key": "x"}, "src"
    )
    assert isinstance(source, ZooKeeperSource)
    assert not {"consumer.timeout.ms", "auto.commit.interval.ms", "ssl.keystore.key"} & source.properties.keys()
    assert [record.getMessage() for record in caplog.records] == [
        "src: consumer.timeout.ms has no effect on a mirror",
        "src: autocommit.interval.ms has no effect on a mirror",
        "src: ssl.keystore.key has no effect with the protocol PLAINTEXT",
    ]
