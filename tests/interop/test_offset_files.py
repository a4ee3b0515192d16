"""Committed offsets survive restarts of the broker, and Kafka's tools read them, as records and from the files."""

import re
import time
from pathlib import Path

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol import apis
from tests.harness import brokers
from tests.harness.group_wire import GroupWire
from tests.harness.kafka_tools import KafkaTools, kafka_dump

SETTINGS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
FORMATTER = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"
OLD_FORMATTER = "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter"


def wait_for(wire: GroupWire, group: str, offsets: dict[tuple[str, int], int]) -> None:
    deadline = time.monotonic() + 20
    while (found := wire.offsets(group)) != offsets:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def commit_all_kinds(wire: GroupWire) -> None:
    wire.make_topic("t")
    for group in ("g", "h", "gone"):
        wire.find_coordinator(group)
    wire.commit("g", {("t", 0): (7, "why"), ("t", 1): 1 << 40}, committed_leader_epoch=5)
    wire.commit("g", {("t", 0): (8, "é")})
    wire.commit("h", {("t", 2): 3}, version=2)
    wire.commit("gone", {("t", 0): 1})
    assert wire.delete_offsets("gone", {"t": [0]})[0] == Errors.NONE
    producer = wire.begin("id")
    for commit in (True, False):
        wire.add_offsets("id", producer, "g")
        wire.commit_in_transaction("id", producer, "g", {("t", 3): 10 + commit})
        wire.end("id", producer, commit=commit)
        wait_for(wire, "g", {("t", 0): 8, ("t", 1): 1 << 40, ("t", 3): 11})


@pytest.mark.other_runtime
def test_kafkas_tools_read_them(tmp_path: Path, tools: KafkaTools) -> None:
    broker = brokers.start(tmp_path, {**SETTINGS, "offsets.topic.num.partitions": "1"})
    try:
        wire = GroupWire(broker.bootstrap)
        commit_all_kinds(wire)
        committed = {}
        for formatter in (FORMATTER, OLD_FORMATTER):
            done = tools.run(
                "org.apache.kafka.tools.consumer.ConsoleConsumer",
                *("--bootstrap-server", broker.bootstrap, "--topic", "__consumer_offsets", "--partition", 0),
                *("--offset", "earliest", "--formatter", formatter, "--max-messages", 8, "--timeout-ms", 60_000),
            )
            committed[formatter] = done.out
        wire.close()
        stopped = broker.data
    finally:
        broker.stop()
    lines = [
        re.sub(r"commitTimestamp=\d+", "commitTimestamp=N", line) for line in committed[OLD_FORMATTER].splitlines()
    ]
    value = (
        "::OffsetAndMetadata(offset={}, leaderEpoch=Optional{}, metadata={}, commitTimestamp=N, expireTimestamp=None)"
    )
    assert sorted(lines) == sorted(
        [
            "[g,t,0]" + value.format(7, "[5]", "why"),
            "[g,t,1]" + value.format(1 << 40, "[5]", ""),
            "[g,t,0]" + value.format(8, ".empty", "é"),
            "[h,t,2]" + value.format(3, ".empty", ""),
            "[gone,t,0]" + value.format(1, ".empty", ""),
            "[gone,t,0]::NULL",
            "[g,t,3]" + value.format(11, ".empty", ""),
            "[g,t,3]" + value.format(10, ".empty", ""),
        ]
    )
    of_g = r'"group":"g","topic":"t","partition":0\}\},"value":\{"version":3,"data":\{"offset":(\d+)'
    assert re.findall(of_g, committed[FORMATTER]) == ["7", "8"]
    assert '"group":"gone","topic":"t","partition":0}},"value":null' in committed[FORMATTER]

    dumped = kafka_dump(
        stopped, sorted(stopped.glob("__consumer_offsets-*/*.log")), "--offsets-decoder", "--print-data-log"
    )
    keys = re.findall(r'key: (\{"type":"1","data":\{.*?\}\}) payload: ', dumped)
    assert keys.count('{"type":"1","data":{"group":"g","topic":"t","partition":0}}') == 2
    assert '"offset":8,"leaderEpoch":-1,"metadata":"é"' in dumped
    assert dumped.count("endTxnMarker: COMMIT") == dumped.count("endTxnMarker: ABORT") == 1
    assert "isvalid: false" not in dumped


