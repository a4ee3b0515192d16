"""Spark's own Kafka source and sink (4.0.0, with Java's kafka-clients 3.9.0) with the broker."""

import json
from pathlib import Path

import pytest

from perf.spark_driver import Driver, DriverError
from tests.harness import brokers, spark_jobs
from tests.harness.spark_jobs import Row
from tests.harness.spark_topics import Record, consume, delete_records, delete_topic, make_topic, produce, transaction

T0 = 1_700_000_000_000  # milliseconds
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def topic(broker: brokers.Broker, topic_name: str) -> str:
    """Create a topic of two partitions with the numbers 0 to 9, even ones in partition 0, a minute apart."""
    make_topic(broker.bootstrap, topic_name, 2)
    produce(broker.bootstrap, topic_name, [_number(each) for each in range(10)])
    return topic_name


def _number(number: int) -> Record:
    return Record(b"%d" % number, b"value %d" % number, number % 2, T0 + 60_000 * number)


def _values(rows: list[Row]) -> list[int]:
    return [int(row.key or b"-1") for row in rows]


def _at(broker: brokers.Broker, topic: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **more}


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_read_gives_every_column_as_it_was_produced(
    oldest: Driver, broker: brokers.Broker, topic_name: str, codec: str
) -> None:
    make_topic(broker.bootstrap, topic_name, 2)
    records = [
        Record(b"key", b"value" * 20, 0, T0, [("trace", b"\x00\xff"), ("trace", None), ("empty", b"")]),
        Record(None, b"no key", 0, T0 + 1),
        Record(b"tombstone", None, 1, T0 + 2),
        Record(b"", b"", 1, T0 + 3),
    ]
    produce(broker.bootstrap, topic_name, records, compression_type=codec)
    found = oldest.call(spark_jobs.read, "kafka", _at(broker, topic_name, includeHeaders="true"))
    assert found == [
        Row(
            topic_name,
            each.partition or 0,
            offset % 2,
            T0 * 1000 + offset * 1000,
            0,
            each.key,
            each.value,
            list(each.headers) or None,
        )
        for offset, each in enumerate(records)
    ]


def test_log_append_time_is_shown_as_timestamp_type(oldest: Driver, broker: brokers.Broker, topic_name: str) -> None:
    make_topic(broker.bootstrap, topic_name, 1, message_timestamp_type="LogAppendTime")
    produce(broker.bootstrap, topic_name, [Record(b"1", b"", 0, T0)])
    (row,) = oldest.call(spark_jobs.read, "kafka", _at(broker, topic_name))
    assert row.timestamp_type == 1
    assert row.timestamp_us > T0 * 1000


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"startingOffsets": "{TOPIC: {'0': 3, '1': -2}}", "endingOffsets": "{TOPIC: {'0': -1, '1': 2}}"},
            [6, 8, 1, 3],
        ),
        ({"startingTimestamp": str(T0 + 60_000 * 7)}, [8, 7, 9]),
        ({"startingTimestamp": str(T0 + 90_000), "endingTimestamp": str(T0 + 60_000 * 5)}, [2, 4, 3]),
        ({"startingOffsetsByTimestamp": f"{{TOPIC: {{'0': {T0 + 60_000 * 8}, '1': 0}}}}"}, [8, 1, 3, 5, 7, 9]),
        ({"minPartitions": "7"}, [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]),
    ],
)
def test_a_batch_read_keeps_to_offsets_and_times(
    oldest: Driver, broker: brokers.Broker, topic: str, options: dict[str, str], expected: list[int]
) -> None:
    named = {name: text.replace("TOPIC", f"'{topic}'").replace("'", '"') for name, text in options.items()}
    assert _values(oldest.call(spark_jobs.read, "kafka", _at(broker, topic, **named))) == expected


@pytest.mark.parametrize("deprecated", ["true", "false"])
def test_topics_are_found_by_pattern_and_by_assignment(
    oldest: Driver, broker: brokers.Broker, topic: str, deprecated: str
) -> None:
    """Spark fetches offsets with an admin client, or (deprecated) with a consumer in a group."""
    oldest.call(spark_jobs.set_option, "spark.sql.streaming.kafka.useDeprecatedOffsetFetching", deprecated)
    at = {"kafka.bootstrap.servers": broker.bootstrap}
    by_pattern = oldest.call(spark_jobs.read, "kafka", {**at, "subscribePattern": topic[:-1] + "[0-9]$"})
    by_hand = oldest.call(spark_jobs.read, "kafka", {**at, "assign": json.dumps({topic: [1]})})
    assert sorted(_values(by_pattern)) == list(range(10))
    assert _values(by_hand) == [1, 3, 5, 7, 9]


