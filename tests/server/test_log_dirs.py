"""Moves between log directories over the wire: AlterReplicaLogDirs, DescribeLogDirs and the dynamic settings."""

import threading

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol.apis import (
    ALTER_REPLICA_LOG_DIRS,
    DELETE_TOPICS,
    DESCRIBE_LOG_DIRS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
)
from tests.harness.waiting import eventually
from tests.harness.wire import Wire

from .requests import batch, produce, start_broker

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture
def dirs(tmp_path):
    return tmp_path / "one", tmp_path / "two"


@pytest.fixture
def broker(dirs):
    server = start_broker(f"{dirs[0]},{dirs[1]}", broker_id=0)
    yield server
    server.stop()


@pytest.fixture
def wire(broker):
    with Wire(broker.bootstrap_servers) as connection:
        yield connection


def alter(wire, path, *partitions, version=2):
    """Ask to move partitions, given as (topic, index), to a directory. Return the error codes by partition."""
    make = ALTER_REPLICA_LOG_DIRS.Request
    topics = [make.Dirs.Topics(name=topic, partitions=[index]) for topic, index in partitions]
    response = wire.call(ALTER_REPLICA_LOG_DIRS, version, make(dirs=[make.Dirs(path=str(path), topics=topics)]))
    return {
        (topic.topic_name, one.partition_index): one.error_code
        for topic in response.results
        for one in topic.partitions
    }


def describe(wire, topic):
    """Return (name of the directory, partition, is future log, lag) of the topic's logs."""
    response = wire.call(DESCRIBE_LOG_DIRS, 4, topics=None)
    return sorted(
        (result.log_dir.rpartition("/")[2], one.partition_index, one.is_future_key, one.offset_lag)
        for result in response.results
        for found in result.topics
        if found.name == topic
        for one in found.partitions
    )


def place(wire, topic):
    return [(name, future) for name, _, future, _ in describe(wire, topic)]


def set_rate(wire, value):
    make = INCREMENTAL_ALTER_CONFIGS.Request
    change = make.Resources.Configs(name=RATE, config_operation=0 if value else 1, value=value)
    response = wire.call(
        INCREMENTAL_ALTER_CONFIGS,
        1,
        make(resources=[make.Resources(resource_type=4, resource_name="0", configs=[change])]),
    )
    assert response.responses[0].error_code == Errors.NONE


def other(dirs, wire, topic):
    """Return the directory in which the topic's only partition is not."""
    ((name, _),) = place(wire, topic)
    return next(one for one in dirs if one.name != name)


def fill(wire, topic, count=20, size=100_000):
    for number in range(count):
        assert produce(wire, topic, batch(bytes([number % 256]) * size)).error_code == Errors.NONE


def test_a_partition_moves_to_another_directory_while_it_is_in_use(broker, wire, dirs):
    wire.create_topic("t", 1)
    fill(wire, "t")
    target = other(dirs, wire, "t")
    assert alter(wire, target, ("t", 0)) == {("t", 0): Errors.NONE}
    eventually(lambda: place(wire, "t") == [(target.name, False)])
    assert produce(wire, "t", batch(b"more")).base_offset == 20
    assert (target / "t-0").is_dir()
    replicas = broker.services.replicas
    eventually(lambda: replicas.get("t", 0)._stall is replicas.stalls().get(target))


def test_a_throttled_move_is_described_with_its_lag_and_continues_when_the_throttle_is_removed(broker, wire, dirs):
    wire.create_topic("t", 1)
    fill(wire, "t", 40)
    source, target = place(wire, "t")[0][0], other(dirs, wire, "t")
    set_rate(wire, "1000")
    assert alter(wire, target, ("t", 0)) == {("t", 0): Errors.NONE}
    eventually(lambda: 0 < describe(wire, "t")[target.name == "two"][3] < 40)
    assert sorted(place(wire, "t")) == sorted([(source, False), (target.name, True)])
    assert broker.services.throttles.log_dirs.rate() > 0
    set_rate(wire, None)
    eventually(lambda: place(wire, "t") == [(target.name, False)])


