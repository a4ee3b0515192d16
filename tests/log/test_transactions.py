"""Transactions in a log: appended markers, fencing, the transaction index and the last stable offset."""

import errno
import struct

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.append.rules import OwnBatch
from kafkapy.log.indexes.txn_index import AbortedTxn
from kafkapy.log.producers.producer_state import ProducerState
from kafkapy.record.control import marker_batch
from tests.harness.batches import iter_batches

from .support import GOLDEN, NOW, Bench, FailingFiles, batch, idempotent

ROOM = {"segment_ms": 1 << 40, "segment_bytes": 1 << 20}


def transactional(*values, producer_id=7, epoch=0, sequence=0, **options):
    return idempotent(*values, producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=True, **options)


def marker(producer_id=7, epoch=0, *, commit=True, coordinator_epoch=0):
    marker = marker_batch(producer_id, epoch, commit=commit, coordinator_epoch=coordinator_epoch, timestamp=NOW)
    return memoryview(marker)


def append(log, *sets, own=False):
    verdicts = log.append([OwnBatch(one) if own else one for one in sets], 0)
    log.set_high_watermark(log.log_end_offset)
    return verdicts


def mark(log, *markers):
    return append(log, *markers, own=True)


def aborted(log):
    return [entry for segment in log.segments for entry in segment.txn_index.entries]


def test_a_marker_is_what_kafka_writes():
    """Compares every marker in the golden files of Apache Kafka 3.9.1."""
    seen = 0
    for path in sorted((GOLDEN / "kafka-3.9.1-v2" / "data").glob("v2-txn*/*.log")):
        data = path.read_bytes()
        for header in iter_batches(data):
            if not header.is_control:
                continue
            whole = data[header.position : header.position + header.size]
            kind, coordinator_epoch = struct.unpack_from(">h3xi", whole, 68)
            marker = marker_batch(
                header.producer_id,
                header.producer_epoch,
                commit=kind == 1,
                coordinator_epoch=coordinator_epoch,
                timestamp=header.max_timestamp,
            )
            assert marker[12:16] + marker[16:] == b"\xff" * 4 + whole[16:]
            seen += 1
    assert seen > 10


@pytest.mark.parametrize("partition", ["v2-txn-0", "v2-txn-side-0", "v2-txn-open-0"])
def test_appending_the_golden_records_again_writes_the_same_files_as_kafka(tmp_path, partition):
    """Logs, transaction indexes and producer snapshots equal those of Apache Kafka 3.9.1 byte for byte."""
    source = GOLDEN / "kafka-3.9.1-v2" / "data" / partition
    log = Bench(tmp_path, index_interval_bytes=1, **ROOM).load()
    for path in sorted(source.glob("*.log")):
        base, data = int(path.stem), path.read_bytes()
        if base:
            assert log.log_end_offset == base
            log.roll()
        for header in iter_batches(data):
            stored = bytearray(data[header.position : header.position + header.size])
            stored[:8] = bytes(8)
            records = OwnBatch(stored) if header.is_control else memoryview(stored)
            (verdict,) = log.append([records], header.leader_epoch)
            assert (verdict.base_offset, verdict.duplicate) == (header.base_offset, False)
            log.set_high_watermark(log.log_end_offset)
    log.close()
    for suffix in ("log", "txnindex", "snapshot"):
        for path in sorted(source.glob(f"*.{suffix}")):
            written = (tmp_path / "t-0" / path.name).read_bytes()
            if suffix == "txnindex" and path.stem.endswith("43"):  # damaged, see test_golden_files
                assert aborted(log)[-3:] == [(12, 27, 44, 45), (15, 46, 47, 48), (16, 48, 49, 50)]
            else:
                assert written == path.read_bytes(), path.name
    assert len(list((tmp_path / "t-0").glob("*.txnindex"))) == len(list(source.glob("*.txnindex")))


def test_a_commit_moves_the_last_stable_offset_and_leaves_no_entry(tmp_path):
    log = Bench(tmp_path).load()
    append(log, batch("before"), transactional("a", "b"), batch("after"))
    assert (log.high_watermark, log.last_stable_offset) == (4, 1)
    (verdict,) = mark(log, marker())
    assert verdict.base_offset == 4
    assert log.last_stable_offset == log.high_watermark == 5
    assert aborted(log) == []
    assert not list(tmp_path.glob("t-0/*.txnindex"))


def test_a_truncation_leaves_transactions_that_ended_below_the_high_watermark_stable(tmp_path):
    log = Bench(tmp_path).load()
    append(log, transactional("a", "b"))
    mark(log, marker())
    append(log, batch("after"))
    log.truncate_to(3)
    assert log.last_stable_offset == log.high_watermark == 3


