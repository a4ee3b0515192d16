"""The ZooKeeper tree stays correct when the connection, the session, the server or the network is lost."""

import logging
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.connection import ConnectionHandler

from kafkapy.metadata.tree import Create, Delete, Event, Set, Tree, TreeError, TreeUnavailable, wait
from kafkapy.metadata.zookeeper.client import ZooKeeperError, ZooKeeperSettings
from kafkapy.metadata.zookeeper.session import Session
from kafkapy.metadata.zookeeper.tree import ZooKeeperTree
from tests.harness.tcp_proxy import TcpProxy
from tests.harness.waiting import eventually
from tests.harness.zookeeper import SESSION_MS, ZooKeeper, refuse_logins

OpenTree = Callable[..., ZooKeeperTree]


@pytest.fixture
def proxy(zookeeper: ZooKeeper) -> Iterator[TcpProxy]:
    proxy = TcpProxy(zookeeper.port)
    yield proxy
    proxy.close()


@pytest.fixture
def behind(proxy: TcpProxy, connect: str) -> str:
    """Return the address of the proxy with the chroot of `connect`."""
    return proxy.address + "/" + connect.partition("/")[2]


def tried(tree: Tree, *operations: Any) -> Any:
    try:
        return tree.commit(operations)
    except TreeError as error:
        return error


def test_changes_of_other_clients_are_seen_and_reported_to_watchers(tree: ZooKeeperTree, open_tree: OpenTree) -> None:
    other = open_tree()
    events: list[Event] = []
    tree.watch("", events.append)
    other.commit([Create("/t"), Create("/t/p"), Create("/t/p/0", b"x")])
    eventually(lambda: tree.exists("/t/p/0"))
    other.commit([Set("/t/p/0", b"y")])
    eventually(lambda: tree.get("/t/p/0").data == b"y")
    other.commit([Create("/t/p/1")])
    eventually(lambda: tree.children("/t/p") == ["0", "1"])
    other.commit([Delete("/t/p/1"), Delete("/t/p/0"), Delete("/t/p")])
    eventually(lambda: tree.subtree("/t") == ["/t"])
    assert tree.get("/t") == other.get("/t")
    expected = [Event(kind, "/t/p/0") for kind in ("created", "changed", "deleted")]
    # The tree removes nodes from its cache before it calls the watchers, so the last event may come later.
    eventually(lambda: [event for event in events if event.path == "/t/p/0"] == expected)


def test_nodes_deleted_and_created_again_at_once_are_not_taken_for_the_old_ones(
    tree: ZooKeeperTree, open_tree: OpenTree
) -> None:
    other = open_tree()
    other.commit([Create("/t"), Create("/t/a"), Create("/t/a/b", b"0")])
    for number in range(1, 40):
        other.commit([Delete("/t/a/b"), Delete("/t/a"), Create("/t/a"), Create("/t/a/b", b"%d" % number)])
    everything = {path: other.get(path) for path in other.subtree("/")}
    eventually(lambda: {path: tree.find(path) for path in tree.subtree("/")} == everything)


def test_an_expired_session_loses_ephemeral_nodes_and_nothing_else(
    zookeeper: ZooKeeper, proxy: TcpProxy, behind: str, open_tree: OpenTree, caplog: pytest.LogCaptureFixture
) -> None:
    tree, other = open_tree(behind), open_tree()
    tree.commit([Create("/e", b"mine", ephemeral=True), Create("/p")])
    again = threading.Event()
    tree.on_new_session(again.set)
    eventually(lambda: other.exists("/e"))
    first = tree.session_id
    proxy.cut()
    eventually(lambda: not other.exists("/e"))
    other.commit([Create("/p/from-the-other-side", b"x")])
    assert tree.exists("/e"), "what was known is served on"
    outcome: list[Any] = []
    tree.submit([Create("/p/waits")], lambda results, error: outcome.append(results or error))
    proxy.mend()
    assert again.wait(20)
    assert tree.session_id != first
    assert not tree.exists("/e")
    assert tree.exists("/p/from-the-other-side")
    tree.commit([Create("/e", b"again", ephemeral=True)])
    assert outcome
    eventually(lambda: other.exists("/e") and other.get("/e").data == b"again")
    other.commit([Set("/p/from-the-other-side", b"y")])
    eventually(lambda: tree.get("/p/from-the-other-side").data == b"y", what="watches are there again")
    assert "is lost: partitions are still served" in caplog.text
    assert "has expired" in caplog.text


def test_a_change_fails_when_zookeeper_stays_away_and_the_next_ones_work(
    proxy: TcpProxy, behind: str, open_tree: OpenTree
) -> None:
    tree = open_tree(behind)
    tree.commit([Create("/a")])
    proxy.cut()
    with pytest.raises(TreeUnavailable, match="has not answered for 2 s"):
        tree.commit([Set("/a", b"never seen")])
    proxy.mend()
    eventually(lambda: not isinstance(tried(tree, Set("/a", b"x")), TreeUnavailable))
    assert tree.get("/a").data == b"x"


