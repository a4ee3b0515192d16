"""Segment files as rows: files of real brokers, split at any batch, and files that are torn, damaged or changing."""

import base64
import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from kafkapy.arrow import segments
from kafkapy.arrow.segments import read_segments, read_split
from kafkapy.log.offline.bounds import Bounds, Planner, Time
from kafkapy.log.offline.errors import OfflineError
from kafkapy.log.offline.selection import selected
from kafkapy.log.offline.splits import divided
from kafkapy.record import kafka07
from kafkapy.record.batch import build

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
FOLDERS = {"kafka-3.9.1-v2": "data", "kafka-3.9.1-v0-v1": "data", "kafka-0.10.2.2": "data", "kafka-0.8.2.2": "data",
           "kafka-3.9.1-recovery": "after"}  # fmt: skip
SIZES = (1, 700, 1 << 30)
NOW = 1_700_000_000_000


def content(value):
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    return None if value is None else value.encode()


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def splits_in(path, size=1 << 30, *, committed=False, bounds=None):
    planner = Planner(bounds or Bounds(), committed=committed)
    return [piece for place in selected([path]) for split in planner.splits(place) for piece in divided(split, size)]


def rows_of(splits, **options):
    return [row for split in splits for batch in read_split(split, **options) for row in batch.to_pylist()]


def offsets(path, size=1 << 30, **options):
    return [row["offset"] for row in rows_of(splits_in(path, size, **options), columns=["offset"])]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("folder", FOLDERS)
def test_each_split_of_a_log_directory_has_its_part_of_the_records_that_kafka_lists(folder, size):
    pieces = 0
    for place in selected([GOLDEN / folder / FOLDERS[folder]]):
        splits = splits_in(place.directory, size)
        pieces += len(splits)
        wanted = [
            (record["offset"], record["timestamp"], content(record["key"]), content(record["value"]))
            for batch in lines(GOLDEN / folder / "expected" / f"{place.name}.jsonl")
            if not batch.get("control")
            for record in batch["records"]
            if record["offset"] >= splits[0].start  # DeleteRecords
        ]
        found = [
            (row["offset"], round(row["timestamp"].timestamp() * 1000), row["key"], row["value"])
            for row in rows_of(splits)
        ]
        assert found == [(at, -1 if time is None else time, *rest) for at, time, *rest in wanted], place.name
        assert {row["topic"] for row in rows_of(splits)} <= {place.topic}
    assert pieces > 20


@pytest.mark.parametrize("indexed", [True, False], ids=["with-indexes", "log-files-alone"])
@pytest.mark.parametrize("size", SIZES)
def test_rows_are_those_that_a_consumer_of_either_isolation_level_got(tmp_path, size, indexed):
    folder = GOLDEN / "kafka-3.9.1-v2"
    ignored = None if indexed else shutil.ignore_patterns("*index", "*.snapshot")
    shutil.copytree(folder / "data", tmp_path / "data", ignore=ignored)
    seen = 0
    for view in lines(folder / "consumer-view.jsonl"):
        for isolation in ("read_committed", "read_uncommitted"):
            found = offsets(tmp_path / "data" / f"{view['topic']}-0", size, committed=isolation == "read_committed")
            assert found == view[isolation]["offsets"], (view["topic"], isolation)
            seen += len(found)
    assert seen > 500


def test_kafka_07_has_its_offsets_and_no_times():
    folder = GOLDEN / "kafka-0.7.2"
    for place in selected([folder / "data"]):
        wanted = [
            (stored["offset"], content(one["payload"]))
            for stored in lines(folder / "expected" / f"{place.name}.jsonl")
            for one in stored["messages"]
        ]
        rows = rows_of(splits_in(place.directory))
        assert [(row["offset"], row["value"]) for row in rows] == wanted
        assert {(row["topic"], row["partition"], row["timestampType"]) for row in rows} == {
            (place.topic, place.partition, -1)
        }


