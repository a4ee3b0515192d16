"""The nodes that a broker caches and watches: only the controller caches topics, and none watches partition states."""

import random
import re
import threading
from typing import Any

import pytest

from kafkapy.metadata import paths
from kafkapy.metadata.tree import BadVersion, Create, Delete, Set, Tree, TreeUnavailable, wait
from kafkapy.metadata.zookeeper.bulk_read import MultiRead
from kafkapy.metadata.zookeeper.client import ZooKeeperSettings
from kafkapy.metadata.zookeeper.session import Session
from kafkapy.metadata.zookeeper.tree import ZooKeeperTree
from tests.harness.tcp_proxy import TcpProxy
from tests.harness.waiting import eventually
from tests.harness.zookeeper import SESSION_MS, ZooKeeper
from tests.zookeeper.conftest import Start

STATE = "/brokers/topics/t/partitions/{}/state"
LEAVES = {*paths.NOT_FOLLOWED, *paths.FOR_CONTROLLER}


def of_controller(where: str, session_timeout_ms: int = SESSION_MS) -> ZooKeeperTree:
    """Open a tree with the settings that a broker uses."""
    settings = ZooKeeperSettings(where, session_timeout_ms, 10_000)
    tree = ZooKeeperTree(settings, paths.TOP_LEVEL, LEAVES, paths.TOPICS)
    tree.ensure(*paths.ROOTS)
    return tree


def with_topic(tree: Tree, partitions: int = 2) -> None:
    tree.commit([Create(paths.topic("t"), b"{}"), Create(paths.partitions("t"))])
    for index in range(partitions):
        tree.commit([Create(f"{paths.partitions('t')}/{index}"), Create(STATE.format(index), b"%d" % index)])


def watched_by(zookeeper: ZooKeeper, tree: Any, connect: str) -> set[str]:
    assert isinstance(tree, ZooKeeperTree)
    assert tree.session_id is not None
    found = re.split(r"^(?=/)", zookeeper.ask("wchp"), flags=re.MULTILINE)
    chroot = "/" + connect.partition("/")[2]
    who_of = {one.splitlines()[0].removeprefix(chroot): one for one in found if one}
    return {path for path, who in who_of.items() if hex(tree.session_id) in who}


def test_only_the_controller_keeps_and_watches_topics_and_no_broker_watches_states(
    start: Start, zookeeper: ZooKeeper, connect: str
) -> None:
    brokers = [start(one) for one in (0, 1)]
    first, second = brokers
    eventually(lambda: len(first.services.cache.live_brokers()) == 2, what="the controller does not know both brokers")
    first.services.controller.create("t", partitions=3, replication=2)
    eventually(lambda: second.services.replicas.log_manager.get("t", 2) is not None)
    trees: list[Any] = [one.services.topics._tree for one in brokers]
    eventually(lambda: paths.topic("t") in watched_by(zookeeper, trees[0], connect))
    for watched in (watched_by(zookeeper, tree, connect) for tree in trees):
        assert not [path for path in watched if path.startswith("/brokers/topics/t/")]
    assert trees[0].find(STATE.format(2)) is not None
    assert trees[1].children(paths.TOPICS) == []
    assert "t" not in second.services.topics
    assert not [path for path in watched_by(zookeeper, trees[1], connect) if path.startswith("/brokers/topics/t")]

    first.stop()  # the other broker becomes the controller
    eventually(lambda: second.services.is_controller and "t" in second.services.topics, seconds=30)
    eventually(lambda: trees[1].find(STATE.format(2)) is not None)
    second.services.controller.create("u", partitions=1)
    assert trees[1].find(paths.partition_state("u", 0)) is not None


