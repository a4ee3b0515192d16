"""kafkapy's source and sink under pyspark 4.0.0, the oldest supported one, and Spark's own in the same session.

A user only changes `format("kafka")` to `format("kafkapy")`.
"""

from collections import Counter
from pathlib import Path

import pytest

from perf.spark_driver import Driver, DriverError
from tests.harness import brokers, spark_jobs
from tests.harness.spark_topics import Record, consume, delete_records, make_topic, produce, transaction

T0 = 1_700_000_000_000  # milliseconds


@pytest.fixture(scope="module")
def topic(broker: brokers.Broker) -> str:
    """Create a topic of three partitions: one is empty, one has a moved log start offset. It has records with headers,
    transactions and all codecs."""
    name = "beside-own-source"
    make_topic(broker.bootstrap, name, 3)
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        records = [
            Record(
                None if each % 7 == 0 else b"key %d" % each,
                None if each % 5 == 0 else b"value %d" % each * each,
                each % 2,
                T0 + 1000 * (40 * number + each),
                [("n", b"%d" % each), ("null", None)] if each % 3 == 0 else [],
            )
            for each in range(40)
        ]
        produce(broker.bootstrap, name, records, compression_type=codec)
    for commit in (True, False):
        records = [Record(b"in a transaction", b"", each % 2, T0 + 200_000) for each in range(6)]
        transaction(broker.bootstrap, name, records, commit=commit)
    delete_records(broker.bootstrap, name, 1, 15)
    return name


@pytest.mark.parametrize(
    "options",
    [
        {"includeHeaders": "true"},
        {"kafka.isolation.level": "read_committed", "minPartitions": "5"},
        {
            "startingOffsets": "{'TOPIC': {'0': 7, '1': 20, '2': -2}}",
            "endingOffsets": "{'TOPIC': {'0': 90, '1': -1, '2': -1}}",
        },
        {
            "startingTimestamp": str(T0 + 30_500),
            "endingTimestamp": str(T0 + 150_000),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        {
            "startingOffsetsByTimestamp": f"{{'TOPIC': {{'0': {T0 + 100_000}, '1': {T0 + 1}, '2': {T0}}}}}",
            "startingOffsetsByTimestampStrategy": "latest",
        },
        {"startingOffsets": "{'TOPIC': {'0': 0, '1': 3, '2': 0}}", "failOnDataLoss": "false"},
    ],
)
def test_the_same_options_give_the_same_rows(
    oldest: Driver, broker: brokers.Broker, topic: str, options: dict[str, str]
) -> None:
    named = {name: text.replace("TOPIC", topic).replace("'", '"') for name, text in options.items()}
    at = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **named}
    theirs = oldest.call(spark_jobs.read, "kafka", at)
    assert theirs
    assert oldest.call(spark_jobs.read, "kafkapy", at) == theirs


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": ""},
        {"subscribe": "TOPIC", "assign": "{'TOPIC': [0]}"},
        {"subscribe": "TOPIC", "startingOffsets": "latest"},
        {"subscribe": "TOPIC", "endingOffsets": "earliest"},
        {"subscribe": "TOPIC", "startingOffsets": "{'TOPIC': {'0': 1}}"},
        {"subscribe": "TOPIC", "kafka.auto.offset.reset": "earliest"},
        {"subscribe": "TOPIC", "minPartitions": "0"},
        {"subscribe": "TOPIC", "startingTimestamp": str(T0 + 10**9)},
    ],
)
def test_the_same_options_are_refused(
    oldest: Driver, broker: brokers.Broker, topic: str, options: dict[str, str]
) -> None:
    named = {name: text.replace("TOPIC", topic).replace("'", '"') for name, text in options.items()}
    at = {"kafka.bootstrap.servers": broker.bootstrap, **named}
    for source in ("kafka", "kafkapy"):
        with pytest.raises(DriverError):
            oldest.call(spark_jobs.read, source, at)


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_stream_copies_a_topic_and_resumes(
    oldest: Driver, broker: brokers.Broker, topic_name: str, tmp_path: Path, delivery: str
) -> None:
    for name in (topic_name, f"{topic_name}-copy"):
        make_topic(broker.bootstrap, name, 2)
    at = {"kafka.bootstrap.servers": broker.bootstrap}
    source = {**at, "subscribe": topic_name, "startingOffsets": "earliest", "includeHeaders": "true"}
    sink = {**at, "topic": f"{topic_name}-copy", "checkpointLocation": str(tmp_path), "delivery": delivery}
    records = [Record(b"%d" % each, b"value", None, None, [("n", b"%d" % each)]) for each in range(20)]
    for half in (records[:10], records[10:]):
        produce(broker.bootstrap, topic_name, half)
        oldest.call(spark_jobs.copy_stream, "kafkapy", source, "kafkapy", sink)
    found = consume(broker.bootstrap, f"{topic_name}-copy")
    assert Counter((each.key, tuple(each.headers)) for each in found) == Counter(
        (each.key, tuple(each.headers)) for each in records
    )


def test_a_limit_is_refused_because_this_pyspark_has_none(
    oldest: Driver, broker: brokers.Broker, topic: str, tmp_path: Path
) -> None:
    at = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "maxOffsetsPerTrigger": "10"}
    with pytest.raises(DriverError, match=r"maxOffsetsPerTrigger needs PySpark 4\.2"):
        oldest.call(spark_jobs.copy_stream, "kafkapy", at, "noop", {"checkpointLocation": str(tmp_path)})


def test_keys_go_to_the_partitions_that_spark_chooses(oldest: Driver, broker: brokers.Broker, topic_name: str) -> None:
    keys = [b"key %d" % number for number in range(40)]
    found = []
    for source in ("kafka", "kafkapy"):
        name = f"{topic_name}-{source}"
        make_topic(broker.bootstrap, name, 5)
        rows = [(name, None, key, None if number % 3 else b"v", None) for number, key in enumerate(keys)]
        oldest.call(spark_jobs.write, source, rows, {"kafka.bootstrap.servers": broker.bootstrap})
        found.append({(each.key, each.value, each.partition) for each in consume(broker.bootstrap, name)})
    assert found[0] == found[1]
