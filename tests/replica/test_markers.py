"""Markers for several partitions have one response, and committed offsets take effect only after their markers."""

import threading

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import LogConfig
from kafkapy.log.environment import Environment
from kafkapy.log.partition_log import PartitionLog
from kafkapy.log.storage.files import Files
from kafkapy.record.batch import build
from kafkapy.record.control import Marker
from kafkapy.replica.markers import OFFSETS_TOPIC, MarkerWriter
from kafkapy.replica.partition import Partition
from kafkapy.replica.stall import StallMonitor
from kafkapy.runtime.clock import SYSTEM_CLOCK
from kafkapy.runtime.disk_pool import DiskPool
from kafkapy.runtime.scheduler import Scheduler
from tests.harness.appends import append_to
from tests.harness.followers import replicas_of


class Replicas:
    """Partitions of one log directory, each created by `make`."""

    def __init__(self, directory):
        self.scheduler = Scheduler()
        self.pool = DiskPool(1)
        self._directory = directory
        self._env = Environment(str(directory), Files(), SYSTEM_CLOCK, self.scheduler)
        self._partitions = {}
        self.woken = []

    def make(self, topic, index, replicas=(0,), **config):
        log = PartitionLog.load(self._env, str(self._directory / f"{topic}-{index}"), topic, index, LogConfig(config))
        log.assign_leader_epoch(0)
        self._partitions[topic, index] = partition = Partition(
            log,
            broker_id=0,
            leader_epoch=0,
            append_pool=self.pool,
            stall=StallMonitor(10.0),
            on_change=self.woken.append,
            **replicas_of(log, replicas, (0,)),
        )
        data = build([(-1, None, b"v", [])], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        append_to(partition, [memoryview(bytearray(data))])
        return partition

    def get(self, topic, index):
        if (topic, index) not in self._partitions:
            raise KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, "none")
        return self._partitions[topic, index]

    def close(self):
        self.pool.stop()
        for partition in self._partitions.values():
            partition.log.close()
        self.scheduler.stop()


@pytest.fixture
def replicas(tmp_path):
    replicas = Replicas(tmp_path)
    yield replicas
    replicas.close()


class Offsets:
    """Records the ends of transactions in `ended`. `waiting` gets the `then` of each call."""

    def __init__(self):
        self.ended = []
        self.waiting = []

    def __call__(self, index, producer_id, committed, then):
        self.ended.append((index, producer_id, committed))
        self.waiting.append(then)


def test_markers_for_all_partitions_are_answered_together(replicas):
    one, other = replicas.make("t", 0), replicas.make("t", 1)
    replicas.make("few", 0, replicas=(0, 1), **{"min.insync.replicas": 2})
    answers = []
    MarkerWriter(replicas, SYSTEM_CLOCK, Offsets()).write(
        Marker(7, 0, 3, True), [("t", 0), ("few", 0), ("t", 1), ("gone", 0)], answers.append
    )
    assert answers == [
        {
            ("t", 0): Errors.NONE,
            ("few", 0): Errors.NOT_ENOUGH_REPLICAS,
            ("t", 1): Errors.NONE,
            ("gone", 0): Errors.UNKNOWN_TOPIC_OR_PARTITION,
        }
    ]
    assert one.log.last_stable_offset == other.log.last_stable_offset == 2
    assert [log.active_producers()[0].coordinator_epoch for log in (one.log, other.log)] == [3, 3]
    assert replicas.woken[-2:] == [one, other]


def test_a_coordinator_gets_no_error_after_which_it_would_not_send_the_marker_again(replicas):
    answers = []

    def get(topic, index):
        if topic == "damaged":
            raise ValueError("cannot be read")
        raise KafkaError(Errors.INVALID_CONFIG, f"{topic}-{index} has invalid settings")

    replicas.get = get
    MarkerWriter(replicas, SYSTEM_CLOCK, Offsets()).write(
        Marker(7, 0, 3, True), [("misconfigured", 0), ("damaged", 0)], answers.append
    )
    again = Errors.NOT_LEADER_OR_FOLLOWER
    assert answers == [{("misconfigured", 0): again, ("damaged", 0): again}]


def test_the_answer_waits_until_the_offsets_of_the_transaction_count(replicas):
    replicas.make(OFFSETS_TOPIC, 4)
    replicas.make("t", 0)
    offsets, answers = Offsets(), []
    writer = MarkerWriter(replicas, SYSTEM_CLOCK, offsets)
    writer.write(Marker(7, 0, 0, False), [(OFFSETS_TOPIC, 4), ("t", 0)], answers.append)
    assert (offsets.ended, answers) == ([(4, 7, False)], [])
    offsets.waiting.pop()()
    assert answers == [{(OFFSETS_TOPIC, 4): Errors.NONE, ("t", 0): Errors.NONE}]


def test_a_marker_that_is_refused_ends_no_offsets(replicas):
    partition = replicas.make(OFFSETS_TOPIC, 0)
    offsets, answers = Offsets(), []
    writer = MarkerWriter(replicas, SYSTEM_CLOCK, offsets)
    writer.write(Marker(7, 1, 0, False), [(OFFSETS_TOPIC, 0)], answers.append)
    offsets.waiting.pop()()
    writer.write(Marker(7, 0, 0, True), [(OFFSETS_TOPIC, 0)], answers.append)
    assert offsets.ended == [(0, 7, False)]
    assert answers[1] == {(OFFSETS_TOPIC, 0): Errors.INVALID_PRODUCER_EPOCH}
    assert partition.log.log_end_offset == 2


def test_a_marker_that_needs_a_flush_is_answered_after_the_flush(replicas):
    partition = replicas.make("t", 0, **{"flush.messages": 1})
    notified = threading.Event()
    answers = []

    def done(codes):
        answers.append((codes, partition.log.recovery_point))
        notified.set()

    MarkerWriter(replicas, SYSTEM_CLOCK, Offsets()).write(Marker(7, 0, 0, True), [("t", 0)], done)
    assert notified.wait(30)
    assert answers == [({("t", 0): Errors.NONE}, 2)]


def test_without_partitions_there_is_nothing_to_wait_for(replicas):
    answers = []
    MarkerWriter(replicas, SYSTEM_CLOCK, Offsets()).write(Marker(7, 0, 0, True), [], answers.append)
    assert answers == [{}]


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (-1, -1), (-(2**63), 0), (7, -1)])
def test_a_marker_of_no_producer_is_not_written(replicas, producer_id, epoch):
    partition = replicas.make("t", 0)
    answers = []
    MarkerWriter(replicas, SYSTEM_CLOCK, Offsets()).write(
        Marker(producer_id, epoch, 0, True), [("t", 0)], answers.append
    )
    assert answers == [{("t", 0): Errors.UNKNOWN_SERVER_ERROR}]
    assert partition.log.log_end_offset == 1
