"""Kafka's ConsumerGroupCommand and GetOffsetShell with the broker, compared with `kafkapy groups`.

Both must show the same for the same groups, and each must see the other's changes.
"""

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from kafkapy.client import Admin, Cluster, NewTopic, RecordProducer
from kafkapy.client.administration.group_admin import GroupAdmin
from kafkapy.client.cluster import TopicPartition
from kafkapy.client.groups.group_types import OffsetAndMetadata
from tests.harness import brokers
from tests.harness.commands import kafkapy, kafkapy_json
from tests.harness.kafka_tools import KafkaTools, Said
from tests.harness.waiting import eventually

pytestmark = pytest.mark.other_runtime

T0 = 1_700_000_000_000  # 2023-11-14T22:13:20Z
RECORDS = 60  # in each of the 3 partitions of `flights`, 1 s apart

Commit = Callable[[str, dict[TopicPartition, int]], str]


class Bench:
    """A broker with three topics, Kafka's tools and `kafkapy groups`."""

    def __init__(self, bootstrap: str, tools: KafkaTools) -> None:
        self.bootstrap = bootstrap
        self._tools = tools

    def kafka(self, *options: object) -> Said:
        """Run Kafka's command, which reports errors on standard output and exits with 0."""
        return self._tools.run(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            "--bootstrap-server",
            self.bootstrap,
            *options,
        )

    def kafka_table(self, *options: object) -> list[dict[str, str]]:
        """Return the rows of the table that Kafka's command prints, by its column names."""
        output = self.kafka(*options)
        lines = [line.split() for line in output.out.splitlines() if line.strip()]
        assert lines, output
        assert lines[0][0] == "GROUP", output
        return [dict(zip(lines[0], line, strict=False)) for line in lines[1:]]

    def kafka_plan(self, group: str, *options: object) -> dict[TopicPartition, int]:
        """Return the plan of a reset, as Kafka's command exports it."""
        output = self.kafka("--reset-offsets", "--group", group, *options, "--export")
        assert "rror" not in output.out, output
        return plan_of(output.out)

    def offsets(self) -> dict[TopicPartition, int]:
        """Return the end offsets that Kafka's GetOffsetShell prints."""
        output = self._tools.run("org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server", self.bootstrap)
        assert output.code == 0, output
        rows = [line.split(":") for line in output.out.splitlines() if not line.startswith("__")]
        return {(topic, int(index)): int(offset) for topic, index, offset in rows}

    def offsets_at(self, moment: object) -> dict[TopicPartition, int]:
        """Return the offsets in `flights` at a time (ms), "earliest" or "max-timestamp"."""
        output = self._tools.run(
            "org.apache.kafka.tools.GetOffsetShell",
            "--bootstrap-server",
            self.bootstrap,
            "--topic",
            "flights",
            "--time",
            moment,
        )
        assert output.code == 0, output
        rows = [line.split(":") for line in output.out.splitlines()]
        return {(topic, int(index)): int(offset or -1) for topic, index, offset in rows}

    def ours(self, *words: object) -> Said:
        """Run `kafkapy groups ...`."""
        return kafkapy(self.bootstrap, "groups", *words)

    def our_json(self, *words: object) -> Any:
        """Run `kafkapy groups ... --json`. Return the parsed output."""
        return kafkapy_json(self.bootstrap, "groups", *words)

    def our_plan(self, group: str, *words: object) -> dict[TopicPartition, int]:
        """Return the plan of a reset, as `kafkapy groups` exports it."""
        output = self.ours("reset-offsets", group, *words, "--export", "-")
        assert (output.code, output.err) == (0, ""), output
        return plan_of(output.out)


def plan_of(lines: str) -> dict[TopicPartition, int]:
    """Return the offsets of a plan. Kafka's command prints warnings between its lines, and quotes long names."""
    rows = re.findall(r'^"?([^",\s]+)"?,(\d+),(\d+)$', lines, re.MULTILINE)
    return {(topic, int(index)): int(offset) for topic, index, offset in rows}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    broker = brokers.start(tmp_path_factory.mktemp("groups"), {"group.initial.rebalance.delay.ms": "0"})
    tools = KafkaTools()
    try:
        with RecordProducer(broker.bootstrap) as producer, Admin(producer.cluster) as admin:
            keep = {"retention.ms": "-1"}  # so that the old records are kept
            admin.create_topics([NewTopic("flights", 3, configs=keep), NewTopic("weather", 1), NewTopic("empty", 1)])
            for number in range(RECORDS):
                for index in range(3):
                    producer.send("flights", b"%d" % number, partition=index, timestamp=T0 + 1000 * number)
            producer.send("weather", b"rain")
            producer.flush()
            admin.delete_records({("flights", 1): 5})
        yield Bench(broker.bootstrap, tools)
    finally:
        tools.close()
        broker.stop()


