"""A follower that appends a leader's log, in pieces of any size, gets the same log."""

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.append.follower import UnexpectedOffset
from kafkapy.log.append.rules import OwnBatch
from kafkapy.log.results import BUSY
from kafkapy.log.segments.segment import MAX_RELATIVE_OFFSET
from kafkapy.record.control import marker_batch
from tests.harness.examples import examples

from .support import GOLDEN, NOW, Bench, FailingFiles, batch, idempotent, values_of

SMALL = {"segment_bytes": 2000, "index_interval_bytes": 200, "segment_index_bytes": 4096}
LARGE = {"segment_bytes": 1 << 20, "index_interval_bytes": 200}


def fill(log, rng, count=40):
    """Append to a leader's log in several epochs, with random codecs, producers, transactions and timestamps. Return
    the last epoch."""
    sequences = {}
    for number in range(count):
        epoch = number // 9
        options = {"timestamp": NOW + rng.randrange(-500, 500), "codec": rng.choice(range(5))}
        values = [rng.randbytes(rng.randrange(60)) for _ in range(rng.randrange(1, 6))]
        kind = rng.random()
        if kind < 0.4:
            one = batch(*values, **options)
        elif kind < 0.8:
            producer = rng.choice((7, 8, 9))
            sequence = sequences.get(producer, 0)
            sequences[producer] = sequence + len(values)
            transactional = producer != 7
            one = idempotent(*values, producer_id=producer, sequence=sequence, transactional=transactional, **options)
        else:
            producer = rng.choice((8, 9))
            one = OwnBatch(
                memoryview(marker_batch(producer, 0, commit=rng.random() < 0.5, coordinator_epoch=0, timestamp=NOW))
            )
        log.assign_leader_epoch(epoch)
        (verdict,) = log.append([one], epoch)
        assert not isinstance(verdict, KafkaError), verdict
    log.set_high_watermark(log.log_end_offset)
    return epoch


def data_of(log, offset, size):
    """Return the records that a Fetch of this size from `offset` on gets. They may end inside a batch."""
    read = log.read(offset, size, min_one=True, max_offset=log.log_end_offset)
    return memoryview(bytearray(read.region.read())) if read.region is not None else memoryview(b"")


def follow(leader, follower, sizes, epoch=99):
    while follower.log_end_offset < leader.log_end_offset:
        before = follower.log_end_offset
        data = data_of(leader, before, next(sizes))
        done = follower.append_as_follower(data, epoch)
        assert done.end_offset == follower.log_end_offset > before
        assert done.size <= len(data)
        assert done.left == (done.size < len(data))


def state_of(log):
    """Return what must be equal in both logs: records, epochs, producers, aborted transactions, largest timestamp."""
    log.set_high_watermark(log.log_end_offset)
    read = bytearray()
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = bytes(data_of(log, offset, 1 << 20))
        skip = 0
        while struct.unpack_from(">q", data, skip)[0] < offset:
            skip += 12 + struct.unpack_from(">i", data, skip + 8)[0]
        read += data[skip:]
        at = last = skip
        while at < len(data):
            last, at = at, at + 12 + struct.unpack_from(">i", data, at + 8)[0]
        base, delta = struct.unpack_from(">q", data, last)[0], struct.unpack_from(">i", data, last + 23)[0]
        offset = base + delta + 1
    return {
        "records": bytes(read),
        "epochs": log.leader_epochs.entries,
        "producers": {number: vars_of(one) for number, one in log.producers.producers.items()},
        "aborted": [entry for segment in log.segments for entry in segment.txn_index.entries],
        "stable": log.last_stable_offset,
        "largest": max(segment.max_timestamp[0] for segment in log.segments),
    }


def vars_of(entry):
    return (entry.epoch, entry.last_sequence, entry.txn_first_offset, entry.coordinator_epoch)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32))
def test_a_log_that_is_followed_in_pieces_of_any_size_is_the_leaders(tmp_path_factory, seed):
    rng = random.Random(seed)
    leader = Bench(tmp_path_factory.mktemp("leader"), **rng.choice((SMALL, LARGE))).load()
    fill(leader, rng)
    bench = Bench(tmp_path_factory.mktemp("follower"), **rng.choice((SMALL, LARGE)))
    follower = bench.load()
    follow(leader, follower, iter(lambda: rng.choice((1, 100, 700, 5000)), 0))
    assert state_of(follower) == state_of(leader)
    follower.abandon()  # recovery after a crash must find the same in the files
    assert state_of(bench.load(clean=False)) == state_of(leader)


OLD = [
    path
    for path in sorted((GOLDEN / "kafka-3.9.1-v0-v1" / "data").glob("v*-0/*.log"))
    if path.read_bytes()[16:17] in (b"\0", b"\1")
]