class Partition:
    """A partition directory with segments of ten batches of ten records each, without indexes."""

    def __init__(self, directory, segments=3):
        self.directory = directory
        directory.mkdir(parents=True)
        for number in range(segments):
            self.path(number).write_bytes(b"".join(self.batch(100 * number + 10 * at) for at in range(10)))

    def path(self, number):
        return self.directory / f"{100 * number:020d}.log"

    @staticmethod
    def batch(offset, count=10):
        records = [(NOW + offset + at, b"k", b"v%d" % (offset + at), ()) for at in range(count)]
        return build(records, base_offset=offset)


@pytest.fixture
def partition(tmp_path):
    return Partition(tmp_path / "log" / "t-0")


@pytest.mark.parametrize("tail", [b"\0" * 5000, Partition.batch(300)[:-1], Partition.batch(300)[:16], b"\0\0\1"])
@pytest.mark.parametrize("size", SIZES)
def test_a_torn_tail_of_the_last_segment_ends_the_records(partition, tail, size):
    with partition.path(2).open("ab") as file:
        file.write(tail)
    assert offsets(partition.directory, size) == list(range(300))
    last = Bounds(start=Time(NOW + 290))
    assert offsets(partition.directory, size, bounds=last) == list(range(290, 300))


@pytest.mark.parametrize("size", SIZES)
def test_a_torn_tail_in_an_earlier_segment_is_damage(partition, size):
    with partition.path(1).open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        file.truncate(end - 1)
    splits = splits_in(partition.directory, size)
    with pytest.raises(OfflineError, match=r"00000100\.log is damaged at t-0: the batch at position \d+ is inc"):
        rows_of(splits)


def test_nonsense_behind_the_last_batch_is_damage(partition):
    with partition.path(2).open("ab") as file:
        file.write(b"nonsense" * 10)
    with pytest.raises(
        OfflineError, match=r"00000200\.log is damaged: from position \d+ on there are 80 bytes that are"
    ):
        offsets(partition.directory)


def test_a_wrong_length_with_batches_behind_it_is_damage_and_no_torn_tail(partition):
    data = bytearray(partition.path(2).read_bytes())
    at = len(data) // 10 * 6
    data[at + 8] ^= 1
    partition.path(2).write_bytes(data)
    with pytest.raises(OfflineError, match=f"is damaged: from position {at} on there are {len(data) - at} bytes that"):
        offsets(partition.directory)


@pytest.mark.parametrize("size", SIZES)
def test_a_damaged_batch_is_reported_or_left_out_with_the_rest_of_its_split(partition, size):
    data = bytearray(partition.path(1).read_bytes())
    at = len(data) // 10 * 4
    data[at + 100] ^= 1
    partition.path(1).write_bytes(data)
    splits = splits_in(partition.directory, size)
    with pytest.raises(OfflineError) as error:
        rows_of(splits)
    assert f"00000100.log is damaged at offset 140 of t-0: the batch at position {at} " in str(error.value)
    messages = []
    found = [row["offset"] for row in rows_of(splits, skipped=messages.append)]
    assert messages == [str(error.value)]
    assert set(range(140)) | set(range(200, 300)) <= set(found) <= set(range(300)) - set(range(140, 150))


def test_an_offset_that_belongs_into_a_later_segment_is_damage(partition):
    data = bytearray(partition.path(1).read_bytes())
    at = len(data) // 10 * 4
    data[at + 5] ^= 1  # no checksum covers it
    partition.path(1).write_bytes(data)
    with pytest.raises(
        OfflineError, match=rf"00000100\.log is damaged at t-0: the batch at position {at} has an offset"
    ):
        offsets(partition.directory)


def test_a_log_that_grows_while_it_is_read_gives_the_records_at_the_time_of_planning(partition):
    (split,) = splits_in(partition.path(2))
    found = []
    for number, batch in enumerate(read_split(split, max_rows=7)):
        found += batch["offset"].to_pylist()
        with partition.path(2).open("ab") as file:
            file.write(Partition.batch(300 + 10 * number))
    assert found == list(range(200, 300))
    assert offsets(partition.path(2))[:110] == list(range(200, 310))


