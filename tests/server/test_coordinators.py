"""The coordinators of a broker: found by clients, created with their topics, loaded, and removed with their
partitions."""

import errno
import logging
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from kafkapy.coordinator.internal_topic_config import GROUPS, TRANSACTIONS
from kafkapy.coordinator.shard import ACTIVE, FAILED
from kafkapy.coordinator.shards import partition_of
from kafkapy.errors import Errors, KafkaError
from kafkapy.protocol.apis import (
    CREATE_PARTITIONS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    FIND_COORDINATOR,
    JOIN_GROUP,
    METADATA,
    PRODUCE,
)
from kafkapy.protocol.headers import read_response_header, request_frame
from kafkapy.record.batch import build
from kafkapy.server.adoption.adopt import adopt
from kafkapy.server.adoption.knowledge import Knowledge
from kafkapy.server.broker import BrokerServer
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.server.requests import start_broker

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
GROUP, TRANSACTION, SHARE = 0, 1, 2


def find(wire: Wire, key: str, key_type: int = GROUP, version: int = 3) -> Any:
    make = FIND_COORDINATOR.Request
    if version < 4:
        return wire.call(FIND_COORDINATOR, version, make(key=key, key_type=key_type))
    (found,) = wire.call(FIND_COORDINATOR, version, make(coordinator_keys=[key], key_type=key_type)).coordinators
    assert found.key == key
    return found


def code_of(server: BrokerServer, topic: str, key: str) -> int:
    try:
        server.services.coordinators.shards_of(topic).of(key)
    except KafkaError as error:
        return error.code
    return Errors.NONE


def active(server: BrokerServer, topic: str) -> int:
    return len(server.services.coordinators.shards_of(topic).active())


# --- FindCoordinator


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
def test_the_coordinator_is_this_broker(broker: BrokerServer, wire: Wire, version: int, key_type: int) -> None:
    found = find(wire, "anything", key_type if version else GROUP, version)
    host, port = broker.bootstrap_servers.split(":")
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 0, host, int(port))


def test_a_coordinator_that_cannot_begin_for_a_moment_begins_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_broker(tmp_path, offsets_topic_num_partitions="1")
    coordinators = server.services.coordinators
    make = coordinators._make_group_shards
    failures = [OSError(errno.EMFILE, "too many open files")]

    def fails_once() -> Any:
        if failures:
            raise failures.pop()
        return make()

    monkeypatch.setattr(coordinators, "_make_group_shards", fails_once)
    try:
        with Wire(server.bootstrap_servers) as wire:
            find(wire, "g")
            eventually(lambda: find(wire, "g").error_code == Errors.NONE and active(server, GROUPS) == 1)
        assert "the coordinator of __consumer_offsets-0 cannot start yet; trying again" in caplog.text
    finally:
        server.stop()


def test_many_keys_are_answered_at_once(broker: BrokerServer, wire: Wire) -> None:
    keys = [f"group-{number}" for number in range(2000)]
    request = FIND_COORDINATOR.Request(key_type=GROUP, coordinator_keys=keys)
    answer = wire.call(FIND_COORDINATOR, 6, request)
    assert [one.key for one in answer.coordinators] == keys
    assert {one.error_code for one in answer.coordinators} == {Errors.NONE}
    assert wire.call(FIND_COORDINATOR, 4, FIND_COORDINATOR.Request(coordinator_keys=[])).coordinators == []


@pytest.mark.parametrize(
    ("key_type", "version", "code"),
    [
        (SHARE, 6, Errors.COORDINATOR_NOT_AVAILABLE),
        (SHARE, 5, Errors.INVALID_REQUEST),
        (SHARE, 3, Errors.INVALID_REQUEST),
        (7, 6, Errors.INVALID_REQUEST),
        (-1, 1, Errors.INVALID_REQUEST),
    ],
)
def test_other_types_of_coordinators_are_refused_as_in_kafka(
    broker: BrokerServer, wire: Wire, key_type: int, version: int, code: int
) -> None:
    found = find(wire, "key", key_type, version)
    assert (found.error_code, found.node_id, found.host, found.port) == (code, -1, "", -1)


