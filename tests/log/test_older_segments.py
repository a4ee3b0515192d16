"""After a clean stop, segment objects before the last one are made only when they are first used."""

import os
import threading

import pytest

from kafkapy._ext.dir_look import look, look_apart
from kafkapy.log.reading.time_lookup import offset_of_max_timestamp
from kafkapy.log.storage.files import Files, OlderFiles

from .support import Bench, batch, values_of

SETTINGS = {"segment_bytes": 400, "index_interval_bytes": 0, "file_delete_delay_ms": 0, "retention_ms": -1}
COUNT = 20


def filled(directory):
    """Write and close a log with several segments. Return their base offsets."""
    log = Bench(directory, **SETTINGS).load(topic_id=bytes(range(16)))
    for number in range(COUNT):
        log.append([batch(f"{number}" + "x" * 40, timestamp=1000 + number)], 0)
    log.set_high_watermark(COUNT)
    log.close()
    assert len(log.segments) > 4
    return log.segments.base_offsets


def made(log):
    return [segment.base_offset for segment in log.segments.made]


def loaded(directory, **options):
    log = Bench(directory, **SETTINGS).load(**options)
    log.set_high_watermark(COUNT)
    return log


def test_only_the_last_segment_is_made_when_a_log_is_loaded(tmp_path):
    bases = filled(tmp_path)
    log = loaded(tmp_path)
    assert made(log) == bases[-1:]
    assert log.segments.base_offsets == bases
    assert log.size == sum(path.stat().st_size for path in (tmp_path / "t-0").glob("*.log"))
    log.append([batch("more")], 0)
    log.flush()
    log.roll()
    log.append([batch("more")], 0)
    log.close()
    assert not {*bases[:-1]} & {*made(log)}
    assert len(values_of(loaded(tmp_path))) == COUNT + 2


def test_the_segments_that_a_reader_reads_are_made(tmp_path):
    bases = filled(tmp_path)
    log = loaded(tmp_path)
    log.read(bases[1], 1, max_offset=COUNT)
    assert made(log) == [bases[1], bases[-1]]
    assert len(values_of(log)) == COUNT
    assert made(log) == bases
    assert log.offset_for_timestamp(1003).offset == 3


def test_two_readers_get_the_same_segment(tmp_path):
    filled(tmp_path)
    log = loaded(tmp_path)
    barrier, found = threading.Barrier(4), []

    def read():
        barrier.wait()
        found.append(log.segments.items[0])

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(one) for one in found}) == 1


def test_older_segments_are_deleted_and_truncated(tmp_path):
    bases = filled(tmp_path)
    log = loaded(tmp_path)
    log.delete_records(bases[2])
    assert log.delete_old_segments() == 2
    assert log.segments.base_offsets == bases[2:]
    assert log.truncate_to(bases[3])
    assert log.log_end_offset == bases[3]
    log.append([batch("after")], 0)
    assert len(values_of(log)) == bases[3] - bases[2] + 1


def test_a_damaged_index_of_an_older_segment_is_rebuilt_after_its_first_use(tmp_path):
    bases = filled(tmp_path)
    path = tmp_path / "t-0" / f"{bases[1]:020d}.index"
    good = path.read_bytes()
    path.write_bytes(b"\xff" * len(good))
    bench = Bench(tmp_path, **SETTINGS)
    log = bench.load()
    assert len(values_of(log)) == COUNT
    bench.scheduler.run_all()
    assert path.read_bytes() == good


@pytest.mark.parametrize("ending", [".index", ".timeindex"])
@pytest.mark.parametrize("change", [lambda data: data[:-3], lambda data: data[:5], lambda data: data + b"\0" * 5])
def test_an_index_of_an_older_segment_that_ends_in_the_middle_of_an_entry_is_rebuilt(tmp_path, ending, change):
    bases = filled(tmp_path)
    path = tmp_path / "t-0" / f"{bases[1]:020d}{ending}"
    good = path.read_bytes()
    path.write_bytes(change(good))
    bench = Bench(tmp_path, **SETTINGS)
    log = bench.load()
    assert made(log) == bases[-1:]
    assert len(values_of(log)) == COUNT
    assert log.offset_for_timestamp(1000 + bases[1]).offset == bases[1]
    bench.scheduler.run_all()
    assert path.read_bytes() == good


def test_the_largest_timestamp_behind_a_torn_time_index_is_that_of_the_records_and_not_of_the_file(tmp_path):
    bases = filled(tmp_path)
    path = tmp_path / "t-0" / f"{bases[1]:020d}.timeindex"
    path.write_bytes(path.read_bytes()[:-3])
    os.utime(path.with_suffix(".log"), (0, 0))
    assert loaded(tmp_path).segments.at(1).largest_timestamp() == 1000 + bases[2] - 1