@pytest.mark.parametrize("size", SIZES)
def test_a_log_that_was_cleaned_after_planning_gives_the_remaining_records(partition, size):
    splits = splits_in(partition.directory, size)
    kept = [Partition.batch(offset, 3) for offset in range(0, 200, 20)]
    partition.path(0).write_bytes(b"".join(kept))  # both segments in one, as the cleaner groups them
    partition.path(1).unlink()
    wanted = [offset + at for offset in range(0, 200, 20) for at in range(3)] + list(range(200, 300))
    assert [row["offset"] for row in rows_of(splits)] == wanted


def test_the_error_names_segments_that_retention_has_deleted_since(partition):
    splits = splits_in(partition.directory)
    partition.path(0).unlink()
    with pytest.raises(OfflineError, match=r"00000000\.log was deleted, with offsets 0 to 99 of t-0"):
        rows_of(splits)


def test_the_error_names_a_missing_directory_and_the_machine(partition):
    splits = splits_in(partition.directory)
    shutil.rmtree(partition.directory)
    with pytest.raises(OfflineError, match=r"00000000\.log \(t-0\) could not be read on .+: No such file .* same path"):
        rows_of(splits)


def test_the_error_names_an_unreadable_file_and_the_machine(partition, monkeypatch):
    splits = splits_in(partition.directory)

    def refuse(path, *_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(segments, "LogReader", refuse)  # the superuser may read everything
    with pytest.raises(OfflineError, match=r"00000000\.log \(t-0\) could not be read on .+: Permission denied\. "):
        rows_of(splits)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("start", "end"), [(0, 1), (99, 101), (105, 115), (150, 160), (250, 10**6), (-2, -1), (400, 500), (7, 7)]
)
def test_offsets_outside_of_the_bounds_are_left_out(partition, start, end, size):
    wanted = range(300)[max(start, 0) : end if end >= 0 else 300]
    assert offsets(partition.directory, size, bounds=Bounds(start, end)) == list(wanted)


def test_a_time_means_the_first_record_at_that_time_or_later(partition):
    assert offsets(partition.directory, bounds=Bounds(Time(NOW + 42), Time(NOW + 142))) == list(range(42, 142))
    assert offsets(partition.directory, bounds=Bounds(start=Time(NOW + 300))) == []
    with pytest.raises(OfflineError, match=f"t-0 has no record with timestamp {NOW + 300} or a later one"):
        offsets(partition.directory, bounds=Bounds(start=Time(NOW + 300, or_end=False)))
    with pytest.raises(OfflineError, match=r"none-0 is of Kafka 0\.7, whose messages have no timestamps"):
        offsets(GOLDEN / "kafka-0.7.2" / "data" / "none-0", bounds=Bounds(start=Time(1)))


def entries(*pairs):
    return b"".join(offset.to_bytes(4, "big") + position.to_bytes(4, "big") for offset, position in pairs)


def test_an_index_entry_that_points_into_a_value_is_ignored(tmp_path):
    inner = Partition.batch(5)
    outer = build([(NOW, None, inner, ()) for _ in range(3)], base_offset=0)
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.parent.mkdir()
    path.write_bytes(outer + Partition.batch(3) + Partition.batch(13))
    path.with_suffix(".index").write_bytes(entries((2, outer.index(inner)), (4, outer.index(inner, 200))))
    splits = splits_in(path.parent, 300)
    assert len(splits) > 1
    assert {split.position for split in splits[1:]} <= {len(outer), len(outer) + len(inner)}
    assert [row["offset"] for row in rows_of(splits)] == list(range(23))


