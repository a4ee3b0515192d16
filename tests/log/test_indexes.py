"""Offset, time and transaction indexes give the same results as plain lists, in memory and in their files."""

import os
import struct
from array import array
from bisect import bisect_left, bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.log.indexes import time_index
from kafkapy.log.indexes.offset_index import OffsetIndex
from kafkapy.log.indexes.time_index import TimeIndex
from kafkapy.log.indexes.txn_index import AbortedTxn, TxnIndex, TxnIndexError
from kafkapy.log.storage.files import Files

from .support import At, FailingFiles

BASE = 5000
steps = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), max_size=60)


def created(kind, path, *, files=None, max_bytes=1 << 16):
    index = kind(files if files is not None else Files(), At(path), BASE, max_bytes)
    index.create()
    return index


def summed(pairs):
    total, found = [BASE, 0], []
    for first, second in pairs:
        total = [total[0] + first, total[1] + second]
        found.append(tuple(total))
    return found


@settings(deadline=None)
@given(steps, st.lists(st.integers(-10, 70_000), max_size=20))
def test_offset_lookups_are_those_of_a_list(tmp_path_factory, pairs, wanted):
    path = tmp_path_factory.mktemp("index") / "index"
    index = created(OffsetIndex, path)
    entries = summed(pairs)
    for offset, position in entries:
        index.append(offset, position)
    offsets = [offset for offset, _ in entries]
    for growing in (True, False):
        assert index.count == len(entries)
        assert index.last_offset == (offsets[-1] if offsets else BASE)
        for offset in [*(BASE + one for one in wanted), *offsets]:
            slot = bisect_right(offsets, offset)
            assert index.lookup(offset) == (entries[slot - 1][1] if slot else 0)
        for position in [*wanted, *(place for _, place in entries)]:
            at = bisect_left([place for _, place in entries], position)
            if at == 0 and entries and entries[0][1] == position:  # like Kafka's search
                at = 1
            assert index.offset_after(position) == (entries[at][0] if at < len(entries) else None)
        if growing:
            index.trim()
            index.trim()
    index.seal()
    assert path.read_bytes() == b"".join(struct.pack(">ii", offset - BASE, place) for offset, place in entries)


@given(steps, st.integers(-10, 70_000))
def test_truncation_forgets_the_offset_and_what_follows(tmp_path_factory, pairs, cut):
    path = tmp_path_factory.mktemp("index") / "index"
    index = created(OffsetIndex, path)
    entries = summed(pairs)
    for entry in entries:
        index.append(*entry)
    index.trim()
    index.seal()
    index.reopen_to_grow()
    index.truncate_to(BASE + cut)
    kept = [entry for entry in entries if entry[0] < BASE + cut]
    index.append(BASE + 100_000, 99)
    index.trim()
    index.seal()
    stored = list(struct.iter_unpack(">ii", path.read_bytes()))
    assert stored == [(offset - BASE, place) for offset, place in kept] + [(100_000, 99)]


@given(steps, st.lists(st.integers(-10, 70_000), max_size=20), st.integers(0, 70_000))
def test_time_lookups_are_those_of_a_list(tmp_path_factory, pairs, wanted, cut):
    path = tmp_path_factory.mktemp("index") / "index"
    index = created(TimeIndex, path)
    entries = [(stamp, offset) for offset, stamp in summed(pairs)]
    for stamp, offset in entries:
        index.maybe_append(stamp, offset)
        index.maybe_append(stamp, offset + 1)  # adds no entry without a larger timestamp
    stamps = [stamp for stamp, _ in entries]
    for growing in (True, False):
        assert index.count == len(entries)
        assert index.last_entry == (entries[-1] if entries else (-1, BASE))
        for stamp in [*wanted, *stamps]:
            slot = bisect_right(stamps, stamp)
            assert index.lookup(stamp) == (entries[slot - 1] if slot else (-1, BASE))
        if growing:
            index.trim()
            index.trim()
    index.seal()
    index.reopen_to_grow()
    index.truncate_to(BASE + cut)
    index.trim()
    index.seal()
    kept = [(stamp, offset - BASE) for stamp, offset in entries if offset < BASE + cut]
    assert list(struct.iter_unpack(">qi", path.read_bytes())) == kept


