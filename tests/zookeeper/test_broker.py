"""A broker whose metadata is in ZooKeeper: nodes that it writes and follows, its registration, and session losses."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kazoo.protocol.connection import ConnectionHandler

from kafkapy.errors import Errors, KafkaError
from kafkapy.log.directories.meta_properties import MetaPropertiesError
from kafkapy.metadata.producer_ids import ProducerIds
from kafkapy.metadata.tree import Create, Delete, Set, Tree, TreeUnreachable, wait
from kafkapy.metadata.zookeeper import tree as zookeeper_tree
from kafkapy.metadata.zookeeper.tree import ZooKeeperTree
from kafkapy.protocol import apis
from kafkapy.protocol.apis import OFFSET_FETCH
from kafkapy.runtime.config_def import ConfigError
from kafkapy.server.broker import BrokerServer, StartError
from kafkapy.tools.main import sentence_of
from tests.harness.brokers import KafkapyBroker
from tests.harness.tcp_proxy import TcpProxy
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.harness.zookeeper import ZooKeeper, refuse_logins
from tests.zookeeper.conftest import OpenTree, Start


def value(tree: Tree, path: str) -> Any:
    return json.loads(tree.get(path).data)


def segment_bytes(server: BrokerServer, topic: str, partition: int) -> Any:
    config = server.services.replicas.config_of(topic, partition)
    return config.values["segment.bytes"] if config is not None else None


def test_the_broker_writes_the_same_nodes_as_kafka(start: Start, tree: Tree) -> None:
    """Paths, contents and versions equal the golden znodes of Kafka 3.9.1 (tests/data/golden/kafka-3.9.1-v2)."""
    server = start(3)
    server.services.controller.create("t", partitions=2, overrides={"segment.bytes": "4096"})
    eventually(lambda: tree.exists("/latest_producer_id_block") and tree.get("/latest_producer_id_block").version == 1)
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
    block = {"version": 1, "broker": 3, "block_start": "0", "block_end": "999"}
    assert value(tree, "/latest_producer_id_block") == block
    versions = {"/brokers/ids/3": 1, "/controller": 0, "/controller_epoch": 1, "/feature": 0, "/brokers/topics/t": 0}
    assert {path: tree.get(path).version for path in versions} == versions
    ephemeral = {path for path in tree.subtree("/") if tree.get(path).ephemeral}
    assert ephemeral == {"/brokers/ids/3", "/controller"}
    assert tree.get("/controller_epoch").data == b"1"


def test_topics_written_by_old_tools_or_by_hand_are_picked_up(start: Start, tree: Tree) -> None:
    server = start()
    services = server.services
    # kafka-topics.sh --zookeeper of Kafka 2.3 writes only these nodes.
    tree.commit(
        [
            Create("/config/topics/old", b'{"version":1,"config":{"segment.bytes":"2048"}}'),
            Create("/brokers/topics/old", b'{"version":1,"partitions":{"1":[0],"0":[0]}}'),
        ]
    )
    eventually(lambda: services.replicas.holds("old", 1) and services.replicas.holds("old", 0))
    eventually(lambda: segment_bytes(server, "old", 0) == 2048)
    eventually(lambda: "topic_id" in value(tree, "/brokers/topics/old"))
    eventually(lambda: tree.exists("/brokers/topics/old/partitions/0/state"))
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


def test_changes_written_while_no_broker_ran_take_effect_at_the_start(start: Start, tree: Tree) -> None:
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
    eventually(lambda: tree.exists("/brokers/topics/whole/partitions/0/state"))
    assert value(tree, "/brokers/topics/whole/partitions/0/state")["leader"] == 0
    left = ("/brokers/topics/gone", "/admin/reassign_partitions", "/admin/preferred_replica_election")
    eventually(lambda: not any(map(tree.exists, left)))
    eventually(lambda: tree.children("/isr_change_notification") == [])
    assert tree.get("/controller_epoch").data == b"2"


def test_nodes_that_cannot_be_parsed_are_logged_and_affect_nothing_else(
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
    assert "its replicas are on brokers [7], ISR (); live brokers: [0]" in caplog.text
    assert not list((tmp_path / "0").glob("*-stray"))
    tree.commit([Create("/brokers/topics/worse", b"\xff")])
    eventually(lambda: "/brokers/topics/worse" in caplog.text)
    server.services.controller.create("after", partitions=1)


def test_dynamic_settings_written_by_other_tools_take_effect(start: Start, tree: Tree) -> None:
    server = start()
    tree.commit([Create("/config/brokers/<default>", b'{"version":1,"config":{"log.retention.ms":"1234567"}}')])
    eventually(lambda: server.services.config["log.retention.ms"] == 1234567)
    server.services.controller.create("t", partitions=1)
    server.services.topic_settings.alter("t", lambda _: {"retention.ms": "99"}, validate_only=False)
    eventually(lambda: tree.children("/config/changes"))
    (note,) = tree.children("/config/changes")
    assert value(tree, f"/config/changes/{note}") == {"version": 2, "entity_path": "topics/t"}


@pytest.mark.parametrize(
    ("path", "data"), [("/controller_epoch", b"many"), ("/cluster/id", b"\xff"), ("/cluster/id", b"{}")]
)
def test_a_broker_refuses_a_cluster_that_it_cannot_read_with_a_sentence(
    start: Start, tree: Tree, path: str, data: bytes
) -> None:
    tree.ensure("/cluster")
    tree.commit([Create(path, data)])
    with pytest.raises(ValueError, match=f"the metadata at {path} ") as caught:
        start()
    assert "should not happen" not in sentence_of(caught.value)


def test_a_broker_that_could_not_log_in_to_others_refuses_the_start(start: Start) -> None:
    login = {
        "listeners": "CLIENT://127.0.0.1:0",
        "listener_security_protocol_map": "CLIENT:SASL_PLAINTEXT",
        "inter_broker_listener_name": "CLIENT",
        "sasl_enabled_mechanisms": "SCRAM-SHA-256",
        "sasl_mechanism_inter_broker_protocol": "SCRAM-SHA-256",
        "password_encoder_secret": "s",  # the password could be a stored setting
    }
    with pytest.raises(ConfigError, match="must have username and password, with which this broker logs in to others"):
        start(**login)


def test_a_broker_id_that_is_registered_already_is_refused(start: Start, tree: Tree, tmp_path: Path) -> None:
    server = start(1)
    with pytest.raises(StartError, match="broker id 1 is taken: a broker that answers at"):
        start(1, log_dirs=str(tmp_path / "other"))
    eventually(lambda: tree.children("/brokers/ids") == ["1"])
    server.services.controller.create("still-here", partitions=1)
    server.stop()
    corrected = start(4, log_dirs=str(tmp_path / "other"))
    written = (tmp_path / "other" / "meta.properties").read_text()
    assert written.endswith(f"broker.id=4\nversion=0\ncluster.id={corrected.services.cluster_id}\n")


def test_a_broker_with_the_directories_of_another_cluster_is_refused(start: Start, tree: Tree, tmp_path: Path) -> None:
    cluster_id = start(1).services.cluster_id
    file = tmp_path / "2" / "meta.properties"
    file.parent.mkdir()
    file.write_text("version=0\nbroker.id=2\ncluster.id=anotheranotheranother0\n")
    with pytest.raises(MetaPropertiesError) as caught:
        start(2)
    for word in (str(file), "anotheranotheranother0", cluster_id):
        assert word in str(caught.value)
    assert tree.children("/brokers/ids") == ["1"]


def test_a_killed_broker_registers_again_when_its_old_session_has_expired(connect: str, tmp_path: Path) -> None:
    longer_than_a_start = {"zookeeper.session.timeout.ms": "5000"}
    settings = {"broker.id": "5", "zookeeper.connect": connect, **longer_than_a_start}
    KafkapyBroker(tmp_path, settings).kill()
    again = KafkapyBroker(tmp_path, settings)
    again.stop()
    assert "broker 5 is registered in ZooKeeper" in again.process.output
    assert "waiting for its session to expire" in again.process.output


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
    eventually(lambda: tree.exists("/controller") and server.services.topics._fence.epoch == 2)
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
        first_epoch = server.services.broker_epoch
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
        assert server.services.broker_epoch == tree.get("/brokers/ids/0").created > first_epoch
        server.services.controller.create("after", partitions=1)
        eventually(lambda: tree.exists("/brokers/topics/after/partitions/0/state"))
        assert value(tree, "/brokers/topics/after/partitions/0/state")["controller_epoch"] == 2
        assert failures == []
    finally:
        server.stop()
        proxy.close()


def test_a_broker_goes_on_after_a_login_that_zookeeper_has_refused_for_a_moment(
    start: Start, connect: str, zookeeper: ZooKeeper, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a refused login, the broker gets a new session while its former registration still exists."""
    proxy = TcpProxy(zookeeper.port)
    failures: list[str] = []
    server = start(where=proxy.address + "/" + connect.partition("/")[2], on_failure=failures.append)
    try:
        first_epoch = server.services.broker_epoch
        refuse_logins(monkeypatch, ConnectionHandler, 1)
        proxy.mend()  # breaks the connection
        eventually(lambda: server.services.broker_epoch > first_epoch)
        eventually(lambda: (node := tree.find("/brokers/ids/0")) is not None and node.created > first_epoch)
        eventually(lambda: server.services.topics._fence.epoch == 2)  # the former session has expired
        assert failures == []
    finally:
        server.stop()
        proxy.close()


