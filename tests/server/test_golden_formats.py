"""Logs that Kafka 0.8.2.2, 0.10.2.2 and 3.9.1 wrote in every message format, served to clients of every generation."""

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol.apis import CREATE_TOPICS, FETCH, LIST_OFFSETS
from kafkapy.record.batch import records_of
from kafkapy.record.legacy import iter_entries
from tests.harness.wire import Wire
from tests.server.requests import start_broker

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
FOLDERS = ("kafka-0.8.2.2", "kafka-0.10.2.2", "kafka-3.9.1-v0-v1")
FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "2.8"}
SETTINGS = {"log_retention_ms": "-1", "log_cleaner_enable": "false"}


class Expected(NamedTuple):
    offset: int
    magic: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class Golden(NamedTuple):
    """One golden partition; `topic` is its unique name in the test's broker, since folders share topic names."""

    topic: str
    directory: Path
    records: list[Expected]
    view: dict[str, Any] | None  # the view of Kafka's own consumer

    @property
    def format(self) -> int:
        return self.records[-1].magic

    @property
    def cleaned(self) -> bool:
        return "compacted" in self.topic


def content(text: Any) -> bytes | None:
    if text is None:
        return None
    return text.encode() if isinstance(text, str) else base64.b64decode(text["base64"])


def golden() -> Iterator[Golden]:
    for folder in FOLDERS:
        path = GOLDEN / folder / "consumer-view.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        views = {view["topic"]: view for view in map(json.loads, lines)}
        for lines_of in sorted((GOLDEN / folder / "expected").glob("v*-0.jsonl")) + sorted(
            (GOLDEN / folder / "expected").glob("mixed-*-0.jsonl")
        ):
            records = [
                Expected(one["offset"], entry["magic"], one["timestamp"] if one["timestamp"] is not None else -1,
                         content(one["key"]), content(one["value"]))
                for entry in map(json.loads, lines_of.read_text().splitlines())
                for one in entry["records"]
            ]  # fmt: skip
            name = lines_of.stem[:-2]
            yield Golden(f"{folder}.{name}", GOLDEN / folder / "data" / lines_of.stem, records, views.get(name))


ALL = list(golden())


@pytest.fixture(scope="module", params=["2.8", "3.9"])
def wire(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    """Connect to a broker with all golden topics. From inter-broker protocol 3.0 on, all topics have format setting 2,
    though some of their files have older formats."""
    directory = tmp_path_factory.mktemp("golden")
    settings = {**SETTINGS, "inter_broker_protocol_version": request.param}
    server = start_broker(directory, **settings)
    wire = Wire(server.bootstrap_servers)
    make = CREATE_TOPICS.Request
    topics = []
    for one in ALL:
        configs = [make.Topics.Configs(name="message.format.version", value=FORMATS[one.format])]
        if one.cleaned:
            configs.append(make.Topics.Configs(name="cleanup.policy", value="compact"))
        topics.append(make.Topics(name=one.topic, num_partitions=1, replication_factor=1, configs=configs))
    created = wire.call(CREATE_TOPICS, 7, make(topics=topics, timeout_ms=30_000))
    assert {one.error_code for one in created.topics} == {Errors.NONE}
    wire.close()
    server.stop()
    for one in ALL:
        ours = directory / f"{one.topic}-0"
        for file in ours.iterdir():
            if file.name != "partition.metadata":
                file.unlink()
        for file in one.directory.iterdir():
            if file.name != "partition.metadata":
                shutil.copyfile(file, ours / file.name)
    server = start_broker(directory, **settings)
    assert server.wait_until_loaded(60)
    wire = Wire(server.bootstrap_servers)
    wire.protocol = request.param
    yield wire
    wire.close()
    server.stop()


def fetched(wire: Wire, one: Golden, version: int, max_bytes: int) -> list[Expected]:
    """Return all records of the partition, in as many fetches as needed."""
    make = FETCH.Request
    found: list[Expected] = []
    offset = 0
    while True:
        part = make.Topics.Partitions(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
        chosen = make.Topics(topic=one.topic, partitions=[part])
        response = wire.call(FETCH, version, make(replica_id=-1, max_bytes=1 << 26, topics=[chosen]))
        (answer,) = response.responses[0].partitions
        assert answer.error_code == Errors.NONE
        if offset >= answer.high_watermark:
            assert not answer.records
            return found
        new = [
            Expected(record.offset, header.magic, record.timestamp, record.key, record.value)
            for header in iter_entries(answer.records)
            for record in records_of(answer.records, header)
            if record.offset >= offset
        ]
        if not new:  # a cleaned log may end in a batch without records
            assert one.cleaned
            return found
        found += new
        offset = found[-1].offset + 1


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 12])
@pytest.mark.parametrize("max_bytes", [1 << 20, 5000])
def test_every_record_comes_in_the_format_that_the_client_knows(wire: Wire, version: int, max_bytes: int) -> None:
    known = 0 if version < 2 else 1 if version < 4 else 2
    for one in ALL:
        expected = []
        for record in one.records:
            magic = min(record.magic, known)
            expected.append(record._replace(magic=magic, timestamp=record.timestamp if magic else -1))
        assert fetched(wire, one, version, max_bytes) == expected, one.topic


def offset_of(wire: Wire, topic: str, timestamp: int, version: int = 5) -> tuple[int, int, int]:
    make = LIST_OFFSETS.Request
    part = make.Topics.Partitions(partition_index=0, timestamp=timestamp)
    response = wire.call(
        LIST_OFFSETS, version, make(replica_id=-1, topics=[make.Topics(name=topic, partitions=[part])])
    )
    (answer,) = response.topics[0].partitions
    return answer.error_code, answer.offset, answer.timestamp


def test_offsets_and_times_are_those_that_kafkas_consumer_saw(wire: Wire) -> None:
    for one in ALL:
        if one.view is None:
            continue
        assert offset_of(wire, one.topic, -2)[:2] == (Errors.NONE, one.view["beginningOffset"])
        assert offset_of(wire, one.topic, -1)[:2] == (Errors.NONE, one.view["read_uncommitted"]["endOffset"])
        if one.cleaned:  # for an empty segment the file's time counts, which a copy does not keep
            continue
        for asked, offset, timestamp in one.view["offsetsForTimes"]:
            found = offset_of(wire, one.topic, asked)
            if one.format == 0 and wire.protocol == "2.8":
                assert found == (Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT, -1, -1)
            elif offset is None:
                assert found == (Errors.NONE, -1, -1), (one.topic, asked)
            else:
                assert found == (Errors.NONE, offset, timestamp), (one.topic, asked)


def test_the_largest_timestamp_is_found_where_there_are_timestamps(wire: Wire) -> None:
    for one in ALL:
        found = offset_of(wire, one.topic, -3, 7)
        largest = max(record.timestamp for record in one.records)
        if one.format == 0 and wire.protocol == "2.8":
            assert found[0] == Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT
        elif largest < 0:
            assert found == (Errors.NONE, -1, -1)
        else:
            first = next(record for record in one.records if record.timestamp == largest)
            assert found == (Errors.NONE, first.offset, largest), one.topic