# --- the topics


def test_the_internal_topics_are_created_with_the_settings_of_kafka(tmp_path: Path) -> None:
    server = start_broker(tmp_path)
    wires = [Wire(server.bootstrap_servers) for _ in range(8)]
    for wire in wires:  # the first request creates the topic, the others wait
        wire.send(FIND_COORDINATOR, 3, FIND_COORDINATOR.Request(key="g", key_type=GROUP))
    for wire in wires:
        assert wire.receive(FIND_COORDINATOR, 3)[1].error_code == Errors.NONE
        wire.close()
    assert set(server.services.topics.names()) == {GROUPS}
    wire = Wire(server.bootstrap_servers)
    assert find(wire, "t", TRANSACTION).error_code == Errors.NONE
    wire.close()
    for name, settings in (
        (GROUPS, {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}),
        (
            TRANSACTIONS,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "2",
                "segment.bytes": "104857600",
                "unclean.leader.election.enable": "false",
            },
        ),
    ):
        topic = server.services.topics.get(name)
        assert topic is not None
        assert len(topic.assignment) == 50
        assert {len(replicas) for replicas in topic.assignment.values()} == {1}
        assert server.services.configs.topic(name) == settings
        assert active(server, name) == 50
    server.stop()


def test_the_broker_settings_shape_the_topics(tmp_path: Path) -> None:
    server = start_broker(
        tmp_path,
        offsets_topic_num_partitions="3",
        offsets_topic_segment_bytes="1000000",
        transaction_state_log_num_partitions="2",
    )
    wire = Wire(server.bootstrap_servers)
    for key_type in (GROUP, TRANSACTION):
        find(wire, "key", key_type)
    wire.close()
    assert [len(server.services.topics.get(name).assignment) for name in (GROUPS, TRANSACTIONS)] == [3, 2]
    assert server.services.configs.topic(GROUPS)["segment.bytes"] == "1000000"
    server.stop()


