"""Transactions found in index and snapshot files, or by scans, and committed rows, are those that were written."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.arrow.segments import read_split
from kafkapy.log.append.rules import OwnBatch
from kafkapy.log.offline.bounds import Bounds, Planner
from kafkapy.log.offline.places import places_in
from kafkapy.log.offline.splits import divided
from kafkapy.log.offline.transactions import transactions_since
from kafkapy.record.control import marker_batch
from tests.harness.examples import examples

from ..support import GOLDEN, NOW, Bench, batch, idempotent

WRITE, COMMIT, ABORT, PLAIN, ROLL = "write", "commit", "abort", "plain", "roll"
STEPS = st.lists(
    st.tuples(st.sampled_from([WRITE, WRITE, WRITE, COMMIT, ABORT, PLAIN, ROLL]), st.integers(0, 2)), max_size=40
)
# Endings of the files beside the segments that are lost.
LOSSES = {
    "none": (),
    "transaction-indexes-and-offset-indexes": (".txnindex", ".index"),
    "snapshots": (".snapshot",),
    "all": (".txnindex", ".index", ".timeindex", ".snapshot"),
}


class History:
    """A log after the given steps, and the expected transactions and rows."""

    def __init__(self, directory, steps):
        log = Bench(directory, segment_ms=1 << 40, index_interval_bytes=1).load()
        self.aborted = []  # (producer id, first offset, marker's offset)
        self.open = {}
        self.dropped = set()
        self.data = []
        writing, sequences = {}, {}
        for action, producer in steps:
            offset = log.log_end_offset
            if action == ROLL:
                log.roll()
            elif action == PLAIN:
                log.append([batch("p")], 0)
                self.data.append(offset)
            elif action == WRITE:
                sequence = sequences.get(producer, 0)
                records = idempotent("t", "t", producer_id=producer, sequence=sequence, transactional=True)
                log.append([records], 0)
                sequences[producer] = sequence + 2
                self.open.setdefault(producer, offset)
                writing.setdefault(producer, []).extend((offset, offset + 1))
                self.data += [offset, offset + 1]
            elif producer in self.open:
                first = self.open.pop(producer)
                commit = action == COMMIT
                marker = marker_batch(producer, 0, commit=commit, coordinator_epoch=0, timestamp=NOW)
                log.append([OwnBatch(marker)], 0)
                written = writing.pop(producer)
                if not commit:
                    self.aborted.append((producer, first, offset))
                    self.dropped.update(written)
            log.set_high_watermark(log.log_end_offset)
        log.close()

    def committed(self, start):
        end = min(self.open.values(), default=1 << 62)
        return [offset for offset in self.data if start <= offset < end and offset not in self.dropped]


@pytest.mark.parametrize("lost", LOSSES)
@settings(max_examples=examples(25), deadline=None)
@given(steps=STEPS, start=st.integers(0, 40), size=st.sampled_from([1, 300, 1 << 30]))
def test_committed_rows_are_those_of_no_aborted_and_no_open_transaction(lost, steps, start, size):
    with tempfile.TemporaryDirectory() as directory:
        history = History(directory, steps)
        partition = Path(directory) / "t-0"
        for path in partition.iterdir():
            if path.suffix in LOSSES[lost]:
                path.unlink()
        (place,) = places_in([partition])
        found = transactions_since(place, start)
        assert found.aborted == [one for one in history.aborted if one[2] >= start]
        assert found.open == history.open
        planner = Planner(Bounds(start=start), committed=True)
        pieces = [piece for split in planner.splits(place) for piece in divided(split, size)]
        rows = [row for piece in pieces for one in read_split(piece, columns=["offset"]) for row in one.to_pylist()]
        assert [row["offset"] for row in rows] == history.committed(start)


def damaged(index):
    """Return damaged copies of a transaction index, by kind of damage."""
    entry = index[:34]
    return {
        "torn": index[:-1],
        "of another version": b"\0\1" + index[2:],
        "text": b"0000 0000 0000 0001 " * 17,
        "out of order": index + entry,
    }


@pytest.mark.parametrize("kind", damaged(b""))
def test_a_damaged_transaction_index_is_not_used(tmp_path, kind):
    steps = [(WRITE, 0), (WRITE, 1), (ABORT, 0), (ABORT, 1), (WRITE, 0), (ROLL, 0), (ABORT, 0), (WRITE, 2)]
    history = History(tmp_path, steps)
    index = tmp_path / "t-0" / f"{0:020d}.txnindex"
    index.write_bytes(damaged(index.read_bytes())[kind])
    (place,) = places_in([tmp_path / "t-0"])
    assert transactions_since(place, 0).aborted == history.aborted


def test_sealed_segments_are_not_scanned_if_their_transaction_files_are_whole(tmp_path):
    """The sealed segment's file is emptied, so that a scan would find nothing."""
    history = History(tmp_path, [(WRITE, 0), (WRITE, 1), (ABORT, 0), (ROLL, 0), (WRITE, 0), (ABORT, 1), (COMMIT, 0)])
    first = tmp_path / "t-0" / f"{0:020d}.log"
    os.truncate(first, 0)
    (place,) = places_in([tmp_path / "t-0"])
    assert transactions_since(place, 0).aborted == history.aborted != []


def test_a_transactional_batch_without_a_producer_is_in_no_transaction(tmp_path):
    log = Bench(tmp_path).load()
    for one in (batch("a"), batch("odd", transactional=True), batch("b")):
        log.append([one], 0)
    log.set_high_watermark(3)
    assert log.last_stable_offset == 3  # the broker sees no open transaction either
    log.close()
    (place,) = places_in([tmp_path / "t-0"])
    assert transactions_since(place, 0).open == {}


def test_transactions_of_a_single_segment_are_known_from_the_files_of_its_neighbours():
    partition = GOLDEN / "kafka-3.9.1-v2" / "data" / "v2-txn-0"
    (whole,) = places_in([partition])
    for segment in whole.segments:
        (alone,) = places_in([segment.path])
        assert transactions_since(alone, segment.base_offset) == transactions_since(whole, segment.base_offset)


def test_kafkas_indexes_and_a_scan_find_the_same_transactions(tmp_path):
    data = GOLDEN / "kafka-3.9.1-v2" / "data"
    shutil.copytree(data, tmp_path / "data", ignore=shutil.ignore_patterns("*index", "*.snapshot"))
    seen = 0
    for place in places_in([data]):
        (bare,) = places_in([tmp_path / "data" / place.directory.name])
        found = transactions_since(place, 0)
        # The index of a compacted log still has transactions whose records the cleaner has removed.
        if not place.name.startswith("v2-compacted"):
            assert found == transactions_since(bare, 0), place.name
            seen += len(found.aborted)
    assert seen > 5
