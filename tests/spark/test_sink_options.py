"""The options and rows that the sink accepts and refuses, without Spark running."""

import time
from datetime import datetime

import pytest
from pyspark.sql import Row
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructType, TimestampType

from kafkapy.client import Admin, Cluster, NewTopic, RecordProducer
from kafkapy.client.administration.admin import TOPIC
from kafkapy.spark.options.given import BadOption
from kafkapy.spark.options.sink_options import sink_options
from kafkapy.spark.sink.decisions import Decisions, DecisionsUnusable, ensure_decision_topic, new_decision_topic
from kafkapy.spark.sink.writers import BadRows, batch_writer, batches_of, stream_writer
from tests.harness.brokers import Broker

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
ROWS = StructType().add("value", StringType())
KEYS = StructType().add("topic", StringType()).add("key", StringType())


def test_defaults_are_at_least_once_and_those_of_kafka() -> None:
    options = sink_options({**SERVERS, "Topic": " orders "})
    assert options.topic == "orders"
    assert not options.exactly_once
    assert (options.producer.acks, options.producer.idempotent, options.producer.codec) == (-1, True, 0)
    assert options.producer.delivery_timeout_s == 120


@pytest.mark.parametrize(
    ("given", "attribute", "value"),
    [
        ({"kafka.acks": "1"}, "acks", 1),
        ({"kafka.acks": "1"}, "idempotent", False),
        ({"kafka.compression.type": "zstd"}, "codec", 4),
        ({"kafka.batch.size": "1000"}, "batch_bytes", 1000),
        ({"kafka.transaction.timeout.ms": "5000"}, "transaction_timeout_s", 5.0),
        ({"kafka.linger.ms": "5"}, "acks", -1),
    ],
)
def test_properties_of_a_producer_are_honoured(given: dict[str, str], attribute: str, value: object) -> None:
    assert getattr(sink_options({**SERVERS, **given}).producer, attribute) == value


def test_options_that_spark_adds_are_accepted() -> None:
    sink_options({**SERVERS, "checkpointLocation": "/c", "queryName": "q", "path": "p"})


def test_include_headers_is_accepted_as_by_sparks_own_sink() -> None:
    for word in ("true", "false"):
        assert sink_options({**SERVERS, "includeHeaders": word}) == sink_options(SERVERS)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"topics": "a"}, "the sink kafkapy has no option 'topics'; did you mean 'topic'?"),
        ({"kafka.acks": "2"}, "kafka.acks is '2': write all, -1, 1 or 0"),
        ({"kafka.compression.type": "zip"}, "kafka.compression.type is 'zip'"),
        (
            {"kafka.compresion.type": "zstd"},
            "kafka.compresion.type is not a property of Kafka's producer; did you mean",
        ),
        ({"kafka.key.serializer": "x"}, "kafka.key.serializer cannot be set: keys are written as the bytes"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id cannot be set: each task has its own"),
        (
            {"kafka.security.protocol": "TLS"},
            "kafka.security.protocol is 'TLS'; it can be PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        ({"kafka.batch.size": "-1"}, "kafka.batch.size is '-1': write a whole number, 1 or more"),
        ({"kafka.batch.size": "3000000000"}, "kafka.batch.size is '3000000000': the maximum is 2147483647"),
        ({"kafka.bootstrap.servers": "here"}, "kafka.bootstrap.servers is 'here': the address 'here' is not HOST:PORT"),
        ({"kafka.bootstrap.servers": ""}, "the option kafka.bootstrap.servers is needed"),
        ({"delivery": "twice"}, "delivery is 'twice': write at-least-once or exactly-once"),
        ({"delivery": "exactly-once", "kafka.acks": "1"}, "delivery is exactly-once, which needs kafka.acks=all"),
        ({"kafka.enable.idempotence": "true", "kafka.acks": "0"}, "kafka.enable.idempotence is true, which needs"),
        ({"topic": " "}, "topic is empty"),
        ({"tombstones": "perhaps"}, "tombstones is 'perhaps'"),
        ({"includeHeaders": "maybe"}, "includeHeaders is 'maybe'"),
        ({"decisionTopic": ""}, "decisionTopic is empty"),
        ({"onLostTransactions": "ignore"}, "onLostTransactions is 'ignore': write fail or skip"),
    ],
)
def test_wrong_options_are_reported_in_a_sentence(given: dict[str, str], text: str) -> None:
    with pytest.raises(BadOption) as failure:
        sink_options({**SERVERS, **given})
    assert str(failure.value).startswith(text)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (StructType().add("valeu", StringType()), "a record has no column 'valeu'"),
        (
            StructType().add("topic", StringType()).add("value", IntegerType()),
            "column 'value' has the type int32; it has to be binary or string",
        ),
        (StructType().add("topic", StringType()), "the rows have neither a column 'value' nor 'key'"),
        (KEYS, "the rows have no column 'value', so each would be a tombstone"),
        (ROWS, "the rows have no column 'topic', and no topic is given"),
    ],
)
def test_columns_that_cannot_be_written_are_named(schema: StructType, text: str) -> None:
    for writer in (batch_writer, stream_writer):
        with pytest.raises(BadRows) as failure:
            writer(SERVERS, schema, False)
        assert text in str(failure.value)