def test_there_is_no_coordinator_if_its_topic_cannot_be_created(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_broker(tmp_path, offsets_topic_replication_factor="3")
    wire = Wire(server.bootstrap_servers)
    for _ in range(3):
        found = find(wire, "key")
        assert (found.error_code, found.node_id) == (Errors.COORDINATOR_NOT_AVAILABLE, -1)
        assert "replication factor 3 is more than the 1 brokers there are" in found.error_message
    (line,) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert "offsets.topic.replication.factor" in line
    assert find(wire, "key", TRANSACTION).error_code == Errors.NONE
    wire.close()
    server.stop()


def test_metadata_requests_do_not_create_internal_topics(broker: BrokerServer, tmp_path: Path) -> None:
    server = start_broker(tmp_path)
    wire = Wire(server.bootstrap_servers)
    request = METADATA.Request(topics=[METADATA.Request.Topics(name=GROUPS)], allow_auto_topic_creation=True)
    (topic,) = wire.call(METADATA, 9, request).topics
    assert topic.error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    wire.close()
    server.stop()


@pytest.mark.parametrize(
    ("client_id", "code"), [("anybody", Errors.INVALID_TOPIC_EXCEPTION), ("__admin_client", Errors.NONE)]
)
def test_only_the_broker_itself_writes_to_internal_topics(
    broker: BrokerServer, wire: Wire, client_id: str, code: int
) -> None:
    find(wire, "key")
    make = PRODUCE.Request.TopicData
    data = make.PartitionData(index=0, records=build([(1, b"\x00\x09later", b"value", ())]))
    request = PRODUCE.Request(acks=1, timeout_ms=1000, topic_data=[make(name=GROUPS, partition_data=[data])])
    wire.socket.sendall(request_frame(PRODUCE, 9, 1, client_id, request))
    frame = wire.frame()
    _, body = read_response_header(frame, PRODUCE, 9)
    answer = PRODUCE.decode_response(frame, 9, body)
    assert answer.responses[0].partition_responses[0].error_code == code


def test_delete_records_is_refused_for_internal_topics(broker: BrokerServer, wire: Wire) -> None:
    find(wire, "key")
    make = DELETE_RECORDS.Request.Topics
    request = DELETE_RECORDS.Request(
        topics=[make(name=GROUPS, partitions=[make.Partitions(partition_index=0, offset=0)])], timeout_ms=1000
    )
    answer = wire.call(DELETE_RECORDS, 2, request)
    assert answer.topics[0].partitions[0].error_code == Errors.INVALID_TOPIC_EXCEPTION


# --- restarts, deletions and failures


def test_shards_are_loaded_again_after_a_restart(tmp_path: Path) -> None:
    server = start_broker(tmp_path)
    wire = Wire(server.bootstrap_servers)
    find(wire, "key")
    find(wire, "key", TRANSACTION)
    wire.close()
    server.stop()
    server = start_broker(tmp_path)
    for topic in (GROUPS, TRANSACTIONS):
        eventually(lambda topic=topic: active(server, topic) == 50)  # type: ignore[misc]
    server.stop()
    assert code_of(server, GROUPS, "key") == Errors.COORDINATOR_NOT_AVAILABLE


def test_the_shards_of_a_deleted_topic_end(tmp_path: Path) -> None:
    server = start_broker(tmp_path)
    wire = Wire(server.bootstrap_servers)
    find(wire, "key")
    assert code_of(server, GROUPS, "key") == Errors.NONE
    wire.call(DELETE_TOPICS, 4, DELETE_TOPICS.Request(topic_names=[GROUPS], timeout_ms=30_000))
    assert active(server, GROUPS) == 0
    assert code_of(server, GROUPS, "key") == Errors.NOT_COORDINATOR
    assert find(wire, "key").error_code == Errors.NONE  # created again
    assert active(server, GROUPS) == 50
    wire.close()
    server.stop()


def test_the_shards_in_a_failed_directory_end(tmp_path: Path) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    server = start_broker(tmp_path, log_dirs=",".join(map(str, directories)))
    wire = Wire(server.bootstrap_servers)
    find(wire, "key")
    failed = {path.name for path in directories[1].glob(f"{GROUPS}-*")}
    assert 0 < len(failed) < 50
    logs = (partition.log for partition in server.services.replicas)
    next(log for log in logs if log.dir.parent == directories[1]).env.failed(
        "made to fail", OSError(5, "Input/output error")
    )
    names = {number: f"{GROUPS}-{number}" for number in range(50)}
    for number, name in names.items():
        key = next(key for key in map(str, range(10_000)) if partition_of(key, 50) == number)
        lost = name in failed
        assert code_of(server, GROUPS, key) == (Errors.NOT_COORDINATOR if lost else Errors.NONE)
        assert find(wire, key).error_code == (Errors.COORDINATOR_NOT_AVAILABLE if lost else Errors.NONE)
    wire.close()
    server.stop()


def test_added_partitions_of_internal_topics_are_used_from_the_next_start_on(tmp_path: Path) -> None:
    server = start_broker(tmp_path, offsets_topic_num_partitions="2")
    wire = Wire(server.bootstrap_servers)
    find(wire, "key")
    shards = server.services.coordinators.group_shards
    key = next(name for name in map(str, range(1000)) if partition_of(name, 2) != partition_of(name, 7))
    make = CREATE_PARTITIONS.Request
    request = make(topics=[make.Topics(name=GROUPS, count=7, assignments=None)], timeout_ms=30_000)
    assert wire.call(CREATE_PARTITIONS, 3, request).results[0].error_code == Errors.NONE
    assert shards.partition_for(key) == partition_of(key, 2)
    wire.close()
    server.stop()
    server = start_broker(tmp_path, offsets_topic_num_partitions="2")
    assert server.services.coordinators.group_shards.partition_for(key) == partition_of(key, 7)
    server.stop()


def test_a_stop_answers_waiting_group_members(tmp_path: Path) -> None:
    server = start_broker(tmp_path)  # the first member of a group waits 3 s for others
    wire = Wire(server.bootstrap_servers)
    find(wire, "key")
    make = JOIN_GROUP.Request
    join = make(
        group_id="key",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[make.Protocols(name="range", metadata=b"")],
    )
    wire.send(JOIN_GROUP, 3, join)
    shard = server.services.coordinators.group_shards.of("key")
    eventually(lambda: bool(shard.read(lambda home: home.groups)))
    server.stop()
    assert wire.receive(JOIN_GROUP, 3)[1].error_code == Errors.NOT_COORDINATOR
    assert wire.closed()
    wire.close()


# --- loading


@pytest.mark.parametrize("name", ["kafka-0.8.2.2", "kafka-0.10.2.2", "kafka-3.9.1-v2", "kafka-3.9.1-recovery"])
def test_groups_and_transactions_stored_by_kafka_are_loaded(tmp_path: Path, name: str) -> None:
    shutil.copytree(GOLDEN / name / ("after" if "recovery" in name else "data"), tmp_path / "data")
    adopt([tmp_path / "data"], Knowledge(), broker_id=0 if name == "kafka-0.8.2.2" else None)
    server = start_broker(tmp_path / "data")
    topics = [topic for topic in (GROUPS, TRANSACTIONS) if topic in server.services.topics]
    assert topics
    for topic in topics:
        shards = server.services.coordinators.shards_of(topic)
        count = len(server.services.topics.get(topic).assignment)
        eventually(lambda shards=shards: not shards.is_loading)  # type: ignore[misc]
        assert len(shards.active()) == count
    server.stop()


def test_a_damaged_partition_stops_its_own_shard_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(GOLDEN / "kafka-3.9.1-v2" / "data", tmp_path / "data")
    adopt([tmp_path / "data"], Knowledge())
    segment = tmp_path / "data" / f"{GROUPS}-1" / "00000000000000000000.log"
    data = bytearray(segment.read_bytes())
    data[100] ^= 1
    segment.write_bytes(data)
    caplog.set_level(logging.ERROR)
    server = start_broker(tmp_path / "data")
    shards = server.services.coordinators.group_shards
    eventually(lambda: not shards.is_loading)
    states = {index: shards.at(index).state for index in range(3)}
    assert states == {0: ACTIVE, 1: FAILED, 2: ACTIVE}
    key = next(key for key in map(str, range(100)) if partition_of(key, 3) == 1)
    assert code_of(server, GROUPS, key) == Errors.NOT_COORDINATOR
    (line,) = [one.getMessage() for one in caplog.records if one.name.startswith("kafkapy.coordinator")]
    assert f"{GROUPS}-1 cannot be loaded" in line
    assert str(segment) in line
    server.stop()


def test_a_stop_does_not_wait_for_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(GOLDEN / "kafka-3.9.1-v2" / "data", tmp_path / "data")
    adopt([tmp_path / "data"], Knowledge())
    from kafkapy.coordinator.group_machine import GroupMachine

    begun, may_continue = threading.Event(), threading.Event()
    replay = GroupMachine.replay_block

    def slowly(machine: GroupMachine, block: memoryview) -> int:
        begun.set()
        assert may_continue.wait(10)
        return replay(machine, block)

    monkeypatch.setattr(GroupMachine, "replay_block", slowly)
    server = start_broker(tmp_path / "data")
    assert begun.wait(10)
    assert code_of(server, GROUPS, "key") == Errors.COORDINATOR_LOAD_IN_PROGRESS
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    may_continue.set()
    stopping.join(20)
    assert not stopping.is_alive()
