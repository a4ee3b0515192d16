"""Loading a log after a clean stop, unchanged or changed by other programs."""

import shutil

import pytest

from kafkapy.log.storage.files import Files, OlderFiles

from .support import Bench, batch, contents, idempotent

SETTINGS = {"segment_bytes": 600, "index_interval_bytes": 0, "file_delete_delay_ms": 0}


def filled(log):
    for number in range(12):
        log.append([batch("x" * 60, number, leader_epoch=0)], number // 5)
    log.append([idempotent("a", "b", producer_id=7)], 2)
    log.append([idempotent("c", producer_id=8, transactional=True)], 2)


def beginning_later(log):
    filled(log)
    log.set_high_watermark(log.log_end_offset)
    log.delete_records(3)


def one_segment(log):
    log.append([batch("only")], 0)


def empty(log):
    pass


KINDS = [filled, beginning_later, one_segment, empty]


def cut(data):
    return data[:-3]


def flipped(data):
    return data[:4] + bytes([data[4] ^ 0xFF]) + data[5:] if len(data) > 4 else data + b"\x01"


def behind(data):
    return data + data[-len(data) // 2 :] + b"\0" * 5


def gone(data):
    return None


CHANGES = [cut, flipped, behind, gone]
ENDINGS = [".log", ".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata"]
FOREIGN = {
    "00000000000000000002.txnindex": b"",
    "00000000000000000002.snapshot": b"\0\1",
    "00000000000000099999.snapshot": b"\0\1",
    "00000000000000099999.index": b"",
    "99999999999999999999.log": b"",
    "5.index": b"",
    "00000000000000000000.log.swap": b"",
    "notes.txt": b"a person's",
}


def closed(directory, fill):
    bench = Bench(directory, **SETTINGS)
    log = bench.load(topic_id=bytes(range(16)))
    fill(log)
    start = log.log_start_offset
    log.close()
    return start


def state(log):
    """Return the loaded state of a log as comparable values."""
    return {
        "offsets": (log.log_start_offset, log.log_end_offset, log.recovery_point, log.high_watermark),
        "epochs": (log.leader_epochs.entries, log.leader_epochs.latest_epoch),
        "snapshots": (log.snapshots.offsets, log.snapshots.taken_at),
        "producers": [
            (one.producer_id, one.epoch, one.coordinator_epoch, one.last_timestamp, one.txn_first_offset, one.batches)
            for one in log.producers.producers.values()
        ],
        "open": (log.producers.open, log.producers.end_offset, log.producers.first_unstable_offset),
        "segments": [
            (one.base_offset, one.size, one.offset_index.count, one.time_index.count, one.max_timestamp, one.growing)
            for one in log.segments
        ],
        "has_pending": log.flusher.has_pending,
        "topic id": log.topic_id,
    }


class WithoutContents(Files):
    """Files whose listings have only names and sizes, so that a load opens and reads every file."""

    def look(self, path):
        return {name: entry._replace(content=None) for name, entry in super().look(path).items()}

    def look_apart(self, path):
        return self.look(path), OlderFiles()


def loaded(directory, start, files):
    """Load the log. Return (state, contents of the files after background work)."""
    bench = Bench(directory, files=files, **SETTINGS)
    log = bench.load(log_start_offset=start)
    found = state(log)
    bench.scheduler.run_all()
    log.leader_epochs.close()
    return found, contents(directory / "t-0")


def both(tmp_path, start):
    """Load the log with and without the contents that come with a listing. Assert equal results; return the state."""
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    found = loaded(tmp_path / "a", start, Files())
    assert found == loaded(tmp_path / "b", start, WithoutContents())
    return found[0]


@pytest.mark.parametrize("fill", KINDS)
def test_a_log_that_was_left_alone_is_loaded_as_it_is(tmp_path, fill):
    start = closed(tmp_path / "a", fill)
    before = contents(tmp_path / "a" / "t-0")
    assert not both(tmp_path, start)["has_pending"]
    changed = {name for name, data in contents(tmp_path / "a" / "t-0").items() if before[name] != data}
    assert changed <= {"leader-epoch-checkpoint"}  # may still have entries before the log start


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("fill", [filled, one_segment])
def test_files_changed_by_other_programs_are_loaded_as_they_are_now(tmp_path, fill, last, ending, change):
    start = closed(tmp_path / "a", fill)
    path = sorted(path for path in (tmp_path / "a" / "t-0").iterdir() if path.name.endswith(ending))[-1 if last else 0]
    data = change(path.read_bytes())
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    both(tmp_path, start)


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_that_does_not_belong_to_a_closed_log_changes_none_of_its_records(tmp_path, name):
    start = closed(tmp_path / "a", filled)
    (tmp_path / "a" / "t-0" / name).write_bytes(FOREIGN[name])
    assert both(tmp_path, start)["offsets"][:2] == (0, 27)


def test_an_empty_segment_behind_the_others_is_where_the_log_ends(tmp_path):
    start = closed(tmp_path / "a", filled)
    (tmp_path / "a" / "t-0" / "00000000000000099999.log").write_bytes(b"")
    assert both(tmp_path, start)["offsets"][:2] == (0, 99999)


@pytest.mark.parametrize("name", ["00000000000000000000.log.deleted", "leader-epoch-checkpoint.tmp"])
def test_leftover_files_are_removed_first(tmp_path, name):
    start = closed(tmp_path / "a", filled)
    (tmp_path / "a" / "t-0" / name).write_bytes(b"old")
    both(tmp_path, start)
    assert not (tmp_path / "a" / "t-0" / name).exists()


def test_records_that_others_appended_are_there(tmp_path):
    start = closed(tmp_path / "a", one_segment)
    log = Bench(tmp_path / "a", **SETTINGS).load()
    log.append([batch("of another broker")], 4)
    log.flush()  # not closed, so there is no snapshot at its end
    assert both(tmp_path, start)["offsets"][:2] == (0, 2)


def test_a_log_begins_at_a_start_offset_behind_its_end(tmp_path):
    closed(tmp_path / "a", filled)
    assert both(tmp_path, 99)["offsets"] == (99, 99, 99, 99)


def test_after_an_unclean_stop_all_records_are_there(tmp_path):
    closed(tmp_path / "a", filled)
    log = Bench(tmp_path / "a", **SETTINGS).load(clean=False)
    assert log.log_end_offset == 27
