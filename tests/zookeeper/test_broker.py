"""A broker whose metadata is in ZooKeeper: what it writes and picks up there, how it keeps and loses its place."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from harness.brokers import KafkapyBroker
from harness.tcp_proxy import TcpProxy
from harness.zookeeper import ZooKeeper, eventually

from kafkapy.metadata.tree import Create, Delete, Set, Tree
from kafkapy.server.broker import BrokerServer, StartError
from tests.zookeeper.conftest import Start


def value(tree: Tree, path: str) -> Any:
    return json.loads(tree.get(path).data)


def segment_bytes(server: BrokerServer, topic: str, partition: int) -> Any:
    config = server.services.replicas.config_of(topic, partition)
    return config.values["segment.bytes"] if config is not None else None


def test_the_nodes_are_those_of_kafka(start: Start, tree: Tree) -> None:
    """Paths, contents and versions as in the golden znodes of Kafka 3.9.1 (tests/data/golden/kafka-3.9.1-v2)."""
    server = start(3)
    server.services.controller.create("t", partitions=2, overrides={"segment.bytes": "4096"})
    producer_id = server.services.producer_ids.next()
    eventually(lambda: tree.exists("/brokers/topics/t/partitions/1/state"))
    port = int(server.bootstrap_servers.rpartition(":")[2])
    registered = value(tree, "/brokers/ids/3")
    assert registered.pop("timestamp").isdecimal()
    assert registered == {
        "features": {},
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "endpoints": [f"PLAINTEXT://127.0.0.1:{port}"],
        "jmx_port": -1,
        "port": port,
        "host": "127.0.0.1",
        "version": 5,
    }
    controller = value(tree, "/controller")
    assert controller.pop("timestamp").isdecimal()
    assert controller == {"version": 2, "brokerid": 3, "kraftControllerEpoch": -1}
    assert value(tree, "/feature") == {"features": {}, "version": 2, "status": 1}
    assert value(tree, "/config/topics/t") == {"version": 1, "config": {"segment.bytes": "4096"}}
    topic = value(tree, "/brokers/topics/t")
    assert len(topic.pop("topic_id")) == 22
    assert topic == {"partitions": {"0": [3], "1": [3]}, "adding_replicas": {}, "removing_replicas": {}, "version": 3}
    state = {"controller_epoch": 1, "leader": 3, "version": 1, "leader_epoch": 0, "isr": [3]}
    assert value(tree, "/brokers/topics/t/partitions/1/state") == state
    block = {"version": 1, "broker": 3, "block_start": str(producer_id), "block_end": str(producer_id + 999)}
    eventually(lambda: tree.get("/latest_producer_id_block").version == 1)
    assert value(tree, "/latest_producer_id_block") == block
    versions = {"/brokers/ids/3": 1, "/controller": 0, "/controller_epoch": 1, "/feature": 0, "/brokers/topics/t": 0}
    assert {path: tree.get(path).version for path in versions} == versions
    ephemeral = {path for path in tree.subtree("/") if tree.get(path).ephemeral}
    assert ephemeral == {"/brokers/ids/3", "/controller"}
    assert tree.get("/controller_epoch").data == b"1"


def test_topics_of_old_tools_and_by_hand_are_picked_up(start: Start, tree: Tree) -> None:
    server = start()
    services = server.services
    # What kafka-topics.sh --zookeeper of Kafka 2.3 writes, and nothing more.
    tree.commit(
        [
            Create("/config/topics/old", b'{"version":1,"config":{"segment.bytes":"2048"}}'),
            Create("/brokers/topics/old", b'{"version":1,"partitions":{"1":[0],"0":[0]}}'),
        ]
    )
    eventually(lambda: services.replicas.holds("old", 1) and services.replicas.holds("old", 0))
    assert segment_bytes(server, "old", 0) == 2048
    eventually(lambda: "topic_id" in value(tree, "/brokers/topics/old"))
    state = {"controller_epoch": 1, "leader": 0, "version": 1, "leader_epoch": 0, "isr": [0]}
    assert value(tree, "/brokers/topics/old/partitions/0/state") == state

    grown = value(tree, "/brokers/topics/old")
    grown["partitions"]["2"] = [0]
    tree.commit([Set("/brokers/topics/old", json.dumps(grown).encode())])
    eventually(lambda: services.replicas.holds("old", 2))

    tree.commit([Set("/config/topics/old", b'{"version":1,"config":{"segment.bytes":"4096"}}')])
    eventually(lambda: segment_bytes(server, "old", 2) == 4096)

    tree.commit([Create("/admin/delete_topics/old"), Create("/admin/delete_topics/never-there")])
    eventually(lambda: not tree.exists("/brokers/topics/old") and not tree.children("/admin/delete_topics"))
    assert not services.replicas.holds("old", 0)
    assert not tree.exists("/config/topics/old")


def test_what_was_written_while_no_broker_ran_counts_at_the_start(start: Start, tree: Tree) -> None:
    first = start()
    first.services.controller.create("gone", partitions=1)
    first.stop()
    eventually(lambda: not tree.children("/brokers/ids"))
    moved = b'{"version":1,"partitions":[{"topic":"hand","partition":0,"replicas":[7]}]}'
    tree.commit(
        [
            Create("/brokers/topics/hand", b'{"version":1,"partitions":{"0":[0]}}'),
            Create(
                "/brokers/topics/whole", b'{"version":3,"partitions":{"0":[0]},"topic_id":"UC902T_dQdK7NZcX6A_eGg"}'
            ),
            Create("/admin/delete_topics/gone"),
            Create("/admin/reassign_partitions", moved),
            Create("/admin/preferred_replica_election", b'{"version":1,"partitions":[{"topic":"hand","partition":0}]}'),
            Create("/isr_change_notification/isr_change_", b"{}", sequence=True),
        ]
    )
    second = start()
    eventually(lambda: second.services.replicas.holds("hand", 0) and second.services.replicas.holds("whole", 0))
    assert value(tree, "/brokers/topics/whole/partitions/0/state")["leader"] == 0
    left = ("/brokers/topics/gone", "/admin/reassign_partitions", "/admin/preferred_replica_election")
    eventually(lambda: not any(map(tree.exists, left)))
    assert tree.children("/isr_change_notification") == []
    assert tree.get("/controller_epoch").data == b"2"


def test_nodes_that_cannot_be_read_are_named_and_harm_nobody_else(
    start: Start, tree: Tree, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = start()
    for name in ("bad", "good", "odd-state", "odd-settings"):
        first.services.controller.create(name, partitions=1)
    first.stop()
    eventually(lambda: not tree.children("/brokers/ids"))
    tree.commit(
        [
            Set("/brokers/topics/bad", b'{"partitions":'),
            Set("/brokers/topics/odd-state/partitions/0/state", b"[]"),
            Set("/config/topics/odd-settings", b"what"),
            Create("/brokers/topics/elsewhere", b'{"version":1,"partitions":{"0":[7]}}'),
        ]
    )
    server = start()
    held = {name for name in ("bad", "good", "odd-state", "odd-settings") if server.services.replicas.holds(name, 0)}
    assert held == {"good", "odd-settings"}
    for path in ("/brokers/topics/bad", "/brokers/topics/odd-state/partitions/0/state", "/config/topics/odd-settings"):
        assert path in caplog.text
    assert "its replicas are on brokers [7], not on 0" in caplog.text
    assert not list((tmp_path / "0").glob("*-stray"))
    tree.commit([Create("/brokers/topics/worse", b"\xff")])
    eventually(lambda: "/brokers/topics/worse" in caplog.text)
    server.services.controller.create("after", partitions=1)


def test_dynamic_settings_that_others_write_count(start: Start, tree: Tree) -> None:
    server = start()
    tree.commit([Create("/config/brokers/<default>", b'{"version":1,"config":{"log.retention.ms":"1234567"}}')])
    eventually(lambda: server.services.config["log.retention.ms"] == 1234567)
    server.services.controller.create("t", partitions=1)
    server.services.controller.alter_topic("t", lambda _: {"retention.ms": "99"}, validate_only=False)
    eventually(lambda: tree.children("/config/changes"))
    (note,) = tree.children("/config/changes")
    assert value(tree, f"/config/changes/{note}") == {"version": 2, "entity_path": "topics/t"}


def test_a_place_that_is_taken_is_refused(start: Start, tree: Tree, tmp_path: Path) -> None:
    server = start(1)
    with pytest.raises(StartError, match=r"broker 1 at 127\.0\.0\.1:\d+ is registered .* cannot share a cluster"):
        start(2)
    with pytest.raises(StartError, match="broker id 1 is taken: a broker that answers at"):
        start(1, log_dirs=str(tmp_path / "other"))
    eventually(lambda: tree.children("/brokers/ids") == ["1"])
    server.services.controller.create("still-here", partitions=1)


def test_a_broker_that_died_gets_its_place_back_when_its_session_has_expired(connect: str, tmp_path: Path) -> None:
    longer_than_a_start = {"zookeeper.session.timeout.ms": "5000"}
    settings = {"broker.id": "5", "zookeeper.connect": connect, **longer_than_a_start}
    KafkapyBroker(tmp_path, settings).kill()
    again = KafkapyBroker(tmp_path, settings)
    again.stop()
    assert "brokers [5] are registered in ZooKeeper" in again.process.said
    assert "waiting for their sessions to expire" in again.process.said


def test_the_wrong_chroot_is_refused_before_a_log_is_touched(start: Start, connect: str, tmp_path: Path) -> None:
    server = start()
    server.services.controller.create("t", partitions=1)
    server.stop()
    with pytest.raises(StartError, match=r"there is no cluster in ZooKeeper at .*/elsewhere: is the chroot right"):
        start(where=f"{connect}/elsewhere")
    assert (tmp_path / "0" / "t-0").is_dir()


def test_embedded_metadata_and_zookeeper_do_not_mix(start: Start, tmp_path: Path) -> None:
    start(where="").stop()
    with pytest.raises(StartError, match=r"has its metadata embedded"):
        start()


def test_a_controller_that_is_removed_is_elected_again(start: Start, tree: Tree) -> None:
    server = start()
    eventually(lambda: tree.exists("/controller"))
    tree.commit([Delete("/controller")])
    eventually(lambda: tree.exists("/controller") and tree.get("/controller_epoch").data == b"2")
    server.services.controller.create("t", partitions=1)
    assert tree.exists("/brokers/ids/0")


def test_an_expired_session_is_followed_by_a_new_registration(
    start: Start, connect: str, zookeeper: ZooKeeper, tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    proxy = TcpProxy(zookeeper.port)
    failures: list[str] = []
    server = start(where=proxy.address + "/" + connect.partition("/")[2], on_failure=failures.append)
    try:
        server.services.controller.create("before", partitions=1)
        proxy.cut()
        eventually(lambda: not tree.exists("/brokers/ids/0") and not tree.exists("/controller"))
        producer = Producer({"bootstrap.servers": server.bootstrap_servers, "acks": "all"})
        producer.produce("before", b"served as if nothing were")
        assert producer.flush(30) == 0
        tree.commit([Create("/brokers/topics/meanwhile", b'{"version":1,"partitions":{"0":[0]}}')])
        proxy.mend()
        eventually(lambda: tree.exists("/brokers/ids/0") and tree.get("/controller_epoch").data == b"2")
        eventually(lambda: server.services.replicas.holds("meanwhile", 0))
        eventually(lambda: "registered again as broker 0" in caplog.text)
        server.services.controller.create("after", partitions=1)
        eventually(lambda: tree.exists("/brokers/topics/after/partitions/0/state"))
        assert value(tree, "/brokers/topics/after/partitions/0/state")["controller_epoch"] == 2
        assert failures == []
    finally:
        server.stop()
        proxy.close()
