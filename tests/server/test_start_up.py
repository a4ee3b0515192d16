"""A broker serves clients while it recovers: responses for logs that are loaded, and for those that are not yet."""

import os
import threading

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import tree
from kafkapy.protocol.apis import (
    DELETE_RECORDS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
)
from kafkapy.server.metrics.broker import METRICS
from tests.harness.gated_files import GatedFiles
from tests.harness.waiting import eventually
from tests.harness.wire import Wire
from tests.server.requests import batch, fetch, fetch_request, fetch_values, make_topic, produce, start_broker

WAIT_S = 60


@pytest.fixture
def held(tmp_path):
    """Start a broker that has recovered topic `quick`, and recovers topic `slow` only when the gate is opened. Return
    (server, files with the gate, connection)."""
    server = start_broker(tmp_path, broker_id=0)
    wire = Wire(server.bootstrap_servers)
    for topic in ("slow", "quick"):
        make_topic(wire, topic)
        produce(wire, topic, batch(b"one", b"two"))
    wire.close()
    server.stop()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    files = GatedFiles("slow-0")
    server = start_broker(tmp_path, files=files, wait=False, num_recovery_threads_per_data_dir=2)
    wire = Wire(server.bootstrap_servers)
    eventually(lambda: leader_of(wire, "quick")[1] == 0)
    yield server, files, wire
    files.open_gate()
    wire.close()
    server.stop()


def ask_one(wire, api, version, **fields):
    """Send a request about one partition, and return that partition's part of the response."""
    request = api.Request(**fields)
    response = wire.call(api, version, request)
    return response.topics[0].partitions[0]


def leader_of(wire, topic):
    asked = METADATA.Request(topics=[METADATA.Request.Topics(name=topic)], allow_auto_topic_creation=True)
    answer = wire.call(METADATA, 12, asked).topics[0]
    assert answer.error_code == Errors.NONE
    (partition,) = answer.partitions
    return partition.error_code, partition.leader_id, list(partition.replica_nodes), list(partition.offline_replicas)


def test_metadata_returns_leader_not_available_until_the_log_is_loaded(held):
    server, files, wire = held
    assert leader_of(wire, "slow") == (Errors.LEADER_NOT_AVAILABLE, -1, [0], [])
    assert leader_of(wire, "quick") == (Errors.NONE, 0, [0], [])
    files.open_gate()
    assert server.wait_until_loaded(WAIT_S)
    assert leader_of(wire, "slow") == (Errors.NONE, 0, [0], [])


def test_every_other_api_answers_that_this_is_not_the_leader(held):
    _, _, wire = held
    answers = [
        produce(wire, "slow", batch(b"three")),
        fetch(wire, "slow"),
        ask_one(
            wire,
            LIST_OFFSETS,
            9,
            replica_id=-1,
            topics=[
                LIST_OFFSETS.Request.Topics(
                    name="slow",
                    partitions=[LIST_OFFSETS.Request.Topics.Partitions(partition_index=0, timestamp=-1)],
                )
            ],
        ),
        ask_one(
            wire,
            OFFSET_FOR_LEADER_EPOCH,
            4,
            topics=[
                OFFSET_FOR_LEADER_EPOCH.Request.Topics(
                    topic="slow",
                    partitions=[OFFSET_FOR_LEADER_EPOCH.Request.Topics.Partitions(partition=0, leader_epoch=0)],
                )
            ],
        ),
        ask_one(
            wire,
            DELETE_RECORDS,
            2,
            topics=[
                DELETE_RECORDS.Request.Topics(
                    name="slow", partitions=[DELETE_RECORDS.Request.Topics.Partitions(partition_index=0, offset=1)]
                )
            ],
        ),
        ask_one(
            wire,
            DESCRIBE_PRODUCERS,
            0,
            topics=[DESCRIBE_PRODUCERS.Request.Topics(name="slow", partition_indexes=[0])],
        ),
    ]
    assert [answer.error_code for answer in answers] == [Errors.NOT_LEADER_OR_FOLLOWER] * len(answers)
    assert fetch_values(wire, "quick") == [b"one", b"two"]


def test_a_fetch_session_continues_when_the_log_is_loaded(held):
    server, files, wire = held
    opened = wire.call(FETCH, 12, fetch_request("slow", session=(0, 0)))
    assert opened.responses[0].partitions[0].error_code == Errors.NOT_LEADER_OR_FOLLOWER
    files.open_gate()
    assert server.wait_until_loaded(WAIT_S)
    nothing_new = FETCH.Request(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=opened.session_id,
        session_epoch=1,
        topics=[],
    )
    partition = wire.call(FETCH, 12, nothing_new).responses[0].partitions[0]
    assert (partition.error_code, partition.high_watermark) == (Errors.NONE, 2)
    assert len(bytes(partition.records)) > 0


