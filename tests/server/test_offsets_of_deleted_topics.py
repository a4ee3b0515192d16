"""Committed offsets are deleted with their topic, and those of a new topic of the same name are kept."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy.coordinator import shard_loader
from kafkapy.coordinator.coordinator_log import CoordinatorLog
from kafkapy.errors import Errors
from kafkapy.protocol.apis import DELETE_TOPICS, FIND_COORDINATOR, OFFSET_COMMIT, OFFSET_FETCH
from kafkapy.server.broker import BrokerServer
from tests.harness.wire import Wire
from tests.server.requests import make_topic, start_broker

GROUP = "readers"
NONE_COMMITTED = -1


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BrokerServer]:
    running = start_broker(tmp_path, background_threads=1, offsets_topic_num_partitions=1)
    yield running
    running.stop()


def commit(wire: Wire, topic: str, offset: int, group: str = GROUP) -> None:
    wire.call(FIND_COORDINATOR, 2, FIND_COORDINATOR.Request(key=group))
    partition = OFFSET_COMMIT.Request.Topics.Partitions(partition_index=0, committed_offset=offset)
    topics = [OFFSET_COMMIT.Request.Topics(name=topic, partitions=[partition])]
    answer = wire.call(OFFSET_COMMIT, 8, OFFSET_COMMIT.Request(group_id=group, topics=topics))
    assert answer.topics[0].partitions[0].error_code == Errors.NONE


def committed(wire: Wire, topic: str) -> Any:
    topics = [OFFSET_FETCH.Request.Topics(name=topic, partition_indexes=[0])]
    answer = wire.call(OFFSET_FETCH, 5, OFFSET_FETCH.Request(group_id=GROUP, topics=topics))
    assert answer.error_code == Errors.NONE
    return answer.topics[0].partitions[0].committed_offset


def delete(wire: Wire, topic: str) -> None:
    answer = wire.call(DELETE_TOPICS, 4, DELETE_TOPICS.Request(topic_names=[topic], timeout_ms=30_000))
    assert answer.responses[0].error_code == Errors.NONE


def test_a_commit_to_a_re_created_topic_survives_the_cleanup_of_the_deleted_one(server: BrokerServer) -> None:
    wire = Wire(server.bootstrap_servers)
    topic = make_topic(wire, "again")
    commit(wire, topic, 11)
    busy, idle = threading.Event(), threading.Event()
    server._scheduler.schedule("busy", lambda: busy.wait(30))
    delete(wire, topic)
    make_topic(wire, topic)
    assert committed(wire, topic) == NONE_COMMITTED
    commit(wire, topic, 22)
    busy.set()
    server._scheduler.schedule("idle", idle.set)
    assert idle.wait(30)
    assert committed(wire, topic) == 22
    wire.close()


def test_offsets_of_many_groups_are_deleted_with_few_appends(
    server: BrokerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics cannot be created or deleted while the tombstones are written, so there must be few appends."""
    wire = Wire(server.bootstrap_servers)
    topic = make_topic(wire, "many")
    groups = [f"{GROUP}-{number}" for number in range(30)]
    for group in groups:
        commit(wire, topic, 11, group)
    append, appends = CoordinatorLog.append, []
    monkeypatch.setattr(CoordinatorLog, "append", lambda *how: (appends.append(how[1]), append(*how)))
    delete(wire, topic)
    assert [value for records in appends for key, value in records if value is not None] == []
    assert len({key for records in appends for key, _ in records}) >= len(groups)
    assert len(appends) == 1
    offsets = server.services.coordinators.offsets
    assert [offsets.count(group) for group in groups] == [0] * len(groups)
    wire.close()


def test_offsets_that_are_being_loaded_are_deleted_with_their_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_broker(tmp_path, offsets_topic_num_partitions=1)
    wire = Wire(server.bootstrap_servers)
    gone, stays = make_topic(wire, "gone"), make_topic(wire, "stays")
    commit(wire, gone, 11)
    commit(wire, stays, 22)
    wire.close()
    server.stop()

    load, may_continue = shard_loader._load, threading.Event()

    def slow_load(*how: Any) -> int:
        assert may_continue.wait(30)
        return load(*how)

    monkeypatch.setattr(shard_loader, "_load", slow_load)
    server = start_broker(tmp_path, offsets_topic_num_partitions=1)
    wire = Wire(server.bootstrap_servers)
    delete(wire, gone)
    make_topic(wire, gone)
    may_continue.set()
    wait_until_loaded(server)
    assert committed(wire, gone) == NONE_COMMITTED
    assert committed(wire, stays) == 22
    commit(wire, gone, 33)
    wire.close()
    server.stop()

    server = start_broker(tmp_path, offsets_topic_num_partitions=1)
    wire = Wire(server.bootstrap_servers)
    wait_until_loaded(server)
    assert committed(wire, gone) == 33
    wire.close()
    server.stop()


def wait_until_loaded(server: BrokerServer) -> None:
    """Wait until the only shard is loaded. `when_loaded` calls back at the end of the load, or at once."""
    loaded = threading.Event()
    shard = server.services.coordinators.group_shards.at(0)
    assert shard is not None
    shard.when_loaded(loaded.set)
    assert loaded.wait(30)
    with shard._lock:  # clients are served when `begin` releases this lock
        pass
