"""After random elections, crashes and truncations of two replicas, a follower's log becomes its leader's log."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import crc32c
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.append.rules import OwnBatch
from kafkapy.log.partition_log import PartitionLog
from kafkapy.protocol.apis import FETCH
from kafkapy.record.control import marker_batch
from kafkapy.replica.fetch_state import FetchState
from kafkapy.replica.fetched import FetchedPartition
from kafkapy.replica.followed_partition import FollowedPartition
from kafkapy.replica.follower_log import (
    needs_first_truncation,
    restart_at_leader_start,
    take,
    truncate_diverging,
    truncate_first,
    truncate_to_leader_end,
)
from kafkapy.replica.stall import StallMonitor
from kafkapy.replica.truncation import EpochEnd
from tests.harness.batches import iter_batches
from tests.harness.stand_in_leader import LeaderOfLogs
from tests.log.support import NOW, Bench, idempotent


class Logs:
    """Truncates logs like a LogManager, but without lowering the recovery point in the checkpoint first."""

    def truncate_to(self, log: PartitionLog, offset: int, leader_epoch: int) -> bool:
        return log.truncate_to(offset, leader_epoch)

    def truncate_fully(self, log: PartitionLog, offset: int, leader_epoch: int) -> None:
        log.truncate_fully(offset, leader_epoch)


def step(leader: LeaderOfLogs, follower: FollowedPartition, size: int) -> None:
    """Fetch once and apply the response, as a Fetcher does, but without a connection."""
    epoch, offset, last_epoch, log_start = FetchState(follower).position
    asked = FETCH.Request.Topics.Partitions(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=log_start,
        partition_max_bytes=size,
    )
    answer = leader.partition(("t", 0), asked)
    logs: Any = Logs()
    if answer.error_code == Errors.OFFSET_OUT_OF_RANGE:
        log = leader.logs["t", 0]
        if not truncate_to_leader_end(follower, log.end[0], logs):
            restart_at_leader_start(follower, log.log_start_offset, logs)
        return
    assert answer.error_code == Errors.NONE
    diverging = answer.diverging_epoch
    if diverging.epoch >= 0:
        truncate_diverging(follower, EpochEnd(diverging.epoch, diverging.end_offset), logs)
    else:
        records = memoryview(bytearray(answer.records))
        fetched = FetchedPartition("t", 0, 0, answer.high_watermark, answer.log_start_offset, None, records)
        take(follower, fetched, logs, blocking=True)


class Replica:
    def __init__(self, directory: Path, rng: random.Random) -> None:
        sizes = {"segment_bytes": rng.choice((700, 2000, 1 << 20)), "index_interval_bytes": 200}
        self.bench = Bench(directory, **sizes, segment_index_bytes=4096)
        self.log = self.bench.load()

    def crash(self) -> None:
        """Abandon the log as after a kill, and recover it from its files."""
        high_watermark = self.log.high_watermark
        self.log.abandon()
        self.log = self.bench.load(clean=False, log_start_offset=self.log.log_start_offset)
        self.log.set_high_watermark(high_watermark)


def followed(log: PartitionLog, epoch: int) -> FollowedPartition:
    return FollowedPartition(
        log,
        leader=1,
        leader_epoch=epoch,
        partition_epoch=0,
        topic_id=bytes(16),
        stall=StallMonitor(1.0),
        on_change=lambda partition: None,
    )


def produce(log: PartitionLog, epoch: int, rng: random.Random, sequences: dict[int, int]) -> None:
    producer = rng.choice((7, 8))
    if rng.random() < 0.3:
        commit = rng.random() < 0.5
        sent: Any = OwnBatch(memoryview(marker_batch(8, 0, commit=commit, coordinator_epoch=0, timestamp=NOW)))
    else:
        values = [rng.randbytes(rng.randrange(40)) for _ in range(rng.randrange(1, 4))]
        sequence = sequences.get(producer, 0)
        sent = idempotent(*values, producer_id=producer, sequence=sequence, transactional=producer == 8, epoch=0)
    log.append([sent], epoch)
    for one in log.active_producers():
        sequences[one.producer_id] = one.last_sequence + 1


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32))
@example(0)
@example(207)  # a transaction ended before the truncation
@example(12430)  # a truncation to an offset inside a batch of the leader
@example(510510)  # the leader does not know a transaction that began before its log start offset
def test_a_follower_becomes_its_leader_after_any_history(tmp_path_factory: Any, seed: int) -> None:
    rng = random.Random(seed)
    replicas = [Replica(tmp_path_factory.mktemp("a"), rng), Replica(tmp_path_factory.mktemp("b"), rng)]
    for epoch in range(rng.randrange(1, 8)):
        leading, following = rng.sample(replicas, 2)  # the election may be unclean
        for one in replicas:
            if rng.random() < 0.2:
                one.crash()
        log, own = leading.log, following.log
        log.assign_leader_epoch(epoch)
        own.fence(epoch)
        leader = LeaderOfLogs()
        leader.add(log, epoch)
        follower = followed(own, epoch)
        if needs_first_truncation(follower):
            truncate_first(follower, Logs())  # type: ignore[arg-type]
        sequences: dict[int, int] = {}
        for producer in log.active_producers():
            sequences[producer.producer_id] = producer.last_sequence + 1
        for _ in range(rng.randrange(12)):
            if rng.random() < 0.5:
                produce(log, epoch, rng, sequences)
            elif rng.random() < 0.1 and log.high_watermark > log.log_start_offset:
                log.delete_records(rng.randint(log.log_start_offset, log.high_watermark))
                log.delete_old_segments()
            else:
                step(leader, follower, rng.choice((1, 100, 1000)))
                if log.leader_epochs.latest_epoch == epoch:
                    log.advance_high_watermark(min(own.end[0], log.end[0]), epoch)
            assert own.log_start_offset <= own.high_watermark <= own.end[0]
    rounds = 0
    while own.end[0] != log.end[0] or own.high_watermark != log.high_watermark or rounds < 3:
        step(leader, follower, 1 << 20)
        log.advance_high_watermark(log.end[0], epoch)
        rounds += 1
        assert rounds < 60, (own, log)
    step(leader, follower, 1 << 20)
    assert own.log_start_offset >= log.log_start_offset
    log.delete_records(own.log_start_offset)  # a former leader may have a later start
    epochs = records_and_epochs(own), records_and_epochs(log)
    assert epochs[0] == epochs[1]
    if log.end[0] > log.log_start_offset:
        assert records_of(own) == records_of(log)
        # A replica that began at a leader's log start offset, or has rebuilt its producer state from the records after
        # that offset, does not know of a transaction that began before.
        known = [*log.active_producers(), *own.active_producers()]
        if all(not 0 <= one.current_txn_start_offset < log.log_start_offset for one in known):
            assert own.last_stable_offset == log.last_stable_offset


def records_of(log: PartitionLog) -> bytes:
    """Return the bytes of the batches, from the one with the log start offset on."""
    found, offset = bytearray(), log.log_start_offset
    while offset < log.end[0]:
        read = log.read(offset, 1 << 20, min_one=True, max_offset=log.end[0])
        data = read.region.read()  # type: ignore[union-attr]
        found += data
        *_, last = iter_batches(data)
        offset = last.last_offset + 1
    return bytes(found)


def records_and_epochs(log: PartitionLog) -> list[tuple[int, int]]:
    """Return the leader epochs that have records, with their first offsets."""
    entries = log.leader_epochs.entries
    ends = [*(entry.start_offset for entry in entries[1:]), log.end[0]]
    return [tuple(entry) for entry, end in zip(entries, ends, strict=False) if entry.start_offset < end]


def test_a_late_truncation_or_append_of_an_earlier_role_is_refused(tmp_path: Path) -> None:
    rng = random.Random(1)
    one = Replica(tmp_path, rng)
    one.log.assign_leader_epoch(0)
    produce(one.log, 0, rng, {})
    end = one.log.end[0]
    follower = followed(one.log, 1)
    one.log.fence(2)
    for late in (
        lambda: truncate_to_leader_end(follower, 0, Logs()),  # type: ignore[arg-type]
        lambda: restart_at_leader_start(follower, 100, Logs()),  # type: ignore[arg-type]
        lambda: truncate_diverging(follower, EpochEnd(0, 0), Logs()),  # type: ignore[arg-type]
        lambda: take(
            follower,
            FetchedPartition("t", 0, 0, 1, 0, None, memoryview(bytearray(70))),
            Logs(),  # type: ignore[arg-type]
            blocking=True,
        ),
    ):
        with pytest.raises(KafkaError) as refusal:
            late()
        assert refusal.value.code == Errors.NOT_LEADER_OR_FOLLOWER
    assert not one.log.follow_high_watermark(0, 1)
    assert one.log.end[0] == end


def test_overlapping_batches_of_a_damaged_leader_cut_nothing_off(tmp_path: Path) -> None:
    own, other = (Replica(tmp_path / name, random.Random(1)).log for name in ("own", "other"))
    for log in (own, other):
        log.assign_leader_epoch(0)
        log.append([idempotent(b"0", b"1", b"2", producer_id=7, sequence=0, epoch=0)], 0)
    other.append([idempotent(b"3", b"4", producer_id=7, sequence=3, epoch=0)], 0)
    second = records_of(other)[len(records_of(own)) :]
    long = bytearray(records_of(own))
    struct.pack_into(">q", long, 0, 1)
    struct.pack_into(">i", long, 23, 9)  # the last offset delta: 1 to 10
    struct.pack_into(">I", long, 17, crc32c.crc32c(bytes(long[21:])))
    follower = followed(own, 1)
    own.fence(1)
    fetched = FetchedPartition("t", 0, 0, 0, 0, None, memoryview(bytearray(second + long)))
    with pytest.raises(KafkaError, match="do not follow those before"):
        take(follower, fetched, Logs(), blocking=True)  # type: ignore[arg-type]
    assert own.end[0] == 5
    assert records_of(own) == records_of(other)
