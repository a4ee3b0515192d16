"""Loading logs with odd segments of old versions or accidents: too long, overlapping, empty or misnamed."""

import logging
import os
import shutil

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.storage.files import Files
from kafkapy.record.batch import build

from .support import NOW, Bench, batch, contents, idempotent, values_of

SETTINGS = {"segment_bytes": 600, "index_interval_bytes": 100}
FAR = 3 << 30  # too far from 0 for a relative offset in an index


def log_name(offset):
    return f"{offset:020d}.log"


def batch_at(offset, value):
    """Return a batch with this base offset, as in a segment file."""
    data = bytearray(build([(NOW, None, str(value).encode(), [])]))
    data[:8] = offset.to_bytes(8, "big")
    return bytes(data)


def written(directory, segments):
    """Write a partition directory. `segments` are {base offset: offsets of batches with one record}."""
    (directory / "t-0").mkdir()
    for base, offsets in segments.items():
        (directory / "t-0" / log_name(base)).write_bytes(b"".join(batch_at(offset, offset) for offset in offsets))


def offsets_of(log):
    return [offset for offset, _ in values_of(log)]


def filled(directory, count=30, **settings):
    log = Bench(directory, **{**SETTINGS, **settings}).load()
    for number in range(count):
        log.append([idempotent(number, sequence=number)], 0)
    return log


def lines(caplog):
    return [record.message for record in caplog.records if record.message.startswith("t-0:")]


# --- offsets too far from the segment's name


LAST = 2 * FAR + 10
SPLITS = [  # (segments, base offsets after the split)
    ({0: [0, 5, FAR, FAR + 7, 2 * FAR], LAST: [LAST, LAST + 1]}, [0, FAR, 2 * FAR, LAST]),
    ({0: [FAR, FAR + 7], LAST: [LAST, LAST + 1]}, [0, FAR, LAST]),  # even the first batch is too far
]


def all_of(segments):
    return [offset for offsets in segments.values() for offset in offsets]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(("segments", "bases"), SPLITS)
def test_a_segment_that_reaches_too_far_is_split(tmp_path, caplog, segments, bases, clean):
    written(tmp_path, segments)
    with caplog.at_level(logging.INFO):
        log = Bench(tmp_path, **SETTINGS).load(clean=clean)
    assert log.segments.base_offsets == bases
    assert offsets_of(log) == all_of(segments)
    assert log.append([batch("on")], 0)[0].base_offset == LAST + 2
    (line,) = lines(caplog)
    assert "split" in line
    log.close()
    assert offsets_of(Bench(tmp_path, **SETTINGS).load()) == [*all_of(segments), LAST + 2]


class Killed(BaseException):
    pass


class Dying(Files):
    """Files that raise Killed before the n-th change."""

    def __init__(self, after):
        self.left = after

    def _step(self):
        self.left -= 1
        if self.left < 0:
            raise Killed

    def pwritev(self, *arguments):
        self._step()
        return super().pwritev(*arguments)

    def truncate(self, *arguments):
        self._step()
        return super().truncate(*arguments)

    def rename(self, *arguments):
        self._step()
        return super().rename(*arguments)

    def unlink(self, *arguments):
        self._step()
        return super().unlink(*arguments)


def deaths(directory, **loading):
    """Load copies of the directory, each with a crash one change later, until a load succeeds. Yield the copies."""
    after = 0
    while True:
        copy = directory.with_name(f"{directory.name}-{after}")
        shutil.copytree(directory, copy)
        try:
            Bench(copy, files=Dying(after), **SETTINGS).load(**loading)
        except Killed:
            yield copy
            after += 1
        else:
            assert after > 10
            return


@pytest.mark.parametrize(("segments", "bases"), SPLITS)
def test_a_crash_at_any_step_of_a_split_loses_nothing(tmp_path, segments, bases):
    begun = tmp_path / "begun"
    begun.mkdir()
    written(begun, segments)
    for copy in deaths(begun, clean=False):
        log = Bench(copy, **SETTINGS).load(clean=False)
        assert offsets_of(log) == all_of(segments), copy
        assert log.segments.base_offsets == bases, copy


def test_an_odd_offset_alone_is_damage_and_no_reason_to_split(tmp_path):
    """The CRC does not cover the base offset, so a single wrong one does not show that the segment is too long."""
    written(tmp_path, {0: [0, 1, FAR, 3], 4: [4]})
    log = Bench(tmp_path, **SETTINGS).load(clean=False)
    assert offsets_of(log) == [0, 1]


# --- names and content that do not fit together


def test_a_segment_named_beyond_what_it_holds_is_refused_and_left_alone(tmp_path):
    written(tmp_path, {100: [0, 1, 2]})
    before = contents(tmp_path / "t-0")
    for clean in (True, False):
        with pytest.raises(KafkaError, match="holds offsets 0 to 2, which lie before its name") as refused:
            Bench(tmp_path, **SETTINGS).load(clean=clean)
        assert refused.value.code == Errors.KAFKA_STORAGE_ERROR
        assert contents(tmp_path / "t-0")[log_name(100)] == before[log_name(100)]