def test_a_throttled_move_ends_when_its_old_directory_is_asked_for(wire, dirs):
    wire.create_topic("t", 1)
    fill(wire, "t", 40)
    target = other(dirs, wire, "t")
    (source,) = (one for one in dirs if one != target)
    set_rate(wire, "1")
    assert alter(wire, target, ("t", 0)) == {("t", 0): Errors.NONE}
    assert alter(wire, source, ("t", 0)) == {("t", 0): Errors.NONE}
    assert place(wire, "t") == [(source.name, False)]
    set_rate(wire, None)
    assert produce(wire, "t", batch(b"more")).error_code == Errors.NONE


def test_a_topic_is_deleted_while_it_moves(wire, dirs):
    wire.create_topic("t", 1)
    fill(wire, "t", 40)
    target = other(dirs, wire, "t")
    set_rate(wire, "1")
    assert alter(wire, target, ("t", 0)) == {("t", 0): Errors.NONE}
    delete(wire, "t")
    assert describe(wire, "t") == []
    assert not [path for one in dirs for path in one.iterdir() if path.name.endswith("-future")]


def test_a_move_that_a_stop_interrupts_is_continued(dirs):
    server = start_broker(f"{dirs[0]},{dirs[1]}", broker_id=0)
    with Wire(server.bootstrap_servers) as wire:
        wire.create_topic("t", 1)
        fill(wire, "t", 40)
        target = other(dirs, wire, "t")
        set_rate(wire, "1000")
        assert alter(wire, target, ("t", 0)) == {("t", 0): Errors.NONE}
        eventually(lambda: len(describe(wire, "t")) == 2)
    server.stop()
    server = start_broker(f"{dirs[0]},{dirs[1]}", broker_id=0)
    try:
        with Wire(server.bootstrap_servers) as wire:
            assert len(describe(wire, "t")) == 2
            set_rate(wire, None)
            eventually(lambda: place(wire, "t") == [(target.name, False)])
            assert produce(wire, "t", batch(b"more")).base_offset == 40
    finally:
        server.stop()


def test_the_settings_of_topics_and_brokers_reach_the_throttles_also_at_a_start(dirs):
    server = start_broker(f"{dirs[0]},{dirs[1]}", broker_id=0)
    with Wire(server.bootstrap_servers) as wire:
        wire.create_topic("t", 3)
        wire.create_topic("u", 1)
        set_throttled(wire, "t", leader="0:0,1:7,2:0", follower="*")
        set_throttled(wire, "u", leader="*", follower="*")
        set_rate(wire, "5000")
        assert server.services.throttles.log_dirs.limit == 5000
        assert throttled(server, "t", 3) == ([0, 2], [0, 1, 2])
        delete(wire, "u")
        assert throttled(server, "u", 1) == ([], [])
    server.stop()
    server = start_broker(f"{dirs[0]},{dirs[1]}", broker_id=0)
    try:
        assert server.services.throttles.log_dirs.limit == 5000
        assert throttled(server, "t", 3) == ([0, 2], [0, 1, 2])
    finally:
        server.stop()


def set_throttled(wire, topic, *, leader, follower):
    make = INCREMENTAL_ALTER_CONFIGS.Request
    changes = [
        make.Resources.Configs(name=f"{side}.replication.throttled.replicas", config_operation=0, value=value)
        for side, value in (("leader", leader), ("follower", follower))
    ]
    request = make(resources=[make.Resources(resource_type=2, resource_name=topic, configs=changes)])
    response = wire.call(INCREMENTAL_ALTER_CONFIGS, 1, request)
    assert response.responses[0].error_code == Errors.NONE


def throttled(server, topic, count):
    throttles = server.services.throttles
    return tuple(
        [index for index in range(count) if throttle.is_throttled(topic, index)]
        for throttle in (throttles.leader, throttles.follower)
    )


def delete(wire, topic):
    make = DELETE_TOPICS.Request
    response = wire.call(DELETE_TOPICS, 6, make(topics=[make.Topics(name=topic)], timeout_ms=30_000))
    assert response.responses[0].error_code == Errors.NONE