@given(steps, st.integers(-10, 70_000))
def test_the_last_time_before_an_offset_is_that_of_a_list(tmp_path_factory, pairs, wanted):
    index = created(TimeIndex, tmp_path_factory.mktemp("index") / "index")
    entries = [(stamp, offset) for offset, stamp in summed(pairs)]
    for stamp, offset in entries:
        index.maybe_append(stamp, offset)
    for growing in (True, False):
        for offset in (BASE + wanted, *(one[1] for one in entries)):
            before = [one for one in entries if one[1] < offset]
            assert index.entry_before(offset) == (before[-1] if before else (-1, BASE))
        if growing:
            index.trim()
            index.seal()


def test_a_time_is_looked_up_while_the_index_is_sealed(tmp_path, monkeypatch):
    """A roll removes the arrays in memory while the search is using them."""
    index = created(TimeIndex, tmp_path / "index")
    for number in range(5):
        index.maybe_append(number, BASE + number)

    def bisect_during_a_roll(*arguments):
        index.trim()
        index.seal()
        return bisect_right(*arguments)

    monkeypatch.setattr(time_index, "bisect_right", bisect_during_a_roll)
    assert index.lookup(3) == (3, BASE + 3)


def test_the_last_time_is_read_while_the_index_begins_to_grow(tmp_path):
    """A reader finds an index that is only in its file. Before it reads, an append adds entries in memory.

    The entry that the reader remembers must not prevent later entries.
    """
    index = created(TimeIndex, tmp_path / "index")
    index.maybe_append(10, BASE + 1)
    index.trim()
    index.seal()

    class Overtaken(TimeIndex):
        def check(self, nowait=False):
            usable = super().check(nowait)
            todo, appends[:] = appends[:], []
            if todo:
                self.reopen_to_grow()
            for entry in todo:
                self.maybe_append(*entry)
            return usable

    appends = []
    index = Overtaken(Files(), At(tmp_path / "index"), BASE, 1 << 16)
    index.open(index.width)
    appends += [(20, BASE + 2), (30, BASE + 3), (40, BASE + 4)]
    assert index.last_entry == (10, BASE + 1)
    assert index.last_entry == (40, BASE + 4)
    index.maybe_append(35, BASE + 5)  # not larger than the last entry
    index.trim()
    index.seal()
    assert index.last_entry == (40, BASE + 4)
    assert list(struct.iter_unpack(">qi", (tmp_path / "index").read_bytes())) == [(n * 10, n) for n in range(1, 5)]


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
def test_a_long_index_is_written_behind_and_survives_a_full_disk(tmp_path, kind, caplog):
    files = FailingFiles(only={"write"}, fail_at=2)
    index = created(kind, tmp_path / "index", files=files, max_bytes=1 << 20)
    for number in range(2000):
        index.append(BASE + number, number) if kind is OffsetIndex else index.maybe_append(number, BASE + number)
    assert files.count >= 3
    assert "stay in memory" in caplog.text
    index.trim()
    index.seal()
    assert (tmp_path / "index").stat().st_size == 2000 * index.width
    if kind is OffsetIndex:
        assert [index.lookup(BASE + number) for number in (0, 1, 700, 1999, 5000)] == [0, 1, 700, 1999, 1999]
    else:
        assert [index.lookup(number)[1] - BASE for number in (0, 1, 700, 1999, 5000)] == [0, 1, 700, 1999, 1999]


def test_aborted_transactions_are_kept_in_their_file(tmp_path):
    path = tmp_path / "txnindex"
    index = TxnIndex(Files(), At(path), BASE)
    index.reset()
    assert not path.exists()
    entries = [AbortedTxn(1, BASE, BASE + 10, BASE + 11), AbortedTxn(2, BASE + 5, BASE + 20, BASE + 21)]
    for entry in entries:
        index.append(entry)
    index.truncate_to(BASE + 20)
    again = TxnIndex(Files(), At(path), BASE)
    again.load()
    assert again.entries == tuple(entries[:1])
    wrong = TxnIndex(Files(), At(path), BASE + 100)
    with pytest.raises(TxnIndexError, match="before the segment"):
        wrong.load()