def test_topics_are_in_memory_only_between_load_and_unload(connect: str, tree: Tree) -> None:
    mine = of_controller(connect)
    try:
        with_topic(tree)
        assert mine.children(paths.TOPICS) == []
        assert wait(mine.read_children_through, paths.TOPICS) == ["t"]
        assert wait(mine.read_children_through, "/brokers/topics/none") == []
        wait(mine.load_below, paths.FOR_CONTROLLER)
        assert mine.children(paths.partitions("t")) == ["0", "1"]
        assert [mine.get(STATE.format(one)).data for one in (0, 1)] == [b"0", b"1"]
        tree.commit([Create(f"{paths.DELETE_TOPICS}/t"), Set(paths.topic("t"), b"{1}")])
        eventually(lambda: mine.exists(f"{paths.DELETE_TOPICS}/t"))
        eventually(lambda: mine.get(paths.topic("t")).data == b"{1}")
        mine.unload_below(paths.FOR_CONTROLLER)
        eventually(lambda: not mine.exists(paths.topic("t")))
        assert mine.exists(paths.TOPICS)
        assert mine.exists(paths.DELETE_TOPICS)
        tree.commit([Set(STATE.format(0), b"new")])
        wait(mine.load_below, paths.FOR_CONTROLLER)
        assert mine.get(STATE.format(0)).data == b"new"
    finally:
        mine.close()
    outcome: list[Any] = []
    mine.load_below(paths.FOR_CONTROLLER, outcome.append)
    assert isinstance(outcome[0], TreeUnavailable)


def test_a_topic_that_was_written_before_the_load_is_read_by_it(connect: str, tree: Tree) -> None:
    mine = of_controller(connect)
    try:
        mine.commit([Create(paths.topic("t"), b"{}")])
        assert not mine.exists(paths.topic("t"))
        tree.commit(
            [Set(paths.topic("t"), b"{1}"), Create(paths.partitions("t")), Create(f"{paths.partitions('t')}/0")]
        )
        wait(mine.load_below, paths.FOR_CONTROLLER)
        assert mine.get(paths.topic("t")).data == b"{1}"
        assert mine.children(paths.partitions("t")) == ["0"]
        tree.commit([Set(paths.topic("t"), b"{2}")])
        eventually(lambda: mine.get(paths.topic("t")).data == b"{2}")
    finally:
        mine.close()


