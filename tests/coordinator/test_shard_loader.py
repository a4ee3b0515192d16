"""A load replays every batch and fails at a damaged one. Prioritized shards load first."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.coordinator.coordinator_log import CoordinatorLog
from kafkapy.coordinator.shard import ACTIVE, FAILED, LOADING, UNLOADED, Shard
from kafkapy.coordinator.shard_loader import LoadQueue, load, replay_batches
from kafkapy.coordinator.shards import all_replicas, default_timeout_ms, no_sequence, not_compressed
from kafkapy.errors import Errors, KafkaError
from kafkapy.log.append.rules import OwnBatch
from kafkapy.record.batch import build
from kafkapy.record.control import marker_batch
from kafkapy.record.legacy import build_set
from kafkapy.replica.partition import Partition
from kafkapy.runtime.clock import ManualClock
from kafkapy.runtime.timer import Timer
from tests.coordinator.key_values import KeyValues
from tests.coordinator.partitions import lead
from tests.harness.appends import append_to

BLOCK = 1 << 16


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return lead(tmp_path)


def shard_of(partition: Partition) -> Shard[KeyValues]:
    clock = ManualClock()
    log = CoordinatorLog(partition, clock, Timer(clock), not_compressed, no_sequence, all_replicas, default_timeout_ms)
    shard = Shard(partition.topic, partition.index, KeyValues(), log, clock=clock, timer=Timer(clock))
    shard.machine.shard = shard
    return shard


def put(partition: Partition, key: str, value: str) -> None:
    batch = build([(1, key.encode(), value.encode(), ())])
    append_to(partition, [memoryview(bytearray(batch))])


def loaded(partition: Partition, block: int = BLOCK) -> Shard[KeyValues]:
    shard = shard_of(partition)
    load(shard, partition, replay_batches, block, lambda: False)
    return shard


def test_a_load_finds_the_written_records(partition: Partition) -> None:
    for number in range(100):
        put(partition, f"key-{number % 7}", str(number))
    shard = loaded(partition)
    assert shard.state == ACTIVE
    assert shard.machine.seen == ["loaded"]
    assert shard.machine.values == {f"key-{n % 7}".encode(): str(n).encode() for n in range(93, 100)}


@pytest.mark.parametrize("block", [1, 100, 1000])
def test_blocks_end_anywhere(tmp_path: Path, block: int) -> None:
    partition = lead(tmp_path, segment_bytes=2000)
    for number in range(100):
        put(partition, f"key-{number}", "x" * number)
    assert len(partition.log.segments.items) > 3
    assert len(loaded(partition, block).machine.values) == 100


def test_an_empty_log_is_loaded_at_once(partition: Partition) -> None:
    shard = loaded(partition, 0)
    assert (shard.state, shard.machine.seen) == (ACTIVE, ["loaded"])


def test_a_load_begins_at_the_log_start_offset(partition: Partition) -> None:
    for number in range(10):
        put(partition, str(number), "v")
    partition.log.delete_records(7)
    assert set(loaded(partition).machine.values) == {b"7", b"8", b"9"}


def test_old_message_formats_are_read(tmp_path: Path) -> None:
    directory = tmp_path / "__consumer_offsets-0"
    directory.mkdir()
    sets = [build_set([(1, b"k%d" % magic, b"v")], magic, base_offset=magic) for magic in (0, 1)]
    (directory / "00000000000000000000.log").write_bytes(b"".join(sets))
    partition = lead(tmp_path)
    put(partition, "k2", "v")
    assert set(loaded(partition).machine.values) == {b"k0", b"k1", b"k2"}


def test_markers_are_passed_to_the_machine(partition: Partition) -> None:
    batch = marker_batch(7, 0, commit=True, coordinator_epoch=0, timestamp=1)
    append_to(partition, [OwnBatch(batch)])
    assert loaded(partition).machine.seen == ["control at 0", "loaded"]


def test_records_appended_during_the_load_are_loaded(partition: Partition) -> None:
    put(partition, "a", "1")
    shard = shard_of(partition)
    appended: list[str] = []

    def replay(machine: KeyValues, block: memoryview) -> int:
        if not appended:
            appended.append("b")
            put(partition, "b", "2")
        return replay_batches(machine, block)

    load(shard, partition, replay, BLOCK, lambda: False)
    assert shard.machine.values == {b"a": b"1", b"b": b"2"}


def test_a_load_goes_on_at_the_log_start_offset_if_that_moves_meanwhile(partition: Partition) -> None:
    for number in range(10):
        put(partition, str(number), "v")
    shard = shard_of(partition)

    def replay(machine: KeyValues, block: memoryview) -> int:
        partition.log.delete_records(7)
        return replay_batches(machine, block)

    load(shard, partition, replay, 1, lambda: False)
    assert shard.state == ACTIVE
    assert set(shard.machine.values) == {b"0", b"7", b"8", b"9"}


def test_a_corrupt_byte_fails_the_load_with_one_line(
    partition: Partition, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    for number in range(3):
        put(partition, f"key-{number}", "value")
    path = tmp_path / "__consumer_offsets-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    shard = loaded(partition)
    assert shard.state == FAILED
    assert shard.machine.seen == []
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert line.startswith("__consumer_offsets-0 cannot be loaded")
    assert str(path) in line
    assert "NOT_COORDINATOR" in line
    with pytest.raises(KafkaError) as refused:
        shard.check()
    assert refused.value.code == Errors.NOT_COORDINATOR


def test_a_record_that_cannot_be_read_ends_the_load(partition: Partition, caplog: pytest.LogCaptureFixture) -> None:
    put(partition, "good", "value")
    put(partition, "bad", "value")
    assert loaded(partition).state == FAILED
    assert "the batch at offset 1 cannot be read: a key that nobody can read" in caplog.text


def test_an_unexpected_exception_fails_the_load_too(partition: Partition) -> None:
    put(partition, "a", "1")
    shard = shard_of(partition)

    def broken(machine: KeyValues, block: memoryview) -> int:
        raise RuntimeError("a bug")

    load(shard, partition, broken, BLOCK, lambda: False)
    assert shard.state == FAILED


def test_a_replay_that_makes_no_progress_fails_the_load(partition: Partition) -> None:
    put(partition, "a", "1")
    shard = shard_of(partition)
    load(shard, partition, lambda machine, block: -1, BLOCK, lambda: False)
    assert shard.state == FAILED


def test_a_shard_that_ends_during_its_load_is_not_loaded(partition: Partition) -> None:
    put(partition, "a", "1")
    shard = shard_of(partition)
    shard.end()
    load(shard, partition, replay_batches, BLOCK, lambda: False)
    assert (shard.state, shard.machine.seen) == (UNLOADED, [])


def test_a_stop_abandons_the_load(partition: Partition) -> None:
    put(partition, "a", "1")
    shard = shard_of(partition)
    load(shard, partition, replay_batches, BLOCK, lambda: True)
    assert (shard.state, shard.machine.seen) == (LOADING, [])


# --- the queue


class Gate:
    """A load queue with one thread, which does not begin before `open` is called."""

    def __init__(self) -> None:
        self.queue = LoadQueue(1)
        self.ran: list[str] = []
        self._open = threading.Event()
        self._begun = threading.Event()
        self.queue.put("gate", self._wait)
        assert self._begun.wait(10)

    def _wait(self) -> None:
        self._begun.set()
        assert self._open.wait(10)

    def put(self, *names: str) -> None:
        for name in names:
            self.queue.put(name, lambda name=name: self.ran.append(name))  # type: ignore[misc]

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()
    gate.queue.stop()


def finished(gate: Gate) -> list[str]:
    done = threading.Event()
    gate.queue.put("last", done.set)
    gate.open()
    assert done.wait(10)
    return gate.ran


def test_prioritized_jobs_run_first(gate: Gate) -> None:
    gate.put("a", "b", "c", "d")
    for name in ("c", "b", "c", "unknown"):
        gate.queue.prioritize(name)
    assert finished(gate) == ["c", "b", "a", "d"]


def test_a_load_that_fails_does_not_end_the_others(gate: Gate) -> None:
    gate.queue.put("broken", lambda: 1 // 0)  # type: ignore[arg-type]
    gate.put("a")
    assert finished(gate) == ["a"]


def test_a_stop_waits_for_running_jobs_and_discards_the_rest(gate: Gate) -> None:
    gate.put("a", "b")
    stopping = threading.Thread(target=gate.queue.stop)
    stopping.start()
    while not gate.queue.stopped:
        pass
    assert stopping.is_alive()
    gate.open()
    stopping.join(10)
    gate.put("c")
    assert gate.ran == []


def test_threads_start_and_end_with_the_work() -> None:
    queue = LoadQueue(2)
    for _ in range(3):
        both = threading.Barrier(2)  # both jobs must run at the same time
        for name in "ab":
            queue.put(name, lambda both=both: both.wait(10))  # type: ignore[misc]
        with queue._changed:
            assert queue._changed.wait_for(lambda: queue._running == 0, 10)