@pytest.mark.parametrize(("isolation", "expected"), [("read_committed", [0, 2, 3]), ("read_uncommitted", [0, 1, 2, 3])])
def test_aborted_transactions_are_read_only_with_read_uncommitted(
    oldest: Driver, broker: brokers.Broker, topic_name: str, isolation: str, expected: list[int]
) -> None:
    make_topic(broker.bootstrap, topic_name)
    for number in range(4):
        record = Record(b"%d" % number, b"", 0)
        if number == 2:
            produce(broker.bootstrap, topic_name, [record])
        else:
            transaction(broker.bootstrap, topic_name, [record], commit=number != 1)
    at = _at(broker, topic_name, **{"kafka.isolation.level": isolation})
    assert _values(oldest.call(spark_jobs.read, "kafka", at)) == expected


def test_a_batch_write_arrives_with_headers_and_in_its_partition(
    oldest: Driver, broker: brokers.Broker, topic_name: str
) -> None:
    make_topic(broker.bootstrap, topic_name, 3)
    rows = [
        (topic_name, n % 3, b"%d" % n, None if n == 4 else b"v", [("n", b"%d" % n)] if n % 2 else None)
        for n in range(9)
    ]
    oldest.call(
        spark_jobs.write, "kafka", rows, {"kafka.bootstrap.servers": broker.bootstrap, "includeHeaders": "true"}
    )
    found = consume(broker.bootstrap, topic_name)
    assert sorted((topic_name, each.partition, each.key, each.value, each.headers or None) for each in found) == sorted(
        rows
    )


def test_the_key_chooses_the_same_partition_as_for_other_clients(
    oldest: Driver, broker: brokers.Broker, topic_name: str
) -> None:
    keys = [b"key %d" % number for number in range(40)]
    for suffix in ("ours", "theirs"):
        make_topic(broker.bootstrap, topic_name + suffix, 5)
    rows = [(topic_name + "theirs", None, key, b"", None) for key in keys]
    oldest.call(spark_jobs.write, "kafka", rows, {"kafka.bootstrap.servers": broker.bootstrap})
    records = [Record(key, b"", None) for key in keys]
    produce(broker.bootstrap, topic_name + "ours", records, partitioner="murmur2_random")
    ours, theirs = (
        {each.key: each.partition for each in consume(broker.bootstrap, topic_name + suffix)}
        for suffix in ("ours", "theirs")
    )
    assert ours == theirs


def test_a_stream_resumes_at_its_checkpoint(oldest: Driver, broker: brokers.Broker, topic: str, tmp_path: Path) -> None:
    make_topic(broker.bootstrap, f"{topic}-copy", 2)
    source = _at(broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger="4", includeHeaders="true")
    sink = {"kafka.bootstrap.servers": broker.bootstrap, "topic": f"{topic}-copy", "checkpointLocation": str(tmp_path)}
    assert oldest.call(spark_jobs.copy_stream, "kafka", source, "kafka", sink) == [4, 4, 2]
    produce(broker.bootstrap, topic, [_number(each) for each in range(10, 15)])
    sizes = oldest.call(spark_jobs.copy_stream, "kafka", source, "kafka", sink)
    assert (sum(sizes), max(sizes) <= 4) == (5, True)
    found = consume(broker.bootstrap, f"{topic}-copy")
    assert sorted(int(each.key or b"-1") for each in found) == list(range(15))


def test_records_that_are_gone_end_a_stream_unless_it_may_lose_some(
    oldest: Driver, broker: brokers.Broker, topic: str, tmp_path: Path
) -> None:
    make_topic(broker.bootstrap, f"{topic}-copy")
    source = _at(broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger="100")
    sink = {"kafka.bootstrap.servers": broker.bootstrap, "topic": f"{topic}-copy", "checkpointLocation": str(tmp_path)}
    oldest.call(spark_jobs.copy_stream, "kafka", source, "kafka", sink)
    produce(broker.bootstrap, topic, [_number(each) for each in range(10, 20)])
    delete_records(broker.bootstrap, topic, 0, 7)
    with pytest.raises(DriverError, match="failOnDataLoss"):
        oldest.call(spark_jobs.copy_stream, "kafka", source, "kafka", sink)
    oldest.call(spark_jobs.copy_stream, "kafka", source | {"failOnDataLoss": "false"}, "kafka", sink)
    found = {int(each.key or b"-1") for each in consume(broker.bootstrap, f"{topic}-copy")}
    assert found == set(range(20)) - {10, 12}  # records that the failed attempt sent are there twice


def test_the_error_names_a_topic_that_does_not_exist(oldest: Driver, broker: brokers.Broker, topic: str) -> None:
    delete_topic(broker.bootstrap, topic)
    with pytest.raises(DriverError, match=f"UnknownTopicOrPartition|{topic}"):
        oldest.call(spark_jobs.read, "kafka", _at(broker, topic))
