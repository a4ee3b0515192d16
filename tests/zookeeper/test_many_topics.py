"""A change of one topic costs a broker with many topics as much as a broker with few."""

from collections import Counter
from typing import Any

import pytest

from kafkapy.metadata.tree import Create, Tree
from kafkapy.metadata.zookeeper.session import Session
from kafkapy.metadata.zookeeper.tree import ZooKeeperTree
from tests.harness.waiting import eventually
from tests.zookeeper.conftest import Start

MANY = 60
# Nodes whose children are read again, each with one request.
LISTS = {"/brokers/topics", "/config/topics", "/admin/delete_topics", "/config/changes"}
SINGLE = {"/controller_epoch", "/latest_producer_id_block"}


def test_only_the_new_topic_is_read_and_examined(start: Start, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start()
    controller = server.services.controller
    mine = server.services.topics._tree
    assert isinstance(mine, ZooKeeperTree)
    asked: Counter[tuple[str, bool]] = Counter()
    read, read_children, follow = Session.read, Session.read_children, controller.follow
    followed: Counter[str] = Counter()

    def noted_read(session: Session, path: str, **how: Any) -> Any:
        if session is mine._session:
            asked[path, False] += 1
        return read(session, path, **how)

    def noted_children(session: Session, path: str, **how: Any) -> Any:
        if session is mine._session:
            asked[path, True] += 1
        return read_children(session, path, **how)

    def noted_follow(name: str, **how: Any) -> None:
        followed[name] += 1
        follow(name, **how)

    monkeypatch.setattr(Session, "read", noted_read)
    monkeypatch.setattr(Session, "read_children", noted_children)
    monkeypatch.setattr(controller, "follow", noted_follow)

    def cost_of(name: str, others: int) -> set[tuple[str, bool]]:
        asked.clear()
        followed.clear()
        controller.create(name, partitions=1)
        tree.commit([Create(f"/brokers/topics/outside-{others}", b'{"version":1,"partitions":{"0":[0]}}')])
        eventually(lambda: server.services.replicas.holds(f"outside-{others}", 0))
        tree.commit([Create(f"/admin/delete_topics/outside-{others}")])
        eventually(lambda: not tree.exists("/admin/delete_topics") or not tree.children("/admin/delete_topics"))
        eventually(lambda: not mine.exists(f"/brokers/topics/outside-{others}"))
        assert set(followed) <= {name, f"outside-{others}"}
        of_these = {(path.replace(name, "NEW").replace(f"outside-{others}", "OUTSIDE"), kind) for path, kind in asked}
        foreign = {path for path, _ in of_these if "NEW" not in path and "OUTSIDE" not in path}
        assert foreign <= {*LISTS, *SINGLE}
        return {one for one in of_these if one[0] not in SINGLE}

    few = cost_of("one-of-few", 0)
    for number in range(MANY):
        controller.create(f"t{number}", partitions=1)
    eventually(lambda: followed[f"t{MANY - 1}"], what="all of it has been looked at")
    assert cost_of("one-of-many", MANY) == few
