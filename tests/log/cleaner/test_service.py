"""The cleaner's threads: which log they choose, when they are interrupted, and how they handle failures of a log."""

import errno
import threading

import pytest

from kafkapy.errors import KafkaError
from kafkapy.log.cleaner import service
from kafkapy.log.cleaner.service import LogCleaner
from kafkapy.log.cleaner.settings import CleanerSettings
from kafkapy.log.cleaner.throttle import Throttle
from kafkapy.log.cleaner.worker import CleanerThread
from kafkapy.log.config import LogConfig
from kafkapy.log.manager import LogManager
from kafkapy.runtime.clock import SYSTEM_CLOCK, ManualClock
from tests.harness.waiting import eventually
from tests.log.support import ManualScheduler, batch

from .support import CleanerBench, UnsyncedFiles, pairs

FAST = CleanerSettings(backoff_ms=5, dedupe_buffer=1 << 20, io_buffer=16384)


@pytest.fixture
def serve():
    """Return a function that starts a cleaner over the logs of benches. The cleaners are stopped at the end."""
    running = []

    def start(*benches, settings=FAST, clock=SYSTEM_CLOCK):
        cleaner = LogCleaner([bench.log for bench in benches], clock, settings)
        running.append(cleaner)
        cleaner.start()
        return cleaner

    yield start
    for cleaner in running:
        cleaner.stop()


def filled(path, rounds=20, *, files=None, **settings):
    bench = CleanerBench(path, files=files, segment_bytes=4000, **settings)
    for number in range(rounds):
        bench.append(*((f"key {key}", f"value {number}" * 10) for key in range(3)))
    bench.log.roll()
    return bench


def cleaned_to(bench):
    return bench.env.cleaner_offsets.get(("t", 0))


def test_a_dirty_log_is_cleaned_and_its_checkpoint_updated(tmp_path, serve):
    bench = filled(tmp_path)
    cleaner = serve(bench)
    eventually(lambda: cleaned_to(bench) == 60)
    assert pairs(bench.log) == ({b"key %d" % key: b"value 19" * 10 for key in range(3)}, [57, 58, 59])
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\nt 0 60\n"
    eventually(lambda: cleaner.last_stats)
    assert cleaner.last_stats[0].records_kept == 3
    eventually(lambda: cleaner.dirtiest_ratio == 0.0)
    assert cleaner.dead_threads == 0


def test_the_dirtiest_log_comes_first(tmp_path):
    clean = filled(tmp_path / "a")
    clean.clean()
    clean.append(("one", "more" * 100))
    clean.log.roll()
    dirty = filled(tmp_path / "b")
    cleaner = LogCleaner([clean.log, dirty.log], SYSTEM_CLOCK, FAST)
    first = cleaner.choose()
    assert first.log is dirty.log
    second = cleaner.choose()  # the first log is already being cleaned
    assert second.log is clean.log
    assert cleaner.choose() is None
    assert cleaner.dirtiest_ratio == 1.0


def test_a_log_without_compaction_is_left_alone(tmp_path):
    bench = filled(tmp_path, cleanup_policy=["delete"])
    assert LogCleaner([bench.log], SYSTEM_CLOCK, FAST).choose() is None


def test_a_log_that_cannot_be_cleaned_is_marked_and_not_tried_again(tmp_path, serve, caplog):
    bench, healthy = filled(tmp_path / "a"), filled(tmp_path / "b")
    path = tmp_path / "a" / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    cleaner = serve(bench, healthy)
    eventually(lambda: cleaner.uncleanable_in(str(tmp_path / "a")))
    eventually(lambda: cleaned_to(healthy) == 60)
    assert cleaner.uncleanable_in(str(tmp_path / "a")) == [bench.log]
    assert cleaner.uncleanable_in(str(tmp_path / "b")) == []
    assert cleaner.uncleanable_bytes_in(str(tmp_path / "a")) == sum(one.size for one in bench.log.segments)
    messages = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(messages) == 1
    assert "t-0 cannot be cleaned" in messages[0]
    assert f"{0:020}.log" in messages[0]
    assert "wrong CRC" in messages[0]
    assert path.read_bytes() == data
    assert not list(path.parent.glob("*.cleaned"))