def test_a_load_that_fails_leaves_nothing_in_memory(connect: str, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = of_controller(connect)
    run = mine._refresh.run

    def fails(reads: Any) -> Any:
        reads = list(reads)
        events = run(reads)
        if (paths.TOPICS, True) in reads:
            raise ValueError("a broken node")
        return events

    try:
        with_topic(tree)
        monkeypatch.setattr(mine._refresh, "run", fails)
        with pytest.raises(TreeUnavailable, match="a broken node"):
            wait(mine.load_below, paths.FOR_CONTROLLER)
        monkeypatch.undo()
        assert mine.children(paths.TOPICS) == []
        tree.commit([Set(STATE.format(0), b"new")])
        wait(mine.load_below, paths.FOR_CONTROLLER)
        assert mine.get(STATE.format(0)).data == b"new"
    finally:
        mine.close()


def test_a_written_state_is_in_memory_without_being_read(
    connect: str, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = of_controller(connect)
    try:
        wait(mine.load_below, paths.FOR_CONTROLLER)
        asked: list[Any] = []
        read, many = Session.read, Session.read_many

        def noted(session: Session, path: str, **how: Any) -> Any:
            if session is mine._session:
                asked.append(path)
            return read(session, path, **how)

        def noted_many(session: Session, reads: Any, *more: Any) -> Any:
            reads = list(reads)
            if session is mine._session:
                asked.extend(path for path, _ in reads)
            return many(session, reads, *more)

        monkeypatch.setattr(Session, "read", noted)
        monkeypatch.setattr(Session, "read_many", noted_many)
        with_topic(mine)
        mine.commit([Create(paths.topic("u"), b"{}"), Create(paths.partitions("u"))])
        (node,) = mine.commit([Set(STATE.format(1), b"changed", 0)])
        assert node.version == 1
        assert mine.get(STATE.format(1)) == node
        mine.commit([Delete(STATE.format(0))])
        assert not mine.exists(STATE.format(0))
        assert not [path for path in asked if re.match("/brokers/topics/./", path)]
        assert paths.topic("u") in asked, "its watch is set"
        assert mine.get(paths.topic("u")).created > 0

        tree.commit([Set(STATE.format(1), b"by others")])  # no other program should do this, so no watch reports it
        with pytest.raises(BadVersion):
            mine.commit([Set(STATE.format(1), b"mine", 1)])
        assert mine.get(STATE.format(1))[:2] == (b"by others", 2)
        tree.commit([Set(STATE.format(1), b"again")])
        wait(mine.refresh, [STATE.format(1)])
        assert mine.get(STATE.format(1)).data == b"again"
    finally:
        mine.close()


def test_a_state_whose_write_has_no_response_is_written_once(zookeeper: ZooKeeper, connect: str) -> None:
    """While the connection breaks repeatedly, each write is made once, and the state in memory is the written one."""
    proxy = TcpProxy(zookeeper.port)
    mine = of_controller(f"{proxy.address}/{connect.partition('/')[2]}", session_timeout_ms=10_000)
    stop = threading.Event()

    def breaks() -> None:
        while not stop.wait(random.uniform(0.1, 0.6)):
            proxy.mend()

    breaker = threading.Thread(target=breaks)
    try:
        wait(mine.load_below, paths.FOR_CONTROLLER)
        with_topic(mine)
        breaker.start()
        for number in range(1, 31):
            (node,) = mine.commit([Set(STATE.format(0), b"%d" % number, number - 1)])
            assert node[:2] == mine.get(STATE.format(0))[:2] == (b"%d" % number, number)
            path = f"{paths.partitions('t')}/{number + 1}"
            mine.commit([Create(path), Create(f"{path}/state", b"new")])
            assert mine.get(f"{path}/state").data == b"new"
            name = f"n{number}"
            above = [paths.topic(name), paths.partitions(name), f"{paths.partitions(name)}/0"]
            mine.commit([*map(Create, above), Create(paths.partition_state(name, 0), b"first")])
            assert mine.get(paths.partition_state(name, 0)).data == b"first"
    finally:
        stop.set()
        if breaker.ident is not None:
            breaker.join()
        mine.close()
        proxy.close()


def test_an_older_zookeeper_is_read_node_by_node(connect: str, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not know MultiRead responds with an error, and closes the connection."""
    monkeypatch.setattr(MultiRead, "type", 199)
    mine = of_controller(connect)
    try:
        with_topic(tree, 5)
        wait(mine.load_below, paths.FOR_CONTROLLER)
        assert [mine.get(STATE.format(one)).data for one in range(5)] == [b"%d" % one for one in range(5)]
    finally:
        mine.close()


def test_thousands_of_states_are_read_with_a_few_requests(
    connect: str, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations: list[Any] = [Create(paths.topic("t"), b"{}"), Create(paths.partitions("t"))]
    for index in range(3000):
        operations += (Create(f"{paths.partitions('t')}/{index}"), Create(STATE.format(index), b"x"))
    mine = of_controller(connect)
    for part in tree.split_into_changes(operations):
        tree.commit(part)
    requests: list[int] = []
    serialize = MultiRead.serialize

    def noted(self: MultiRead) -> bytes:
        requests.append(len(self._reads))
        return serialize(self)

    monkeypatch.setattr(MultiRead, "serialize", noted)
    try:
        wait(mine.load_below, paths.FOR_CONTROLLER)
        assert all(mine.exists(STATE.format(index)) for index in range(3000))
        assert sum(requests) >= 3000
        assert len(requests) < 30
    finally:
        mine.close()


@pytest.mark.parametrize("names_first", [True, False])
def test_what_was_read_of_a_partition_is_kept_when_its_name_is_listed(
    connect: str, tree: Tree, *, names_first: bool
) -> None:
    """Listing children must not reset a node's `created`, which shows whether a change without a response was made."""
    mine = of_controller(connect)
    try:
        wait(mine.load_below, paths.FOR_CONTROLLER)
        above = paths.partitions("t")
        reads = [(above, True), (above, False), (f"{above}/0", False)]
        operations = [Create(paths.topic("t"), b"{}"), Create(above), Create(f"{above}/0"), Create(STATE.format(0))]
        results = mine._session.change(operations)
        results.get(timeout=30)
        mine._refresh.run(reads if names_first else reads[::-1])
        assert mine.get(f"{above}/0").created == mine.get(above).created > 0
    finally:
        mine.close()
