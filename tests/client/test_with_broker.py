"""The client against a running broker (the fixtures of the package's own pytest plugin)."""

import time

import pytest

from kafkapy.client import Consumer, NewTopic, RecordProducer
from kafkapy.client.administration.admin import BROKER, DELETE, EARLIEST, LATEST, MAX_TIMESTAMP, SET, TOPIC
from kafkapy.errors import Errors, KafkaError


@pytest.fixture
def topic(admin, kafkapy_topic):
    """A topic with three partitions."""
    admin.create_partitions(kafkapy_topic, 3)
    admin.cluster.topic(kafkapy_topic, refresh=True)
    return kafkapy_topic


def read(admin, topic):
    consumer = Consumer(admin.cluster)
    consumer.assign_topic(topic)
    return list(consumer.records())


@pytest.mark.parametrize("acks", [-1, 1, 0])
@pytest.mark.parametrize("codec", range(5))
def test_produced_records_are_consumed(admin, kafkapy_topic, codec, acks):
    sent = [
        (b"k", b"v", (("h", b"1"), ("h", None)), 1600000000000),
        (None, None, (), 1600000000002),
        (b"", b"", (), 1600000000001),
        ("clé".encode(), bytes(range(256)) * 40, (), 1600000000003),
    ]
    producer = RecordProducer(admin.cluster, codec=codec, acks=acks)
    for key, value, headers, timestamp in sent:
        producer.send(kafkapy_topic, value, key, headers=headers, timestamp=timestamp)
    producer.flush()
    while admin.offsets({(kafkapy_topic, 0): LATEST})[kafkapy_topic, 0].offset < len(sent):
        time.sleep(0.001)  # with acks=0 there is no response after the append
    assert [(r.key, r.value, r.headers, r.timestamp) for r in read(admin, kafkapy_topic)] == sent


def test_many_batches_arrive_once_and_in_order_within_their_partition(admin, topic):
    producer = RecordProducer(admin.cluster, batch_bytes=2000, request_bytes=5000)
    for number in range(3000):
        producer.send(topic, b"%06d" % number, b"key-%d" % (number % 10))
    producer.flush()
    assert producer.acknowledged == 3000
    seen = {}
    for record in read(admin, topic):
        seen.setdefault((record.partition, record.key), []).append(int(record.value))
    assert len(seen) == 10
    for (_, key), numbers in seen.items():
        assert numbers == list(range(int(key[4:]), 3000, 10))


def test_records_without_a_key_are_spread_over_all_partitions(admin, topic):
    producer = RecordProducer(admin.cluster, batch_bytes=200)
    for number in range(300):
        producer.send(topic, b"%050d" % number)
    producer.flush()
    records = read(admin, topic)
    assert sorted(int(record.value) for record in records) == list(range(300))
    assert {record.partition for record in records} == {0, 1, 2}


def test_the_offset_of_a_timestamp_is_the_first_record_not_before_it(admin, kafkapy_topic):
    producer = RecordProducer(admin.cluster)
    for second in (5, 1, 9, 7):
        producer.send(kafkapy_topic, b"%d" % second, timestamp=1600000000000 + second * 1000)
        producer.flush()
    where = (kafkapy_topic, 0)

    def find(timestamp):
        found = admin.offsets({where: timestamp})[where]
        return found.offset, found.timestamp

    assert find(1600000004000) == (0, 1600000005000)
    assert find(1600000006000) == (2, 1600000009000)
    assert find(1600000009001) == (-1, -1)
    assert find(MAX_TIMESTAMP) == (2, 1600000009000)
    assert (find(EARLIEST)[0], find(LATEST)[0]) == (0, 4)
    consumer = Consumer(admin.cluster)
    consumer.assign([where])
    consumer.seek_to_timestamp(1600000006000)
    assert [record.value for record in consumer.records()] == [b"9", b"7"]
    consumer.seek_to_timestamp(1700000000000)
    assert list(consumer.records()) == []


