"""tree_log.py reads all changes in ZooKeeper's transaction logs, and finds those that a controller must not make."""

import json
from pathlib import Path

from kazoo.client import KazooClient

from tests.cluster.tree_log import Write, check_tree, controllers, read_directories
from tests.harness.zookeeper import ZooKeeper

STATE = "/brokers/topics/t/partitions/0/state"


def elected(zxid: int, session: int, epoch: int) -> list[Write]:
    node = json.dumps({"brokerid": session}).encode()
    return [Write(zxid, session, "create", "/controller", node), epoch_set(zxid, session, epoch)]


def epoch_set(zxid: int, session: int, epoch: int) -> Write:
    return Write(zxid, session, "set", "/controller_epoch", b"%d" % epoch)


def state(zxid: int, session: int, controller_epoch: int, leader_epoch: int, kind: str = "set") -> Write:
    value = {"controller_epoch": controller_epoch, "leader_epoch": leader_epoch}
    return Write(zxid, session, kind, STATE, json.dumps(value).encode())


BEGIN = [Write(1, 7, "create", "/controller_epoch", b"0"), *elected(2, 7, 1), state(3, 7, 1, 0, "create")]


def test_all_is_well_after_a_failover() -> None:
    writes = [*BEGIN, *elected(5, 8, 2), state(6, 8, 2, 1), state(7, 8, 2, 1)]
    assert check_tree(writes) == []
    assert controllers(writes) == [(1, 7), (2, 8)]


def test_a_topic_that_is_created_again_begins_with_the_first_leader_epoch() -> None:
    again = [state(5, 7, 1, 9), Write(6, 7, "delete", STATE), state(7, 7, 1, 0, "create")]
    assert check_tree([*BEGIN, *again]) == []


def test_an_epoch_that_goes_back_is_found() -> None:
    assert "the controller epoch went from 1 to 1" in check_tree([*BEGIN, *elected(5, 8, 1)])


def test_an_epoch_with_two_controllers_is_found() -> None:
    (problem,) = check_tree([*BEGIN, elected(5, 8, 2)[0]])
    assert problem == "session 0x8 became the controller without a new epoch"
    (problem,) = check_tree([*BEGIN, epoch_set(5, 8, 2)])
    assert problem == "session 0x8 began epoch 2 without becoming the controller"


def test_a_write_of_a_former_controller_is_found() -> None:
    (problem,) = check_tree([*BEGIN, *elected(5, 8, 2), state(6, 7, 2, 1)])
    assert problem.endswith("was written by session 0x7, not by the controller of 2")
    (problem,) = check_tree([*BEGIN, *elected(5, 8, 2), state(6, 8, 1, 1)])
    assert problem.endswith("was written in the name of epoch 1 during 2")


def test_a_leader_epoch_that_goes_back_is_found() -> None:
    (problem,) = check_tree([*BEGIN, state(5, 7, 1, 3), state(6, 7, 1, 2)])
    assert problem.endswith("leader epoch 2, came after leader epoch 3")


def test_changes_are_read_from_the_logs_of_a_server(tmp_path: Path) -> None:
    server = ZooKeeper(tmp_path)
    client = KazooClient(hosts=server.address)
    try:
        client.start(timeout=30)
        client.create("/a", b"1")
        both = client.transaction()
        both.create("/a/b", b"2", ephemeral=True)
        both.set_data("/a", b"3")
        both.commit()
        refused = client.transaction()
        refused.create("/a/c")
        refused.set_data("/none", b"")
        refused.commit()
        client.delete("/a/b")
        session = client.client_id[0]
    finally:
        client.stop()
        client.close()
        server.stop()
    writes = [write for write in read_directories([server.transaction_logs]) if write.path.startswith("/a")]
    assert [(w.kind, w.path, w.data) for w in writes] == [
        ("create", "/a", b"1"),
        ("create", "/a/b", b"2"),
        ("set", "/a", b"3"),
        ("delete", "/a/b", b""),
    ]
    assert writes[1].zxid == writes[2].zxid
    assert {write.session for write in writes} == {session}
