"""A shard's appends have Kafka's bytes and error codes, and call back in every case."""

from pathlib import Path
from typing import Any

import pytest

from kafkapy.coordinator.coordinator_log import CoordinatorLog, coordinator_error
from kafkapy.coordinator.group_machine import base_sequence_of
from kafkapy.coordinator.shard import Producer
from kafkapy.coordinator.shards import all_replicas, default_timeout_ms, no_sequence, not_compressed
from kafkapy.errors import Errors, KafkaError
from kafkapy.log.append.rules import OwnBatch
from kafkapy.record.batch import records_of
from kafkapy.record.compression import GZIP
from kafkapy.replica.partition import Partition
from kafkapy.runtime.clock import ManualClock
from kafkapy.runtime.disk_pool import PoolStopped
from kafkapy.runtime.timer import Timer
from tests.coordinator.groups.world import HandTimer
from tests.coordinator.partitions import lead
from tests.harness.appends import append_to
from tests.harness.batches import iter_batches

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "kafka-3.9.1-v2" / "data"


class Stopped:
    def submit(self, *job: Any) -> None:
        raise PoolStopped("the append pool is stopped and accepts no more calls")


def shard_log(partition: Partition, clock: ManualClock, codec: int = 0) -> CoordinatorLog:
    return CoordinatorLog(
        partition, clock, Timer(clock), lambda: codec, base_sequence_of, all_replicas, default_timeout_ms
    )


@pytest.mark.parametrize("name", ["__consumer_offsets-0", "__consumer_offsets-1", "__transaction_state-0"])
def test_batches_are_byte_for_byte_kafkas(tmp_path: Path, name: str) -> None:
    """Records of Kafka 3.9.1, group metadata and commits with and without transactions, are written again at the same
    times."""
    (segment, *_) = sorted((GOLDEN / name).glob("*.log"))
    expected = segment.read_bytes()
    topic, _, index = name.rpartition("-")
    clock = ManualClock(0)
    partition = lead(tmp_path, clock, topic=topic, index=int(index))
    sequence = base_sequence_of if "offsets" in topic else no_sequence
    log = CoordinatorLog(partition, clock, Timer(clock), not_compressed, sequence, all_replicas, default_timeout_ms)
    outcomes: list[KafkaError | None] = []
    written = bytearray()
    for header in iter_batches(expected):
        partition.log.assign_leader_epoch(header.leader_epoch)
        partition.leader_epoch = header.leader_epoch
        if header.is_control:  # markers are not appended by the group coordinator
            batch = bytearray(expected[header.position : header.next_position])
            batch[:8] = bytes(8)
            append_to(partition, [OwnBatch(batch)])
        else:
            records = records_of(expected, header)
            clock.set_time_ms(records[0].timestamp)
            producer = Producer(header.producer_id, header.producer_epoch) if header.is_transactional else None
            log.append([(one.key or b"", one.value) for one in records], producer, outcomes.append)
    for path in sorted((tmp_path / name).glob("*.log")):
        written += path.read_bytes()
    assert set(outcomes) == {None}
    assert bytes(written) == expected


def test_batches_are_compressed_if_the_settings_say_so(tmp_path: Path) -> None:
    partition = lead(tmp_path)
    shard_log(partition, ManualClock(), GZIP).append([(b"\0\1k", b"v")], None, lambda error: None)
    data = (tmp_path / "__consumer_offsets-0" / "00000000000000000000.log").read_bytes()
    (header,) = iter_batches(data)
    assert header.codec == GZIP
    assert records_of(data, header)[0].value == b"v"


def test_too_few_replicas_refuse_an_append_and_are_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes: list[Any] = []
    partition = lead(tmp_path, replicas=(0, 1), min_insync_replicas=2)
    log = shard_log(partition, ManualClock())
    for _ in range(2):
        log.append([(b"\0\1k", b"v")], None, outcomes.append)
    assert [one.code for one in outcomes] == [Errors.NOT_ENOUGH_REPLICAS] * 2
    (warning,) = caplog.messages
    assert warning.startswith("a coordinator cannot append, its clients get an error: ")
    assert warning.endswith("is [0] and min.insync.replicas is 2: nothing was appended")
    assert coordinator_error(outcomes[0]) == Errors.COORDINATOR_NOT_AVAILABLE


def test_a_batch_that_is_too_large_is_a_refusal(tmp_path: Path) -> None:
    outcomes: list[Any] = []
    partition = lead(tmp_path, max_message_bytes=1000)
    shard_log(partition, ManualClock()).append([(b"\0\1k", bytes(2000))], None, outcomes.append)
    assert [one.code for one in outcomes] == [Errors.MESSAGE_TOO_LARGE]
    assert coordinator_error(outcomes[0]) == Errors.UNKNOWN_SERVER_ERROR


def test_a_partition_that_is_gone_has_another_coordinator(tmp_path: Path) -> None:
    outcomes: list[Any] = []
    partition = lead(tmp_path)
    partition.remove(KafkaError(Errors.KAFKA_STORAGE_ERROR, "its directory is offline"))
    shard_log(partition, ManualClock()).append([(b"\0\1k", b"v")], None, outcomes.append)
    assert [coordinator_error(one) for one in outcomes] == [Errors.NOT_COORDINATOR]


def test_an_append_to_a_stopping_broker_is_answered(tmp_path: Path) -> None:
    outcomes: list[Any] = []
    partition = lead(tmp_path, pool=Stopped(), flush_messages=1)  # so that each append waits for a flush
    shard_log(partition, ManualClock()).append([(b"\0\1k", b"v")], None, outcomes.append)
    assert [coordinator_error(one) for one in outcomes] == [Errors.NOT_COORDINATOR]


def test_an_append_that_waits_learns_of_the_lost_leadership_on_the_timers_thread(tmp_path: Path) -> None:
    """The callback must not run on the thread that ends the leadership, which may hold the lock of another shard."""
    outcomes: list[Any] = []
    clock = ManualClock()
    timer: Any = HandTimer(clock)
    partition = lead(tmp_path, clock, replicas=(0, 1), isr=(0, 1), timer=timer)
    log = CoordinatorLog(partition, clock, timer, not_compressed, no_sequence, all_replicas, default_timeout_ms)
    log.append([(b"\0\1k", b"v")], None, outcomes.append)
    partition.remove(KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, "broker 1 leads it"))
    assert outcomes == []
    timer.advance(0)
    assert [coordinator_error(one) for one in outcomes] == [Errors.NOT_COORDINATOR]


def test_other_error_codes_are_passed_on_unchanged() -> None:
    assert coordinator_error(KafkaError(Errors.INVALID_PRODUCER_EPOCH)) == Errors.INVALID_PRODUCER_EPOCH