def test_committed_offsets_survive_a_kill_of_the_broker(tmp_path: Path) -> None:
    """A killed broker writes nothing at its end. The next coordinator decides the transaction that was left open."""
    broker = brokers.KafkapyBroker(tmp_path, SETTINGS)
    wire = GroupWire(broker.bootstrap)
    commit_all_kinds(wire)
    wire.commit("g", {("t", 1): (0, "v0 is elsewhere")}, version=0)
    producer = wire.begin("open")
    wire.add_offsets("open", producer, "h")
    assert wire.commit_in_transaction("open", producer, "h", {("t", 2): 99}) == {("t", 2): Errors.NONE}
    wire.close()
    broker.kill()
    broker = brokers.KafkapyBroker(tmp_path, SETTINGS)
    try:
        wire = GroupWire(broker.bootstrap)
        for group in ("g", "h", "gone"):
            wire.find_coordinator(group)
        assert wire.fetch("g", None) == {
            ("t", 0): (8, -1, "é", Errors.NONE),
            ("t", 1): (1 << 40, 5, "", Errors.NONE),
            ("t", 3): (11, -1, "", Errors.NONE),
        }
        assert wire.fetch("g", {"t": [1]}, version=0) == {("t", 1): (0, -1, "", Errors.NONE)}
        assert wire.offsets("h") == {("t", 2): 3}
        assert wire.fetch("h", {"t": [2]}, stable=True)["t", 2][3] == Errors.UNSTABLE_OFFSET_COMMIT
        assert wire.offsets("gone") == {}
        assert wire.state_of("gone") == "Dead"
        wire.end("open", producer, commit=True)
        wait_for(wire, "h", {("t", 2): 99})
        wire.close()
    finally:
        broker.stop()


def test_expired_offsets_are_removed_and_stay_removed(tmp_path: Path) -> None:
    """The commit has its own retention time, as in clients before Kafka 2.1: the setting has a minimum of a minute."""
    broker = brokers.KafkapyBroker(tmp_path, {**SETTINGS, "offsets.retention.check.interval.ms": "50"})
    wire = GroupWire(broker.bootstrap)
    wire.make_topic("t")
    wire.find_coordinator("g")
    request = apis.OFFSET_COMMIT.Request
    partition = request.Topics.Partitions(partition_index=0, committed_offset=5, committed_metadata="")
    message = request(
        group_id="g", member_id="", retention_time_ms=1, topics=[request.Topics(name="t", partitions=[partition])]
    )
    wire.call(apis.OFFSET_COMMIT, 2, message)
    wait_for(wire, "g", {})
    deadline = time.monotonic() + 20
    while wire.state_of("g") != "Dead":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    wire.close()
    broker.kill()
    broker = brokers.KafkapyBroker(tmp_path, SETTINGS)
    try:
        wire = GroupWire(broker.bootstrap)
        wire.find_coordinator("g")
        assert wire.offsets("g") == {}
        assert wire.state_of("g") == "Dead"
        wire.close()
    finally:
        broker.stop()


def test_a_damaged_partition_is_not_served_and_the_others_are(tmp_path: Path) -> None:
    broker = brokers.KafkapyBroker(tmp_path, SETTINGS)
    wire = GroupWire(broker.bootstrap)
    wire.make_topic("t")
    groups = {0: "", 1: ""}
    for number in range(50):
        wire.find_coordinator(f"g{number}")
        wire.commit(f"g{number}", {("t", 0): number})
    wire.close()
    broker.stop()
    for index in groups:
        data = (broker.data / f"__consumer_offsets-{index}" / "00000000000000000000.log").read_bytes()
        groups[index] = max(re.findall(rb"g\d+", data)).decode()
    log = broker.data / "__consumer_offsets-0" / "00000000000000000000.log"
    damaged = bytearray(log.read_bytes())
    damaged[70] ^= 0xFF
    log.write_bytes(damaged)
    broker = brokers.KafkapyBroker(tmp_path, SETTINGS)
    try:
        wire = GroupWire(broker.bootstrap)
        wire.find_coordinator(groups[1])
        assert wire.offsets(groups[1]) == {("t", 0): int(groups[1][1:])}
        deadline = time.monotonic() + 20
        while (codes := wire.commit(groups[0], {("t", 0): 1})) != {("t", 0): Errors.NOT_COORDINATOR}:
            assert codes == {("t", 0): Errors.COORDINATOR_LOAD_IN_PROGRESS}
            assert time.monotonic() < deadline
            time.sleep(0.02)
        wire.close()
    finally:
        broker.stop()
    assert "__consumer_offsets-0 cannot be loaded" in broker.process.output
    assert "wrong CRC" in broker.process.output
