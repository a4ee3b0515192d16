"""Readers hold no lock: a file may go between finding its segment and opening it. That is no failure of the disk."""

import os

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.files import Files

from .support import NOW, Bench, batch


class Meanwhile(Files):
    """Calls `happening` once, just before the next .log file is opened."""

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
    bench.log = bench.load()  # anew: no file of an inactive segment is open
    bench.log.set_high_watermark(8)
    return bench


SEARCHES = {
    "by offset": lambda log: log.read(0, 1 << 20, max_offset=8),
    "by offset, not waiting": lambda log: log.read(0, 1 << 20, max_offset=8, blocking=False),
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


def test_a_search_by_time_goes_on_in_the_segments_that_retention_left(bench):
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
