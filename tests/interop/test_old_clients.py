"""Clients of Kafka 0.8 to 0.10 write to and read from topics of every message format, with every codec."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest

from kafkapy.errors import Errors
from kafkapy.record.legacy import iter_entries
from tests.harness import brokers
from tests.harness.clients.base import ClientError, Received, Record
from tests.harness.clients.confluent import Confluent
from tests.harness.clients.old import NAMES, READERS, OldClients

pytestmark = pytest.mark.other_runtime

# message.format.version of a topic, and the magic that it stores
FORMATS = {"0.9.0": 0, "0.10.2": 1, "2.8": 2}
MODERN = "confluent-kafka"
T0 = 1_500_000_000_000
KEEP = {"retention.ms": "-1"}


class Oldies(NamedTuple):
    broker: brokers.Broker
    clients: OldClients
    modern: Confluent


@pytest.fixture(scope="module")
def oldies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oldies]:
    """Start a broker with a protocol version at which message.format.version is not ignored."""
    broker = brokers.start(tmp_path_factory.mktemp("old"), {"inter.broker.protocol.version": "2.8"})
    clients = OldClients(broker.bootstrap)
    yield Oldies(broker, clients, Confluent(broker.bootstrap))
    clients.close()
    broker.stop()


def records(codec: str) -> list[Record]:
    """Return records of all shapes, with enough text for a codec to compress."""
    shapes = [(b"key", b"value"), (None, b"no key"), (b"no value", None), (b"", b"empty key"), (b"empty value", b"")]
    shapes += [("schlüssel".encode(), bytes(range(256))), (b"long", b"a word or two " * 300)]
    shapes += [(b"%d" % number, f"{codec} {number}".encode()) for number in range(8)]
    return [Record(value, key, timestamp=T0 + number * 3 % 11) for number, (key, value) in enumerate(shapes)]


class Topic(NamedTuple):
    name: str
    sent: list[Record]
    since: int  # time in ms at which the writing began


class Written:
    """Topics by (writer, format), written at their first use with all codecs of the writer. Records in lz4 have a topic
    of their own, since not every reader knows lz4."""

    def __init__(self, oldies: Oldies) -> None:
        self._oldies = oldies
        self._done: dict[tuple[str, str, bool], Topic] = {}

    def __call__(self, writer: str, version: str, lz4: bool = False) -> Topic:
        if (writer, version, lz4) not in self._done:
            topic = Topic(f"{writer}-{version}{'-lz4' if lz4 else ''}", [], int(time.time() * 1000))
            self._oldies.modern.create_topic(topic.name, 1, {"message.format.version": version, **KEEP})
            for codec in ["lz4"] if lz4 else ["none", "gzip", "snappy"]:
                batch = records(codec)
                offsets = self._send(writer, topic.name, codec, batch)
                before = len(topic.sent)
                assert offsets in ([], list(range(before, before + len(batch)))), (topic.name, codec)
                topic.sent.extend(batch)
            self._done[writer, version, lz4] = topic
        return self._done[writer, version, lz4]

    def _send(self, writer: str, topic: str, codec: str, batch: list[Record]) -> list[int]:
        if writer != MODERN:
            return self._oldies.clients.by_name[writer].send(topic, codec, batch)
        placed = self._oldies.modern.produce(topic, [replace(r, partition=0) for r in batch], codec=codec)
        return [offset for _, offset in placed]


@pytest.fixture(scope="module")
def written(oldies: Oldies) -> Written:
    return Written(oldies)


def check(oldies: Oldies, writer: str, reader: str, version: str, written: Written, start: int = 0) -> None:
    """Check that `reader` gets the records that `writer` has sent, from `start` on."""
    writing, reading = oldies.clients.by_name.get(writer), oldies.clients.by_name.get(reader)
    empties = (writing is None or writing.empties) and (reading is None or reading.empties)
    knows_lz4 = (writing is None or writing.writes_lz4) and (reading is None or reading.reads_lz4(FORMATS[version]))
    for lz4 in [False, True] if knows_lz4 else [False]:
        topic, sent, since = written(writer, version, lz4)
        if reading:
            got = reading.read(topic, start, len(sent))
        else:
            got = oldies.modern.fetch(topic, {0: start}, {0: len(sent)})[0]
        assert [each.offset for each in got] == list(range(start, len(sent)))
        for record, each in zip(sent[start:], got, strict=True):
            where = f"{topic} at {each.offset} by {reader}"
            assert each.value == record.value if empties else (each.value or None) == (record.value or None), where
            assert each.key == record.key if empties else (each.key or None) == (record.key or None), where
            if reading and not reading.reads_times:
                continue
            if FORMATS[version] == 0:
                assert each.timestamp in (-1, 0), where  # librdkafka returns 0 for "not available"
            elif writer == "scala-0.10.2.2":
                assert since - 1000 <= each.timestamp <= time.time() * 1000 + 1000, where  # the writer's clock
            else:
                assert each.timestamp == (record.timestamp if writing is None or writing.sends_times else -1), where


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("writer", NAMES)
def test_records_of_an_old_client_are_stored_in_the_topics_format_and_read_by_a_new_one(
    oldies: Oldies, writer: str, version: str, written: Written
) -> None:
    check(oldies, writer, MODERN, version, written)
    for lz4 in [False, True] if oldies.clients.by_name[writer].writes_lz4 else [False]:
        files = sorted((oldies.broker.data / f"{written(writer, version, lz4).name}-0").glob("*.log"))
        headers = [header for file in files for header in iter_entries(file.read_bytes())]
        assert {header.magic for header in headers} == {FORMATS[version]}
        assert {header.codec for header in headers} == ({3} if lz4 else {0, 1, 2})


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("reader", READERS)
def test_records_of_a_new_client_are_read_by_an_old_one(
    oldies: Oldies, reader: str, version: str, written: Written
) -> None:
    check(oldies, MODERN, reader, version, written)
    check(oldies, MODERN, reader, version, written, start=7)  # in the middle of a batch


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("writer", ["kafka-python-0.9", "scala-0.8.2.2", "java-0.8.2.2", "java-0.10.2.2"])
def test_old_clients_read_records_of_other_old_clients(
    oldies: Oldies, writer: str, reader: str, written: Written
) -> None:
    for version in FORMATS:
        check(oldies, writer, reader, version, written)


@pytest.mark.parametrize("version", FORMATS)
def test_an_old_fetch_that_is_too_small_for_a_message_gets_a_cut_one(
    oldies: Oldies, version: str, written: Written
) -> None:
    topic, sent, _ = written(MODERN, version)
    reader = oldies.clients.by_name["scala-0.8.2.2"]
    with pytest.raises(ClientError, match="no whole message in 20 bytes at offset 3"):
        reader.read(topic, 3, len(sent), size=20)
    assert [each.offset for each in reader.read(topic, 3, len(sent), size=20_000)] == list(range(3, len(sent)))


@pytest.mark.parametrize("version", FORMATS)
def test_offsets_are_found_by_the_old_ways(oldies: Oldies, version: str, written: Written) -> None:
    topic, sent, _ = written(MODERN, version)
    for child in (oldies.clients.jvm08, oldies.clients.jvm010):
        assert child.segment_offsets(topic, -1, 5) == [len(sent), 0]
        assert child.segment_offsets(topic, -2, 5) == [0]
        assert child.segment_offsets(topic, T0, 5) == []
    if FORMATS[version]:
        assert oldies.clients.jvm010.offset_for_time(topic, T0 + 9) == 3
        assert oldies.clients.jvm010.offset_for_time(topic, T0 + 100) is None


@pytest.mark.parametrize("version", ["0.9.0", "0.10.2"])
def test_features_that_old_formats_lack_are_refused(oldies: Oldies, version: str) -> None:
    topic = f"refused-{version}"
    oldies.modern.create_topic(topic, 1, {"message.format.version": version})
    for record, idempotent, code in [
        (Record(b"v", partition=0), True, Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (Record(b"v", headers=(("name", b"text"),), partition=0), False, Errors.UNKNOWN_SERVER_ERROR),
    ]:
        with pytest.raises(ClientError) as refused:
            oldies.modern.produce(topic, [record], idempotent=idempotent)
        assert refused.value.code == code
    assert oldies.modern.watermarks(topic, [0]) == {0: (0, 0)}


def test_append_time_is_read_by_all_clients_with_timestamps(oldies: Oldies) -> None:
    for version in ("0.10.2", "2.8"):
        topic = f"append-time-{version}"
        configs = {"message.format.version": version, "message.timestamp.type": "LogAppendTime"}
        oldies.modern.create_topic(topic, 1, configs)
        since, count = int(time.time() * 1000), 0
        for writer in ("scala-0.8.2.2", "java-0.10.2.2", "kafka-python-0.10.0"):
            for codec in ("none", "gzip"):
                batch = records(codec)
                oldies.clients.by_name[writer].send(topic, codec, batch)
                count += len(batch)
        seen: list[list[Received]] = [oldies.modern.fetch(topic, {0: 0}, {0: count})[0]]
        for reader in READERS:
            if oldies.clients.by_name[reader].reads_times:
                seen.append(oldies.clients.by_name[reader].read(topic, 0, count))
        assert len(seen) == 4
        times = [each.timestamp for each in seen[0]]
        assert since - 1000 <= min(times) <= max(times) <= time.time() * 1000 + 1000
        assert all([each.timestamp for each in one] == times for one in seen)