def test_a_log_that_cannot_be_examined_does_not_keep_others_from_being_cleaned(tmp_path, serve):
    """The log's first batch is damaged, whose timestamp is needed for max.compaction.lag.ms."""
    broken = filled(tmp_path / "broken", max_compaction_lag_ms=1000)
    other = filled(tmp_path / "other", max_compaction_lag_ms=1000)
    broken.restart(clean=True)
    first = broken.log.segments.items[0]
    first.files.pwritev(first.handle(), [bytes(100)], 0)
    cleaner = serve(broken, other)
    eventually(lambda: cleaned_to(other) is not None)
    eventually(lambda: cleaner.uncleanable_in(broken.env.log_dir) == [broken.log])
    assert cleaner.dead_threads == 0


class OutOfOrder:
    """A retention policy with a bug."""

    def rules(self, log, now_ms):
        raise ZeroDivisionError


def test_a_retention_policy_that_fails_stops_neither_the_cleaner_nor_the_retention_of_other_logs(tmp_path, serve):
    broken, other = filled(tmp_path / "broken"), filled(tmp_path / "other")
    broken.log.retention = OutOfOrder()
    cleaner = serve(broken, other)
    for bench in (broken, other):
        eventually(lambda bench=bench: cleaned_to(bench) is not None)
    other.log.delete_records(other.log.segments.active.base_offset)
    eventually(lambda: len(other.log.segments) == 1)
    assert cleaner.dead_threads == 0


def test_a_re_created_log_may_be_cleaned_again(tmp_path):
    logs = [filled(tmp_path / "a").log]
    cleaner = LogCleaner(logs, SYSTEM_CLOCK, FAST)
    cleaner.mark_uncleanable(logs[0], "it is broken")
    assert cleaner.choose() is None
    logs[0] = filled(tmp_path / "a2").log
    assert cleaner.choose().log is logs[0]


def test_a_full_disk_delays_the_cleaning(tmp_path, serve, caplog):
    class FullDisk(UnsyncedFiles):
        full = True

        def pwritev(self, file, buffers, position):
            if self.full and str(file.path).endswith(".cleaned"):
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().pwritev(file, buffers, position)

    files = FullDisk()
    clock = ManualClock()
    bench = filled(tmp_path, files=files)
    cleaner = serve(bench, clock=clock)
    eventually(lambda: "is cleaned later" in caplog.text)
    assert bench.env.failure is None
    assert cleaner.choose() is None
    files.full = False
    eventually(lambda: clock.advance(61) or cleaned_to(bench) == 60)


class ShortFiles(UnsyncedFiles):
    """Files whose next sync fails for lack of a file descriptor, once `is_short` is True."""

    is_short = False

    def sync(self, file):
        was_short, self.is_short = self.is_short, False
        if was_short:
            raise OSError(errno.EMFILE, "Too many open files")


def test_a_shortage_of_descriptors_in_the_flush_before_a_cleaning_only_delays_it(tmp_path):
    files = ShortFiles()
    bench = filled(tmp_path, files=files)
    clock = ManualClock()
    cleaner = LogCleaner([bench.log], clock, FAST)
    thread = CleanerThread(0, cleaner)
    files.is_short = True
    assert thread._clean_one()
    assert not files.is_short
    assert cleaner.uncleanable_in(str(tmp_path)) == []
    assert not thread._clean_one()
    clock.advance(61)
    assert thread._clean_one()
    assert cleaned_to(bench) == 60


def test_a_look_at_a_log_that_runs_out_of_memory_only_delays_its_cleaning(tmp_path, monkeypatch):
    def no_memory(*_):
        raise MemoryError

    bench = filled(tmp_path)
    clock = ManualClock()
    cleaner = LogCleaner([bench.log], clock, FAST)
    with monkeypatch.context() as patched:
        patched.setattr(service, "candidate", no_memory)
        assert cleaner.choose() is None
    assert cleaner.uncleanable_in(str(tmp_path)) == []
    assert cleaner.choose() is None
    clock.advance(61)
    assert cleaner.choose().log is bench.log