def test_a_change_whose_response_is_lost_is_applied_once(proxy: TcpProxy, behind: str, open_tree: OpenTree) -> None:
    """While the connection breaks repeatedly, each increment of a counter is applied exactly once."""
    tree = open_tree(behind, session_timeout_ms=10_000)
    tree.commit([Create("/n", b"0"), Create("/q")])
    stop = threading.Event()

    def breaks() -> None:
        while not stop.wait(random.uniform(0.1, 0.6)):
            proxy.mend()

    breaker = threading.Thread(target=breaks)
    breaker.start()
    try:
        for number in range(1, 41):
            (node, _) = tree.commit(
                [Set("/n", b"%d" % number, number - 1), Create("/q/n-", b"%d" % number, False, True)]
            )
            assert node.version == number
    finally:
        stop.set()
        breaker.join()
    assert sorted(int(tree.get(f"/q/{name}").data) for name in tree.children("/q")) == list(range(1, 41))


def test_a_change_to_repeat_is_kept_if_the_connection_is_lost_again_before_it_is_sent(
    tree: ZooKeeperTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, outcome, load = tree._session.change, tree._session.outcome, tree._load_and_unload
    losses: list[str] = []

    def never_arrives(*some: Any) -> Any:
        if losses:
            return outcome(*some)
        losses.append("while it waits for its answer")
        raise ConnectionLoss

    def loses_it_again() -> None:
        if len(losses) == 1:
            losses.append("before it is sent again")
            raise ConnectionLoss
        load()

    monkeypatch.setattr(tree._session, "change", lambda *some: change(*some) if losses else None)
    monkeypatch.setattr(tree._session, "outcome", never_arrives)
    monkeypatch.setattr(tree, "_load_and_unload", loses_it_again)
    outcomes: list[Any] = []
    tree.submit([Create("/x")], lambda results, error: outcomes.append(results or error))
    eventually(lambda: outcomes)
    assert outcomes == [["/x"]]
    assert len(losses) == 2


def test_changes_after_an_unanswered_one_are_made_after_it(
    tree: ZooKeeperTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, outcome = tree._session.change, tree._session.outcome
    sent: list[str] = []
    reached, held = threading.Event(), threading.Event()
    losses = 1

    def note(operations: Any) -> Any:
        sent.append(operations[0].path)
        return change(operations) if sent.count("/a") != 1 else None

    def answer(operations: Any, asked: Any, timeout: float) -> Any:
        nonlocal losses
        if asked is None:
            losses -= 1
            raise ConnectionLoss
        return outcome(operations, asked, timeout)

    tree.commit([Create("/first")])
    monkeypatch.setattr(tree._changes, "_window", 1)
    monkeypatch.setattr(tree._session, "change", note)
    monkeypatch.setattr(tree._session, "outcome", answer)
    outcomes: list[Any] = []

    def hold(nodes: Any, error: Any) -> None:
        reached.set()
        held.wait(20)

    tree.read_through(["/first"], hold)
    assert reached.wait(20)  # so that the tree's thread finds the next three together
    for path in ("/a", "/b", "/c"):
        tree.submit([Create(path)], lambda results, error: outcomes.append(results or error))
    held.set()
    eventually(lambda: len(outcomes) == 3)
    assert outcomes == [["/a"], ["/b"], ["/c"]]
    assert sent == ["/a", "/a", "/b", "/c"]
    assert losses == 0


def test_a_login_that_is_refused_again_and_again_is_logged_once(
    proxy: TcpProxy, behind: str, open_tree: OpenTree, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo reports a connection before it logs in, which must not be logged each time."""
    caplog.set_level(logging.INFO, "kafkapy.metadata.zookeeper")
    tree = open_tree(behind)
    tree._settings = tree._settings._replace(login=("user", "password"))  # the server requires no login
    refusals = refuse_logins(monkeypatch, ConnectionHandler, 4)
    proxy.mend()  # breaks the connection
    eventually(lambda: "reconnected to ZooKeeper" in caplog.text)
    assert not refusals
    tree.commit([Create("/x")])
    assert [caplog.text.count(part) for part in ("has expired", "refuses the login", "reconnected")] == [1, 1, 1]
    assert "Traceback" not in caplog.text


def test_changes_fail_while_a_login_is_refused_again_and_again(
    proxy: TcpProxy, behind: str, open_tree: OpenTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = open_tree(behind)
    connect = ConnectionHandler._connect

    def refuse(*args: Any) -> Any:
        connect(*args)
        raise AuthFailedError

    with monkeypatch.context() as refusing:
        refusing.setattr(ConnectionHandler, "_connect", refuse)
        proxy.mend()  # breaks the connection
        eventually(lambda: tree.session_id is None)
        with pytest.raises(TreeUnavailable, match="has not answered for 2 s"):
            tree.commit([Create("/x")])
    eventually(lambda: not isinstance(tried(tree, Create("/x")), TreeUnavailable))


def test_a_change_that_was_made_is_not_made_again_if_only_its_answer_comes_too_late(
    tree: ZooKeeperTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = tree._session.outcome
    late: list[Any] = []

    def answer(*some: Any) -> Any:
        results = outcome(*some)
        if not late:
            late.append(results)
            raise KazooTimeoutError
        return results

    monkeypatch.setattr(tree._session, "outcome", answer)
    assert tree.commit([Create("/x", b"1")]) == ["/x"]
    assert len(late) == 1
    assert tree.get("/x").version == 0


def test_the_session_outlives_a_restart_of_the_server(tmp_path: Path, open_tree: OpenTree) -> None:
    server = ZooKeeper(tmp_path)
    try:
        tree = open_tree(f"{server.address}/k", session_timeout_ms=2000)
        tree.commit([Create("/e", ephemeral=True), Create("/p", b"1")])
        server.stop()
        outcome: list[Any] = []
        done = threading.Event()

        def finished(results: Any, error: Any) -> None:
            outcome.append((results, error))
            done.set()

        server.start()
        tree.submit([Set("/p", b"2")], finished)
        assert done.wait(30)
        eventually(lambda: not isinstance(tried(tree, Set("/p", b"3")), TreeUnavailable))
        assert tree.get("/p").data == b"3"
        tree.commit([Create("/p/x")])
        assert tree.children("/p") == ["x"]
    finally:
        server.stop()


def test_the_chroot_is_created_though_the_connection_is_lost_meanwhile(
    connect: str, open_tree: OpenTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = KazooClient.create
    failures = [ConnectionLoss(), ConnectionLoss()]

    def created_but_not_answered(client: KazooClient, *args: Any, **options: Any) -> Any:
        created = create(client, *args, **options)
        return raised(failures.pop()) if failures else created

    monkeypatch.setattr(KazooClient, "create", created_but_not_answered)
    tree = open_tree(f"{connect}/below")  # two nodes to create
    tree.commit([Create("/a")])
    assert tree.children("/") == ["a"]
    assert not failures


def test_the_error_names_a_server_that_is_not_there(open_tree: OpenTree) -> None:
    with pytest.raises(ZooKeeperError, match=r"127\.0\.0\.1:1 does not answer within 0\.3 s"):
        open_tree("127.0.0.1:1/k", connection_timeout_ms=300)
    with pytest.raises(ZooKeeperError, match=r"zookeeper\.connect is '127\.0\.0\.1:port'"):
        open_tree("127.0.0.1:port")


def test_only_the_change_that_is_too_long_for_zookeeper_fails(tree: ZooKeeperTree) -> None:
    tree.commit([Create("/a")])
    with pytest.raises(TreeUnavailable, match="1 MiB"):
        tree.commit([Set("/a", b"x" * 3_000_000)])
    tree.commit([Set("/a", b"y")])
    assert tree.get("/a").data == b"y"


def test_a_change_that_the_client_refuses_to_send_is_answered(
    tree: ZooKeeperTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client refuses to send after ZooKeeper rejects its login on a reconnect. The caller must not wait forever."""
    # Here ZooKeeper has applied the change nevertheless. Its watch event may come late; here it never comes.
    monkeypatch.setattr(tree._session, "_on_event", lambda *_: None)
    with monkeypatch.context() as refusing:
        refusing.setattr(Session, "outcome", lambda *_: raised(AuthFailedError()))
        with pytest.raises(TreeUnavailable, match="ZooKeeper refuses the change: AuthFailed"):
            tree.commit([Create("/a")])
    assert tree.children("/") == ["a"]
    tree.commit([Create("/b")])
    assert tree.children("/") == ["a", "b"]


def test_nodes_that_are_not_watched_can_be_read(proxy: TcpProxy, behind: str, tree: ZooKeeperTree) -> None:
    settings = ZooKeeperSettings(behind, SESSION_MS, 10_000)
    narrow = ZooKeeperTree(settings, leaves=("/c",))
    try:
        narrow.commit([Create("/c", b"1"), Create("/c/g", b"2"), Create("/d"), Create("/d/e")])
        assert set(narrow.subtree("/")) == {"/d/e", "/d", "/c", "/"}
        eventually(lambda: tree.exists("/c/g"))
        tree.commit([Set("/c", b"3"), Set("/c/g", b"4"), Create("/c/h")])
        eventually(lambda: narrow.get("/c").data == b"3")
        assert not narrow.exists("/c/h")

        def looked() -> Any:
            nodes = wait(narrow.read_through, ["/c/g", "/c/no", "/c/h", "/d/e"])
            return [node and node.data for node in nodes]

        assert looked() == [b"4", None, b"", b""]
        with pytest.raises(TreeUnavailable, match="reading from ZooKeeper failed"):
            wait(narrow.read_through, ["/c/../x"])
        proxy.cut()
        with pytest.raises(TreeUnavailable, match="has not answered for 2 s"):
            looked()
        proxy.mend()
        eventually(lambda: narrow.is_reachable)
        assert looked() == [b"4", None, b"", b""]
        narrow.commit([Set("/c/g", b"5"), Delete("/c/h")])
        assert looked() == [b"5", None, None, b""]
        tree.commit([Delete("/c/g"), Delete("/c"), Create("/c"), Create("/c/i")])
        eventually(lambda: narrow.get("/c").data == b"")
        assert narrow.children("/c") == []
    finally:
        narrow.close()


def raised(error: Exception) -> Any:
    raise error