def test_metrics_and_describe_log_dirs_show_the_progress_of_the_start(held):
    server, files, wire = held
    directory = str(server.services.config.log_dirs[0].absolute())

    def progress():
        values = server.services.counters.read()
        logs, size, segments = (
            [value for labels, value in values[METRICS[f"remaining_{what}_to_recover"]] if labels[0] == directory]
            for what in ("logs", "bytes", "segments")
        )
        assert (len(logs), len(size), len(segments)) == (1, 1, 2)
        return [logs[0], size[0] > 0, sum(segments)]

    assert progress() == [1, True, 1]
    (result,) = wire.call(DESCRIBE_LOG_DIRS, 4, DESCRIBE_LOG_DIRS.Request(topics=None)).results
    assert [topic.name for topic in result.topics] == ["quick", "slow"]
    files.open_gate()
    assert server.wait_until_loaded(WAIT_S)
    assert progress() == [0, False, 0]


def test_topics_can_be_created_and_deleted_during_recovery(held):
    server, files, wire = held
    make_topic(wire, "new")
    produce(wire, "new", batch(b"x"))
    controller = server.services.controller
    controller.delete("slow")
    assert "slow" not in server.services.topics
    assert not server.services.topics.marked()
    with pytest.raises(KafkaError) as refused:
        server.services.replicas.get("slow", 0)
    assert refused.value.code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    creating = threading.Thread(target=controller.create, args=("slow",), kwargs={"partitions": 1}, daemon=True)
    creating.start()  # waits until the log of the deleted topic is removed
    files.open_gate()
    creating.join(WAIT_S)
    assert not creating.is_alive()
    assert server.wait_until_loaded(WAIT_S)
    assert fetch_values(wire, "slow") == []
    assert fetch_values(wire, "new") == [b"x"]


def test_a_topic_can_be_deleted_before_the_loading_of_its_log_begins(tmp_path):
    """A start also finishes the deletion of a topic that was in progress when the broker was stopped."""
    server = start_broker(tmp_path, broker_id=0)
    wire = Wire(server.bootstrap_servers)
    for topic in ("slow", "marked", "later"):
        make_topic(wire, topic)
        produce(wire, topic, batch(b"one", b"two"))
    wire.close()
    tree.wait(server.services.topics.mark_deleted, "marked")
    server.stop()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    newest = max((tmp_path / "slow-0").glob("*.log"))
    os.utime(newest, (2**31, 2**31))
    files = GatedFiles("slow-0")
    server = start_broker(tmp_path, files=files, wait=False, num_recovery_threads_per_data_dir=1)
    assert files.arrived.wait(WAIT_S)
    deleting = threading.Thread(target=server.services.controller.delete, args=("later",), daemon=True)
    deleting.start()
    deleting.join(WAIT_S)
    assert not deleting.is_alive()
    files.open_gate()
    assert server.wait_until_loaded(WAIT_S)
    assert server.services.topics.names() == ["slow"]
    eventually(lambda: not server.services.topics.marked())
    assert not list(tmp_path.glob("marked-0")) + list(tmp_path.glob("later-0"))
    server.stop()


def test_settings_changed_during_recovery_apply(held):
    server, files, _ = held
    server.services.topic_settings.alter("slow", lambda _: {"retention.ms": "77"}, validate_only=False)
    server.services.controller.add_partitions("slow", 2, None, validate_only=False)
    assert server.services.replicas.holds("slow", 1)
    files.open_gate()
    assert server.wait_until_loaded(WAIT_S)
    assert server.services.replicas.get("slow", 0).log.config.retention_ms == 77


def test_a_stop_does_not_wait_for_logs_that_still_need_recovery(tmp_path, held):
    server, files, _ = held
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    while not server.services.stopping:
        stopping.join(0.001)
    assert not server.wait_until_loaded(0)
    files.open_gate()
    stopping.join(WAIT_S)
    assert not stopping.is_alive()
    again = start_broker(tmp_path)
    wire = Wire(again.bootstrap_servers)
    for topic in ("slow", "quick"):
        assert fetch_values(wire, topic) == [b"one", b"two"]
    wire.close()
    again.stop()


def test_a_partition_whose_log_cannot_be_loaded_returns_the_reason(tmp_path):
    class Confused(GatedFiles):
        def scan(self, file, *arguments):
            if self.text in file.path:
                raise ValueError("an unforeseen error")
            return super().scan(file, *arguments)

    server = start_broker(tmp_path)
    wire = Wire(server.bootstrap_servers)
    make_topic(wire, "t")
    produce(wire, "t", batch(b"one"))
    wire.close()
    server.stop()
    server = start_broker(tmp_path, files=Confused("t-0"))
    wire = Wire(server.bootstrap_servers)
    code, leader, _, offline = leader_of(wire, "t")
    assert (code, leader, len(offline)) == (Errors.LEADER_NOT_AVAILABLE, -1, 1)
    assert fetch(wire, "t").error_code == Errors.KAFKA_STORAGE_ERROR
    wire.close()
    server.stop()