@pytest.mark.parametrize("path", OLD, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_formats_0_and_1_are_followed_without_leader_epochs(tmp_path, path):
    data = path.read_bytes()
    follower = Bench(tmp_path).load()
    follower.assign_leader_epoch(3)
    first = struct.unpack_from(">q", data)[0]
    follower.truncate_fully(first)
    done = follower.append_as_follower(memoryview(bytearray(data)), 3)
    assert done.size == len(data)
    assert not follower.leader_epochs.entries
    assert bytes(data_of(follower, follower.log_start_offset, 1 << 30)) == data


def test_searches_find_what_was_followed(tmp_path):
    rng = random.Random(1)
    leader = Bench(tmp_path / "leader", **LARGE).load()
    fill(leader, rng, 200)
    follower = Bench(tmp_path / "follower", **LARGE).load()
    follow(leader, follower, iter(lambda: 3000, 0))
    assert follower.segments.active.offset_index.count > 10
    for offset in range(0, leader.log_end_offset, 7):
        assert values_of(follower, offset)[0] == values_of(leader, offset)[0]
    for log in (leader, follower):
        log.set_high_watermark(log.log_end_offset)
    for timestamp in range(NOW - 500, NOW + 500, 37):
        assert follower.offset_for_timestamp(timestamp) == leader.offset_for_timestamp(timestamp)


def test_a_damaged_batch_is_refused_and_those_before_it_are_kept(tmp_path):
    leader = Bench(tmp_path / "leader", **LARGE).load()
    for number in range(3):
        leader.append([batch(b"x" * 50, number)], 0)
    whole = data_of(leader, 0, 1 << 20)
    third = len(whole) * 2 // 3
    for at in range(third + 16, len(whole)):
        follower = Bench(tmp_path / f"follower{at}", **LARGE).load()
        data = memoryview(bytearray(whole))
        data[at] ^= 0x55
        with pytest.raises(KafkaError, match="the leader's data for t-0: ") as refused:
            follower.append_as_follower(data, 0)
        assert refused.value.code == Errors.CORRUPT_MESSAGE
        assert follower.log_end_offset == 4
        assert follower.append_as_follower(whole[third:], 0).end_offset == 6


def batch_at(offset, *values):
    """Return a batch whose first record has this offset."""
    data = batch(*values)
    struct.pack_into(">q", data, 0, offset)
    return data


def test_offsets_may_have_gaps_but_never_go_back(tmp_path):
    follower = Bench(tmp_path, **LARGE).load()
    assert follower.append_as_follower(batch_at(5, 1, 2), 0).end_offset == 7
    assert follower.append_as_follower(batch_at(100, 1), 0).end_offset == 101
    with pytest.raises(UnexpectedOffset, match="the leader sent offset 99 of t-0, whose log ends at 101"):
        follower.append_as_follower(batch_at(99, 1, 2, 3), 0)
    both = memoryview(bytearray(bytes(batch_at(200, 1, 2)) + bytes(batch_at(201, 1))))
    with pytest.raises(KafkaError, match="do not follow those before"):
        follower.append_as_follower(both, 0)
    assert [offset for offset, _ in values_of(follower)] == [5, 6, 100, 200, 201]


def test_offsets_that_are_too_far_for_one_segment_go_to_the_next(tmp_path):
    follower = Bench(tmp_path, **LARGE).load()
    near, far = batch(1), batch(2)
    struct.pack_into(">q", far, 0, 1 << 40)
    both = memoryview(bytearray(bytes(near) + bytes(far)))
    assert follower.append_as_follower(both, 0).end_offset == (1 << 40) + 1
    assert len(follower.segments.items) == 2


def test_a_batch_whose_last_offset_is_too_far_for_one_segment_goes_to_the_next(tmp_path):
    follower = Bench(tmp_path, **LARGE).load()
    follower.append_as_follower(batch_at(0, 1), 0)
    assert follower.append_as_follower(batch_at(1, 2), 0, blocking=False).end_offset == 2
    straddling = batch_at(MAX_RELATIVE_OFFSET, 3, 4)
    assert follower.append_as_follower(straddling, 0, blocking=False) is BUSY
    assert follower.append_as_follower(straddling, 0).end_offset == MAX_RELATIVE_OFFSET + 2
    assert follower.segments.base_offsets == [0, MAX_RELATIVE_OFFSET]


def test_a_batch_larger_than_a_segment_is_taken(tmp_path):
    follower = Bench(tmp_path, **SMALL).load()
    follower.append_as_follower(batch(b"small"), 0)
    large = batch(b"x" * 5000)
    struct.pack_into(">q", large, 0, 1)
    assert follower.append_as_follower(large, 0).end_offset == 2
    assert len(follower.segments.items) == 2


def test_a_batch_of_a_later_epoch_than_it_was_fetched_in_is_refused(tmp_path):
    """KAFKA-18723: the leader became a follower between the read and the response."""
    leader = Bench(tmp_path / "leader").load()
    leader.assign_leader_epoch(7)
    leader.append([batch(1)], 7)
    follower = Bench(tmp_path / "follower").load()
    with pytest.raises(KafkaError, match="is of leader epoch 7, it was fetched in 6"):
        follower.append_as_follower(data_of(leader, 0, 1000), 6)
    assert follower.log_end_offset == 0


def test_a_follower_of_an_earlier_epoch_is_fenced(tmp_path):
    follower = Bench(tmp_path).load()
    follower.fence(5)
    with pytest.raises(KafkaError, match="leader epoch 4 of t-0 is over"):
        follower.append_as_follower(batch(1), 4)
    assert follower.append_as_follower(batch(1), 5).end_offset == 1


def test_a_full_disk_leaves_nothing_behind(tmp_path):
    files = FailingFiles(1, only={"write"}, torn=True)
    follower = Bench(tmp_path, files=files, **LARGE).load()
    with pytest.raises(KafkaError):
        follower.append_as_follower(idempotent(1, 2), 0)
    assert (follower.log_end_offset, follower.segments.active.size) == (0, 0)
    assert not follower.producers.producers
    assert follower.append_as_follower(idempotent(1, 2), 0).end_offset == 2


def test_the_beginning_of_a_batch_is_left(tmp_path):
    follower = Bench(tmp_path).load()
    whole = batch(b"x" * 100)
    for size in range(len(whole)):
        done = follower.append_as_follower(memoryview(bytearray(whole[:size])), 0)
        assert (done.size, done.end_offset, done.left) == (0, 0, size > 0)
    assert follower.append_as_follower(whole, 0).end_offset == 1