@pytest.mark.parametrize("with_index", [True, False])
def test_a_large_segment_is_split_about_evenly_with_an_index_or_without(tmp_path, with_index):
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.parent.mkdir()
    batches = [Partition.batch(10 * number) for number in range(1000)]
    path.write_bytes(b"".join(batches))
    if with_index:
        at = 0
        pairs = []
        for number, batch in enumerate(batches):
            if number and number % 20 == 0:
                pairs.append((10 * number + 9, at))
            at += len(batch)
        path.with_suffix(".index").write_bytes(entries(*pairs) + bytes(800))
    splits = splits_in(path.parent, path.stat().st_size // 8 + 1)
    assert len(splits) == 8
    assert max(split.bytes for split in splits) < path.stat().st_size / 6
    assert [row["offset"] for row in rows_of(splits)] == list(range(10000))


def test_records_before_the_log_start_offset_are_not_read(partition):
    (partition.directory.parent / "log-start-offset-checkpoint").write_text("0\n1\nt 0 123\n")
    assert offsets(partition.directory) == list(range(123, 300))
    assert offsets(partition.directory, bounds=Bounds(start=50)) == list(range(123, 300))


def test_a_directory_name_without_a_partition_gives_no_topic(partition):
    elsewhere = partition.directory.with_name("restored")
    partition.directory.rename(elsewhere)
    (row, *_) = rows_of(splits_in(elsewhere))
    assert (row["topic"], row["partition"], row["offset"]) == (None, None, 0)


def test_the_same_partition_in_two_places_is_refused(partition, tmp_path):
    other = Partition(tmp_path / "other" / "t-0")
    with pytest.raises(OfflineError, match=r"t-0 is there twice, in .*/log/t-0 and in .*/other/t-0"):
        selected([partition.directory.parent, other.directory.parent])


def test_a_partition_inside_a_named_directory_is_read_once(partition):
    (place,) = selected([partition.path(1), partition.directory, partition.directory.parent])
    assert len(place.segments) == 3


def test_internal_topics_are_read_only_when_requested():
    data = GOLDEN / "kafka-3.9.1-v2" / "data"
    assert all(not place.topic.startswith("__") for place in selected([data]))
    assert {place.topic for place in selected([data], ["__consumer_offsets"])} == {"__consumer_offsets"}
    assert {place.topic for place in selected([data / "__consumer_offsets"])} == {"__consumer_offsets"}
    assert [place.name for place in selected([data / "__transaction_state-0"])] == ["__transaction_state-0"]


def test_the_error_names_a_topic_or_partition_that_does_not_exist(partition):
    log_dir = partition.directory.parent
    with pytest.raises(OfflineError, match="has no partition of topic 'orders'; the topics there are: t"):
        selected([log_dir], ["orders"])
    with pytest.raises(OfflineError, match="has no partition 7"):
        selected([log_dir], partitions=[0, 7])


def test_a_torn_message_of_kafka_07_is_tolerated_at_the_end_only(tmp_path):
    directory = tmp_path / "t-0"
    directory.mkdir()
    stored = kafka07.build_message(b"payload")
    first = directory / f"{0:020d}.kafka"
    first.write_bytes(stored * 3 + stored[:5])
    assert offsets(directory) == [0, len(stored), 2 * len(stored)]
    (directory / f"{first.stat().st_size:020d}.kafka").write_bytes(stored)
    with pytest.raises(OfflineError, match=f"is damaged at offset {3 * len(stored)} of t-0: the message at position"):
        offsets(directory)


def test_one_reader_gives_all_partitions_with_the_requested_columns(partition):
    Partition(partition.directory.with_name("t-1"), segments=1)
    with read_segments([partition.directory.parent], columns=["partition", "offset"], max_rows=64) as reader:
        table = reader.read_all()
    wanted = [(0, offset) for offset in range(300)] + [(1, offset) for offset in range(100)]
    assert [tuple(row.values()) for row in table.to_pylist()] == wanted
    assert max(batch.num_rows for batch in table.to_batches()) == 64