def test_the_record_with_the_largest_timestamp_is_found_behind_a_torn_time_index(tmp_path):
    log = Bench(tmp_path, **SETTINGS).load()
    for number in range(COUNT):
        log.append([batch("x" * 40, timestamp=9000 if number == 7 else number)], 0)
    log.set_high_watermark(COUNT)
    log.close()
    base = log.segments.base_offsets[log.segments.floor(7)]
    path = tmp_path / "t-0" / f"{base:020d}.timeindex"
    path.write_bytes(path.read_bytes()[:-3])
    assert offset_of_max_timestamp(loaded(tmp_path), COUNT).offset == 7


def test_the_sizes_of_older_indexes_are_asked_for_at_their_first_use(tmp_path):
    bases = filled(tmp_path)
    log = loaded(tmp_path)
    index = log.segments.at(1).offset_index
    with pytest.raises(BlockingIOError):  # a network thread must not wait for the disk
        index.lookup(bases[1], nowait=True)
    assert index.lookup(bases[2] - 1) > 0
    assert index.count == len((tmp_path / "t-0" / f"{bases[1]:020d}.index").read_bytes()) // 8


def test_a_size_that_arrives_after_the_index_has_grown_is_ignored(tmp_path):
    class GrowsMeanwhile(Files):
        grow = None

        def size(self, file):
            size, grow, self.grow = super().size(file), self.grow, None
            if grow is not None:
                grow()
            return size

    bases = filled(tmp_path)
    files = GrowsMeanwhile()
    log = Bench(tmp_path, files=files, **SETTINGS).load()
    index = log.segments.at(1).offset_index

    def grow():  # as if another thread truncated the log to this segment, and appended
        index.reopen_to_grow()
        index.append(bases[2], 4000)

    entries = (tmp_path / "t-0" / f"{bases[1]:020d}.index").stat().st_size // 8
    files.grow = grow
    assert index.lookup(bases[2]) == 4000
    assert index.count == entries + 1


@pytest.mark.parametrize(
    "name", ["{:020d}.txnindex", "{:020d}.log.deleted", "{:020d}.index.cleaned", "{:020d}.other", "{:020d}x"]
)
def test_all_segments_are_made_if_one_has_an_unusual_file(tmp_path, name):
    bases = filled(tmp_path)
    (tmp_path / "t-0" / name.format(bases[1])).write_bytes(b"")
    log = loaded(tmp_path)
    assert made(log) == bases
    assert len(values_of(log)) == COUNT


@pytest.mark.parametrize("ending", [".index", ".timeindex"])
def test_all_segments_are_made_if_one_lacks_a_file(tmp_path, ending):
    bases = filled(tmp_path)
    (tmp_path / "t-0" / f"{bases[1]:020d}{ending}").unlink()
    log = loaded(tmp_path)
    assert made(log) == log.segments.base_offsets
    assert log.log_end_offset == COUNT


def test_files_without_their_log_file_are_removed(tmp_path):
    bases = filled(tmp_path)
    (tmp_path / "t-0" / f"{bases[1]:020d}.log").unlink()
    log = loaded(tmp_path)
    assert log.segments.base_offsets == [bases[0], *bases[2:]]
    assert not (tmp_path / "t-0" / f"{bases[1]:020d}.index").exists()


def test_an_unclean_log_is_loaded_with_all_segments(tmp_path):
    bases = filled(tmp_path)
    assert made(loaded(tmp_path, clean=False)) == bases


def test_every_file_is_either_listed_or_part_of_a_row(tmp_path):
    bases = filled(tmp_path)
    directory = tmp_path / "t-0"
    for name in ("5.snapshot", "notes", "9" * 20 + ".log", "0" * 21 + ".log", f"{bases[2]:020d}.txnindex"):
        (directory / name).write_bytes(b"")
    entries, rows = look_apart(str(directory))
    older = OlderFiles(rows)
    # Not the first segment, because a name with 21 digits begins like it.
    assert older.base_offsets == older.snapshots == [bases[1], *bases[3:-1]]
    names = {entry[0] for entry in entries}
    for base, size in zip(older.base_offsets, older.sizes, strict=True):
        assert (directory / f"{base:020d}.log").stat().st_size == size
        names |= {f"{base:020d}{ending}" for ending in (".log", ".index", ".timeindex", ".snapshot")}
    assert names == {path.name for path in directory.iterdir()} == {entry[0] for entry in look(str(directory))}
    assert {*entries} <= {*look(str(directory))}


def test_a_directory_that_is_missing_raises_its_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="gone"):
        Files().look_apart(str(tmp_path / "gone"))
    assert Files().look_apart(str(tmp_path))[0] == {}