def test_a_segment_may_begin_behind_its_name(tmp_path):
    written(tmp_path, {0: [5, 6], 20: [27]})
    log = Bench(tmp_path, **SETTINGS).load(clean=False)
    assert offsets_of(log) == [5, 6, 27]
    assert log.log_end_offset == 28


def test_an_empty_segment_in_the_middle_is_kept(tmp_path):
    written(tmp_path, {0: [0, 1], 2: [], 9: [9]})
    for clean in (False, True):
        log = Bench(tmp_path, **SETTINGS).load(clean=clean)
        assert log.segments.base_offsets == [0, 2, 9]
        assert offsets_of(log) == [0, 1, 9]
        log.close()


def test_segments_that_overlap_are_warned_of_and_left_as_they_are(tmp_path, caplog):
    written(tmp_path, {0: [0, 1, 2, 3], 2: [2, 3, 4, 5]})
    with caplog.at_level(logging.INFO):
        log = Bench(tmp_path, **SETTINGS).load(clean=False)
    (line,) = lines(caplog)
    assert "reaches offset 3, into 00000000000000000002.log" in line
    assert log.log_end_offset == 6
    assert log.read(2, 10_000, max_offset=6).segment_base == 2
    assert log.size == len(batch_at(0, 0)) * 8


def test_a_log_whose_last_segment_ends_before_another_is_refused(tmp_path):
    written(tmp_path, {0: list(range(10)), 5: [5, 6]})
    before = contents(tmp_path / "t-0")
    with pytest.raises(KafkaError, match="overlap"):
        Bench(tmp_path, **SETTINGS).load(clean=False)
    after = contents(tmp_path / "t-0")
    assert {name: after[name] for name in before} == before


# --- preallocated files


def test_a_preallocated_segment_ends_with_its_last_batch(tmp_path):
    log = filled(tmp_path, 4, preallocate="true")
    path = tmp_path / "t-0" / log_name(0)
    assert path.stat().st_size == 600
    size = log.segments.active.size
    again = Bench(tmp_path, **SETTINGS).load(clean=False)
    assert offsets_of(again) == [0, 1, 2, 3]
    assert path.stat().st_size == size


def test_a_crash_inside_a_roll_of_preallocated_segments_loses_nothing(tmp_path):
    filled(tmp_path, 4, preallocate="true")
    (tmp_path / "t-0" / log_name(4)).write_bytes(bytes(600))  # new, while the old one is not trimmed
    log = Bench(tmp_path, **SETTINGS).load(clean=False, recovery_point=4)
    assert offsets_of(log) == [0, 1, 2, 3]
    assert log.append([batch("on")], 0)[0].base_offset == 4


# --- damage, and a crash while it is being repaired


def test_a_recovery_is_logged_in_one_line(tmp_path, caplog):
    log = filled(tmp_path)
    third = log.segments.items[2]
    with open(third.handle().path, "r+b") as file:
        file.seek(third.size // 2)
        file.write(b"\xff\xff\xff")
    later = log.segments.items[3:]
    (tmp_path / "t-0" / f"{0:020d}.index").unlink()
    caplog.clear()
    with caplog.at_level(logging.INFO, "kafkapy.log.loading.load_progress"):
        again = Bench(tmp_path, **SETTINGS).load(clean=False)
    (line,) = lines(caplog)
    end = again.log_end_offset
    assert line.startswith(f"t-0: recovered offsets 0 to {end} in ")
    assert f"{log_name(third.base_offset)}: the " in line
    assert f"the {len(later)} segments behind it, {sum(each.size for each in later)} bytes, are deleted" in line


def test_a_crash_while_damage_is_cut_out_leaves_no_gap(tmp_path):
    begun = tmp_path / "begun"
    log = filled(begun)
    third = log.segments.items[2]
    with open(third.handle().path, "r+b") as file:
        file.seek(third.size // 2)
        file.write(b"\xff\xff\xff")
    whole = Bench(tmp_path / "whole", **SETTINGS)
    shutil.copytree(begun, tmp_path / "whole")
    expected = offsets_of(whole.load(clean=False))
    assert third.base_offset < len(expected) < log.segments.base_offsets[3]
    for copy in deaths(begun, clean=False):
        assert offsets_of(Bench(copy, **SETTINGS).load(clean=False)) == expected, copy


def test_a_clean_start_without_damage_logs_nothing(tmp_path, caplog):
    filled(tmp_path).close()
    caplog.clear()
    with caplog.at_level(logging.INFO, "kafkapy.log.loading.load_progress"):
        Bench(tmp_path, **SETTINGS).load().close()
    assert lines(caplog) == []


def test_a_repair_of_a_log_that_was_stopped_cleanly_is_logged_in_one_line(tmp_path, caplog):
    filled(tmp_path).close()
    (tmp_path / "t-0" / f"{99:020d}.index").write_bytes(b"")
    os.truncate(tmp_path / "t-0" / f"{30:020d}.snapshot", 3)
    with caplog.at_level(logging.INFO, "kafkapy.log.loading.load_progress"):
        Bench(tmp_path, **SETTINGS).load()
    (line,) = lines(caplog)
    assert line.startswith("t-0: repaired offsets 0 to 30 in ")
    assert f"{99:020d}.index belongs to no segment, and is removed" in line
    assert "3 bytes, too few for a snapshot" in line
