"""kafkapy brokers in one cluster with Apache Kafka 3.9.1, which is then the controller, or with kafkapy brokers."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from kafkapy.errors import Errors
from kafkapy.metadata.tree import Set, Tree
from kafkapy.protocol import apis
from kafkapy.server.broker import BrokerServer, StartError
from tests.harness.brokers import QUICK, KafkaBroker, free_port
from tests.harness.records import consume, create, produce
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.harness.zookeeper import ZooKeeper
from tests.zookeeper.conftest import Start

KAFKA, OURS = 1, 2
SETTINGS = {**QUICK, "broker.id": str(KAFKA), "zookeeper.session.timeout.ms": "20000", "broker.rack": "r1"}
ANY_PRODUCER = apis.INIT_PRODUCER_ID.Request(transactional_id=None, transaction_timeout_ms=60_000)


def two_listeners() -> dict[str, str]:
    listeners = ",".join(f"{name}://127.0.0.1:{free_port()}" for name in ("PLAINTEXT", "OUTSIDE"))
    return {"listeners": listeners, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT"}


def addresses(settings: dict[str, str]) -> list[str]:
    return [one.partition("://")[2] for one in settings["listeners"].split(",")]


def metadata(bootstrap: str, *topics: str, version: int = 12) -> Any:
    make = apis.METADATA.Request
    wire = Wire(bootstrap)
    try:
        asked = [make.Topics(name=name) for name in topics] or None
        return wire.call(apis.METADATA, version, make(topics=asked, allow_auto_topic_creation=False))
    finally:
        wire.close()


def seen(bootstrap: str) -> Any:
    """Return the content of a broker's Metadata as plain values in a fixed order."""
    answer = metadata(bootstrap)
    brokers = sorted((one.node_id, one.host, one.port, one.rack) for one in answer.brokers)
    topics = {}
    for topic in answer.topics:
        topics[topic.name, topic.topic_id, topic.is_internal] = sorted(
            (
                one.partition_index,
                one.error_code,
                one.leader_id,
                one.leader_epoch,
                one.replica_nodes,
                one.isr_nodes,
                one.offline_replicas,
            )
            for one in topic.partitions
        )
    return answer.cluster_id, answer.controller_id, brokers, topics


def kafka_beside(directory: Path, connect: str, settings: dict[str, str]) -> KafkaBroker:
    port = int(addresses(settings)[0].rpartition(":")[2])
    return KafkaBroker(directory / "kafka", {**SETTINGS, **settings}, port=port, zookeeper=connect)


def patient(start: Start) -> Start:
    """Return `start` with a session time-out longer than the pauses of a busy machine."""
    return partial(start, zookeeper_session_timeout_ms="20000")


def ours(start: Start, settings: dict[str, str]) -> BrokerServer:
    return patient(start)(OURS, **{name.replace(".", "_"): value for name, value in settings.items()}, broker_rack="r2")