def test_records_that_were_deleted_are_out_of_range(admin, kafkapy_topic):
    producer = RecordProducer(admin.cluster)
    for number in range(5):
        producer.send(kafkapy_topic, b"%d" % number)
    producer.flush()
    where = (kafkapy_topic, 0)
    assert admin.delete_records({where: 3}) == {where: 3}
    assert [record.offset for record in read(admin, kafkapy_topic)] == [3, 4]
    consumer = Consumer(admin.cluster)
    consumer.seek(kafkapy_topic, 0, 1)
    with pytest.raises(KafkaError, match="at offset 1") as error:
        consumer.poll()
    assert error.value.code == Errors.OFFSET_OUT_OF_RANGE
    patient = Consumer(admin.cluster, out_of_range="earliest")
    patient.seek(kafkapy_topic, 0, 1)
    assert [record.offset for _ in range(2) for record in patient.poll()] == [3, 4]
    with pytest.raises(KafkaError, match=f"{kafkapy_topic}-0, offset 6: ") as error:
        admin.delete_records({where: 6})
    assert error.value.code == Errors.OFFSET_OUT_OF_RANGE
    assert admin.delete_records({where: -1}) == {where: 5}


def test_a_topic_is_created_extended_and_deleted(admin):
    created = admin.create_topic("lives", 2, configs={"retention.ms": "5000"})
    assert (created.name, list(created.partitions), any(created.topic_id)) == ("lives", [0, 1], True)
    assert "lives" in [topic.name for topic in admin.list_topics()]
    with pytest.raises(KafkaError, match="topic 'lives'") as error:
        admin.create_topic("lives")
    assert error.value.code == Errors.TOPIC_ALREADY_EXISTS
    admin.create_partitions("lives", 3)
    assert len(admin.describe_topic("lives").partitions) == 3
    admin.delete_topics(["lives"])
    with pytest.raises(KafkaError) as error:
        admin.describe_topic("lives")
    assert error.value.code == Errors.UNKNOWN_TOPIC_OR_PARTITION


def test_validate_only_checks_a_topic_without_creating_it(admin):
    assert admin.create_topics([NewTopic("would-do", 1)], validate_only=True) == []
    assert "would-do" not in [topic.name for topic in admin.list_topics()]
    with pytest.raises(KafkaError, match=r"banana") as error:
        admin.create_topics([NewTopic("bad", 1, configs={"retention.ms": "banana"})], validate_only=True)
    assert error.value.code == Errors.INVALID_CONFIG


def test_settings_are_changed_and_come_with_their_source(admin, kafkapy_topic):
    def setting():
        (entry,) = admin.describe_configs(TOPIC, kafkapy_topic, ["max.message.bytes"], documentation=True)
        return entry

    assert (setting().value, setting().is_default) == ("1048588", True)
    assert setting().documentation
    admin.alter_configs(TOPIC, kafkapy_topic, [("max.message.bytes", SET, "2000")])
    assert (setting().value, setting().source) == ("2000", "DYNAMIC_TOPIC_CONFIG")
    assert setting().synonyms[0] == ("max.message.bytes", "2000", "DYNAMIC_TOPIC_CONFIG")
    admin.alter_configs(TOPIC, kafkapy_topic, [("max.message.bytes", DELETE, None)])
    assert setting().is_default


def test_the_settings_of_a_broker_can_be_described(admin):
    (node,) = admin.describe_cluster().brokers
    (entry,) = admin.describe_configs(BROKER, str(node.node_id), ["num.partitions"])
    assert entry.value == "1"


def test_the_cluster_and_its_log_directories_are_described(kafkapy_broker, admin, kafkapy_topic):
    with RecordProducer(kafkapy_broker.bootstrap_servers) as producer:
        producer.send(kafkapy_topic, b"x" * 100)
    cluster = admin.describe_cluster()
    assert len(cluster.cluster_id) == 22
    assert cluster.controller_id in [node.node_id for node in cluster.brokers]
    (directory,) = admin.describe_log_dirs()
    assert directory.error_code == 0
    assert directory.path == str(kafkapy_broker.log_dir)
    assert directory.partitions[kafkapy_topic, 0] > 100
    assert directory.total_bytes >= directory.usable_bytes > 0