@pytest.fixture
def commit(bench: Bench, request: pytest.FixtureRequest) -> Commit:
    """Return a function that commits offsets of a new group without members, and returns the group's name."""

    def make(suffix: str, offsets: dict[TopicPartition, int]) -> str:
        group = f"{request.function.__name__}-{suffix}"
        with Cluster(bench.bootstrap) as cluster:
            GroupAdmin(cluster).commit(
                group, {where: OffsetAndMetadata(offset, metadata="by hand") for where, offset in offsets.items()}
            )
        return group

    return make


class Member:
    """A confluent-kafka consumer that polls on its own thread until it is stopped."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], **settings: object) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **settings})
        self._consumer.subscribe(topics)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _poll(self) -> None:
        while not self._ended.is_set():
            self._consumer.poll(0.1)
        self._consumer.close()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()


@pytest.fixture(scope="module")
def live(bench: Bench) -> Iterator[str]:
    """Start a group of two members, one of them static, with committed offsets."""
    settings = {"auto.offset.reset": "earliest", "auto.commit.interval.ms": 100}
    members = [
        Member(bench.bootstrap, "live", ["flights"], **{**settings, "client.id": "first"}),
        Member(bench.bootstrap, "live", ["flights"], **{**settings, "client.id": "second", "group.instance.id": "one"}),
    ]

    def settled() -> bool:
        (group,) = bench.our_json("describe", "live")
        owners = {offset["member"] for offset in group["offsets"]}
        return group["state"] == "Stable" and len(owners) == 2 and all(o["lag"] == 0 for o in group["offsets"])

    try:
        eventually(lambda: bool(bench.our_json("list")))
        eventually(settled)
        yield "live"
    finally:
        for member in members:
            member.stop()


def dash(value: object) -> str:
    return "-" if value is None else str(value)


def test_both_list_the_same_groups(bench: Bench, live: str, commit: Commit) -> None:
    group = commit("a", {("flights", 0): 1})
    listed = {row["group"]: (row["state"], row["type"].capitalize()) for row in bench.our_json("list")}
    assert listed[live] == ("Stable", "Classic")
    assert listed[group] == ("Empty", "Classic")
    theirs = bench.kafka_table("--list", "--state", "--type")
    assert {row["GROUP"]: (row["STATE"], row["TYPE"]) for row in theirs} == listed
    assert set(bench.kafka("--list").out.split()) == set(listed)


def test_both_list_by_state(bench: Bench, live: str, commit: Commit) -> None:
    empty = commit("a", {("flights", 0): 1})
    for state, there, absent in (("stable", live, empty), ("empty", empty, live)):
        ours = {row["group"] for row in bench.our_json("list", "--state", state)}
        assert {row["GROUP"] for row in bench.kafka_table("--list", "--state", state)} == ours
        assert there in ours
        assert absent not in ours


def test_both_describe_the_offsets_of_members(bench: Bench, live: str) -> None:
    (group,) = bench.our_json("describe", live)
    members = {member["member"]: member for member in group["members"]}
    ours = sorted(
        (
            offset["topic"],
            str(offset["partition"]),
            dash(offset["committed"]),
            dash(offset["end"]),
            dash(offset["lag"]),
            offset["member"],
            "/" + members[offset["member"]]["host"],
            members[offset["member"]]["clientId"],
        )
        for offset in group["offsets"]
    )
    theirs = bench.kafka_table("--describe", "--group", live)
    assert sorted(tuple(row.values())[1:] for row in theirs) == ours
    assert {(row[0], row[1]) for row in ours} == {("flights", "0"), ("flights", "1"), ("flights", "2")}


def test_both_describe_the_offsets_of_a_group_without_members(bench: Bench, commit: Commit) -> None:
    group = commit("a", {("flights", 2): 10, ("flights", 1): 55, ("weather", 0): 1})
    theirs = bench.kafka_table("--describe", "--group", group)
    assert {(row["TOPIC"], row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"], row["HOST"]) for row in theirs} == {
        ("flights", "1", "55", "5", "-"),
        ("flights", "2", "10", "50", "-"),
        ("weather", "0", "1", "0", "-"),
    }
    (ours,) = bench.our_json("describe", group)
    assert (ours["state"], ours["members"]) == ("Empty", [])
    assert [(o["topic"], o["partition"], o["committed"], o["lag"], o["metadata"]) for o in ours["offsets"]] == [
        ("flights", 1, 55, 5, "by hand"),
        ("flights", 2, 10, 50, "by hand"),
        ("weather", 0, 1, 0, "by hand"),
    ]
    assert "has no active members" in bench.kafka("--describe", "--group", group).err
    assert bench.ours("describe", group).out.startswith(f"Group {group}: Empty, no members, coordinator ")


def test_both_describe_members_and_their_assignments(bench: Bench, live: str) -> None:
    output = bench.kafka("--describe", "--group", live, "--members", "--verbose")
    # The column of instance ids is empty for a member without one, so the lines are parsed from both sides.
    rows = [line.split() for line in output.out.splitlines() if line.strip()][1:]
    theirs = {(row[1], row[2] if len(row) == 7 else None, *row[-4:]) for row in rows}
    (group,) = bench.our_json("describe", live, "--members")
    ours = {
        (
            member["member"],
            member["instanceId"],
            "/" + member["host"],
            member["clientId"],
            str(len(member["partitions"])),
            "(" + ",".join(str(one["partition"]) for one in member["partitions"]) + ")",
        )
        for member in group["members"]
    }
    assert theirs == ours
    assert {(member["instanceId"], *member["topics"]) for member in group["members"]} == {
        (None, "flights"),
        ("one", "flights"),
    }


def test_both_describe_states(bench: Bench, live: str) -> None:
    output = bench.kafka("--describe", "--group", live, "--state")
    _, host, node, assignor, state, count = output.out.splitlines()[-1].split()
    (group,) = bench.our_json("describe", live, "--state")
    assert (host, node) == (bench.bootstrap, f"({group['coordinator']})")
    assert (assignor, state, int(count)) == (group["assignor"], group["state"], len(group["members"]))
    assert (group["assignor"], group["state"], len(group["members"])) == ("range", "Stable", 2)


def test_both_report_a_missing_group(bench: Bench) -> None:
    assert "Consumer group 'nobody' does not exist" in bench.kafka("--describe", "--group", "nobody").out
    assert bench.ours("describe", "nobody") == Said(1, "", "kafkapy: there is no group 'nobody'.\n")
    assert "could not be deleted" in bench.kafka("--delete", "--group", "nobody").out
    assert bench.ours("delete", "nobody") == Said(1, "", "kafkapy: there is no group 'nobody'.\n")
    assert bench.ours("delete", "nobody", "--if-exists") == Said(0, "Group nobody is not there.\n", "")


@pytest.mark.parametrize(
    "goal",
    [
        ["--to-earliest"],
        ["--to-latest"],
        ["--to-current"],
        ["--to-offset", 30],
        ["--to-offset", 2],
        ["--to-offset", 999],
        ["--shift-by", -7],
        ["--shift-by", -99],
        ["--shift-by", 7],
        ["--shift-by", 99],
        ["--to-datetime", "2023-11-14T22:13:40.500"],
        ["--to-datetime", "2023-11-14T22:13:40.000"],
        ["--to-datetime", "2024-11-14T22:13:40.000"],
        ["--by-duration", "PT1H"],
        ["--by-duration", "P5000D"],
    ],
    ids=lambda goal: "=".join(map(str, goal)).strip("-"),
)
def test_both_plan_the_same_reset(bench: Bench, commit: Commit, goal: list[object]) -> None:
    """The plans are for all partitions, for single ones, and for all committed ones. Plans change nothing."""
    committed = {("flights", 0): 20, ("flights", 1): 50, ("flights", 2): 60}
    group = commit("a", committed)
    scopes = [["--topic", "flights"], ["--topic", "flights:0,2"], ["--all-topics"]]
    if goal[0] != "--shift-by":
        scopes.append(["--topic", "flights:1", "--topic", "weather", "--topic", "empty"])
    for scope in scopes:
        ours = bench.our_plan(group, *scope, *goal)
        assert bench.kafka_plan(group, *scope, *goal) == ours
        assert ours
    (described,) = bench.our_json("describe", group)
    assert {(o["topic"], o["partition"]): o["committed"] for o in described["offsets"]} == committed


def test_a_reset_by_one_is_seen_by_the_other(bench: Bench, commit: Commit) -> None:
    group = commit("a", {("flights", 0): 20})
    bench.kafka("--reset-offsets", "--group", group, "--topic", "flights", "--to-latest", "--execute")
    (described,) = bench.our_json("describe", group)
    assert [(o["committed"], o["lag"]) for o in described["offsets"]] == [(60, 0)] * 3
    output = bench.ours("reset-offsets", group, "--topic", "flights:1-2", "--to-earliest", "--execute")
    assert output.out.splitlines()[-1] == "Committed 2 offsets."
    table = bench.kafka_table("--describe", "--group", group)
    assert sorted((row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in table) == [
        ("0", "60", "0"),
        ("1", "5", "55"),
        ("2", "0", "60"),
    ]


def test_a_reset_creates_a_missing_group(bench: Bench) -> None:
    for group, reset in (("made-by-kafka", bench.kafka), ("made-by-us", bench.ours)):
        how = ["--topic", "weather", "--to-earliest", "--execute"]
        reset(*(["--reset-offsets", "--group", group] if reset == bench.kafka else ["reset-offsets", group]), *how)
        (described,) = bench.our_json("describe", group)
        assert [(o["topic"], o["committed"]) for o in described["offsets"]] == [("weather", 0)]


def test_each_tool_reads_the_others_plan_files(bench: Bench, commit: Commit, tmp_path: Path) -> None:
    group, other = commit("a", {("flights", 0): 20}), commit("b", {("flights", 0): 20})
    theirs, ours, several = tmp_path / "theirs", tmp_path / "ours", tmp_path / "several"
    theirs.write_text(
        bench.kafka("--reset-offsets", "--group", group, "--topic", "flights", "--to-offset", 9, "--export").out
    )
    assert bench.our_plan(other, "--from-file", theirs) == plan_of(theirs.read_text())
    bench.ours("reset-offsets", group, "--topic", "flights", "--to-offset", 11, "--export", ours)
    assert bench.kafka_plan(other, "--from-file", ours) == plan_of(ours.read_text())
    bench.ours("reset-offsets", group, other, "--all-topics", "--shift-by", 1, "--export", several)
    assert sorted(several.read_text().split()) == [f"{group},flights,0,21", f"{other},flights,0,21"]
    output = bench.kafka(
        "--reset-offsets", "--group", group, "--group", other, "--from-file", several, "--execute", "--export"
    )
    assert set(output.out.replace('"', "").split()) == set(several.read_text().split())
    described = bench.our_json("describe", group, other)
    assert [[o["committed"] for o in one["offsets"]] for one in described] == [[21], [21]]


def test_nothing_is_reset_while_there_are_members(bench: Bench, live: str) -> None:
    how = ["--topic", "flights", "--to-earliest", "--execute"]
    before = bench.our_json("describe", live)
    assert "if the group 'live' is inactive" in bench.kafka("--reset-offsets", "--group", live, *how).out
    output = bench.ours("reset-offsets", live, *how)
    assert (output.code, output.out) == (1, "")
    assert output.err.startswith("kafkapy: group 'live' is Stable with 2 members: offsets can be reset only while")
    assert bench.our_json("describe", live) == before


def test_offsets_are_deleted_by_both(bench: Bench, commit: Commit) -> None:
    group = commit("a", {("flights", 0): 1, ("flights", 1): 6, ("flights", 2): 1, ("weather", 0): 1})
    output = bench.kafka("--delete-offsets", "--group", group, "--topic", "flights:1")
    assert "Successful" in output.out
    output = bench.ours("delete-offsets", group, "--topic", "flights")
    assert output == Said(0, f"Deleted 2 offsets of group {group}: flights:0,2.\n", "")
    assert [row["TOPIC"] for row in bench.kafka_table("--describe", "--group", group)] == ["weather"]


def test_offsets_of_subscribed_topics_are_not_deleted(bench: Bench, live: str) -> None:
    output = bench.kafka("--delete-offsets", "--group", live, "--topic", "flights:0")
    assert "forbidden while the consumer group is actively subscribed" in output.out
    output = bench.ours("delete-offsets", live, "--topic", "flights")
    assert (output.code, output.out) == (1, "")
    assert output.err == (
        "kafkapy: members of group 'live' subscribe to 'flights', so its offsets there stay: stop them first "
        "(GROUP_SUBSCRIBED_TO_TOPIC).\n"
    )


def test_groups_are_deleted_by_both(bench: Bench, live: str, commit: Commit) -> None:
    first, second = commit("a", {("flights", 0): 1}), commit("b", {("flights", 0): 1})
    output = bench.kafka("--delete", "--group", first, "--group", live)
    assert "Group 'live' could not be deleted" in output.out
    assert "not empty" in output.out
    output = bench.ours("delete", second, live)
    assert output.out == f"Deleted group {second}.\n"
    assert output.err == "kafkapy: group 'live' still has members: stop them first (NON_EMPTY_GROUP).\n"
    left = {row["group"] for row in bench.our_json("list")}
    assert {live} <= left
    assert not left & {first, second}
    assert not set(bench.kafka("--list").out.split()) & {first, second}


def test_the_offset_shell_shows_first_and_end_offsets(bench: Bench) -> None:
    ours = {
        (topic["name"], part["partition"]): (part["start"], part["end"])
        for topic in kafkapy_json(bench.bootstrap, "topics", "describe", "flights", "weather", "empty")
        for part in topic["partitions"]
    }
    assert bench.offsets() == {where: end for where, (_, end) in ours.items()}
    starts = {where: start for where, (start, _) in ours.items() if where[0] == "flights"}
    assert bench.offsets_at("earliest") == starts == {("flights", 0): 0, ("flights", 1): 5, ("flights", 2): 0}
    assert bench.offsets_at(T0 + 40_001) == dict.fromkeys(starts, 41)
    assert bench.offsets_at("max-timestamp") == dict.fromkeys(starts, RECORDS - 1)
