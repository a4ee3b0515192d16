"""Leader epochs, checkpoints, partition.metadata, meta.properties and names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.log import names
from kafkapy.log.directories.checkpoints import CheckpointError, OffsetCheckpoint
from kafkapy.log.directories.meta_properties import MetaPropertiesError, parse_properties
from kafkapy.log.directories.partition_metadata import PartitionMetadataError, parse_metadata
from kafkapy.log.leader_epochs import LeaderEpochCache
from kafkapy.log.storage.files import Files

from .support import FailingFiles


def epochs(tmp_path, *entries):
    cache = LeaderEpochCache(Files(), str(tmp_path))
    for epoch, start in entries:
        cache.assign(epoch, start)
    return cache


def test_epochs_are_durable_when_assigned(tmp_path):
    epochs(tmp_path, (0, 0), (2, 5), (2, 7), (3, 9))
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n2 5\n3 9\n"
    again = LeaderEpochCache(Files(), str(tmp_path))
    again.load()
    assert again.entries == ((0, 0), (2, 5), (3, 9))


@pytest.mark.parametrize("starts", [[(0, 0)], [(0, 1)], [(1, 0)], [(0, 0), (1, 0)], [(0, 0), (2, 5)]])
def test_epochs_are_read_as_they_were_assigned(tmp_path, starts):
    written, read = LeaderEpochCache(Files(), str(tmp_path)), LeaderEpochCache(Files(), str(tmp_path))
    for epoch, start in starts:
        written.assign(epoch, start)
    read.load()
    assert (read.entries, read.latest_epoch) == (written.entries, written.latest_epoch)


def test_a_listing_asks_only_those_names_for_their_size_that_it_is_asked_for(tmp_path):
    (tmp_path / "a.log").write_bytes(b"123")
    (tmp_path / "b.index").write_bytes(b"12")
    (tmp_path / "c.log").mkdir()
    assert [(one.name, one.size, one.is_dir) for one in Files().entries(str(tmp_path), (".log",))] == [
        ("a.log", 3, False),
        ("b.index", 0, False),
        ("c.log", (tmp_path / "c.log").stat().st_size, True),
    ]
    assert [one.is_dir for one in Files().entries(str(tmp_path), ())] == [False, False, True]


def test_the_current_epoch_is_not_written_again(tmp_path):
    files = FailingFiles(only={"write"})
    cache = LeaderEpochCache(files, str(tmp_path))
    cache.assign(1, 0)
    cache.assign(1, 10)
    assert files.count == 1


def test_an_epoch_without_records_is_replaced(tmp_path):
    assert epochs(tmp_path, (0, 0), (1, 5), (2, 5)).entries == ((0, 0), (2, 5))


def test_a_new_epoch_removes_conflicting_entries(tmp_path, caplog):
    assert epochs(tmp_path, (0, 0), (1, 5), (3, 9), (2, 7)).entries == ((0, 0), (1, 5), (2, 7))
    assert "removes" in caplog.text


def test_the_end_offset_of_an_epoch_is_the_start_of_the_next_one(tmp_path):
    cache = epochs(tmp_path, (2, 10), (4, 20), (7, 30))
    assert cache.end_offset_for(-1, 40) == (-1, -1)
    assert cache.end_offset_for(1, 40) == (1, 10)
    assert cache.end_offset_for(2, 40) == (2, 20)
    assert cache.end_offset_for(3, 40) == (2, 20)
    assert cache.end_offset_for(6, 40) == (4, 30)
    assert cache.end_offset_for(7, 40) == (7, 40)
    assert cache.end_offset_for(8, 40) == (-1, -1)
    assert epochs(tmp_path / "none").end_offset_for(0, 0) == (-1, -1)


def test_which_epoch_an_offset_was_written_in(tmp_path):
    cache = epochs(tmp_path, (2, 10), (4, 20))
    assert [cache.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 99)] == [-1, 2, 2, 4, 4]


def test_truncation_from_both_ends(tmp_path):
    cache = epochs(tmp_path, (2, 10), (4, 20), (7, 30))
    cache.truncate_from_start(25)
    assert cache.entries == ((4, 25), (7, 30))
    cache.truncate_from_end(30)
    assert cache.entries == ((4, 25),)
    cache.truncate_from_start(25)
    cache.truncate_from_start(3)
    assert cache.entries == ((4, 25),)
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n1\n4 25\n"
    cache.clear()
    assert (cache.latest_epoch, cache.entries) == (-1, ())


topics = st.text("abc-._", min_size=1, max_size=10)


@given(st.dictionaries(st.tuples(topics, st.integers(0, 99)), st.integers(0, 1 << 62), max_size=20))
def test_offset_checkpoints_round_trip(tmp_path_factory, offsets):
    directory = str(tmp_path_factory.mktemp("checkpoint"))
    OffsetCheckpoint(Files(), directory, "name").write(offsets)
    assert OffsetCheckpoint(Files(), directory, "name").read() == offsets


def test_an_unchanged_checkpoint_is_not_written_again(tmp_path):
    files = FailingFiles(only={"write"})
    checkpoint = OffsetCheckpoint(files, str(tmp_path), "name")
    checkpoint.write({("t", 0): 5})
    checkpoint.write({("t", 0): 5})
    assert files.count == 1


@pytest.mark.parametrize(
    "text",
    [
        *("1\n0\n", "x\n", "0\nx\n", "0\n1\n", "0\n1\nt 0\n", "0\n1\nt 0 x\n", "0\n0\nt 0 1\n", "\xff\n"),
        *("0\n1\nt 0 1 2\n", "0\n1\nt 0 -1\n", "0\n1\nt -1 1\n", "0\n1\n 0 1\n", "0\n1\nt 0 1_0\n", "\0" * 50),
    ],
)
def test_the_error_for_a_garbled_checkpoint_names_the_file(tmp_path, text):
    (tmp_path / "name").write_text(text)
    with pytest.raises(CheckpointError, match="name"):
        OffsetCheckpoint(Files(), str(tmp_path), "name").read()


@pytest.mark.parametrize("text", ["", "0\n"])
def test_an_empty_checkpoint_has_no_entries(tmp_path, text):
    (tmp_path / "name").write_text(text)
    assert OffsetCheckpoint(Files(), str(tmp_path), "name").read() == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: AAAA",
        b"version: 0",
        b"garbage",
        b"version: 0\ntopic_id: AAAAAAAAAA\xffAAAAAAAAAAA",
    ],
)
def test_garbled_partition_metadata_is_refused(data):
    with pytest.raises(PartitionMetadataError, match="a/path"):
        parse_metadata(data, "a/path")


@pytest.mark.parametrize(
    ("data", "names_it"),
    [
        (b"version=2\nnode.id=1\n", "version=2"),
        (b"version=1\nbroker.id=1\n", "node.id"),
        (b"version=0\n", "broker.id"),
        (b"version=0\nbroker.id=x\n", "x"),
    ],
)
def test_meta_properties_of_another_kind_are_refused(data, names_it):
    with pytest.raises(MetaPropertiesError, match=names_it):
        parse_properties(data, "a/path")


def test_meta_properties_of_kraft_are_read():
    found = parse_properties(b"node.id=3\ndirectory.id=eOQk2t7fTX6z\nversion=1\ncluster.id=c\n", "a/path")
    assert (found.broker_id, found.cluster_id, found.is_kraft) == (3, "c", True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t-0", ("t", 0, "")),
        ("__cluster_metadata-0", None),
        ("a-b.c_d-12", ("a-b.c_d", 12, "")),
        ("t-0.0123456789abcdef0123456789abcdef-delete", ("t", 0, "-delete")),
        ("t-3.x-stray", ("t", 3, "-stray")),
        ("t-3.x-future", ("t", 3, "-future")),
        ("t-0-delete", None),
        ("t", None),
        ("-0", None),
        ("t-", None),
        ("t-x", None),
        ("t--1", ("t-", 1, "")),
        ("t-٣", None),
    ],
)
def test_directory_names(name, expected):
    assert names.parse_dir_name(name) == expected


def test_marked_names_are_read_back():
    for kind in (names.DELETE_DIR, names.STRAY_DIR):
        assert names.parse_dir_name(names.marked_dir_name("a-b", 7, kind)) == ("a-b", 7, kind)


def test_file_names():
    assert names.file_name(42, names.LOG) == "00000000000000000042.log"
    assert names.offset_of("00000000000000000042.log.deleted") == 42
    assert names.offset_of("leader-epoch-checkpoint") is None