def test_a_broken_disk_takes_the_directory_offline(tmp_path, serve):
    class Broken(UnsyncedFiles):
        def read_into(self, file, buffer, position):
            raise OSError(errno.EIO, "Input/output error")

    bench = filled(tmp_path, files=Broken())
    cleaner = serve(bench)
    eventually(lambda: bench.failures)
    assert bench.env.failure is not None
    assert cleaner.uncleanable_in(str(tmp_path)) == []
    assert cleaner.dead_threads == 0


class SlowFiles(UnsyncedFiles):
    """Files whose reads wait until the test lets them continue."""

    def __init__(self):
        self.reading = threading.Event()
        self.may_continue = threading.Event()

    def read_into(self, file, buffer, position):
        self.reading.set()
        assert self.may_continue.wait(30)
        return super().read_into(file, buffer, position)


@pytest.mark.parametrize("change", ["truncate", "delete"])
def test_a_truncation_or_deletion_interrupts_the_cleaning(tmp_path, serve, change):
    files = SlowFiles()
    bench = filled(tmp_path, files=files)
    log = bench.log
    serve(bench)
    assert files.reading.wait(30)
    changing = threading.Thread(target=lambda: log.truncate_to(7) if change == "truncate" else log.abandon())
    changing.start()
    eventually(lambda: log.upkeep._wanted)
    files.may_continue.set()
    changing.join(30)
    assert not changing.is_alive()
    assert not list((tmp_path / "t-0").glob("*.cleaned"))
    if change == "truncate":
        assert log.log_end_offset == 7
    else:
        assert cleaned_to(bench) is None


def test_records_after_a_truncation_are_dirty(tmp_path):
    bench = filled(tmp_path)
    bench.clean()
    assert cleaned_to(bench) == 60
    bench.log.truncate_to(30)
    assert cleaned_to(bench) == 30
    bench.log.truncate_fully(5)
    assert cleaned_to(bench) == 5


def test_records_after_a_truncation_are_dirty_even_after_a_crash_in_it_or_a_change_of_the_policy(tmp_path):
    class Crash(UnsyncedFiles):
        armed = False

        def rename(self, old, new):
            if self.armed and new.endswith(".deleted"):
                raise KeyboardInterrupt
            super().rename(old, new)

    files = Crash()
    bench = filled(tmp_path, files=files)
    bench.clean()
    bench.log.update_config(LogConfig({"cleanup.policy": ["delete"]}))
    files.armed = True
    with pytest.raises(KeyboardInterrupt):
        bench.log.truncate_to(30)
    assert cleaned_to(bench) == 30


def test_retention_waits_while_a_log_is_cleaned(tmp_path):
    bench = filled(tmp_path, cleanup_policy=["compact", "delete"], retention_ms=1)
    bench.clock.advance(100)
    assert bench.log.upkeep.try_begin()
    assert bench.log.delete_old_segments() == 0
    bench.log.upkeep.end()
    assert bench.log.delete_old_segments() > 0


def test_the_cleaner_deletes_segments_before_the_start_of_a_compacted_log(tmp_path, serve):
    bench = filled(tmp_path)
    bench.log.delete_records(60)
    serve(bench)
    eventually(lambda: len(bench.log.segments) == 1)
    assert bench.log.segments.items[0].base_offset == 60


def test_the_limit_on_bytes_a_second_can_be_waited_out(tmp_path, serve):
    """With a limit of a byte a second, the cleaner sleeps at once. A stop, a truncation and new settings wake it."""
    bench = filled(tmp_path)
    crawl = CleanerSettings(backoff_ms=5, max_bytes_per_second=1.0)
    cleaner = serve(bench, settings=crawl)
    eventually(lambda: not bench.log.upkeep.try_begin() or bench.log.upkeep.end())
    bench.log.truncate_to(50)
    eventually(lambda: not bench.log.upkeep.try_begin() or bench.log.upkeep.end())
    cleaner.reconfigure(FAST)
    eventually(lambda: cleaned_to(bench) == bench.log.segments.active.base_offset)
    assert len(cleaner.threads) == 1
    cleaner.reconfigure(CleanerSettings(threads=3, backoff_ms=5))
    assert len(cleaner.threads) == 3


