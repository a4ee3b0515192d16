"""Apache Kafka's command line tools, those of 3.9.1 and those of 2.8.2 that write to ZooKeeper, on a cluster of three
kafkapy brokers."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kafkapy
from kafkapy.client import Admin, RecordProducer
from kafkapy.client.administration.descriptions import NewTopic
from tests.harness import toolchain
from tests.harness.brokers import KAFKA_POM, KAFKA_VERSION, Process
from tests.harness.kafka_tools import KafkaTools, run_old_tool
from tests.harness.waiting import eventually
from tests.harness.zookeeper import jars_in

pytestmark = pytest.mark.other_runtime

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGNMENT = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
VERIFICATION = "org.apache.kafka.tools.ReplicaVerificationTool"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
DELETION = "org.apache.kafka.tools.DeleteRecordsCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
OLD_TOPICS, OLD_REASSIGNMENT = "kafka.admin.TopicCommand", "kafka.admin.ReassignPartitionsCommand"

Run = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafkapy.Cluster]:
    jars = jars_in(tmp_path_factory.mktemp("jars") / "libs")
    config = {"auto.leader.rebalance.enable": False, "replica.lag.time.max.ms": 2000}
    with kafkapy.Cluster(3, zookeeper_jars=jars, config=config) as running:
        yield running


@pytest.fixture
def run(tools: KafkaTools, cluster: kafkapy.Cluster) -> Run:
    """Return a function that runs a tool on the cluster and returns its output. The exit code must be `code`."""

    def call(tool: str, *words: object, code: int = 0) -> str:
        said = tools.run(tool, "--bootstrap-server", cluster.bootstrap_servers, *words)
        assert said.code == code, said
        return said.out + said.err

    return call


@pytest.fixture
def topic(cluster: kafkapy.Cluster, request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """Return a function that creates a topic, given the replicas of each partition and the number of records."""
    names: list[str] = []

    def create(*replicas: list[int], records: int = 0) -> str:
        name = f"topic-{zlib.crc32(request.node.name.encode()) % 10**6}-{len(names)}"
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(name, assignment=dict(enumerate(replicas)))])
        with RecordProducer(cluster.bootstrap_servers) as producer:
            for number in range(records):
                producer.send(name, b"%d" % number, partition=0)
        names.append(name)
        return name

    yield create
    with Admin(cluster.bootstrap_servers) as admin:
        admin.delete_topics(names)


def partitions(cluster: kafkapy.Cluster, name: str) -> list[tuple[int, list[int], list[int]]]:
    """Return leader, replicas and sorted ISR of each partition."""
    with Admin(cluster.bootstrap_servers) as admin:
        found = sorted(admin.describe_topic(name).partitions.items())
    return [(one.leader, list(one.replicas), sorted(one.isr)) for _, one in found]


def plan(path: Path, topic: str, replicas: Sequence[Sequence[int]]) -> Path:
    moves = [{"topic": topic, "partition": index, "replicas": list(ids)} for index, ids in enumerate(replicas)]
    path.write_text(json.dumps({"version": 1, "partitions": moves}))
    return path


def test_topics_are_created_described_extended_and_deleted(run: Run, cluster: kafkapy.Cluster) -> None:
    run(TOPICS, "--create", "--topic", "t-1", "--replica-assignment", "1:2,2:3", "--config", "retention.ms=100000")
    run(TOPICS, "--create", "--topic", "t-2", "--partitions", "3", "--replication-factor", "3")
    assert [one[1] for one in partitions(cluster, "t-1")] == [[1, 2], [2, 3]]
    assert {len(one[1]) for one in partitions(cluster, "t-2")} == {3}
    said = run(TOPICS, "--describe", "--topic", "t-1")
    assert re.search(r"PartitionCount: 2\s+ReplicationFactor: 2\s+Configs: .*retention.ms=100000", said), said
    assert re.search(r"Partition: 1\s+Leader: 2\s+Replicas: 2,3\s+Isr: 2,3", said), said
    assert "t-1" in run(TOPICS, "--describe", "--topics-with-overrides")
    assert set(run(TOPICS, "--list").split()) >= {"t-1", "t-2"}

    run(TOPICS, "--alter", "--topic", "t-1", "--partitions", "4", "--replica-assignment", "1:2,2:3,3:1,1:3")
    assert [one[1] for one in partitions(cluster, "t-1")] == [[1, 2], [2, 3], [3, 1], [1, 3]]
    assert "topic t-1 already exists" in run(TOPICS, "--create", "--topic", "t-1", code=1)
    for name in ("t-1", "t-2"):
        run(TOPICS, "--delete", "--topic", name)
    assert not {"t-1", "t-2"} & set(run(TOPICS, "--list").split())


def test_partitions_that_lack_replicas_are_found(run: Run, cluster: kafkapy.Cluster, topic: Callable[..., str]) -> None:
    name, alone = topic([1, 2], [3, 1], [2, 3]), topic([3])
    run(CONFIGS, "--alter", "--entity-type", "topics", "--entity-name", name, "--add-config", "min.insync.replicas=2")

    def found(which: str, name: str = name) -> set[int]:
        said = run(TOPICS, "--describe", "--topic", name, which)
        return {int(one) for one in re.findall(r"Partition: (\d)", said)}

    lacking = ("--under-replicated-partitions", "--under-min-isr-partitions")
    assert [found(which) for which in lacking] == [set(), set()]
    assert found("--at-min-isr-partitions") == {0, 1, 2}
    cluster.stop(3)
    try:
        eventually(lambda: [found(which) for which in lacking] == [{1, 2}, {1, 2}], seconds=30)
        assert found("--at-min-isr-partitions") == {0}
        assert (found("--unavailable-partitions"), found("--unavailable-partitions", alone)) == (set(), {0})
    finally:
        cluster.start(3)
    eventually(lambda: [found(which) for which in lacking] == [set(), set()], seconds=30)


def test_settings_of_topics_brokers_and_all_brokers(run: Run, topic: Callable[..., str]) -> None:
    name = topic([1, 2])
    for entity, setting in (
        (("topics", "--entity-name", name), "retention.ms"),
        (("brokers", "--entity-name", 2), "log.retention.ms"),
        (("brokers", "--entity-default"), "log.retention.ms"),
    ):
        where = ("--entity-type", *entity)
        described = partial(run, CONFIGS, "--describe", *where)  # a broker learns of changes a little later
        run(CONFIGS, "--alter", *where, "--add-config", f"{setting}=123456")
        eventually(lambda described=described, setting=setting: f"{setting}=123456" in described())
        run(CONFIGS, "--alter", *where, "--delete-config", setting)
        eventually(lambda described=described, setting=setting: f"{setting}=123456" not in described())
    assert "num.partitions=" in run(CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", 3, "--all")
    unknown = ("--entity-type", "topics", "--entity-name", name, "--delete-config", "no.such")
    assert "no.such" in run(CONFIGS, "--alter", *unknown, code=1)


def test_leaders_are_elected(run: Run, cluster: kafkapy.Cluster, topic: Callable[..., str], tmp_path: Path) -> None:
    name = topic([3, 1], [3, 2])
    cluster.restart(3)
    eventually(lambda: [one[2] for one in partitions(cluster, name)] == [[1, 3], [2, 3]], seconds=30)
    assert [one[0] for one in partitions(cluster, name)] == [1, 2]
    run(ELECTION, "--election-type", "preferred", "--topic", name, "--partition", 0)
    eventually(lambda: [one[0] for one in partitions(cluster, name)] == [3, 2])
    asked = tmp_path / "elections.json"
    asked.write_text(json.dumps({"partitions": [{"topic": name, "partition": index} for index in (0, 1)]}))
    said = run(ELECTION, "--election-type", "preferred", "--path-to-json-file", asked)
    assert f"Successfully completed leader election (PREFERRED) for partitions {name}-1" in said, said
    assert f"Valid replica already elected for partitions {name}-0" in said, said
    run(ELECTION, "--election-type", "preferred", "--all-topic-partitions")
    said = run(ELECTION, "--election-type", "unclean", "--topic", name, "--partition", 0)
    assert "Valid replica already elected" in said, said


def test_partitions_are_reassigned_with_a_throttle_listed_verified_and_cancelled(
    run: Run, cluster: kafkapy.Cluster, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic([1, 2], [2, 1], records=100)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": name}]}))
    said = run(REASSIGNMENT, "--topics-to-move-json-file", topics, "--broker-list", "2,3", "--generate")
    current, proposed = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    assert sorted(one["replicas"] for one in current["partitions"]) == [[1, 2], [2, 1]]
    assert {broker for one in proposed["partitions"] for broker in one["replicas"]} == {2, 3}

    there = plan(tmp_path / "there.json", name, [[3, 2], [2, 3]])
    file = ("--reassignment-json-file", there)
    said = run(REASSIGNMENT, *file, "--execute", "--throttle", "1000000")
    assert "Successfully started partition reassignments" in said, said
    eventually(lambda: [one[1:] for one in partitions(cluster, name)] == [([3, 2], [2, 3]), ([2, 3], [2, 3])])
    throttled = ("--describe", "--entity-type", "topics", "--entity-name", name)
    assert "leader.replication.throttled.replicas" in run(CONFIGS, *throttled)
    said = run(REASSIGNMENT, *file, "--verify")
    assert said.count("is completed") == 2, said
    assert "Clearing topic-level throttles" in said, said
    assert "throttled.replicas" not in run(CONFIGS, *throttled)
    assert "No partition reassignments found" in run(REASSIGNMENT, "--list")

    nowhere = plan(tmp_path / "nowhere.json", name, [[3, 9]])
    said = run(REASSIGNMENT, "--reassignment-json-file", nowhere, "--execute", code=1)
    assert "Unknown broker id 9" in said, said


def test_a_reassignment_is_cancelled(
    run: Run, cluster: kafkapy.Cluster, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic([1, 2], records=1000)
    file = ("--reassignment-json-file", plan(tmp_path / "plan.json", name, [[3, 2]]))
    run(REASSIGNMENT, *file, "--execute", "--throttle", "1")  # byte per second, so the move does not complete
    said = run(REASSIGNMENT, "--list")
    assert re.search(rf"{name}-0: replicas: .*adding: 3.*removing: 1", said), said
    assert "still in progress" in run(REASSIGNMENT, *file, "--verify", "--preserve-throttles")
    assert "Successfully cancelled" in run(REASSIGNMENT, *file, "--cancel")
    eventually(lambda: sorted(partitions(cluster, name)[0][1]) == [1, 2])
    assert "No partition reassignments found" in run(REASSIGNMENT, "--list")
    assert "throttled" not in run(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", name)


def test_replicas_move_to_named_log_directories(
    run: Run, cluster: kafkapy.Cluster, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic([1, 2], records=10)
    found = log_dirs(run, name)
    (directory,) = found[2]
    file = tmp_path / "plan.json"
    move = {"topic": name, "partition": 0, "replicas": [1, 2], "log_dirs": ["any", directory]}
    file.write_text(json.dumps({"version": 1, "partitions": [move]}))
    run(REASSIGNMENT, "--reassignment-json-file", file, "--execute")
    said = run(REASSIGNMENT, "--reassignment-json-file", file, "--verify")
    assert f"Reassignment of replica {name}-0-2 completed successfully" in said, said


def log_dirs(run: Run, topic: str) -> dict[int, dict[str, list[dict[str, Any]]]]:
    """Return the replicas that kafka-log-dirs shows, by broker and directory."""
    said = run(LOG_DIRS, "--describe", "--topic-list", topic)
    (shown,) = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    return {
        broker["broker"]: {one["logDir"]: one["partitions"] for one in broker["logDirs"]} for broker in shown["brokers"]
    }


def test_log_directories_of_all_brokers_are_shown(run: Run, topic: Callable[..., str]) -> None:
    name = topic([1, 2], [3, 1], records=10)
    first = f"{name}-0"
    eventually(lambda: {one["size"] > 0 for _, one in by_broker(run, name) if one["partition"] == first} == {True})
    shown = sorted(
        (broker, one["partition"], one["offsetLag"], one["isFuture"]) for broker, one in by_broker(run, name)
    )
    assert shown == [
        (1, f"{name}-0", 0, False), (1, f"{name}-1", 0, False), (2, f"{name}-0", 0, False), (3, f"{name}-1", 0, False),
    ]  # fmt: skip


def by_broker(run: Run, name: str) -> list[tuple[int, dict[str, Any]]]:
    return [(broker, one) for broker, found in log_dirs(run, name).items() for each in found.values() for one in each]


def test_replicas_are_compared(cluster: kafkapy.Cluster, topic: Callable[..., str], tmp_path: Path) -> None:
    name = topic([1, 2], [2, 3], records=100)
    classpath = toolchain.maven_classpath(KAFKA_POM, KAFKA_VERSION)
    java = [toolchain.find("java"), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classpath]
    words = ["--broker-list", cluster.bootstrap_servers, "--topics-include", name, "--report-interval-ms", "1000"]
    process = Process([*java, VERIFICATION, *words], tmp_path / "verification.log")
    try:
        found = process.wait_for_line(re.compile(r"max lag is (\d+) for partition \S+ at offset \d+ among (\d+)"), 60)
        assert (found[1], found[2]) == ("0", "2")
        assert "mismatch" not in process.output
    finally:
        process.kill()


def test_records_are_deleted(run: Run, topic: Callable[..., str], tmp_path: Path) -> None:
    name = topic([1, 2, 3], records=20)
    file = tmp_path / "offsets.json"
    asked = {"topic": name, "partition": 0, "offset": 7}
    file.write_text(json.dumps({"version": 1, "partitions": [asked]}))
    said = run(DELETION, "--offset-json-file", file)
    assert re.search(rf"partition: {name}-0\s+low_watermark: 7", said), said
    said = run("org.apache.kafka.tools.GetOffsetShell", "--topic", name, "--time", "earliest")
    assert f"{name}:0:7" in said


def test_features_are_shown_and_none_can_be_finalized(run: Run) -> None:
    assert run(FEATURES, "describe").strip() == ""
    said = run(FEATURES, "upgrade", "--feature", "some.feature=1", code=1)
    assert "Could not upgrade some.feature to 1" in said, said
    assert "not supported" in said, said
    said = run(FEATURES, "disable", "--feature", "some.feature", code=1)
    assert "not finalized" in said, said


def test_old_tools_change_topics_through_zookeeper(cluster: kafkapy.Cluster) -> None:
    run_topics = partial(run_old_tool, OLD_TOPICS, "--zookeeper", cluster.zookeeper)
    run_topics("--create", "--topic", "old", "--replica-assignment", "1:2,2:3")
    eventually(lambda: known(cluster, "old") == [(1, [1, 2], [1, 2]), (2, [2, 3], [2, 3])])
    assert re.search(r"Partition: 1\s+Leader: 2\s+Replicas: 2,3", run_topics("--describe"))
    run_topics("--alter", "--topic", "old", "--partitions", "3", "--replica-assignment", "1:2,2:3,3:1")
    eventually(lambda: known(cluster, "old")[2:] == [(3, [3, 1], [1, 3])])
    run_topics("--delete", "--topic", "old")
    eventually(lambda: known(cluster, "old") == [], seconds=30)


def test_old_tools_reassign_partitions_through_zookeeper(
    cluster: kafkapy.Cluster, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic([1, 2], [2, 3], records=10)
    file = ("--reassignment-json-file", plan(tmp_path / "plan.json", name, [[3, 1], [1, 2]]))
    run_with_plan = partial(run_old_tool, OLD_REASSIGNMENT, "--zookeeper", cluster.zookeeper, *file)
    assert "Successfully started" in run_with_plan("--execute")
    eventually(lambda: [one[1] for one in partitions(cluster, name)] == [[3, 1], [1, 2]], seconds=30)
    assert run_with_plan("--verify").count("is complete") == 2


def known(cluster: kafkapy.Cluster, name: str) -> list[tuple[int, list[int], list[int]]]:
    """Return the same as `partitions`, or [] if there is no such topic."""
    with Admin(cluster.bootstrap_servers) as admin:
        is_known = name in {one.name for one in admin.list_topics()}
    return partitions(cluster, name) if is_known else []
