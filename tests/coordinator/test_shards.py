"""The shards of a topic: the shard of a key, and loads and unloads with the partitions."""

import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from kafkapy.coordinator.shard import ACTIVE, UNLOADED, Shard
from kafkapy.coordinator.shard_loader import LoadQueue
from kafkapy.coordinator.shards import Shards, partition_of
from kafkapy.errors import Errors, KafkaError
from kafkapy.log.failures import Shortage
from kafkapy.metadata.cache import LEADER_DURING_DELETE, MetadataCache
from kafkapy.metadata.roles import NO_LEADER, PartitionRole
from kafkapy.record.batch import build
from kafkapy.replica.partition import Partition
from kafkapy.runtime.clock import ManualClock
from kafkapy.runtime.timer import Timer
from tests.coordinator.groups.world import HandTimer
from tests.coordinator.key_values import KeyValues, put
from tests.coordinator.partitions import TOPIC, lead
from tests.harness.appends import append_to


class Broker:
    """The broker as Shards sees it: a metadata cache, and replicas that raise `why` for each partition."""

    broker_id = 0

    def __init__(self, partitions: int) -> None:
        self.cache = MetadataCache()
        self.cache.expect(TOPIC, b"1" * 16, {index: [0] for index in range(partitions)})
        self.why = KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, "it is elsewhere")
        self.asked: list[int] = []

    def tell(self, leader: int, partitions: int = 4, topic_id: bytes = b"1" * 16) -> None:
        """Put partitions with this leader into the metadata cache."""
        self.cache.update(
            PartitionRole(TOPIC, index, topic_id, leader, 0, 0, [leader], [leader]) for index in range(partitions)
        )

    # --- the methods of replicas

    def get(self, topic: str, index: int) -> Any:
        self.asked.append(index)
        raise self.why

    def is_expected(self, topic: str, index: int) -> bool:
        return self.why.code == Errors.NOT_LEADER_OR_FOLLOWER

    def holds(self, topic: str, index: int) -> bool:
        return False