def test_a_throttle_counts_the_bytes_of_all_threads():
    clock = ManualClock()
    throttle = Throttle(1000.0, clock)
    assert throttle.take(300) == pytest.approx(0.3)
    assert throttle.take(200) == pytest.approx(0.5)
    clock.advance(10)
    assert throttle.take(200) == 0.0  # after a pause, only one burst is free
    assert throttle.take(500) == pytest.approx(0.4)
    throttle.set_rate(1_000_000.0)
    assert throttle.take(1000) == pytest.approx(0.001)


# --- in a log manager


@pytest.fixture
def manager(tmp_path):
    scheduler = ManualScheduler()
    manager = LogManager(
        [tmp_path / "logs"], CleanerBench(tmp_path / "x").config, clock=SYSTEM_CLOCK, scheduler=scheduler
    )
    manager.compaction.configure(FAST)
    manager.load()
    manager.start()
    yield manager, scheduler
    manager.close()


def test_the_cleaner_starts_with_the_first_compacted_log(manager):
    logs, scheduler = manager
    scheduler.run("log-cleaner-start")
    assert logs.compaction.cleaner is None
    log = logs.create("t", 0, None, logs.defaults)
    for number in range(10):
        log.append([keyed("a", number)], 0)
    log.roll()
    log.set_high_watermark(10)
    scheduler.run("log-cleaner-start")
    assert logs.compaction.cleaner is not None
    eventually(lambda: log.env.cleaner_offsets.get(("t", 0)) == 10)
    scheduler.run("log-retention")
    logs.delete("t", 0)
    assert log.env.cleaner_offsets.get(("t", 0)) is None
    logs.close()
    assert logs.compaction.cleaner.threads == []


def test_a_stale_checkpoint_does_not_outlive_its_log(manager):
    logs, _ = manager
    (log_dir,) = logs.online_dirs()
    log_dir.env.cleaner_offsets.put(("t", 0), 1000)
    logs.create("t", 0, None, logs.defaults)
    assert log_dir.env.cleaner_offsets.get(("t", 0)) is None


def test_the_checkpoint_of_a_new_log_is_not_corrected_by_a_look_at_the_deleted_one_of_its_name(manager, monkeypatch):
    """The topic is deleted when the cleaner is about to correct its checkpoint, which is below the log start offset."""
    logs, _ = manager
    old = logs.create("t", 0, None, logs.defaults)
    offsets = old.env.cleaner_offsets
    for number in range(10):
        old.append([keyed("a", number)], 0)
    old.set_high_watermark(10)
    old.delete_records(8)
    offsets.put(("t", 0), 5)
    look = service.candidate

    def overtaken(log, *arguments):
        found = look(log, *arguments)
        if log is old:
            logs.delete("t", 0)
            logs.create("t", 0, None, logs.defaults)
        return found

    monkeypatch.setattr(service, "candidate", overtaken)
    assert LogCleaner([old], SYSTEM_CLOCK, FAST).choose() is None
    assert logs.get("t", 0) is not old
    assert offsets.get(("t", 0)) is None


def test_a_checkpoint_before_the_start_of_its_log_is_corrected(manager):
    logs, _ = manager
    log = logs.create("t", 0, None, logs.defaults)
    for number in range(10):
        log.append([keyed("a", number)], 0)
    log.set_high_watermark(10)
    log.delete_records(8)
    log.env.cleaner_offsets.put(("t", 0), 5)
    assert LogCleaner([log], SYSTEM_CLOCK, FAST).choose() is None
    assert log.env.cleaner_offsets.get(("t", 0)) == 8


def test_a_switched_off_cleaner_never_starts(tmp_path):
    scheduler = ManualScheduler()
    logs = LogManager([tmp_path], CleanerBench(tmp_path / "x").config, clock=SYSTEM_CLOCK, scheduler=scheduler)
    logs.compaction.configure(CleanerSettings(enable=False))
    logs.load()
    logs.start()
    assert not [task for task in scheduler.tasks if task.name == "log-cleaner-start"]
    logs.close()


def test_records_without_a_key_are_refused(tmp_path):
    bench = CleanerBench(tmp_path)
    (verdict,) = bench.log.append([batch("no key")], 0)
    assert isinstance(verdict, KafkaError)
    assert "INVALID_RECORD" in str(verdict)


def keyed(key, value):
    from kafkapy.record.batch import build

    return memoryview(bytearray(build([(1_700_000_000_000, key.encode(), str(value).encode(), [])])))