def test_a_broker_joins_kafka_and_knows_what_kafka_knows(
    zookeeper: ZooKeeper, connect: str, start: Start, tree: Tree, tmp_path: Path
) -> None:
    theirs, mine = two_listeners(), two_listeners()
    kafka = kafka_beside(tmp_path, connect, theirs)
    try:
        create(kafka.bootstrap, NewTopic("before", 3, 1, config={"segment.bytes": "1000000"}))
        server = ours(start, mine)
        services = server.services
        assert json.loads(tree.get("/controller").data)["brokerid"] == KAFKA
        eventually(lambda: tree.exists(f"/brokers/ids/{OURS}"))
        assert services.broker_epoch == tree.get(f"/brokers/ids/{OURS}").created
        for inside, outside in zip(addresses(theirs), addresses(mine), strict=True):
            eventually(lambda inside=inside: [one[0] for one in seen(inside)[2]] == [KAFKA, OURS])
            eventually(lambda inside=inside, outside=outside: seen(inside) == seen(outside))
        _, controller, brokers, _ = seen(addresses(mine)[1])
        assert controller == KAFKA
        assert [(one[0], one[3]) for one in brokers] == [(KAFKA, "r1"), (OURS, "r2")]

        create(kafka.bootstrap, NewTopic("after", 4, 2))
        eventually(lambda: "after" in services.cache)
        eventually(lambda: seen(addresses(theirs)[0]) == seen(addresses(mine)[0]))
        assert services.cache.name_of(services.cache.topic_id("after")) == "after"
        # A client that knows only kafkapy's address finds the controller.
        create(addresses(mine)[0], NewTopic("through-kafkapy", 2, 1))
        eventually(lambda: "through-kafkapy" in services.cache)
        wire = Wire(addresses(mine)[0])
        try:
            make = apis.CREATE_TOPICS.Request
            topic = make.Topics(name="refused", num_partitions=1, replication_factor=1)
            (result,) = wire.call(apis.CREATE_TOPICS, 7, make(topics=[topic], timeout_ms=1000)).topics
            assert result.error_code == Errors.NOT_CONTROLLER
        finally:
            wire.close()
        produce(addresses(mine)[0], "before", ["a", "b"])  # goes to the leaders, which are on Kafka's broker
        wire = Wire(addresses(mine)[0])
        try:
            # The id is from the block that Kafka gives to this broker.
            eventually(lambda: wire.call(apis.INIT_PRODUCER_ID, 4, ANY_PRODUCER).error_code == Errors.NONE)
        finally:
            wire.close()
        eventually(lambda: json.loads(tree.get("/latest_producer_id_block").data or b"{}").get("broker") == OURS)
    finally:
        kafka.stop()


def test_kafka_gets_its_roles_from_this_controller_and_takes_the_control_when_it_stops(
    zookeeper: ZooKeeper, connect: str, start: Start, tree: Tree, tmp_path: Path
) -> None:
    theirs, mine = two_listeners(), two_listeners()
    server = ours(start, mine)
    services, bootstrap = server.services, addresses(mine)[0]
    services.controller.create("alone", partitions=2)
    produce(bootstrap, "alone", ["a"])
    kafka = kafka_beside(tmp_path, connect, theirs)
    try:
        eventually(lambda: seen(addresses(theirs)[0]) == seen(bootstrap) and len(seen(bootstrap)[2]) == 2)
        assert seen(addresses(theirs)[0])[1] == OURS
        assert services.cache.leader("alone", 0).id == OURS
        create(kafka.bootstrap, NewTopic("both", 4, 2))
        produce(kafka.bootstrap, "both", ["b", "c"])
        assert {leader.id for leader in services.cache.partitions("both").values()} == {OURS, KAFKA}
        eventually(lambda: all(len(one.isr) == 2 for one in services.cache.partitions("both").values()))
        epoch = int(tree.get("/controller_epoch").data)
        server.stop()
        eventually(lambda: tree.exists("/controller") and json.loads(tree.get("/controller").data)["brokerid"] == KAFKA)
        eventually(lambda: int(tree.get("/controller_epoch").data) == epoch + 1)
        eventually(lambda: {one.leader_id for one in metadata(kafka.bootstrap, "both").topics[0].partitions} == {KAFKA})
        assert sorted(consume(kafka.bootstrap, "both", "g", 2)) == ["b", "c"]
        server = ours(start, mine)
        eventually(lambda: seen(bootstrap)[1] == KAFKA and seen(addresses(theirs)[0]) == seen(bootstrap))
        eventually(lambda: all(len(one.isr) == 2 for one in server.services.cache.partitions("both").values()))
    finally:
        kafka.stop()
    eventually(lambda: server.services.is_controller)
    produce(bootstrap, "both", ["d"])