class Held(LoadQueue):
    """A load queue whose jobs the test runs."""

    def __init__(self) -> None:
        super().__init__(1)
        self.jobs: list[Any] = []
        self.prioritized: list[Any] = []

    def put(self, key: Any, job: Any) -> None:
        self.jobs.append(job)

    def prioritize(self, key: Any) -> None:
        self.prioritized.append(key)

    def run(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()


@pytest.fixture
def broker() -> Broker:
    return Broker(4)


@pytest.fixture
def queue() -> Held:
    return Held()


@pytest.fixture
def timer() -> HandTimer:
    return HandTimer(ManualClock())


@pytest.fixture
def shards(broker: Broker, queue: Held, timer: HandTimer) -> Iterator[Shards[KeyValues]]:
    clock = ManualClock()
    stand_in: Any = broker
    by_hand: Any = timer
    shards = Shards(
        TOPIC,
        lambda index: KeyValues(),
        cache=stand_in.cache,
        replicas=stand_in,
        queue=queue,
        clock=clock,
        timer=by_hand,
        partitions=lambda: 50,
        block_bytes=lambda: 1000,
    )
    yield shards
    shards.stop()


def key_of(index: int, partitions: int = 4) -> str:
    return next(name for name in map(str, range(1000)) if partition_of(name, partitions) == index)


def code_of(shards: Shards[KeyValues], key: str) -> int:
    with pytest.raises(KafkaError) as refused:
        shards.of(key)
    return refused.value.code


def written(directory: Path, index: int) -> Partition:
    """Return a partition with a record, so that its load goes through the queue."""
    partition = lead(directory, index=index)
    append_to(partition, [memoryview(bytearray(build([(1, b"key", b"value", ())])))])
    return partition


def test_a_key_belongs_to_the_partition_that_kafka_chooses() -> None:
    """Kafka uses the absolute value of Java's String.hashCode, or 0 for the lowest int."""
    assert partition_of("user-4711", 50) == 291394725 % 50
    assert partition_of("my-group", 50) == 1906497762 % 50  # the hash is negative
    assert partition_of("polygenelubricants", 50) == 0  # the lowest hash


def test_a_key_belongs_to_a_partition_of_the_topic(shards: Shards[KeyValues], broker: Broker) -> None:
    assert shards.partition_for("group") == partition_of("group", 4)
    broker.tell(LEADER_DURING_DELETE)
    assert shards.partition_for("group") == partition_of("group", 50)  # 50 is the configured number of partitions


def test_partitions_added_later_are_not_used_before_a_restart(shards: Shards[KeyValues], broker: Broker) -> None:
    key = next(name for name in map(str, range(1000)) if partition_of(name, 4) != partition_of(name, 8))
    assert shards.partition_for(key) == partition_of(key, 4)
    broker.tell(0, 8)
    assert shards.partition_for(key) == partition_of(key, 4)
    broker.tell(LEADER_DURING_DELETE, 8)
    broker.tell(0, 8, b"2" * 16)
    assert shards.partition_for(key) == partition_of(key, 8)


def test_partitions_that_the_controller_sends_in_parts_are_all_counted(
    shards: Shards[KeyValues], broker: Broker
) -> None:
    broker.tell(LEADER_DURING_DELETE)
    broker.cache.update([PartitionRole(TOPIC, index, b"2" * 16, 0, 0, 0, [0], [0]) for index in (0, 1, 3)])
    assert {shards.partition_for(str(key)) for key in range(100)} == {0, 1, 2, 3}
    broker.tell(0, 6, b"2" * 16)
    assert {shards.partition_for(str(key)) for key in range(100)} == {0, 1, 2, 3, 4, 5}
    broker.tell(0, 8, b"2" * 16)
    assert {shards.partition_for(str(key)) for key in range(100)} == {0, 1, 2, 3, 4, 5}


def test_nothing_is_served_before_the_number_of_partitions_is_known(
    shards: Shards[KeyValues], broker: Broker, tmp_path: Path
) -> None:
    """A broker may get LeaderAndIsr before UpdateMetadata."""
    broker.tell(LEADER_DURING_DELETE)
    shards.start_loading(lead(tmp_path, index=partition_of("group", 50)))
    assert code_of(shards, "group") == Errors.COORDINATOR_LOAD_IN_PROGRESS
    broker.tell(0)
    assert code_of(shards, "group") == Errors.NOT_COORDINATOR


def test_an_empty_partition_is_loaded_at_once(shards: Shards[KeyValues], tmp_path: Path) -> None:
    partition = lead(tmp_path, index=2)
    partition.leader_epoch = 5
    shards.start_loading(partition)
    shard = shards.of(key_of(2))
    assert (shard.index, shard.state, shard.leader_epoch) == (2, ACTIVE, 5)
    assert shard.machine.shard is shard
    assert shards.active() == [shard]
    assert shards.at(2) is shard
    assert shards.at(1) is None
    assert not shards.is_loading


def test_appended_records_are_loaded_by_the_next_leader(shards: Shards[KeyValues], tmp_path: Path, queue: Held) -> None:
    partition = lead(tmp_path, index=2)
    shards.start_loading(partition)
    shards.of(key_of(2)).run(put(b"a", b"1"))
    shards.start_loading(lead(tmp_path, index=2))
    queue.run()
    assert shards.of(key_of(2)).machine.values == {b"a": b"1"}


def test_a_request_for_a_loading_shard_is_refused_and_prioritizes_the_load(
    shards: Shards[KeyValues], tmp_path: Path, queue: Held
) -> None:
    shards.start_loading(written(tmp_path, 1))
    shards.start_loading(written(tmp_path, 2))
    assert shards.is_loading
    assert shards.active() == []
    assert code_of(shards, key_of(2)) == Errors.COORDINATOR_LOAD_IN_PROGRESS
    assert queue.prioritized == [shards.at(2)]
    queue.run()
    assert not shards.is_loading
    assert [shard.index for shard in shards.active()] == [1, 2]
    assert shards.of(key_of(2)).machine.values == {b"key": b"value"}


def test_requests_do_not_wait_for_a_machine_that_is_finishing_its_load(
    shards: Shards[KeyValues], tmp_path: Path, queue: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def loaded(machine: KeyValues) -> None:
        asking = threading.Thread(target=lambda: seen.append((code_of(shards, key_of(1)), shards.active())))
        asking.start()
        asking.join(10)
        machine.shard.run(lambda machine: seen.append("its own step"))

    monkeypatch.setattr(KeyValues, "loaded", loaded)
    shards.start_loading(written(tmp_path, 1))
    queue.run()
    assert seen == [(Errors.COORDINATOR_LOAD_IN_PROGRESS, []), "its own step"]
    assert shards.active() == [shards.of(key_of(1))]


@pytest.mark.parametrize(
    ("why", "code"),
    [
        (Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.NOT_COORDINATOR),
        (Errors.KAFKA_STORAGE_ERROR, Errors.NOT_COORDINATOR),
        (Errors.NOT_LEADER_OR_FOLLOWER, Errors.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_requests_for_a_partition_without_a_leader_here_are_refused(
    shards: Shards[KeyValues], broker: Broker, why: int, code: int
) -> None:
    broker.why = KafkaError(why, "for a reason")
    assert code_of(shards, key_of(3)) == code
    assert broker.asked == [3]  # so the load of this log is prioritized
    assert shards.is_loading == (code == Errors.COORDINATOR_LOAD_IN_PROGRESS)


@pytest.mark.parametrize("leader", [1, NO_LEADER])
def test_a_log_that_is_loading_has_its_coordinator_elsewhere_if_the_metadata_say_so(
    shards: Shards[KeyValues], broker: Broker, leader: int
) -> None:
    broker.why = KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, "its log is being recovered")
    broker.tell(leader)
    assert code_of(shards, key_of(3)) == Errors.NOT_COORDINATOR
    assert not shards.is_loading
    broker.tell(0)
    assert code_of(shards, key_of(3)) == Errors.COORDINATOR_LOAD_IN_PROGRESS
    assert shards.is_loading


def test_each_calls_for_loaded_loading_and_future_shards(
    shards: Shards[KeyValues], broker: Broker, tmp_path: Path, queue: Held
) -> None:
    broker.why = KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, "its log is being recovered")
    shards.start_loading(lead(tmp_path, index=0))
    shards.start_loading(written(tmp_path, 1))
    seen: list[int] = []
    shards.each(lambda shard: seen.append(shard.index))
    assert seen == [0]
    queue.run()
    assert seen == [0, 1]
    shards.start_loading(written(tmp_path, 2))
    queue.run()
    shards.start_loading(written(tmp_path, 2))
    queue.run()
    assert seen == [0, 1, 2], "and the next shard of a partition that was reached is not"


def test_a_call_for_a_partition_that_another_broker_leads_now_is_forgotten(
    shards: Shards[KeyValues], broker: Broker, tmp_path: Path, queue: Held
) -> None:
    broker.why = KafkaError(Errors.NOT_LEADER_OR_FOLLOWER, "its log is being recovered")
    seen: list[int] = []
    shards.each(lambda shard: seen.append(shard.index))
    shards.follows(2)
    for index in (1, 2):
        shards.start_loading(written(tmp_path, index))
    queue.run()
    assert seen == [1]


def test_a_load_that_runs_out_of_file_descriptors_is_tried_again(
    shards: Shards[KeyValues], tmp_path: Path, queue: Held, timer: HandTimer
) -> None:
    partition = written(tmp_path, 0)
    read = partition.log.read
    short = Shortage("reading the log", OSError(errno.EMFILE, "too many open files"))
    partition.log.read = Mock(side_effect=short)  # type: ignore[method-assign]
    shards.start_loading(partition)
    first = shards.at(0)
    assert first is not None
    before = first.machine
    queue.run()
    assert code_of(shards, key_of(0)) == Errors.COORDINATOR_LOAD_IN_PROGRESS
    partition.log.read = read  # type: ignore[method-assign]
    timer.advance(1)
    queue.run()
    shard = shards.of(key_of(0))
    assert shard.machine is not before
    assert shard.machine.values == {b"key": b"value"}


def test_a_load_that_ran_short_is_not_tried_again_for_a_partition_that_is_lost(
    shards: Shards[KeyValues], tmp_path: Path, queue: Held, timer: HandTimer
) -> None:
    partition = written(tmp_path, 0)
    partition.log.read = Mock(side_effect=MemoryError)  # type: ignore[method-assign]
    shards.start_loading(partition)
    queue.run()
    shards.unload(partition)
    queue.run()
    timer.advance(1)
    assert queue.jobs == []


def test_each_skips_partitions_of_other_brokers(shards: Shards[KeyValues], broker: Broker, tmp_path: Path) -> None:
    seen: list[int] = []
    shards.each(lambda shard: seen.append(shard.index))
    shards.start_loading(lead(tmp_path, index=0))
    assert seen == []


def test_a_lost_partition_has_another_coordinator(shards: Shards[KeyValues], tmp_path: Path, queue: Held) -> None:
    partition = lead(tmp_path, index=0)
    shards.start_loading(partition)
    shard = shards.of(key_of(0))
    shards.unload(partition)
    assert shards.active() == []
    queue.run()
    assert (shard.state, shard.machine.seen) == (UNLOADED, ["loaded", "unloaded"])
    assert code_of(shards, key_of(0)) == Errors.NOT_COORDINATOR


def test_a_failing_directory_does_not_deadlock_two_shards(tmp_path: Path) -> None:
    """Each shard is in the middle of a step when both are lost. Neither may wait for the end of the other."""
    broker: Any = Broker(2)
    queue = LoadQueue()
    clock = ManualClock()
    shards = Shards(
        TOPIC,
        lambda index: KeyValues(),
        cache=broker.cache,
        replicas=broker,
        queue=queue,
        clock=clock,
        timer=Timer(clock),
        partitions=lambda: 2,
        block_bytes=lambda: 1000,
    )
    partitions = [lead(tmp_path, index=index) for index in range(2)]
    for partition in partitions:
        shards.start_loading(partition)
    both = threading.Barrier(2)

    def step(machine: KeyValues) -> None:
        both.wait(10)
        for partition in partitions:
            shards.unload(partition)

    at = [shards.of(key_of(index, 2)) for index in range(2)]
    threads = [threading.Thread(target=shard.run, args=(step,), daemon=True) for shard in at]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    with queue._changed:
        assert queue._changed.wait_for(lambda: queue._running == 0, 10)
    assert [shard.state for shard in at] == [UNLOADED, UNLOADED]


def test_unloading_an_older_partition_object_changes_nothing(shards: Shards[KeyValues], tmp_path: Path) -> None:
    before, after = lead(tmp_path, index=0), lead(tmp_path, index=0)
    shards.start_loading(before)
    first = shards.of(key_of(0))
    shards.start_loading(after)
    shards.unload(before)
    assert first.state == UNLOADED  # ended when the next shard began to load
    assert shards.of(key_of(0)).state == ACTIVE


def test_a_partition_lost_before_start_loading_has_no_shard(shards: Shards[KeyValues], tmp_path: Path) -> None:
    partition = lead(tmp_path, index=0)
    partition.gone = KafkaError(Errors.KAFKA_STORAGE_ERROR)
    shards.start_loading(partition)
    assert code_of(shards, key_of(0)) == Errors.NOT_COORDINATOR


def test_a_partition_lost_while_queued_is_not_loaded(shards: Shards[KeyValues], tmp_path: Path, queue: Held) -> None:
    partition = written(tmp_path, 0)
    shards.start_loading(partition)
    shard: Shard[KeyValues] | None = shards.at(0)
    assert shard is not None
    partition.remove(KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION))
    shards.unload(partition)
    queue.run()
    assert (shard.state, shard.machine.seen) == (UNLOADED, [])


def test_stop_ends_all_shards(shards: Shards[KeyValues], tmp_path: Path) -> None:
    shards.start_loading(lead(tmp_path, index=0))
    shard = shards.of(key_of(0))
    shards.stop()
    assert shard.state == UNLOADED
    assert code_of(shards, key_of(0)) == Errors.COORDINATOR_NOT_AVAILABLE
    shards.start_loading(lead(tmp_path, index=1))
    assert shards.at(1) is None
