"""The tools on the directory of a running broker: indexes are preallocated, the last batch may be incomplete."""

import shutil
import struct

import pytest

from kafkapy.log.offline.stored_batches import LogReader
from kafkapy.record.batch import build
from kafkapy.record.control import ABORT, COMMIT, encode_key
from kafkapy.tools.log.dump import indexes as dump_indexes
from kafkapy.tools.log.verify import partition as partition_check
from kafkapy.tools.log.verify import paths
from tests.harness.markers import encode_marker
from tests.log.support import Bench, batch

NAME = "00000000000000000000"


@pytest.fixture(params=[0, 1, 2, 100])
def log(tmp_path, request):
    """Return an open log with so many batches; each one after the first has an index entry."""
    log = Bench(tmp_path / "data", index_interval_bytes=1).load()
    for number in range(request.param):
        log.append([batch(number, timestamp=number)], 0)
    log.segments.active.write_behind()
    yield log
    log.close()


def entries_of(log):
    return log.segments.active.offset_index.count, log.segments.active.time_index.count


def test_verify_finds_no_problem_and_counts_the_bytes_that_were_written(kafkapy, log, tmp_path):
    code, out, _ = kafkapy("log", "verify", log.dir)
    assert (code, out.count("no problem found")) == (0, 1)
    offsets, times = entries_of(log)
    small = sum((log.dir / name).stat().st_size for name in ("leader-epoch-checkpoint",) if (log.dir / name).exists())
    assert f", {log.size + 8 * offsets + 12 * times + small:,} bytes, " in out


def test_dump_finds_no_problem_and_shows_the_entries_that_were_written(kafkapy, log):
    offsets, times = entries_of(log)
    code, out, err = kafkapy("log", "dump", log.dir / f"{NAME}.index", log.dir / f"{NAME}.timeindex")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert sum(line.startswith("offset: ") for line in lines) == offsets
    assert sum(line.startswith("timestamp: ") for line in lines) == times
    assert (f"{log.dir / NAME}.index is empty." in lines) == (offsets == 0)


def test_a_sanity_check_passes(kafkapy, log):
    indexes = log.dir / f"{NAME}.index", log.dir / f"{NAME}.timeindex"
    code, _, err = kafkapy("log", "dump", "--index-sanity-check", *indexes)
    assert (code, err) == (0, "")


@pytest.mark.parametrize("log", [100], indirect=True)
def test_batches_that_are_appended_and_indexed_after_the_log_was_opened_are_found(kafkapy, log, monkeypatch):
    size = log.size // 2
    monkeypatch.setattr(dump_indexes, "LogReader", lambda path: LogReader(path, limit=size))
    code, _, err = kafkapy("log", "dump", log.dir / f"{NAME}.index", log.dir / f"{NAME}.timeindex")
    assert (code, err) == (0, "")


@pytest.mark.parametrize("log", [2], indirect=True)
def test_a_batch_that_is_just_being_written_is_not_damage(kafkapy, log, tmp_path, monkeypatch):
    copy = tmp_path / f"{NAME}.log"
    shutil.copy(log.dir / f"{NAME}.log", copy)
    copy.write_bytes(copy.read_bytes()[:-5])
    assert kafkapy("log", "dump", copy).code == 1
    monkeypatch.setattr(LogReader, "has_grown", True)
    code, out, err = kafkapy("log", "dump", copy)
    assert (code, "invalid" in out, err) == (0, False, "")


@pytest.mark.parametrize("log", [2], indirect=True)
def test_a_segment_that_is_rolled_after_the_directory_was_listed_is_no_problem(kafkapy, log, monkeypatch):
    listed = partition_check.segments_in(log.dir)
    monkeypatch.setattr(partition_check, "segments_in", lambda directory: listed)
    log.roll()
    code, out, _ = kafkapy("log", "verify", log.dir)
    assert (code, out.count("no problem found")) == (0, 1)