@pytest.mark.parametrize("way", ["truncate_to", "truncate_fully"])
def test_a_truncation_shows_no_records_of_an_open_transaction_meanwhile(tmp_path, monkeypatch, way):
    log = Bench(tmp_path).load()
    append(log, batch("before"), transactional("a", "b"))
    log.append([batch("c"), batch("d")], 0)
    assert (log.high_watermark, log.last_stable_offset) == (3, 1)
    seen = []

    def looked_after(change):
        def changed(*arguments):
            change(*arguments)
            seen.append(log.last_stable_offset)

        return changed

    for name in ("clear", "put"):
        monkeypatch.setattr(ProducerState, name, looked_after(getattr(ProducerState, name)))
    getattr(log, way)(4)
    assert len(seen) > 0
    assert set(seen) == ({1} if way == "truncate_to" else {4})  # an emptied log starts and ends at 4
    assert log.last_stable_offset == seen[-1]


def test_an_abort_is_in_the_index_with_the_last_stable_offset_of_its_time(tmp_path):
    log = Bench(tmp_path).load()
    append(log, transactional("a", producer_id=1), transactional("b", producer_id=2))
    mark(log, marker(2, commit=False))
    assert log.last_stable_offset == 0
    mark(log, marker(1, commit=False))
    assert log.last_stable_offset == 4
    assert aborted(log) == [AbortedTxn(2, 1, 2, 0), AbortedTxn(1, 0, 3, 4)]


class Meanwhile:
    """The producer state of a log. Calls `act` after a read of the first unstable offset, once."""

    def __init__(self, producers, act):
        self._producers, self._act = producers, act

    def __getattr__(self, name):
        found = getattr(self._producers, name)
        if name == "first_unstable_offset" and self._act is not None:
            act, self._act = self._act, None
            act()
        return found


def test_a_transaction_that_begins_during_a_read_is_not_read(tmp_path):
    """The transaction is appended, and the high watermark passes its records, between two reads of the log's state."""
    log = Bench(tmp_path).load()
    append(log, batch("before"))
    producers = log.producers

    def begin():
        log.producers = producers
        append(log, transactional("a"))

    log.producers = Meanwhile(producers, begin)
    assert log.last_stable_offset == 1
    assert (log.high_watermark, log.last_stable_offset) == (2, 1)


def test_batches_appended_together_have_the_same_effect_as_one_by_one(tmp_path):
    sets = [
        lambda: transactional("a", producer_id=1),
        lambda: transactional("b", producer_id=2),
        lambda: marker(1, commit=False),
        lambda: transactional("c", producer_id=1, sequence=1),
        lambda: transactional("d", producer_id=3),
        lambda: marker(3, commit=False),
        lambda: marker(2, commit=False),
        lambda: marker(4, commit=False),
        lambda: marker(1, commit=True),
    ]
    together = Bench(tmp_path / "one").load()
    verdicts = append(together, *(one() for one in sets), own=True)
    singly = Bench(tmp_path / "many").load()
    for one, verdict in zip(sets, verdicts, strict=True):
        assert append(singly, one(), own=True) == [verdict]
    assert aborted(together) == aborted(singly) == [(1, 0, 2, 1), (3, 4, 5, 1), (2, 1, 6, 3)]
    assert together.active_producers() == singly.active_producers()
    assert together.last_stable_offset == singly.last_stable_offset == 9


def test_a_marker_without_a_transaction_ends_nothing_and_is_remembered(tmp_path):
    log = Bench(tmp_path).load()
    mark(log, marker(9, 4, commit=False, coordinator_epoch=3))
    assert aborted(log) == []
    (producer,) = log.active_producers()
    assert (producer.producer_epoch, producer.coordinator_epoch, producer.last_sequence) == (4, 3, -1)
    assert log.last_stable_offset == 1


def test_a_marker_of_an_old_epoch_and_of_an_old_coordinator_is_refused(tmp_path):
    log = Bench(tmp_path).load()
    append(log, transactional("a", epoch=2))
    mark(log, marker(epoch=2, coordinator_epoch=5))
    (old,) = mark(log, marker(epoch=1, coordinator_epoch=6))
    (zombie,) = mark(log, marker(epoch=2, coordinator_epoch=4))
    assert [old.code, zombie.code] == [Errors.INVALID_PRODUCER_EPOCH, Errors.TRANSACTION_COORDINATOR_FENCED]
    assert log.log_end_offset == 2


def test_a_marker_fences_the_producer_that_it_overtakes(tmp_path):
    """The transaction has timed out, so its marker has the next producer epoch."""
    log = Bench(tmp_path).load()
    append(log, transactional("a"))
    mark(log, marker(epoch=1, commit=False))
    (late,) = append(log, transactional("b", sequence=1))
    assert late.code == Errors.INVALID_PRODUCER_EPOCH
    (coordinators,) = append(log, transactional("b", sequence=-1), own=True)
    assert coordinators.code == Errors.INVALID_PRODUCER_EPOCH
    (next_one,) = append(log, transactional("c", epoch=1))
    assert next_one.base_offset == 2


def test_clients_write_no_markers(tmp_path):
    log = Bench(tmp_path).load()
    (verdict,) = append(log, marker())
    assert verdict.code == Errors.INVALID_RECORD