def test_a_start_is_refused_that_would_harm_the_cluster(
    start: Start, tree: Tree, connect: str, zk: KazooClient, tmp_path: Path
) -> None:
    port = free_port()
    failures: list[str] = []
    start = patient(start)
    server = start(1, listeners=f"PLAINTEXT://127.0.0.1:{port}", on_failure=failures.append)
    elsewhere = f"PLAINTEXT://127.0.0.1:{free_port()}"
    with pytest.raises(StartError, match=f"broker 1, registered .*, advertises 127.0.0.1:{port} as well"):
        start(2, listeners=elsewhere, advertised_listeners=f"PLAINTEXT://127.0.0.1:{port}")
    with pytest.raises(StartError, match="broker id 1 is taken: a broker that answers at"):
        start(1, log_dirs=str(tmp_path / "other"))
    feature = b'{"features":{"metadata.x":{"min_version_level":1,"max_version_level":2}},"version":2,"status":1}'
    tree.commit([Set("/feature", feature)])
    with pytest.raises(StartError, match=r"has finalized the features metadata\.x, which this broker does not support"):
        start(3, listeners=elsewhere)
    assert tree.children("/brokers/ids") == ["1"]
    assert server.services.is_controller
    # A running broker stops, too: Kafka would not count it as live.
    eventually(
        lambda: failures == ["the cluster has finalized the features metadata.x, which this broker does not support"]
    )


def test_several_brokers_have_one_controller_and_another_one_when_it_stops(start: Start, tree: Tree) -> None:
    start = patient(start)
    first, second = start(1), start(2)
    eventually(lambda: len(first.services.cache.live_brokers()) == 2)
    first.services.controller.create("t", partitions=4, replication=2)
    eventually(lambda: len(second.services.cache.partitions("t")) == 4)
    assert not second.services.is_controller
    produce(second.bootstrap_servers, "t", ["before"])
    first.stop()
    eventually(lambda: second.services.is_controller)
    eventually(lambda: {one.id for one in second.services.cache.partitions("t").values()} == {2})
    produce(second.bootstrap_servers, "t", ["after"])
    assert sorted(consume(second.bootstrap_servers, "t", "g", 2)) == ["after", "before"]
    second.services.controller.create("again", partitions=1)


def test_a_broker_without_the_controller_writes_the_topics_that_its_clients_need(
    zookeeper: ZooKeeper, connect: str, start: Start, tree: Tree, tmp_path: Path
) -> None:
    theirs, mine = two_listeners(), two_listeners()
    kafka = kafka_beside(tmp_path, connect, theirs)
    try:
        server = ours(start, mine)
        eventually(lambda: len(server.services.cache.live_brokers()) == 2)
        make = apis.METADATA.Request
        wire = Wire(addresses(mine)[0])
        try:
            asked = make(topics=[make.Topics(name="wanted")], allow_auto_topic_creation=True)
            (topic,) = wire.call(apis.METADATA, 12, asked).topics
            assert topic.error_code == Errors.LEADER_NOT_AVAILABLE
        finally:
            wire.close()
        eventually(lambda: seen(addresses(theirs)[0])[3] == seen(addresses(mine)[0])[3] != {})
        (found,) = seen(addresses(mine)[0])[3].values()
        assert [one[1] for one in found] == [Errors.NONE]
        assert len(json.loads(tree.get("/brokers/topics/wanted").data)["topic_id"]) == 22
    finally:
        kafka.stop()


