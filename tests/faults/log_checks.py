"""Opens the files that a power cut left, and compares them with the model."""

from __future__ import annotations

import random
from pathlib import Path

from kafkapy.log.partition_log import AppendResult, PartitionLog
from kafkapy.record.control import ABORT
from kafkapy.runtime.clock import ManualClock
from tests.faults.log_life import BEGIN_MS, Stored, open_manager, produced, stored
from tests.faults.log_model import Topic
from tests.harness.power_cut import UnsyncedFiles
from tests.log.support import ManualScheduler


class Violation(AssertionError):
    """Raised if the log lost records that it must keep, has records that were never appended, or contradicts itself."""


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Violation(what)


def check_directory(directory: Path, topics: list[Topic], moment: int, rng: random.Random) -> int:
    """Open the directory and check every topic. Return the number of records found."""
    scheduler = ManualScheduler()
    manager = open_manager(directory, UnsyncedFiles(), ManualClock(BEGIN_MS + 3_600_000), scheduler, topics)
    found = 0
    try:
        for path, failure in manager.directories():
            expect(failure is None, f"{path} is offline: {failure}")
        for topic in topics:
            log = manager.get(topic.name, 0)
            must = topic.claim_at(moment).must
            if log is None:
                expect(not must, f"{topic.name} is not there and must hold {len(must)} records")
                continue
            batches = stored(log)
            found += check_records(topic, log, batches, moment)
            check_offsets(log, batches, rng)
            start = topic.claim_at(moment).start
            check_epochs(
                log, [batch for batch in batches if batch.records[-1][0] in must and batch.base_offset >= start]
            )
            if is_whole(log, batches, start):
                check_times(log, batches, rng)
                check_transactions(log, batches)
                check_producers(log, batches)
        scheduler.run_all()
    finally:
        manager.close()
    return found


def check_records(topic: Topic, log: PartitionLog, batches: list[Stored], moment: int) -> int:
    claim = topic.claim_at(moment)
    records = {offset: value for batch in batches for offset, value, _ in batch.records}
    where = f"{log.name} (offsets {log.log_start_offset} to {log.log_end_offset})"
    lost = [offset for offset, value in claim.must.items() if records.get(offset) != value]
    expect(not lost, f"{where} has lost what a flush had covered: offsets {lost[:5]} and {len(lost)} in all")
    strange = [offset for offset, value in records.items() if not topic.may_be(offset, value, moment)]
    expect(not strange, f"{where} has records that were never appended, or gone: offsets {strange[:5]}")
    if claim.must:
        expect(log.topic_id == claim.topic_id, f"{where} does not know its topic id")
    following = None
    bases = log.segments.base_offsets
    for offset in records:
        # Gaps are allowed only before a segment: the name or the end of the previous segment is lost, if it was not
        # flushed.
        expect(following in (None, offset) or offset in bases, f"{where} has a gap before offset {offset}")
        following = offset + 1
    last = log.segments.active
    # A log without records ends at its start, or at the start of its last segment.
    ends = {following} if following is not None else {log.log_start_offset, last.base_offset}
    ends |= {last.base_offset} if last.size == 0 else set()
    expect(log.log_end_offset in ends, f"{where} does not end at its last record")
    return len(records)


def is_whole(log: PartitionLog, batches: list[Stored], start: int) -> bool:
    """Return True if the log has no gap, and no segment before `start` has partly come back.

    Otherwise, as in Kafka, a snapshot after the gap may have producers that the log lacks, and a lookup by time may
    find nothing because it ends in an empty segment or in one without a time index.
    """
    begins = [batch.base_offset for batch in batches[1:]]
    ends = [batch.records[-1][0] + 1 for batch in batches[:-1]]
    segments = log.segments.items
    come_back = len(segments) > 1 and segments[1].base_offset <= start
    return begins == ends and not come_back and all(segment.size for segment in segments[:-1])


def check_offsets(log: PartitionLog, batches: list[Stored], rng: random.Random) -> None:
    records = [record for batch in batches for record in batch.records]
    for record in rng.sample(records, min(3, len(records))):
        found = stored(log, record[0])[0].records[0]
        expect(found == record, f"{log.name} gives {found[0]} when asked for offset {record[0]}")