def test_an_aborted_transaction_that_cannot_be_added_leaves_no_part_of_itself(tmp_path):
    index = TxnIndex(Files(), At(tmp_path / "txnindex"), BASE)
    entries = [AbortedTxn(1, BASE, BASE + 10, BASE + 11), AbortedTxn(2, BASE + 5, BASE + 20, BASE + 21)]
    index.append(entries[0])
    with pytest.raises(OverflowError):  # stands for a MemoryError
        index.append(AbortedTxn(2, BASE + 5, BASE + 20, 1 << 63))
    index.append(entries[1])
    assert index.entries == tuple(entries)


def test_aborted_transactions_out_of_order_are_a_damage(tmp_path):
    path = tmp_path / "txnindex"
    index = TxnIndex(Files(), At(path), BASE)
    index.append(AbortedTxn(1, BASE, BASE + 20, BASE + 21))
    index.append(AbortedTxn(2, BASE, BASE + 10, BASE + 21))
    with pytest.raises(TxnIndexError, match="before the entry before"):
        index.load()


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 30), st.integers(0, 12)), max_size=12),
    st.integers(0, 60),
    st.integers(1, 60),
)
def test_overlapping_aborted_transactions_are_those_of_kafkas_loop(steps, offset, size):
    """Kafka's loop begins at the first entry, while this index skips the entries that end before the offset."""
    upper = offset + size
    index = TxnIndex(Files(), At(os.devnull), 0)
    last = stable = 0
    for step, length, behind in steps:
        last += step
        stable = max(stable, last + 1 - behind)
        index._numbers = index._numbers + array("q", (7, max(last - length, 0), last, stable))
    wanted, complete = [], False
    for entry in index.entries:
        if entry.last_offset >= offset and entry.first_offset < upper:
            wanted.append(entry[:2])
        if entry.last_stable_offset >= upper:
            complete = True
            break
    found = []
    assert index.overlapping(offset, upper, found) == complete
    assert found == wanted


def test_the_first_entry_is_in_the_file_at_once_for_tools_that_look_at_a_running_broker(tmp_path):
    """Tools take zeros after an entry for the end of the index, but zeros at its start for wrong entries."""
    offsets, times = created(OffsetIndex, tmp_path / "index"), created(TimeIndex, tmp_path / "timeindex")
    for number in (7, 9):
        offsets.append(BASE + number, number * 1000)
        times.maybe_append(number * 1000, BASE + number)
    assert (tmp_path / "index").read_bytes()[:16] == struct.pack(">iiq", 7, 7000, 0)
    assert (tmp_path / "timeindex").read_bytes()[:24] == struct.pack(">qiiq", 7000, 7, 0, 0)


def test_indexes_of_many_entries_are_read_and_built_in_parts(tmp_path):
    """The number of entries is several times that of one part, and not a multiple of it."""
    count = 40_001
    offsets = created(OffsetIndex, tmp_path / "index", max_bytes=1 << 20)
    offsets.rebuild()
    offsets.take(b"".join(struct.pack("=Q", (2 * n + 1) << 32 | 100 * (n + 1)) for n in range(count)))
    times = created(TimeIndex, tmp_path / "time", max_bytes=1 << 20)
    times.rebuild()
    times.take(
        b"".join(struct.pack("=q", 10 * n) for n in range(count)),
        b"".join(struct.pack("=i", 3 * n) for n in range(count)),
    )
    for index in (offsets, times):
        index.trim()
        index.seal()
        index.open(count * index.width)
    for growing in (False, True):
        for n in (0, 1, 16383, 16384, 32768, count - 1):
            assert offsets.lookup(BASE + 2 * n + 1) == 100 * (n + 1)
            assert times.lookup(10 * n) == (10 * n, BASE + 3 * n)
        if not growing:
            offsets.reopen_to_grow()
            times.reopen_to_grow()
            assert (offsets.count, times.count) == (count, count)