def test_markers_are_not_compressed_and_get_the_time_of_the_append(tmp_path):
    bench = Bench(tmp_path, compression_type="gzip", message_timestamp_type="LogAppendTime")
    log = bench.load()
    append(log, transactional("a"))
    bench.clock.advance(5.0)
    mark(log, marker())
    stored = log.read(1, 1 << 20, max_offset=2).region.read()
    (header,) = iter_batches(stored)
    assert (header.codec, header.timestamp_type, header.max_timestamp) == (0, 1, NOW + 5000)


def test_a_crash_and_a_clean_stop_leave_the_same_transactions(tmp_path):
    bench = Bench(tmp_path, segment_bytes=400, segment_ms=1 << 40)
    log = bench.load()
    for n in range(6):
        append(log, transactional("x" * 40, producer_id=n))
        if n > 2:
            mark(log, marker(n - 3, commit=n == 4))
    before = (aborted(log), log.last_stable_offset, log.active_producers())
    log.set_high_watermark(log.log_end_offset)
    assert [entry[0] for entry in before[0]] == [0, 2]
    crashed = bench.load(clean=False)
    crashed.set_high_watermark(crashed.log_end_offset)
    assert (aborted(crashed), crashed.last_stable_offset, crashed.active_producers()) == before
    crashed.close()
    reopened = bench.load()
    reopened.set_high_watermark(reopened.log_end_offset)
    assert (aborted(reopened), reopened.last_stable_offset) == before[:2]
    (verdict,) = mark(reopened, marker(3, commit=False))
    assert aborted(reopened)[-1] == (3, before[1], verdict.base_offset, aborted(reopened)[-1].last_stable_offset)


def test_on_a_full_disk_an_abort_stays_known_and_is_written_later(tmp_path):
    files = FailingFiles(only={"create"})
    bench = Bench(tmp_path, files=files)
    log = bench.load()
    append(log, transactional("a"))
    files.fail_at, files.error = files.count + 1, errno.ENOSPC
    (verdict,) = mark(log, marker(commit=False))
    assert verdict.base_offset == 1
    assert aborted(log) == [(7, 0, 1, 2)]
    assert log.last_stable_offset == 2
    assert not list(tmp_path.glob("t-0/*.txnindex"))
    log.roll()
    (written,) = tmp_path.glob("t-0/*.txnindex")
    assert struct.unpack(">hqqqq", written.read_bytes()) == (0, 7, 0, 1, 2)


# --- KIP-890


def verifying(tmp_path, **settings):
    log = Bench(tmp_path, **settings).load()
    log.verifies_transactions = True
    return log


def test_a_transaction_begins_only_after_its_verification_succeeded(tmp_path):
    log = verifying(tmp_path)
    (verdict,) = append(log, transactional("a"))
    assert verdict.code == Errors.INVALID_TXN_STATE
    guard = log.begin_verification(7, 0, 0)
    (verdict,) = append(log, transactional("a"))
    assert verdict.code == Errors.INVALID_TXN_STATE
    assert log.producers.verifications.succeeded(7, guard)
    (verdict,) = append(log, transactional("a"))
    assert verdict.base_offset == 0
    assert log.begin_verification(7, 1, 0) == 0  # 0: the transaction is open, so no verification is needed
    (verdict,) = append(log, transactional("b", sequence=1))
    assert verdict.base_offset == 1


def test_a_verification_that_succeeds_after_the_marker_is_void(tmp_path):
    log = verifying(tmp_path)
    guard = log.begin_verification(7, 0, 0)
    mark(log, marker(commit=False))
    assert not log.producers.verifications.succeeded(7, guard)
    again = log.begin_verification(7, 0, 0)
    assert again != guard
    assert not log.producers.verifications.succeeded(7, guard)
    assert log.producers.verifications.succeeded(7, again)


def test_a_marker_in_the_same_append_as_records_makes_the_verification_void(tmp_path):
    log = verifying(tmp_path)
    assert log.producers.verifications.succeeded(7, log.begin_verification(7, 0, 0))
    verdicts = append(log, marker(commit=False), transactional("late", sequence=-1), own=True)
    assert [getattr(one, "code", None) for one in verdicts] == [None, Errors.INVALID_TXN_STATE]


def test_the_first_batch_must_have_the_lowest_sequence_under_verification(tmp_path):
    log = verifying(tmp_path)
    log.begin_verification(7, 3, 0)
    guard = log.begin_verification(7, 0, 0)
    assert log.producers.verifications.succeeded(7, guard)
    (verdict,) = append(log, transactional("later", sequence=3))
    assert verdict.code == Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
    (verdict,) = append(log, transactional("a", "b", "c"))
    assert verdict.base_offset == 0


def test_unanswered_verifications_expire(tmp_path):
    bench = Bench(tmp_path)
    log = bench.load()
    guard = log.begin_verification(7, 0, 0)
    bench.clock.advance(2 * 86_400.0)
    log.expire_producers()
    assert not log.producers.verifications.succeeded(7, guard)


def test_plain_and_idempotent_records_need_no_coordinator(tmp_path):
    log = verifying(tmp_path)
    for verdict in append(log, batch("a"), idempotent("b")):
        assert not isinstance(verdict, KafkaError)
