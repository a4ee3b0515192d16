"""Readers hold no lock, so a file may be deleted between the search for its segment and its opening. That is not a disk
failure."""

import os

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.storage.files import Files
from kafkapy.record.legacy import iter_entries

from .cleaner.support import CleanerBench
from .support import NOW, Bench, batch


class Meanwhile(Files):
    """Files that call `happening` once, just before the next .log file is opened."""

    happening = None

    def open(self, path, *, create=False):
        if path.endswith(".log") and self.happening is not None:
            happening, self.happening = self.happening, None
            happening()
        return super().open(path, create=create)


@pytest.fixture
def bench(tmp_path):
    size = len(batch("0"))
    bench = Bench(tmp_path, files=Meanwhile(), segment_bytes=2 * size, retention_ms=1000)
    log = bench.load()
    log.append([batch(n, timestamp=NOW + n * 1000) for n in range(8)], 0)
    log.set_high_watermark(8)
    log.close()
    bench.log = bench.load()  # after a load no file of an inactive segment is open
    bench.log.set_high_watermark(8)
    return bench


SEARCHES = {
    "by offset": lambda log: log.read(0, 1 << 20, max_offset=8),
    "by time": lambda log: log.offset_for_timestamp(NOW),
}


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES.keys())
def test_a_topic_deleted_under_a_search_is_gone_and_its_directory_stays_online(bench, search):
    log = bench.log

    def delete():
        log.abandon()
        os.rename(log.directory, log.directory + "-delete")

    bench.files.happening = delete
    with pytest.raises(KafkaError) as refused:
        search(log)
    assert refused.value.code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert bench.failures == []


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES.keys())
def test_a_search_in_a_deleted_topic_does_not_find_the_new_topic_of_its_name(bench, search):
    log = bench.log

    def delete_and_create_again():
        log.abandon()
        os.rename(log.directory, log.directory + "-delete")
        bench.load().append([batch("not the same topic") for _ in range(8)], 0)

    bench.files.happening = delete_and_create_again
    with pytest.raises(KafkaError) as refused:
        search(log)
    assert refused.value.code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert bench.failures == []


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("cleanings", [1, 2])
def test_a_search_during_a_cleaning_does_not_take_the_new_segment_for_the_old_one(tmp_path, cleanings, deleted):
    """Both files have the same name, one after the other: the old file is renamed to `.deleted` first."""
    files = Meanwhile()
    bench = CleanerBench(tmp_path, files=files, segment_bytes=2000)
    for number in range(40):
        bench.append((f"key {number % 7}", f"value {number}"))
    bench.restart(clean=True)  # no file of an inactive segment is open
    log = bench.log

    def clean():
        for _ in range(cleanings):
            bench.clean()
            if deleted:
                bench.scheduler.run("delete-cleaned")

    files.happening = clean
    region = log.read(5, 1 << 20, max_offset=log.log_end_offset).region
    (header, *_) = iter_entries(region.read())
    assert header.base_offset >= 5
    assert files.happening is None
    assert bench.failures == []


def test_a_search_by_time_continues_in_the_segments_that_retention_left(bench):
    bench.clock.advance(5.5)
    bench.files.happening = bench.log.delete_old_segments
    found = bench.log.offset_for_timestamp(NOW)
    assert bench.log.log_start_offset == 4
    assert (found.offset, found.timestamp) == (4, NOW + 4000)
    assert bench.failures == []


def test_a_segment_that_vanished_by_itself_takes_the_directory_offline(bench):
    os.unlink(bench.log.segments.items[0].path(".log"))
    with pytest.raises(KafkaError) as refused:
        bench.log.offset_for_timestamp(NOW)
    assert refused.value.code == Errors.KAFKA_STORAGE_ERROR
    assert len(bench.failures) == 1


def test_a_topic_deleted_under_the_repair_of_an_index_is_gone_and_its_directory_stays_online(tmp_path):
    class AtScan(Files):
        happening = None

        def scan(self, *arguments):
            happening, self.happening = self.happening, None
            if happening is not None:
                happening()
            return super().scan(*arguments)

    files = AtScan()
    bench = Bench(tmp_path, files=files, segment_bytes=500, index_interval_bytes=1)
    log = bench.load()
    log.append([batch(n) for n in range(20)], 0)
    log.close()
    index = tmp_path / "t-0" / f"{0:020d}.index"
    index.write_bytes(bytes(index.stat().st_size))
    log = bench.load()
    assert log.read(3, 100, max_offset=20).region is not None  # this read finds the damage

    def delete():
        log.abandon()
        os.rename(log.directory, log.directory + "-delete")

    files.happening = delete
    bench.scheduler.run("indexes")
    assert files.happening is None
    assert bench.failures == []


@pytest.mark.parametrize("change", ["retention", "truncation"])
def test_a_recovery_point_can_be_noted_while_the_active_segment_goes(tmp_path, change):
    """The segment is deleted after the earlier segments are synced and before its own indexes are synced."""

    class AtOpen(Files):
        happening = None

        def open(self, path, *, create=False):
            if path.endswith("5.index") and self.happening is not None:
                happening, self.happening = self.happening, None
                happening()
            return super().open(path, create=create)

    files = AtOpen()
    bench = Bench(tmp_path, files=files, retention_ms=1000, file_delete_delay_ms=0)
    log = bench.load()
    for n in range(9):
        log.append([batch(n)], 0)
        if n == 4:
            log.roll()
    log.set_high_watermark(9)
    log.flush()
    log.append([batch(10)], 0)
    log.set_high_watermark(10)
    log.flush()

    def go():
        bench.clock.advance(5)
        if change == "retention":
            assert log.delete_old_segments() == 2
        else:
            log.truncate_fully(100)
        bench.scheduler.run("delete-segments")

    files.happening = go
    log.flusher.synced_recovery_point()
    assert files.happening is None
    assert bench.failures == []


def test_reads_during_a_full_truncation_continue_in_the_old_segments(tmp_path):
    """The files are renamed before the list of segments is replaced."""
    found = []

    class AtRename(Files):
        def rename(self, old, new):
            super().rename(old, new)
            if new.endswith(".deleted"):
                found.append(bytes(log.read(0, 1 << 20, max_offset=8).region.read()))
                found.append(log.offset_for_timestamp(NOW + 2000).offset)

    bench = Bench(tmp_path, files=AtRename(), segment_bytes=2 * len(batch("0")))
    log = bench.load()
    log.append([batch(n, timestamp=NOW + n * 1000) for n in range(8)], 0)
    log.close()
    log = bench.load()  # after a load no file of an inactive segment is open
    log.truncate_fully(3)
    assert set(found) == {found[0], 2}
    assert bench.failures == []


def test_a_read_finds_the_file_that_a_truncation_of_everything_has_renamed_meanwhile(bench):
    """A full truncation opens and renames all files before it replaces the list of segments."""
    segment = bench.log.segments.items[0]
    path = segment.path(".log")

    def rename():
        segment.pin_all()
        os.rename(path, path + ".deleted")

    bench.files.happening = rename
    region = bench.log.read(0, 1 << 20, max_offset=8).region
    (header, *_) = iter_entries(region.read())
    assert header.base_offset == 0
    assert bench.failures == []
