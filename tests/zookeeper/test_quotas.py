"""Quotas in ZooKeeper: those set through Apache Kafka 3.9.1 apply in kafkapy, and the reverse."""

from pathlib import Path

import pytest

from kafkapy.metadata.quotas import CONNECTIONS, CONSUMER, PRODUCER, REQUEST, Entity
from kafkapy.metadata.tree import Tree
from kafkapy.protocol.apis import PRODUCE
from tests.harness.brokers import QUICK, KafkaBroker, free_port
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.server.quotas.test_quota_apis import alter, describe
from tests.server.requests import batch, request
from tests.zookeeper.conftest import Start

KAFKA, OURS, OTHER = 1, 2, 3
VERSION = 9


def throttle_of(wire: Wire, topic: str) -> int:
    """Produce 20,000 bytes, and return the throttle time."""
    return int(wire.call(PRODUCE, VERSION, request(topic, batch(b"x" * 20_000))).throttle_time_ms)


@pytest.mark.other_runtime
def test_quotas_apply_on_kafka_and_here_whoever_sets_them(
    start: Start, connect: str, tree: Tree, tmp_path: Path
) -> None:
    settings = {**QUICK, "broker.id": str(KAFKA), "zookeeper.session.timeout.ms": "20000"}
    kafka = KafkaBroker(tmp_path / "kafka", settings, port=free_port(), zookeeper=connect)
    try:
        server = start(OURS, zookeeper_session_timeout_ms="20000")
        with Wire(kafka.bootstrap) as theirs, Wire(server.bootstrap_servers) as ours:
            for topic, wire, other in (("on-kafka", theirs, ours), ("here", ours, theirs)):
                broker = KAFKA if wire is theirs else OURS
                create_on(theirs, topic, broker)
                eventually(lambda wire=wire, topic=topic: wire.end_offset(topic, 0) == 0)
                assert throttle_of(wire, topic) == 0
                # 1000 bytes a second, set through the other broker: both throttle beyond 10,000 bytes in ten seconds.
                assert alter(other, {"user": "ANONYMOUS", "client-id": "wire"}, {PRODUCER: 1000.0}) == (0, None)
                eventually(lambda wire=wire: describe(wire) != {})
                assert (
                    describe(wire)
                    == describe(other)
                    == {(("user", "ANONYMOUS"), ("client-id", "wire")): {PRODUCER: 1000.0}}
                )
                with Wire(wire_address(wire)) as fresh:
                    eventually(lambda fresh=fresh, topic=topic: throttle_of(fresh, topic) > 0)
                assert alter(other, {"user": "ANONYMOUS", "client-id": "wire"}, {PRODUCER: None}) == (0, None)
                eventually(lambda wire=wire: describe(wire) == {})
                eventually(lambda: not tree.exists("/config/users/ANONYMOUS"))
            assert alter(theirs, {"ip": "10.0.0.1"}, {CONNECTIONS: 5.0}) == (0, None)
            eventually(lambda: server.services.connection_rates.limit_of("10.0.0.1") == 5)
            assert alter(ours, {"ip": None}, {CONNECTIONS: 500.0}) == (0, None)
            eventually(lambda: len(describe(theirs, ("ip", 2, None))) == 2)
            assert describe(theirs) == describe(ours)
    finally:
        kafka.stop()


def create_on(wire: Wire, topic: str, broker: int) -> None:
    """Create a topic with one partition on a broker, through the controller."""
    from kafkapy.protocol.apis import CREATE_TOPICS

    make = CREATE_TOPICS.Request.Topics
    assignment = make.Assignments(partition_index=0, broker_ids=[broker])
    one = make(name=topic, num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=[])
    (answer,) = wire.call(CREATE_TOPICS, 5, topics=[one], timeout_ms=30_000).topics
    assert answer.error_code == 0, answer


def wire_address(wire: Wire) -> str:
    host, port = wire.socket.getpeername()[:2]
    return f"{host}:{port}"


def test_all_brokers_follow_a_change_and_two_changes_at_the_same_time_are_both_kept(start: Start) -> None:
    one, other = start(OURS), start(OTHER)
    with Wire(one.bootstrap_servers) as first, Wire(other.bootstrap_servers) as second:
        for number in range(10):
            client = f"client-{number}"
            assert alter(first, {"client-id": client}, {PRODUCER: 5.0}) == (0, None)
            assert alter(second, {"client-id": client}, {CONSUMER: 6.0}) == (0, None)
            assert alter(first, {"client-id": client}, {REQUEST: 7.0}) == (0, None)
        expected = {Entity(client_id=f"client-{n}"): {PRODUCER: 5.0, CONSUMER: 6.0, REQUEST: 7.0} for n in range(10)}
        for server in (one, other):
            eventually(lambda server=server: server.services.quota_registry.all() == expected)
            assert server.services.client_quotas.applied(REQUEST, "anybody", "client-3").limit == 7