def test_requests_that_only_the_controller_carries_out_are_refused_by_others(start: Start, tree: Tree) -> None:
    start = patient(start)
    start(1).services.controller.create("t", partitions=1)
    second = start(2)
    wire = Wire(second.bootstrap_servers)
    refused = Errors.NOT_CONTROLLER
    try:
        make = apis.CREATE_TOPICS.Request
        # Kafka checks this first, even before it sees that a name is given twice.
        topics = [make.Topics(name=name, num_partitions=1, replication_factor=1) for name in ("a", "a", "b")]
        answer = wire.call(apis.CREATE_TOPICS, 7, make(topics=topics, timeout_ms=1000))
        assert [one.error_code for one in answer.topics] == [refused] * 3
        make = apis.DELETE_TOPICS.Request
        topics = [make.Topics(name="t"), make.Topics(name=None, topic_id=bytes(range(16)))]
        answer = wire.call(apis.DELETE_TOPICS, 6, make(topics=topics, timeout_ms=1000))
        assert [(one.name, one.error_code) for one in answer.responses] == [("t", refused), (None, refused)]
        make = apis.CREATE_PARTITIONS.Request
        asked = make(topics=[make.Topics(name="t", count=0)], timeout_ms=1000)
        assert [one.error_code for one in wire.call(apis.CREATE_PARTITIONS, 3, asked).results] == [refused]
        make = apis.ALTER_PARTITION_REASSIGNMENTS.Request
        assert wire.call(apis.ALTER_PARTITION_REASSIGNMENTS, 0, make(topics=[])).error_code == refused
        make = apis.LIST_PARTITION_REASSIGNMENTS.Request
        assert wire.call(apis.LIST_PARTITION_REASSIGNMENTS, 0, make(topics=None)).error_code == refused
        make = apis.ELECT_LEADERS.Request
        asked = make(topic_partitions=[make.TopicPartitions(topic="t", partitions=[0])])
        (topic,) = wire.call(apis.ELECT_LEADERS, 2, asked).replica_election_results
        assert [one.error_code for one in topic.partition_result] == [refused]
    finally:
        wire.close()
    assert tree.exists("/brokers/topics/t")


def test_what_a_dead_leader_had_replicated_is_led_by_the_broker_that_is_left(
    zookeeper: ZooKeeper, connect: str, start: Start, tree: Tree, tmp_path: Path
) -> None:
    """Kafka's broker is killed while it leads a partition with both brokers in the ISR, and starts again."""
    theirs, mine = two_listeners(), two_listeners()
    session = {"zookeeper.session.timeout.ms": "8000"}
    kafka = kafka_beside(tmp_path, connect, theirs | session)
    state = "/brokers/topics/t/partitions/0/state"
    try:
        server = ours(start, mine)
        services = server.services
        eventually(lambda: len(services.cache.live_brokers()) == 2)
        make = apis.CREATE_TOPICS.Request
        wire = Wire(kafka.bootstrap)
        try:
            by_hand = make.Topics.Assignments(partition_index=0, broker_ids=[KAFKA, OURS])
            topic = make.Topics(name="t", num_partitions=-1, replication_factor=-1, assignments=[by_hand])
            (made,) = wire.call(apis.CREATE_TOPICS, 7, make(topics=[topic], timeout_ms=30_000)).topics
            assert made.error_code == Errors.NONE
        finally:
            wire.close()
        produce(kafka.bootstrap, "t", [str(number) for number in range(100)])
        before = json.loads(tree.get(state).data)
        assert (before["leader"], sorted(before["isr"])) == (KAFKA, [KAFKA, OURS])
        kafka.process.kill()
        eventually(lambda: services.is_controller, seconds=60)
        eventually(lambda: services.cache.leader("t", 0).id == OURS)
        led = OURS, [OURS], before["leader_epoch"] + 1
        names = "leader", "isr", "leader_epoch"
        eventually(lambda: tuple(json.loads(tree.get(state).data)[one] for one in names) == led)
        produce(addresses(mine)[0], "t", ["more"])
        partition = services.replicas.get("t", 0)
        assert (partition.log.log_end_offset, partition.log.high_watermark) == (101, 101)
        (found,) = metadata(addresses(mine)[0], "t").topics[0].partitions
        assert (found.replica_nodes, found.isr_nodes, found.offline_replicas) == ([KAFKA, OURS], [OURS], [KAFKA])
    finally:
        kafka.kill()
    kafka = kafka_beside(tmp_path, connect, theirs | session)
    try:
        eventually(lambda: sorted(services.cache.leader("t", 0).isr) == [KAFKA, OURS], seconds=60)
        assert services.is_controller
        eventually(lambda: seen(addresses(theirs)[0]) == seen(addresses(mine)[0]))
    finally:
        kafka.stop()