def delete_after_it_was_listed(directory, base, monkeypatch):
    """Delete a segment's files, as a broker may do between the listing of a directory and the check of the segment."""
    listed = partition_check.segments_in(directory)
    monkeypatch.setattr(partition_check, "segments_in", lambda directory: listed)
    for path in list(directory.glob(f"{base:020d}.*")):
        path.unlink()


@pytest.mark.parametrize("count", [1, 2])
def test_segments_that_are_all_deleted_after_the_directory_was_listed_are_no_problem(
    kafkapy, tmp_path, monkeypatch, count
):
    log = Bench(tmp_path / "data", retention_ms=1).load()
    for number in range(count):
        log.roll()
        log.append([batch(number, timestamp=1)], 0)
    log.advance_high_watermark(count, 0)
    real, deleted = partition_check.segments_in, []

    def list_and_delete(directory):
        found = real(directory)
        deleted.append(log.delete_old_segments())
        return found

    monkeypatch.setattr(partition_check, "segments_in", list_and_delete)
    code, out, _ = kafkapy("log", "verify", log.dir)
    log.close()
    assert (code, out.count("no problem found"), sum(deleted)) == (0, 1, count)


@pytest.mark.parametrize("log", [2], indirect=True)
@pytest.mark.parametrize(
    ("module", "name"), [(paths, "is_partition"), (partition_check, "check_segment"), (partition_check, "check_epochs")]
)
def test_a_partition_that_is_deleted_after_the_log_directory_was_listed_is_no_problem(
    kafkapy, log, tmp_path, monkeypatch, module, name
):
    copies = [shutil.copytree(log.dir, tmp_path / "copies" / partition) for partition in ("t-0", "u-0")]
    real, gone = getattr(module, name), copies[0]

    def delete_and_check(path, *arguments, **options):
        if gone in (path, path.parent) and gone.exists():
            gone.rename(gone.with_name(f"{gone.name}.0-delete"))
        return real(path, *arguments, **options)

    monkeypatch.setattr(module, name, delete_and_check)
    code, out, _ = kafkapy("log", "verify", tmp_path / "copies")
    assert (code, out.count("no problem found"), gone.exists()) == (0, 1, False)


@pytest.mark.parametrize("log", [2], indirect=True)
def test_a_segment_that_is_deleted_after_the_directory_was_listed_is_no_problem(kafkapy, log, tmp_path, monkeypatch):
    log.roll()
    log.append([batch(2, timestamp=2)], 0)
    copy = shutil.copytree(log.dir, tmp_path / "t-0")
    delete_after_it_was_listed(copy, 0, monkeypatch)
    code, out, _ = kafkapy("log", "verify", copy)
    assert (code, out.count("no problem found")) == (0, 1)


def test_a_transaction_that_ends_in_a_deleted_segment_is_no_problem(kafkapy, tmp_path, monkeypatch):
    """The transaction at offset 0 is committed in the deleted segment; the one at offset 2 is another, aborted one."""
    own = {"producer_id": 7, "producer_epoch": 0, "leader_epoch": 0, "transactional": True}

    def data(offset, sequence):
        return build([(0, b"k", b"v", ())], base_offset=offset, base_sequence=sequence, **own)

    def marker(kind, offset):
        return build([(0, encode_key(kind), encode_marker(3), ())], base_offset=offset, control=True, **own)

    directory = tmp_path / "t-0"
    directory.mkdir()
    for base, content in enumerate([data(0, 0), marker(COMMIT, 1), data(2, 1) + marker(ABORT, 3)]):
        (directory / f"{base:020d}.log").write_bytes(content)
        (directory / f"{base:020d}.index").write_bytes(b"")
    (directory / f"{2:020d}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, 2, 3, 4))
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    assert kafkapy("log", "verify", directory).code == 0
    delete_after_it_was_listed(directory, 1, monkeypatch)
    code, out, _ = kafkapy("log", "verify", directory)
    assert (code, out.count("no problem found")) == (0, 1)
