"""Fetch responses for clients that do not know the stored message format."""

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import LogConfig
from kafkapy.network.pieces import Pieces
from kafkapy.record.file_region import FileRegion
from kafkapy.record.legacy import iter_entries, messages_of
from kafkapy.replica import old_clients
from kafkapy.replica.fetch import FetchPlan
from kafkapy.replica.old_clients import OldClientReads
from kafkapy.replica.partition import Partition
from kafkapy.replica.stall import StallMonitor
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.server.fetching.session import FetchPartition
from tests.harness.appends import append_to
from tests.log.support import Bench, batch


@pytest.fixture
def partition_of(tmp_path):
    """Return a function that creates a partition with a batch for each value: `partition_of(b"a", **settings)`."""
    pool = DiskPool(1)
    count = iter(range(100))

    def make(*values, **config):
        bench = Bench(tmp_path / str(next(count)))
        log = bench.load()
        partition = Partition(
            log, broker_id=0, leader_epoch=0, append_pool=pool, stall=StallMonitor(1), on_change=lambda _: None
        )
        for value in values:
            (verdict,) = append_to(partition, [batch(value)])
            assert not isinstance(verdict, KafkaError)
        log.update_config(LogConfig({name.replace("_", "."): value for name, value in config.items()}))
        return partition

    yield make
    pool.stop()


def answers(wanted, magic, offset=0):
    plan = FetchPlan(
        [(one, FetchPartition("t", bytes(16), 0, offset, 1 << 20, -1, -1)) for one in wanted],
        min_bytes=1,
        max_bytes=1 << 20,
        isolation=0,
    )
    reads, _, _ = plan.read(blocking=True)
    conversion = OldClientReads(plan.wanted, reads, magic)
    while not conversion.convert_some(lambda: True):
        pass
    return conversion.reads


def bytes_of(pieces):
    data, offset = b"", 0
    while offset < pieces.length:
        piece = bytes(pieces.after(offset))
        if not piece:
            pieces.put(pieces.make(offset))
        data += piece
        offset += len(piece)
    return data


def test_newer_records_become_pieces_and_all_else_stays(partition_of):
    refused = KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, "none")
    full, empty, none = answers([partition_of(b"a", b"b"), partition_of(), refused], 1)
    assert isinstance(full.records, Pieces)
    data = bytes_of(full.records)
    assert len(data) == full.records.length
    assert [(one.offset, one.value) for header in iter_entries(data) for one in messages_of(data, header)] == [
        (0, b"a"),
        (1, b"b"),
    ]
    assert (full.error_code, full.high_watermark) == (Errors.NONE, 2)
    assert (empty.error_code, empty.records) == (Errors.NONE, None)
    assert none.error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION


def test_records_that_the_client_knows_stay_a_region(partition_of):
    (known,) = answers([partition_of(b"a")], 2)
    assert isinstance(known.records, FileRegion)


def test_records_converted_to_learn_their_size_are_kept_up_to_a_limit(partition_of, monkeypatch):
    monkeypatch.setattr(old_clients, "MOST_KEPT", 280)
    converted = answers([partition_of(bytes([at]) * 100) for at in range(4)], 0)
    assert [bool(one.records.after(0)) for one in converted] == [True, True, False, False]
    for at, one in enumerate(converted):
        data = bytes_of(one.records)
        assert [messages_of(data, header)[0].value for header in iter_entries(data)] == [bytes([at]) * 100]


def test_converted_records_are_not_kept_while_slow_readers_hold_much_memory(partition_of, monkeypatch):
    monkeypatch.setattr(old_clients, "MOST_HELD", 0)
    converted = answers([partition_of(b"a"), partition_of(b"b")], 1)
    for value, one in zip((b"a", b"b"), converted, strict=True):
        assert not one.records.after(0)
        data = bytes_of(one.records)
        assert [messages_of(data, header)[0].value for header in iter_entries(data)] == [value]


def test_an_interrupted_conversion_continues_with_the_next_partition(partition_of):
    wanted = [(partition_of(b"a"), FetchPartition("t", bytes(16), at, 0, 1 << 20, -1, -1)) for at in range(3)]
    reads, _, _ = FetchPlan(wanted, min_bytes=1, max_bytes=1 << 20, isolation=0).read(blocking=True)
    conversion = OldClientReads(wanted, reads, 1)
    for done in (1, 2, 3):
        assert conversion.convert_some(lambda: True) == (done == 3)
        assert [isinstance(one.records, Pieces) for one in conversion.reads] == [at < done for at in range(3)]


def test_a_topic_may_forbid_down_conversion(partition_of):
    (answer,) = answers([partition_of(b"a", message_downconversion_enable=False)], 1)
    assert (answer.error_code, answer.high_watermark, answer.records) == (Errors.UNSUPPORTED_VERSION, -1, None)
    (answer,) = answers([partition_of(message_downconversion_enable=False)], 1)
    assert answer.error_code == Errors.UNSUPPORTED_VERSION  # as in Kafka, even with nothing to convert


def test_records_of_before_the_topics_format_went_back_are_not_handed_out_as_they_are(partition_of):
    """Kafka would check only the setting here, and send the client a format that it cannot read."""
    for allowed in (True, False):
        partition = partition_of(b"a")
        partition.log.update_config(
            LogConfig(
                {"message.format.version": "0.10.2", "message.downconversion.enable": allowed},
                protocol_version="2.8-IV1",
            )
        )
        (answer,) = answers([partition], 1)
        if allowed:
            assert isinstance(answer.records, Pieces)
        else:
            assert answer.error_code == Errors.UNSUPPORTED_VERSION