def check_times(log: PartitionLog, batches: list[Stored], rng: random.Random) -> None:
    records = [record for batch in batches for record in batch.records]
    for _, _, timestamp in rng.sample(records, min(3, len(records))):
        first = next(offset for offset, _, time in records if time >= timestamp)
        answer = log.offset_for_timestamp(timestamp)
        expect(answer is not None and answer.offset == first, f"{log.name} finds {answer} for the time of {first}")


def check_epochs(log: PartitionLog, batches: list[Stored]) -> None:
    """Check the leader epochs of flushed batches. A moved start or end of the epochs may be undone by the cut."""
    for batch in batches:
        offset = batch.records[-1][0]
        epoch = log.leader_epochs.epoch_for_offset(offset)
        expect(
            epoch == batch.leader_epoch,
            f"{log.name} has leader epoch {epoch} for offset {offset}, its batch has {batch.leader_epoch}",
        )


def check_transactions(log: PartitionLog, batches: list[Stored]) -> None:
    """Check that a read_committed fetch lists each aborted transaction among the batches, and no other."""
    start = batches[0].base_offset if batches else log.log_end_offset
    begun: dict[int, int] = {}
    aborted: dict[tuple[int, int], int] = {}  # (producer, offset of the marker) -> first offset
    for batch in batches:
        if batch.marker is not None:
            first = begun.pop(batch.producer_id, None)
            if batch.marker == ABORT and first is not None:
                aborted[batch.producer_id, batch.base_offset] = first
        elif batch.is_transactional:
            begun.setdefault(batch.producer_id, batch.base_offset)
    indexed = {
        (one.producer_id, one.last_offset): one.first_offset
        for segment in log.segments
        for one in segment.txn_index.entries
    }
    for (producer, last), first in aborted.items():
        known = indexed.get((producer, last), -1)
        offset = max(first, log.log_start_offset)
        read = log.read(offset, 1 << 20, min_one=True, max_offset=log.log_end_offset)
        named = log.aborted_transactions(offset, read)
        expect(
            known == first or 0 <= known < start,
            f"{log.name} does not know that producer {producer} has aborted what it wrote from {first} to {last}",
        )
        expect(
            (producer, known) in named, f"{log.name} tells a reader at {offset} of no aborted transaction at {known}"
        )
    for key, first in indexed.items():
        expect(first < start or aborted.get(key) == first, f"{log.name} takes {key} from {first} on for aborted")


def check_producers(log: PartitionLog, batches: list[Stored]) -> None:
    """Check that each producer's last batch is recognized as a duplicate, and the producer's next batch is accepted."""
    latest = {batch.producer_id: batch for batch in batches if batch.producer_id >= 0 and batch.marker is None}
    first = {batch.producer_id: batch for batch in reversed(batches)}
    for producer, batch in latest.items():
        if first[producer].marker is not None:
            continue  # only a marker was left, so the producer's sequence began at 0 again
        if len(batch.records) <= batch.last_sequence - batch.base_sequence:
            continue  # the log begins inside the batch
        records = [(timestamp, None, value, []) for _, value, timestamp in batch.records]
        again = _append_one(
            log,
            produced(
                records,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=batch.base_sequence,
                transactional=batch.is_transactional,
            ),
        )
        expect(
            again.duplicate and again.base_offset == batch.base_offset,
            f"{log.name} takes the batch at {batch.base_offset} of producer {producer} for a new one: {again}",
        )
        end = log.log_end_offset
        following = produced(
            [(BEGIN_MS, None, b"next", [])],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=batch.last_sequence + 1,
            transactional=batch.is_transactional,
        )
        new = _append_one(log, following)
        expect(not new.duplicate and new.base_offset == end, f"{log.name} appends at {new}, its end was {end}")
    for known in log.active_producers():
        expect(known.producer_id in latest or log.log_start_offset > 0, f"{log.name} knows {known}")


def _append_one(log: PartitionLog, batch: memoryview) -> AppendResult:
    verdicts = log.append([batch], log.leader_epochs.latest_epoch)
    assert isinstance(verdicts, list)
    (verdict,) = verdicts
    expect(isinstance(verdict, AppendResult), f"{log.name} refuses a batch: {verdict}")
    assert isinstance(verdict, AppendResult)
    return verdict