def test_changes_while_zookeeper_is_away_are_refused_with_codes_with_which_clients_try_again(
    start: Start, tree: Tree, zookeeper: ZooKeeper, connect: str
) -> None:
    proxy = TcpProxy(zookeeper.port)
    server = start(where=proxy.address + "/" + connect.partition("/")[2])
    for name in ("grows", "goes", "is-set"):
        server.services.controller.create(name, partitions=1)
    try:
        with Wire(server.bootstrap_servers) as wire:

            def codes() -> dict[str, int]:
                new = apis.CREATE_TOPICS.Request.Topics(name="comes", num_partitions=1, replication_factor=1)
                created = wire.call(apis.CREATE_TOPICS, 5, topics=[new], timeout_ms=60_000)
                more = apis.CREATE_PARTITIONS.Request.Topics(name="grows", count=2, assignments=None)
                grown = wire.call(apis.CREATE_PARTITIONS, 2, topics=[more], timeout_ms=60_000)
                deleted = wire.call(apis.DELETE_TOPICS, 4, topic_names=["goes"], timeout_ms=60_000)
                make = apis.INCREMENTAL_ALTER_CONFIGS.Request.Resources
                setting = make.Configs(name="retention.ms", config_operation=0, value="99")
                resource = make(resource_type=2, resource_name="is-set", configs=[setting])
                altered = wire.call(apis.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
                wanted = apis.METADATA.Request.Topics(name="by-itself")
                found = wire.call(apis.METADATA, 9, topics=[wanted], allow_auto_topic_creation=True)
                return {
                    "create": created.topics[0].error_code,
                    "grow": grown.results[0].error_code,
                    "delete": deleted.responses[0].error_code,
                    "alter": altered.responses[0].error_code,
                    "create by a request for metadata": found.topics[0].error_code,
                }

            proxy.cut()
            eventually(lambda: not tree.exists("/brokers/ids/0"))
            assert codes() == {
                "create": Errors.NOT_CONTROLLER,
                "grow": Errors.NOT_CONTROLLER,
                "delete": Errors.NOT_CONTROLLER,
                "alter": Errors.REQUEST_TIMED_OUT,
                "create by a request for metadata": Errors.LEADER_NOT_AVAILABLE,
            }
            proxy.mend()
            eventually(lambda: tree.exists("/controller_epoch") and tree.get("/controller_epoch").data == b"2")
            eventually(lambda: server.services.topics._fence.epoch == 2)
            assert set(codes().values()) == {Errors.NONE}
    finally:
        server.stop()
        proxy.close()


@pytest.mark.parametrize("noticed", [True, False])
def test_a_broker_whose_connection_breaks_just_before_its_stop_is_not_registered_afterwards(
    start: Start, open_tree: OpenTree, zookeeper: ZooKeeper, connect: str, noticed: bool
) -> None:
    proxy = TcpProxy(zookeeper.port)
    where = f"{proxy.address}/{connect.partition('/')[2]}"
    server = start(where=where, zookeeper_session_timeout_ms="60000")
    try:
        proxy.mend()
        if noticed:
            eventually(lambda: not server.services.topics._tree.is_reachable)
        server.stop()
        assert open_tree().children("/brokers/ids") == []
        assert not open_tree().exists("/controller")
    finally:
        server.stop()
        proxy.close()


def test_a_stop_without_zookeeper_says_that_the_registration_stays(
    start: Start, zookeeper: ZooKeeper, connect: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_tree, "_END_S", 0.3)
    proxy = TcpProxy(zookeeper.port)
    server = start(where=f"{proxy.address}/{connect.partition('/')[2]}")
    try:
        proxy.cut()
        server.stop()
        assert "could not be closed: its ephemeral nodes" in caplog.text
        assert "stay until it expires (zookeeper.session.timeout.ms: 2 s)" in caplog.text
    finally:
        server.stop()
        proxy.close()


def test_a_deletion_that_others_ask_for_is_finished_later_when_zookeeper_is_away(
    start: Start, tree: Tree, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker must retry by itself: it need not get a new session, which would start the deletion again."""
    server = start()
    server.services.controller.create("goes", partitions=1)
    mine = server.services.topics._tree
    submit, refused = mine.submit, []

    def away_once(operations: Any, done: Any) -> None:
        if not refused and any(isinstance(one, Delete) and one.path == "/brokers/topics/goes" for one in operations):
            refused.append(operations)
            done(None, TreeUnreachable("/", "ZooKeeper has not answered for 2 s"))
        else:
            submit(operations, done)

    monkeypatch.setattr(mine, "submit", away_once)
    tree.commit([Create("/admin/delete_topics/goes")])
    eventually(lambda: not tree.exists("/brokers/topics/goes") and not tree.exists("/admin/delete_topics/goes"))
    assert refused
    assert "the metadata tree cannot be changed at present: unfinished changes will be tried again" in caplog.text


def test_consumers_nodes_are_neither_cached_nor_watched(
    start: Start, tree: ZooKeeperTree, zookeeper: ZooKeeper, connect: str
) -> None:
    above = [f"/consumers/old{part}" for part in ("", "/ids", "/offsets", "/offsets/t")]
    tree.commit([Create("/consumers"), *map(Create, above), Create("/consumers/old/offsets/t/0", b"41")])
    server = start()
    server.services.controller.create("t", partitions=2)
    mine = server.services.topics._tree
    assert isinstance(mine, ZooKeeperTree)
    assert mine.session_id is not None
    offsets = server.services.consumer_offsets
    wait(offsets.set, "old", [("t", 0, 42), ("t", 1, 7)])
    wait(offsets.set, "new", [("t", 0, 1)])
    assert wait(offsets.get, "new", [("t", 0)]) == [1]
    with Wire(server.bootstrap_servers) as wire:
        asked = OFFSET_FETCH.Request.Topics(name="t", partition_indexes=[1, 5, 0])
        answer = wire.call(OFFSET_FETCH, 0, group_id="old", topics=[asked])
        found = [(one.partition_index, one.committed_offset, one.error_code) for one in answer.topics[0].partitions]
        assert found == [(1, 7, 0), (5, -1, Errors.UNKNOWN_TOPIC_OR_PARTITION), (0, 42, 0)]
    assert list(mine.subtree("/consumers")) == ["/consumers"]
    watches = {
        one.splitlines()[0]: one for one in re.split(r"^(?=/)", zookeeper.ask("wchp"), flags=re.MULTILINE) if one
    }
    chroot = "/" + connect.partition("/")[2]
    ours = {path.removeprefix(chroot) for path, who in watches.items() if hex(mine.session_id) in who}
    assert "/brokers/topics/t" in ours
    assert {path for path in ours if path.startswith("/consumers")} == {"/consumers"}


def test_a_new_producer_waits_for_zookeeper_to_get_its_producer_id(
    start: Start, connect: str, zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the broker's block of producer ids is used up, a new client retries until ZooKeeper is back."""
    monkeypatch.setattr(ProducerIds, "prefetch", lambda ids: None)
    proxy = TcpProxy(zookeeper.port)
    server = start(where=proxy.address + "/" + connect.partition("/")[2])
    refused: list[int] = []
    give = server.services.producer_ids.give

    def give_and_note(done: Any, in_pool: Any) -> None:
        def noted(answer: Any) -> None:
            if isinstance(answer, KafkaError):
                refused.append(answer.code)
            done(answer)

        give(noted, in_pool)

    monkeypatch.setattr(server.services.producer_ids, "give", give_and_note)
    try:
        server.services.controller.create("t", partitions=1)
        proxy.cut()
        eventually(lambda: not server.services.topics._tree.is_reachable)
        producer = Producer({"bootstrap.servers": server.bootstrap_servers, "enable.idempotence": True})
        producer.produce("t", b"patience")
        eventually(lambda: len(refused) > 1 or producer.poll(0))
        assert set(refused) == {Errors.COORDINATOR_LOAD_IN_PROGRESS}
        assert len(producer) == 1, "it goes on asking"
        monkeypatch.undo()
        proxy.mend()
        assert producer.flush(30) == 0
        assert server.services.replicas.get("t", 0).log.log_end_offset == 1
    finally:
        server.stop()
        proxy.close()


def test_partitions_are_moved_as_far_as_one_broker_can(
    start: Start, tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    """One partition has replicas on dead brokers. Moves are requested by clients and by a node, as in Kafka."""
    server = start()
    path, state = "/brokers/topics/t", "/brokers/topics/t/partitions/0/state"
    server.services.controller.create("t", partitions=2)
    server.stop()
    eventually(lambda: not tree.children("/brokers/ids"))
    node = value(tree, path)
    node |= {"partitions": {"0": [0, 7, 8], "1": [0]}, "adding_replicas": {"0": [8]}, "removing_replicas": {"0": [7]}}
    tree.commit([Set(path, json.dumps(node).encode())])
    server = start()
    with Wire(server.bootstrap_servers) as wire:
        assert listed(wire) == {("t", 0): ([0, 7, 8], [8], [7])}
        assert reassigned(wire, ("t", 0, None), ("t", 1, None), ("no", 0, None)) == [
            Errors.NONE,
            Errors.NO_REASSIGNMENT_IN_PROGRESS,
            Errors.NO_REASSIGNMENT_IN_PROGRESS,
        ]
        assert listed(wire) == {}
        eventually(lambda: value(tree, path)["partitions"] == {"0": [0, 7], "1": [0]}, what="it is where it was")
        assert reassigned(wire, ("t", 0, [7])) == [Errors.NONE]
        assert listed(wire) == {("t", 0): ([7, 0], [], [0])}, "7 has not all records: that takes until it comes back"
        wrong = [[], [0, 0], [-1], [0, 9]]
        assert reassigned(wire, *(("t", 0, one) for one in wrong)) == [Errors.INVALID_REPLICA_ASSIGNMENT] * 4
        assert reassigned(wire, ("no", 0, [0]), ("t", 1, [0])) == [Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.NONE]
        assert reassigned(wire, ("t", 0, [0])) == [Errors.NONE]
        assert listed(wire) == {}
        eventually(lambda: value(tree, path)["partitions"] == {"0": [0], "1": [0]})
        assert value(tree, path)["adding_replicas"] == value(tree, path)["removing_replicas"] == {}
        assert value(tree, state)["isr"] == [0]
        both = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[7]},'
        both += b'{"topic":"t","partition":1,"replicas":[0]}]}'
        tree.commit([Create("/admin/reassign_partitions", both)])
        eventually(lambda: not tree.exists("/admin/reassign_partitions"))
        assert listed(wire) == {}
    assert "requests is refused: the replicas [7] of partition 0 name brokers that are not live: [7]" in caplog.text


def listed(wire: Wire) -> dict[tuple[str, int], tuple[list[int], list[int], list[int]]]:
    """Return the reassignments in progress: {(topic, partition): (replicas, adding, removing)}."""
    api = apis.LIST_PARTITION_REASSIGNMENTS
    asked = [api.Request.Topics(name=name, partition_indexes=[0, 1, 2]) for name in ("t", "no")]
    by_name = wire.call(api, 0, topics=asked)
    every = wire.call(api, 0, topics=None)
    assert every == by_name
    return {
        (topic.name, one.partition_index): (one.replicas, one.adding_replicas, one.removing_replicas)
        for topic in every.topics
        for one in topic.partitions
    }


def reassigned(wire: Wire, *asked: tuple[str, int, list[int] | None]) -> list[int]:
    """Request reassignments. Return the error code of each partition."""
    api = apis.ALTER_PARTITION_REASSIGNMENTS
    make = api.Request.Topics
    topics = [
        make(name=name, partitions=[make.Partitions(partition_index=index, replicas=replicas)])
        for name, index, replicas in asked
    ]
    answer = wire.call(api, 0, topics=topics)
    assert answer.error_code == 0
    return [topic.partitions[0].error_code for topic in answer.responses]
