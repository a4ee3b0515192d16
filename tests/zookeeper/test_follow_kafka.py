"""A follower copies all that an Apache Kafka 3.9.1 leader stores: message formats, codecs, transactions, gaps."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from kafkapy.log.partition_log import PartitionLog
from kafkapy.metadata.ids import encode_id
from tests.harness.brokers import QUICK, KafkaBroker
from tests.harness.waiting import eventually
from tests.harness.zookeeper import ZooKeeper
from tests.replica.follower_bench import ME, FollowerBench

SETTINGS = {
    **QUICK,
    "broker.id": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Leader:
    """A Kafka broker that leads topics whose second replica is on broker 7."""

    def __init__(self, directory: Path, connect: str, **settings: str) -> None:
        self.broker = KafkaBroker(
            directory, {**SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}},
            zookeeper=connect,
        )  # fmt: skip
        self.data = directory / "data"
        self.tree = KazooClient(connect)
        self.tree.start()
        self.admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        self.ids: dict[str, bytes] = {}

    def create(self, topic: str, **config: str) -> None:
        """Write the nodes of a topic with one partition and the replicas 1 and 7, and let the controller find it."""
        topic_id = self.ids[topic] = uuid.uuid4().bytes
        settings = {name.replace("_", "."): value for name, value in config.items()}
        self.tree.create(
            f"/config/topics/{topic}", json.dumps({"version": 1, "config": settings}).encode(), makepath=True
        )
        content = {
            "version": 3,
            "topic_id": encode_id(topic_id),
            "partitions": {"0": [1, ME]},
            "adding_replicas": {},
            "removing_replicas": {},
        }
        self.tree.create(f"/brokers/topics/{topic}", json.dumps(content).encode())
        eventually(lambda: self.tree.exists(f"/brokers/topics/{topic}/partitions/0/state"))

    def produce(self, topic: str, values: list[bytes], keys: int = 0, **options: Any) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": "20", **options})
        transactional = "transactional.id" in options
        if transactional:
            producer.init_transactions(30)
            producer.begin_transaction()
        for number, value in enumerate(values):
            producer.produce(topic, value, str(number % keys) if keys else None, partition=0)
            if number % 50 == 49:
                producer.flush(30)  # so that there are several batches
        assert producer.flush(60) == 0
        if transactional:
            producer.commit_transaction(30)

    def abort(self, topic: str, values: list[bytes]) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "transactional.id": "aborts"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0
        producer.abort_transaction(30)

    def delete_before(self, topic: str, offset: int) -> None:
        for future in self.admin.delete_records([TopicPartition(topic, 0, offset)]).values():
            future.result(30)

    def records(self, topic: str) -> bytes:
        """Return the bytes of all segments, in order. Read again if the log cleaner replaced one."""
        while True:
            with contextlib.suppress(FileNotFoundError):  # raised if the cleaner replaced a segment
                return b"".join(path.read_bytes() for path in sorted((self.data / f"{topic}-0").glob("*.log")))

    def epochs(self, topic: str) -> list[tuple[int, int]]:
        lines = (self.data / f"{topic}-0" / "leader-epoch-checkpoint").read_text().splitlines()[2:]
        return [(int(line.split()[0]), int(line.split()[1])) for line in lines]

    def close(self) -> None:
        self.tree.stop()
        self.tree.close()
        self.broker.stop()


@pytest.fixture
def start_leader(connect: str, tmp_path: Path) -> Iterator[Callable[..., Leader]]:
    made: list[Leader] = []

    def starter(**settings: str) -> Leader:
        made.append(Leader(tmp_path / "kafka", connect, **settings))
        return made[-1]

    yield starter
    for leader in made:
        leader.close()


@pytest.fixture
def start_follower(tmp_path: Path) -> Iterator[Callable[[Leader], FollowerBench]]:
    made: list[FollowerBench] = []

    def starter(leader: Leader) -> FollowerBench:
        made.append(FollowerBench(tmp_path / "follower", ("127.0.0.1", leader.broker.port)))
        return made[-1]

    yield starter
    for bench in made:
        bench.close()


def copied(log: PartitionLog) -> bytes:
    return b"".join(segment_file.read_bytes() for segment_file in sorted(log.dir.glob("*.log")))


def assert_copied(leader: Leader, follower: FollowerBench, topic: str) -> None:
    own = follower.log(topic)
    eventually(
        lambda: copied(own) == leader.records(topic) and own.high_watermark == own.end[0],
        seconds=60,
        what=f"{own} is not the copy of {len(leader.records(topic))} bytes",
    )


def test_all_that_a_leader_of_today_stores_is_copied(
    zookeeper: ZooKeeper, start_leader: Callable[..., Leader], start_follower: Callable[[Leader], FollowerBench]
) -> None:
    leader = start_leader()
    leader.create("plain", segment_bytes="60000")
    for codec in CODECS:
        leader.produce("plain", [bytes([65 + number % 26]) * 200 for number in range(150)],
                       **{"compression.type": codec})  # fmt: skip
    leader.create("tx")
    leader.produce("tx", [b"committed"] * 20, **{"transactional.id": "commits"})
    leader.abort("tx", [b"aborted"] * 20)
    leader.create("cut")
    leader.produce("cut", [b"v"] * 100, **{"linger.ms": "1000"})
    # Delete up to the last record of the first batch, so that the whole batch is copied. On a busy machine the first
    # batch may be small.
    cut = int.from_bytes(leader.records("cut")[23:27], "big")  # its last offset delta
    leader.delete_before("cut", cut)
    leader.create("gaps", cleanup_policy="compact", segment_bytes="6000", min_cleanable_dirty_ratio="0.0")
    leader.produce("gaps", [b"x" * 100] * 500, keys=7)
    full = len(leader.records("gaps"))
    leader.produce("gaps", [b"last"], keys=7)
    eventually(lambda: len(leader.records("gaps")) < full / 2, seconds=60)

    follower = start_follower(leader)
    for topic, topic_id in leader.ids.items():
        follower.follow(topic, topic_id=topic_id, config={"segment.bytes": 50_000} if topic == "plain" else {})
    for topic in leader.ids:
        if topic != "gaps":  # compaction may still be running
            assert_copied(leader, follower, topic)
    gaps = follower.log("gaps")
    eventually(lambda: gaps.end[0] == gaps.high_watermark == 501)
    assert len(copied(gaps)) < full / 2
    assert follower.log("cut").log_start_offset == cut
    assert follower.log("plain").leader_epochs.entries == tuple(leader.epochs("plain"))
    stable = follower.log("tx")
    assert stable.last_stable_offset == stable.end[0]
    assert len(stable.segments.active.txn_index.entries) == 1

    leader.produce("plain", [b"more"] * 10)  # later records are copied, too
    leader.abort("tx", [b"more"])
    assert_copied(leader, follower, "plain")
    assert_copied(leader, follower, "tx")
    assert follower.fetching.failed == 0


def test_formats_0_and_1_of_an_older_cluster_are_copied(
    zookeeper: ZooKeeper, start_leader: Callable[..., Leader], start_follower: Callable[[Leader], FollowerBench]
) -> None:
    leader = start_leader(inter_broker_protocol_version="2.8")
    for topic, version in (("v0", "0.9.0"), ("v1", "0.10.2")):
        leader.create(topic, message_format_version=version)
        for codec in CODECS[:4]:
            leader.produce(topic, [b"value %d" % number for number in range(60)], **{"compression.type": codec})
    follower = start_follower(leader)
    for topic, topic_id in leader.ids.items():
        follower.follow(topic, topic_id=topic_id, config={"message.format.version": "0.10.2"})
        assert_copied(leader, follower, topic)
    for topic in leader.ids:
        leader.produce(topic, [b"more"] * 10)
        assert_copied(leader, follower, topic)
        assert follower.log(topic).leader_epochs.entries == ()
    assert leader.records("v0")[16] == 0
    assert leader.records("v1")[16] == 1
