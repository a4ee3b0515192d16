"""A broker on a directory that Kafka wrote serves what Kafka's consumer saw, to librdkafka."""

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from kafkapy.client.admin import EARLIEST, LATEST, Admin

from .support import GOLDEN, expected, lines_of, records_of

FOLDERS = ["kafka-3.9.1-v2", "kafka-3.9.1-v0-v1", "kafka-0.10.2.2", "kafka-0.8.2.2"]
# Of 0.8.2.2 there is no view: no consumer of 3.9.1 could ask that broker.
SEEN = [folder for folder in FOLDERS if (GOLDEN / folder / "consumer-view.jsonl").exists()]


def consumed(broker, partitions, isolation):
    """{partition: (records, position at the end)} of all partitions, read to their ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "golden",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.wait.max.ms": 10,
        }
    )
    found = {name: [] for name in partitions}
    ends = {}
    try:
        names = [name.rpartition("-") for name in found]
        consumer.assign([TopicPartition(topic, int(index), OFFSET_BEGINNING) for topic, _, index in names])
        while len(ends) < len(found):
            message = consumer.poll(30)
            assert message is not None, f"no end after 30 s of {sorted(found.keys() - ends.keys())}"
            name = f"{message.topic()}-{message.partition()}"
            if message.error() is None:
                kind, timestamp = message.timestamp()
                headers = [(key, value) for key, value in message.headers() or ()]
                record = (message.offset(), timestamp if kind else -1, message.key(), message.value(), headers)
                found[name].append(record)
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ends[name] = message.offset()
    finally:
        consumer.close()
    return {name: (records, ends[name]) for name, records in found.items()}


@pytest.fixture(scope="module", params=FOLDERS)
def folder(request):
    return request.param


@pytest.fixture(scope="module")
def uncommitted(adopted, folder):
    return consumed(adopted(folder), list(expected(folder)), "read_uncommitted")


def test_every_record_is_served(uncommitted, folder):
    for name, batches in expected(folder).items():
        first = 40 if name == "v2-deleted-records-0" else 0  # the log start offset of the one with deleted records
        assert uncommitted[name][0] == [one for one in records_of(batches) if one[0] >= first], name


@pytest.mark.parametrize("seen_in", SEEN)
def test_offsets_are_those_that_kafkas_consumer_saw(adopted, seen_in):
    broker = adopted(seen_in)
    view = {f"{one['topic']}-0": one for one in lines_of(GOLDEN / seen_in / "consumer-view.jsonl")}
    for isolation in ("read_uncommitted", "read_committed"):
        wanted = {name: one[isolation] for name, one in view.items() if isolation in one}
        if wanted:
            found = consumed(broker, list(wanted), isolation)
            for name, one in wanted.items():
                assert ([record[0] for record in found[name][0]], found[name][1]) == (
                    one["offsets"],
                    one["endPosition"],
                ), (name, isolation)
    with Admin(broker.bootstrap_servers) as admin:
        earliest = admin.offsets({(one["topic"], 0): EARLIEST for one in view.values()})
        latest = admin.offsets({(one["topic"], 0): LATEST for one in view.values()})
    for one in view.values():
        where = one["topic"], 0
        assert earliest[where].offset == one["beginningOffset"], where
        assert latest[where].offset == one["read_uncommitted"]["endOffset"], where


@pytest.mark.parametrize("seen_in", SEEN)
def test_times_are_answered_as_by_kafka(adopted, seen_in):
    with Admin(adopted(seen_in).bootstrap_servers) as admin:
        for one in lines_of(GOLDEN / seen_in / "consumer-view.jsonl"):
            where = one["topic"], 0
            for asked, offset, timestamp in one["offsetsForTimes"]:
                found = admin.offsets({where: asked})[where]
                wanted = (-1, -1) if offset is None else (offset, timestamp)
                assert (found.offset, found.timestamp) == wanted, (where, asked)
