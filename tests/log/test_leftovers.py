"""Deletions, cleanings and splits that a crash interrupted are finished or undone at the next start."""

import itertools
import os
import shutil

import pytest

from kafkapy.log import names
from kafkapy.log.loading.leftovers import clear_leftovers
from kafkapy.log.loading.load_progress import LoadReport
from kafkapy.log.segments.segment import Segment
from kafkapy.log.storage.files import Files

from .support import Bench, batch, contents, values_of

SETTINGS = {"segment_bytes": 400, "index_interval_bytes": 100}
KINDS = (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX)


def file(directory, base, kind, mark=""):
    return directory / "t-0" / f"{base:020d}{kind}{mark}"


@pytest.fixture
def log(tmp_path):
    """Return a closed log with several segments."""
    log = Bench(tmp_path, **SETTINGS).load()
    for number in range(30):
        log.append([batch(number)], 0)
    log.close()
    assert len(log.segments) > 4
    return log


def cleaned(tmp_path, log, mark):
    """Write segments 0 and 1 merged into one, without the first records, in files whose names end with `mark`."""
    first, second = log.segments.items[:2]
    bench = Bench(tmp_path, **SETTINGS)
    segment = Segment.create(bench.files, log.directory, 0, bench.config, bench.clock, suffix=mark)
    kept = first.size // 2 if first.size // 2 % (size := len(batch("0"))) == 0 else size
    data = file(tmp_path, 0, names.LOG).read_bytes()[kept:] + file(tmp_path, second.base_offset, names.LOG).read_bytes()
    segment.size = bench.files.write_all(segment.handle(), [data], 0)
    found = bench.files.scan(segment.handle(), 0, segment.size, 0, 100)
    segment.offset_index.take(found.offset_entries)
    segment.time_index.take(found.time_stamps, found.time_offsets)
    segment.seal()
    segment.release()


def offsets_of(directory, **loading):
    log = Bench(directory, **SETTINGS).load(**loading)
    offsets = [offset for offset, _ in values_of(log)]
    log.close()
    left = [name for name in os.listdir(directory / "t-0") if name.endswith((".deleted", ".cleaned", ".swap", ".tmp"))]
    assert left == []
    return offsets


WHOLE = list(range(30))


def test_files_marked_as_deleted_are_removed(tmp_path, log):
    second = log.segments.base_offsets[1]
    for kind in (*KINDS, names.SNAPSHOT):
        file(tmp_path, second, kind, ".deleted").write_bytes(b"x")
    assert offsets_of(tmp_path) == WHOLE


@pytest.mark.parametrize("clean", [True, False])
def test_an_unfinished_cleaning_is_undone(tmp_path, log, clean):
    cleaned(tmp_path, log, names.CLEANED)
    assert offsets_of(tmp_path, clean=clean) == WHOLE


def test_a_split_with_an_unfinished_part_is_undone(tmp_path, log):
    """The parts are renamed from the last to the first, so a remaining `.cleaned` file shows an unfinished split."""
    cleaned(tmp_path, log, names.CLEANED)
    later = log.segments.base_offsets[2]
    for kind in KINDS:
        shutil.copy(file(tmp_path, later, kind), file(tmp_path, later, kind, names.SWAP))
    file(tmp_path, later, names.LOG, names.SWAP).write_bytes(b"")
    assert offsets_of(tmp_path) == WHOLE


def steps(tmp_path, log):
    """Yield the steps of a swap, as the cleaner and a split do it: one rename or unlink each."""
    bases = log.segments.base_offsets[:2]
    for kind in KINDS:
        yield lambda kind=kind: file(tmp_path, 0, kind, names.CLEANED).rename(file(tmp_path, 0, kind, names.SWAP))
    for base, kind in itertools.product(bases, KINDS):
        yield lambda base=base, kind=kind: file(tmp_path, base, kind).rename(file(tmp_path, base, kind, names.DELETED))
    for kind in KINDS:
        yield lambda kind=kind: file(tmp_path, 0, kind, names.SWAP).rename(file(tmp_path, 0, kind))


@pytest.mark.parametrize("done", range(13))
@pytest.mark.parametrize("clean", [True, False])
def test_a_swap_is_undone_or_finished_wherever_it_was_cut_short(tmp_path, log, done, clean):
    cleaned(tmp_path, log, names.CLEANED)
    for step in itertools.islice(steps(tmp_path, log), done):
        step()
    found = offsets_of(tmp_path, clean=clean)
    # The swap is finished, not undone, once the last `.cleaned` file is gone.
    assert found == WHOLE if done < len(KINDS) else WHOLE[0] not in found
    assert found[-len(WHOLE) + 5 :] == WHOLE[5:]
    assert offsets_of(tmp_path) == found


def test_an_empty_segment_may_take_the_place_of_another(tmp_path, log):
    for kind in KINDS:
        file(tmp_path, 0, kind, names.SWAP).write_bytes(b"")
    second = log.segments.base_offsets[1]
    assert offsets_of(tmp_path) == WHOLE[second:]


def test_snapshots_of_segments_that_were_merged_go_with_them(tmp_path, log):
    second = log.segments.base_offsets[1]
    assert file(tmp_path, second, names.SNAPSHOT).exists()
    cleaned(tmp_path, log, names.SWAP)
    offsets_of(tmp_path)
    assert f"{second:020d}.snapshot" not in contents(tmp_path / "t-0")


class Names(Files):
    """Files that record deletions, renames and directory syncs."""

    def __init__(self):
        self.done = []

    def unlink(self, path):
        self.done.append("unlink")
        return super().unlink(path)

    def rename(self, old, new):
        self.done.append("rename")
        super().rename(old, new)

    def sync_dir(self, path):
        self.done.append("sync")
        super().sync_dir(path)


def test_the_old_files_are_gone_for_good_before_the_new_ones_have_their_names(tmp_path, log):
    """A power cut may keep a later rename and lose an earlier deletion; then both files would exist.

    Nor may the old files be deleted before the names of the new files are synced, which the killed process may not have
    done.
    """
    cleaned(tmp_path, log, names.SWAP)
    files = Names()
    clear_leftovers(files, log.directory, LoadReport())
    assert [name for name, _ in itertools.groupby(files.done)] == ["sync", "unlink", "sync", "rename"]
