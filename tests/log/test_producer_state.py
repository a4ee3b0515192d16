"""Producers' entries, transactions and the last stable offset, and their snapshot files."""

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.producers.producer_rebuild import take_snapshot
from kafkapy.log.producers.producer_snapshots import SnapshotError, SnapshotFiles, format_snapshot, parse_snapshot
from kafkapy.log.producers.producer_state import BatchNote, CompletedTxn, ProducerEntry, ProducerState
from kafkapy.log.producers.producer_updates import ProducerUpdates
from kafkapy.log.storage.files import Files

DAY = 86_400_000


def state_with(*transactional):
    """Return a state with an open transaction for each (producer id, first offset)."""
    state = ProducerState(DAY)
    updates = ProducerUpdates(state, "t-0")
    for producer_id, offset in transactional:
        updates.add(producer_id, 0, 0, 0, offset, offset, 1, True, check=True)
    updates.apply()
    return state


def test_the_oldest_open_transaction_holds_the_stable_offset(tmp_path):
    state = state_with((1, 10), (2, 20))
    assert state.first_unstable_offset == 10
    assert state.producers[1].end_transaction(0, 0, 2) == 10
    txn = CompletedTxn(1, 10, 30, False)
    assert state.last_stable_offset(txn) == 20
    state.complete(txn)
    assert state.first_unstable_offset == 10  # unstable until its marker is replicated
    state.high_watermark_moved(30)
    assert state.first_unstable_offset == 10
    state.high_watermark_moved(31)
    assert state.first_unstable_offset == 20


def test_a_plain_batch_inside_a_transaction_is_refused_and_changes_nothing():
    state = state_with((1, 10))
    updates = ProducerUpdates(state, "t-0")
    with pytest.raises(KafkaError) as refused:
        updates.add(1, 0, 1, 1, 11, 11, 1, False, check=True)
    assert refused.value.code == Errors.INVALID_TXN_STATE
    updates.apply()
    assert state.producers[1].last_sequence == 0


def test_an_open_transaction_does_not_expire():
    state = state_with((1, 10))
    state.put(ProducerEntry(2, 0, -1, 1, -1, [BatchNote(0, 3, 0, 1)]))
    state.expire(10 * DAY)
    assert list(state.producers) == [1]


def test_changes_that_are_not_applied_are_forgotten():
    state = ProducerState(DAY)
    ProducerUpdates(state, "t-0").add(1, 0, 0, 0, 5, 5, 1, True, check=True)
    assert state.is_empty
    assert state.first_unstable_offset is None


def test_a_snapshot_round_trip_keeps_what_kafka_keeps():
    entries = [
        ProducerEntry(9, 2, 4, 77, 30, [BatchNote(5, 10, 2, 66), BatchNote(9, 33, 3, 77)]),
        ProducerEntry(1, 0, -1, 5, -1, []),
    ]
    (first, second) = sorted(parse_snapshot(format_snapshot(entries), "x"), key=lambda one: -one.producer_id)
    assert (first.epoch, first.coordinator_epoch, first.last_timestamp, first.txn_first_offset) == (2, 4, 77, 30)
    assert first.batches == [BatchNote(9, 33, 3, 77)]
    assert second.batches == []


def test_entries_are_in_the_order_of_a_java_map():
    """As in a HashMap<Long, …>: sixteen buckets until three quarters are full, then twice as many."""
    order = [
        entry.producer_id for entry in parse_snapshot(format_snapshot([ProducerEntry(n) for n in (31, 16, 3)]), "x")
    ]
    assert order == [16, 3, 31]
    many = [ProducerEntry(n) for n in (31, 16, 3, *range(100, 110))]
    order = [entry.producer_id for entry in parse_snapshot(format_snapshot(many), "x")]
    assert order == [3, *range(100, 110), 16, 31]


@pytest.mark.parametrize("size", [0, 5, 9, 57])
def test_a_snapshot_that_is_cut_is_refused(size):
    data = format_snapshot([ProducerEntry(1), ProducerEntry(2)])
    with pytest.raises(SnapshotError):
        parse_snapshot(data[:size], "x")


def test_every_flipped_bit_of_a_snapshot_is_noticed():
    data = format_snapshot([ProducerEntry(1)])
    for at in range(len(data) * 8):
        broken = bytearray(data)
        broken[at // 8] ^= 1 << at % 8
        with pytest.raises(SnapshotError):
            parse_snapshot(bytes(broken), "x")


def test_a_snapshot_is_taken_only_where_something_is_new(tmp_path):
    state, snapshots = ProducerState(DAY), SnapshotFiles(Files(), str(tmp_path))
    assert take_snapshot(state, snapshots) is None
    state.end_offset = 5
    assert take_snapshot(state, snapshots) == str(tmp_path / f"{5:020d}.snapshot")
    assert take_snapshot(state, snapshots) is None
    assert snapshots.offsets == [5]


def test_only_the_newest_snapshot_beyond_all_segments_stays(tmp_path):
    for offset in (3, 10, 17, 25, 30):
        (tmp_path / f"{offset:020d}.snapshot").write_bytes(b"")
    snapshots = SnapshotFiles(Files(), str(tmp_path))
    snapshots.find(dict.fromkeys((3, 10, 17, 25, 30), b""))
    snapshots.delete_strays([0, 10, 20])
    assert snapshots.offsets == [10, 30]
    snapshots.delete_strays([0, 10, 40])
    assert snapshots.offsets == [10]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{10:020d}.snapshot"]


def test_of_too_many_producers_those_that_have_not_written_for_long_are_forgotten():
    state = ProducerState(DAY, most=10)
    offset = 0

    def write(producer_id, sequence=0):
        nonlocal offset
        updates = ProducerUpdates(state, "t-0")
        updates.add(producer_id, 0, sequence, sequence, offset, offset, 1, False, check=True)
        updates.apply()
        offset += 1

    busy = 10_000
    for producer_id in range(300):
        write(busy, producer_id)
        write(producer_id)
    assert len(state.producers) == 10
    assert state.producers[busy].last_sequence == 299
    assert state.evicted == 291
    assert max(state.producers) == busy
    assert 299 in state.producers


def test_producers_with_open_transactions_are_never_forgotten():
    state = ProducerState(DAY, most=3)
    updates = ProducerUpdates(state, "t-0")
    for producer_id in range(5):
        updates.add(producer_id, 0, 0, 0, producer_id, producer_id, 1, True, check=True)
    updates.apply()
    assert sorted(state.producers) == [0, 1, 2, 3, 4]
    assert state.evicted == 0