def test_rows_without_a_value_are_tombstones_if_requested() -> None:
    for writer in (batch_writer, stream_writer):
        assert writer({**SERVERS, "tombstones": "true"}, KEYS, False)._options.tombstones


def test_a_topic_cannot_be_overwritten() -> None:
    with pytest.raises(BadOption, match=r'write with \.mode\("append"\)'):
        batch_writer({**SERVERS, "topic": "t"}, ROWS, True)


def test_rows_of_pyspark_4_0_become_record_batches() -> None:
    header = StructType().add("key", StringType()).add("value", BinaryType())
    schema = StructType().add("value", StringType()).add("partition", IntegerType()).add("headers", ArrayType(header))
    rows = [
        Row(value=f"{number}", partition=None, headers=[Row(key="h", value=bytearray(b"x"))] if number else None)
        for number in range(25_000)
    ]
    batches = list(batches_of(iter(rows), schema))
    assert sum(batch.num_rows for batch in batches) == len(rows)
    assert batches[0].slice(0, 2).to_pylist() == [
        {"value": "0", "partition": None, "headers": None},
        {"value": "1", "partition": None, "headers": [{"key": "h", "value": b"x"}]},
    ]


def test_timestamps_of_pyspark_4_0_are_in_the_time_zone_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = StructType().add("value", StringType()).add("timestamp", TimestampType())
    local = [datetime(2024, 7, 1, 8), datetime(2024, 11, 3, 1, 30), datetime(2024, 11, 3, 1, 30, fold=1)]
    rows = [Row(value="", timestamp=moment) for moment in (*local, None)]
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        (batch,) = batches_of(iter(rows), schema)
    time.tzset()
    *moments, none = batch.column("timestamp").to_pylist()
    assert [str(moment) for moment in moments] == [
        "2024-07-01 12:00:00+00:00",
        "2024-11-03 05:30:00+00:00",
        "2024-11-03 06:30:00+00:00",
    ]
    assert none is None


def test_with_three_brokers_the_decision_topic_has_three_replicas_and_needs_two_in_sync() -> None:
    assert new_decision_topic("d", brokers=3).replication_factor == 3
    assert (new_decision_topic("d", brokers=5).configs or {})["min.insync.replicas"] == "2"
    assert "min.insync.replicas" not in (new_decision_topic("d", brokers=2).configs or {})


def test_the_decision_topic_is_created_compacted_and_kept(broker: Broker, topic_name: str) -> None:
    with Cluster(broker.bootstrap) as cluster:
        for _ in range(2):
            ensure_decision_topic(cluster, topic_name)
        configs = {entry.name: entry.value for entry in Admin(cluster).describe_configs(TOPIC, topic_name)}
    assert configs["cleanup.policy"] == "compact"


def test_a_decision_topic_with_retention_is_refused(broker: Broker, topic_name: str) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name, 1)
        with pytest.raises(DecisionsUnusable, match=r"has cleanup\.policy=delete, which would delete decisions"):
            ensure_decision_topic(admin.cluster, topic_name)


def test_a_decision_topic_of_several_partitions_is_refused(broker: Broker, topic_name: str) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic_name, 2, configs={"cleanup.policy": "compact"})])
        with pytest.raises(DecisionsUnusable, match="has 2 partitions and must have 1"):
            ensure_decision_topic(admin.cluster, topic_name)


@pytest.mark.parametrize(
    ("key", "value"), [(b"k", b"v"), (b"q/0", b"[]"), (b"q/x", b"{}"), (b"q/0", b'{"version": 2}'), (b"\xff/0", None)]
)
def test_the_error_names_foreign_records_in_the_decision_topic(
    broker: Broker, topic_name: str, key: bytes, value: bytes | None
) -> None:
    with Cluster(broker.bootstrap) as cluster:
        ensure_decision_topic(cluster, topic_name)
        with RecordProducer(cluster) as producer:
            producer.send(topic_name, value, key)
        with pytest.raises(DecisionsUnusable, match=f"the record at offset 0 of {topic_name} is not a decision"):
            Decisions(cluster, topic_name).refresh()
