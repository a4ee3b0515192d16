"""A mirror that copies exactly once from a cluster that it reads through ZooKeeper."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from kazoo.client import KazooClient

from kafkapy.client import Admin, Consumer, RecordProducer
from kafkapy.client.original.consuming import connector
from kafkapy.client.original.consuming.connector import ConsumerConnector
from kafkapy.client.original.filters import Whitelist
from kafkapy.mirror.mirror import Mirror
from kafkapy.mirror.options import MirrorOptions
from kafkapy.mirror.source_settings import read_source
from kafkapy.mirror.target_settings import read_target
from kafkapy.mirror.zookeeper_member import ZooKeeperMember
from kafkapy.testing.broker import Broker
from tests.harness.zookeeper import SESSION_MS, end_session
from tests.zookeeper.conftest import Start

PATIENCE_S = 60.0
OPTIONS = MirrorOptions(exactly_once=True, commit_interval_s=0.05)


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with Broker(offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def source(start: Start) -> str:
    return start(zookeeper_session_timeout_ms=str(5 * SESSION_MS), offsets_topic_num_partitions="1").bootstrap_servers


@pytest.fixture
def mirroring(connect: str, target: str) -> Callable[[str], Mirror]:
    quick = {"zookeeper.session.timeout.ms": str(SESSION_MS), "rebalance.backoff.ms": "100"}
    settings = read_source({"zookeeper.connect": connect, "group.id": "g", "rebalance.max.retries": "50", **quick})
    return lambda topic: Mirror([settings], read_target({"bootstrap.servers": target}), Whitelist(topic), OPTIONS)


@contextmanager
def written(source: str, topic: str) -> Iterator[Callable[[int], None]]:
    """Create the topic with four partitions. Yield a function that writes the next `count` numbers to it."""
    with Admin(source) as admin, RecordProducer(source) as producer:
        admin.create_topic(topic, 4)
        numbers = iter(range(1_000_000))

        def write(count: int) -> None:
            for _ in range(count):
                number = next(numbers)
                producer.send(topic, b"%d" % number, partition=number % 4)
            producer.flush()

        yield write


def arrive(target: str, topic: str, count: int) -> None:
    """Wait until the topic has `count` records. Assert that it has each number below `count` exactly once."""
    deadline = time.monotonic() + PATIENCE_S
    found: Counter[int] = Counter()
    while sum(found.values()) < count:
        assert time.monotonic() < deadline, f"{sum(found.values())} of {count}"
        with Admin(target) as admin:
            if topic not in {one.name for one in admin.list_topics()}:
                continue
        with Consumer(target, isolation="read_committed") as consumer:
            consumer.assign_topic(topic)
            found = Counter(int(record.value or b"") for record in consumer.records(until=consumer.end_offsets()))
    assert found == dict.fromkeys(range(count), 1)


def test_a_mirror_resumes_at_the_offsets_in_the_target_even_if_those_in_zookeeper_are_deleted(
    source: str, target: str, mirroring: Callable[[str], Mirror], zk: KazooClient
) -> None:
    with written(source, "on") as write:
        write(100)
        with mirroring("on"):
            arrive(target, "on", 100)
        assert zk.get("/consumers/g/offsets/on/3")[0] == b"25"  # a copy of the offset in the target
        zk.delete("/consumers/g/offsets/on", recursive=True)
        write(100)
        with mirroring("on"):
            arrive(target, "on", 200)


def test_each_record_is_copied_once_though_members_join_leave_and_lose_their_sessions(
    source: str, target: str, mirroring: Callable[[str], Mirror], connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connectors: list[ConsumerConnector] = []

    class Seen(ConsumerConnector):
        def __init__(self, properties: dict[str, str]) -> None:
            super().__init__(properties)
            connectors.append(self)

    monkeypatch.setattr(connector, "ConsumerConnector", Seen)
    with written(source, "both") as write:
        write(500)
        with mirroring("both"):
            arrive(target, "both", 500)
            with mirroring("both"):
                write(500)
                end_session(connect, connectors[0]._source.client.client_id)
                arrive(target, "both", 1000)
            write(500)
            arrive(target, "both", 1500)


class Unheard:
    """A listener that does nothing, for a member that gets no partitions."""

    def on_taken(self, partitions):
        pass

    before_release = on_lost = on_taken


@pytest.mark.parametrize("storage", [{}, {"offsets.storage": "kafka"}], ids=["zookeeper", "kafka"])
def test_a_member_without_partitions_knows_how_far_its_group_is_behind(source, connect, storage):
    given = {"zookeeper.connect": connect, "group.id": f"g-{len(storage)}", "auto.offset.reset": "smallest"} | storage
    with Admin(source) as admin, RecordProducer(source) as producer:
        admin.create_topic("waits", 1)
        for number in range(10):
            producer.send("waits", b"%d" % number)
    with ConsumerConnector(given | {"consumer.id": "a", "auto.commit.enable": "false"}) as first:
        stream = first.create_message_streams({"waits": 1})["waits"][0]
        for _ in range(4):
            next(stream)
        first.commit_offsets()
        member = ZooKeeperMember(read_source(given | {"consumer.id": "b"}), Whitelist("waits"))
        try:
            member.open(Unheard())
            waiting = member.waiting()
            assert waiting is not None
            assert waiting.lag == 6
        finally:
            member.close()