def test_each_error_has_kafkas_code(broker, wire, dirs, tmp_path):
    wire.create_topic("t", 1)
    name = "x" * 230
    wire.create_topic(name, 1)
    target = other(dirs, wire, "t")
    assert alter(wire, tmp_path / "three", ("t", 0), version=0) == {("t", 0): Errors.LOG_DIR_NOT_FOUND}
    assert alter(wire, "", ("t", 0)) == {("t", 0): Errors.LOG_DIR_NOT_FOUND}
    assert alter(wire, target, (name, 0)) == {(name, 0): Errors.INVALID_TOPIC_EXCEPTION}
    assert alter(wire, target, ("u", 0), ("t", -1), version=1) == {
        ("u", 0): Errors.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", -1): Errors.UNKNOWN_TOPIC_OR_PARTITION,
    }
    log_dir = next(one for one in broker.services.log_manager.online_dirs() if one.path == target)
    log_dir.env.failed("a test", OSError(5, "broken"))
    assert alter(wire, target, ("t", 0)) == {("t", 0): Errors.KAFKA_STORAGE_ERROR}


def test_a_request_for_very_many_unknown_partitions_leaves_a_few_lines_in_the_log(wire, dirs, caplog):
    make = ALTER_REPLICA_LOG_DIRS.Request
    topics = [make.Dirs.Topics(name="u", partitions=list(range(20_000)))]
    response = wire.call(ALTER_REPLICA_LOG_DIRS, 2, make(dirs=[make.Dirs(path=str(dirs[0]), topics=topics)]))
    codes = {one.error_code for topic in response.results for one in topic.partitions}
    assert codes == {Errors.UNKNOWN_TOPIC_OR_PARTITION}
    lines = [line for line in caplog.messages if "move" in line]
    assert len(lines) == 11
    assert lines[-1] == "and 19990 more partitions of this request do not move"


def test_a_principal_without_the_right_neither_moves_nor_describes(broker, wire, dirs):
    class Nobody:
        generation = 0
        pool = None

        def denied(self, call, actions, *, logged=True):
            return [one for one in actions if one.resource_type == "CLUSTER"]

    wire.create_topic("t", 1)
    target = other(dirs, wire, "t")
    broker.services.authorizer = Nobody()
    try:
        assert alter(wire, target, ("t", 0)) == {("t", 0): Errors.CLUSTER_AUTHORIZATION_FAILED}
        response = wire.call(DESCRIBE_LOG_DIRS, 4, topics=None)
        assert (response.error_code, response.results) == (Errors.CLUSTER_AUTHORIZATION_FAILED, [])
    finally:
        broker.services.authorizer = None


def test_a_producer_notices_nothing_of_moves(broker, wire, dirs):
    """A producer sends while the partition moves several times. Afterwards all of its records can be fetched."""
    wire.create_topic("t", 1)
    written, stop, failures = [], threading.Event(), []

    def write():
        with Wire(broker.bootstrap_servers) as mine:
            while not stop.is_set():
                answer = produce(mine, "t", batch(b"%d" % len(written) * 200), acks=-1)
                if answer.error_code:
                    failures.append(answer.error_code)
                written.append(answer.base_offset)

    thread = threading.Thread(target=write)
    thread.start()
    moves = 0
    try:
        for _ in range(6):
            target = other(dirs, wire, "t")
            assert alter(wire, target, ("t", 0)) == {("t", 0): Errors.NONE}
            eventually(lambda target=target: place(wire, "t") == [(target.name, False)])
            moves += 1
    finally:
        stop.set()
        thread.join()
    assert not failures
    assert written == list(range(len(written)))
    make = FETCH.Request
    topic = make.Topics(
        topic="t", partitions=[make.Topics.Partitions(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    )
    response = wire.call(
        FETCH, 11, make(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[topic], session_epoch=0)
    )
    (one,) = response.responses[0].partitions
    assert (one.error_code, one.high_watermark) == (Errors.NONE, len(written))


def test_a_waiting_fetch_gets_what_is_written_after_a_move(broker, wire, dirs):
    wire.create_topic("t", 1)
    make = FETCH.Request
    topic = make.Topics(
        topic="t", partitions=[make.Topics.Partitions(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    )
    target = other(dirs, wire, "t")
    with Wire(broker.bootstrap_servers) as reader:
        reader.send(FETCH, 11, make(max_wait_ms=20_000, min_bytes=1, max_bytes=1 << 20, topics=[topic]))
        assert alter(wire, target, ("t", 0)) == {("t", 0): Errors.NONE}
        eventually(lambda: place(wire, "t") == [(target.name, False)])
        produce(wire, "t", batch(b"a"))
        _, response = reader.receive(FETCH, 11)
    assert response.responses[0].partitions[0].records
