"""Finding and walking the segment files of Kafka 0.7."""

import os
import shutil
from pathlib import Path

import pytest

from kafkapy.log.offline import files_07
from kafkapy.log.offline.files_07 import Reader07, gap_in, is_segment_07, partition_of_07, segments_07
from kafkapy.log.offline.places import places_in
from kafkapy.record.kafka07 import CorruptMessage, build_message, iter_messages

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "kafka-0.7.2" / "data"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("topic-0", ("topic", 0)),
        ("topic_0", ("topic", 0)),
        ("my_topic-12", ("my_topic", 12)),
        ("my-topic_3", ("my-topic", 3)),
        ("a-1-2", ("a-1", 2)),
        ("topic", None),
        ("topic-", None),
        ("-0", None),
        ("topic-x", None),
    ],
)
def test_names_of_partitions(name, found):
    assert partition_of_07(name) == found


def test_names_of_segments():
    assert is_segment_07(Path("00000000000000000000.kafka"))
    assert is_segment_07(Path("00000000512.kafka"))
    assert not is_segment_07(Path("00000000000000000000.log"))
    assert not is_segment_07(Path("x.kafka"))


def test_segments_in_order_with_size_and_time():
    found = segments_07(GOLDEN / "gzip-segments-0")
    assert [(one.start, one.size) for one in found] == [(0, 506), (506, 401), (907, 299)]
    assert all(one.modified_ms == int(one.path.stat().st_mtime * 1000) for one in found)
    assert segments_07(GOLDEN.parents[1] / "kafka-0.8.2.2" / "data" / "v0-none-0") == []


def test_eleven_digits_and_underscores(tmp_path):
    directory = tmp_path / "topic_0"
    directory.mkdir()
    for path in (GOLDEN / "gzip-segments-0").iterdir():
        shutil.copy(path, directory / f"{int(path.stem):011d}.kafka")
    assert [one.start for one in segments_07(directory)] == [0, 506, 907]


def test_a_missing_segment_is_reported(tmp_path):
    directory = tmp_path / "gzip-segments-0"
    shutil.copytree(GOLDEN / "gzip-segments-0", directory)
    os.unlink(directory / "00000000000000000506.kafka")
    assert gap_in(segments_07(GOLDEN / "gzip-segments-0")) is None
    assert gap_in(segments_07(directory)) == (
        "00000000000000000000.kafka ends at 506, but the next segment is 00000000000000000907.kafka"
    )


@pytest.mark.parametrize("chunk", [5, 7, 64, 1 << 20])
def test_every_message_of_a_file_is_found_with_any_chunk_size(monkeypatch, chunk):
    monkeypatch.setattr(files_07, "CHUNK", chunk)
    paths = list(GOLDEN.glob("*/*.kafka"))
    assert paths
    for path in paths:
        with Reader07(path) as reader:
            found = [(m.position, m.end, m.magic, m.crc, bytes(m.payload)) for m in reader.messages()]
        expected = [(m.position, m.end, m.magic, m.crc, bytes(m.payload)) for m in iter_messages(path.read_bytes())]
        assert found == expected
        assert found[-1][1] == path.stat().st_size


def test_a_reader_can_begin_at_a_message():
    with Reader07(GOLDEN / "mixed-0" / "00000000000000000000.kafka") as reader:
        assert [message.position for message in reader.messages(55)] == [55, 114, 129, 200]
        assert next(reader.messages()).position == 0


@pytest.mark.parametrize("chunk", [5, 1 << 20])
@pytest.mark.parametrize("cut", [1, 4, 5, 9, 10])
def test_a_cut_message_ends_the_walk(monkeypatch, tmp_path, chunk, cut):
    monkeypatch.setattr(files_07, "CHUNK", chunk)
    path = tmp_path / "0.kafka"
    path.write_bytes(build_message(b"whole") + build_message(b"cut")[:cut])
    with Reader07(path) as reader:
        assert [bytes(message.payload) for message in reader.messages()] == [b"whole"]


@pytest.mark.parametrize("chunk", [5, 1 << 20])
def test_corrupt_bytes_are_reported_with_their_position_in_the_file(monkeypatch, tmp_path, chunk):
    monkeypatch.setattr(files_07, "CHUNK", chunk)
    path = tmp_path / "0.kafka"
    path.write_bytes(build_message(b"whole") + bytes(20))
    with Reader07(path) as reader, pytest.raises(CorruptMessage, match="a length of 0 bytes") as caught:
        list(reader.messages())
    assert caught.value.position == 15


def test_a_partition_has_the_name_of_its_directory(tmp_path):
    """`my_topic_0` is a partition of `my_topic`: early releases put an underscore before the number."""
    names = ["my_topic_0", "my_topic-1", "other_2"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000000000000000000.kafka").write_bytes(build_message(b"a"))
    assert [place.name for place in places_in([tmp_path])] == ["my_topic_0", "my_topic-1", "other_2"]
    assert [place.name for place in places_in([tmp_path / "my_topic"])] == ["my_topic_0", "my_topic-1"]
    assert [place.name for place in places_in([tmp_path / "other_2" / "00000000000000000000.kafka"])] == ["other_2"]
