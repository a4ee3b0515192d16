"""`kafkapy groups --zookeeper` shows and changes groups like Kafka's commands: ConsumerGroupCommand of 0.10.2.2,
ExportZkOffsets and ImportZkOffsets of 0.8.2.2. The members are Kafka's own consumers."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkapy.tools.main import main
from tests.harness.group_bench import OTHER, TOPIC, Bench, group_bench
from tests.harness.original import Member, kafka
from tests.harness.waiting import eventually
from tests.harness.zookeeper import ZooKeeper


@pytest.fixture(scope="module")
def bench(zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with group_bench(f"{zookeeper.address}/group-commands", tmp_path_factory.mktemp("log")) as bench:
        yield bench


class Said(NamedTuple):
    code: int
    out: str
    err: str


Call = Callable[..., Said]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, bench: Bench) -> Call:
    """Return a function that runs `kafkapy WORDS`, which uses the bench's broker unless --zookeeper is given."""
    monkeypatch.setenv("KAFKAPY_BOOTSTRAP_SERVER", bench.bootstrap)

    def call(*words: object) -> Said:
        capfd.readouterr()
        return Said(main([str(word) for word in words]), *capfd.readouterr())

    return call


@pytest.fixture
def groups(run: Call, bench: Bench) -> Call:
    """Return a function that runs `kafkapy groups WORDS --zookeeper`."""
    return lambda *words: run("groups", *words, "--zookeeper", bench.connect)


def described(groups: Call, name: str, *words: str) -> Any:
    result = groups("describe", name, *words, "--json")
    assert (result.code, result.err) == (0, ""), result
    return json.loads(result.out)[0]


def kafka_says(bench: Bench, group: str) -> set[tuple[str, ...]]:
    """Return Kafka's description of a group: topic, partition, committed, end, lag and consumer of each row."""
    words = ("--describe", "--group", group)
    output = kafka("0.10.2.2", "kafka.admin.ConsumerGroupCommand", "--zookeeper", bench.connect, *words)
    lines = [line.split() for line in output.splitlines() if line.strip()]
    assert lines[0][0] == "TOPIC", output
    return {tuple(line) for line in lines[1:]}


def we_say(groups: Call, group: str) -> set[tuple[str, ...]]:
    """Return the same from `kafkapy groups`, where the consumer is the name of the thread without its number."""
    rows = described(groups, group)["offsets"]
    keys = ("topic", "partition", "committed", "end", "lag")
    return {
        (*("-" if row[key] is None else str(row[key]) for key in keys), (row["owner"] or "--").rpartition("-")[0])
        for row in rows
    }


def test_a_group_with_members_is_shown_as_kafka_shows_it(bench: Bench, groups: Call, tmp_path: Path) -> None:
    group = "live"
    bench.put(group, {"0": b"4", "1": b"9"})
    member = Member("0.10.2.2", tmp_path, bench.connect, group, "m", TOPIC, 2, **{"auto.commit.interval.ms": "100"})
    try:
        member.wait_until_ready()
        eventually(lambda: bench.offsets(group) == {"0": 10, "1": 10, "2": 10})
        bench.zk.set(f"/consumers/{group}/offsets/{TOPIC}/1", b"7")
        ours = we_say(groups, group)
        assert ours == kafka_says(bench, group)
        assert (TOPIC, "1", "7", "10", "3", f"{group}_m") in ours

        head, columns, *rows = groups("describe", group).out.splitlines()
        assert head == f"Group {group}: 1 member, lag 3"
        assert re.split("  +", columns) == ["topic", "partition", "committed", "end", "lag", "kept in", "owner"]
        assert re.split("  +", rows[1]) == [TOPIC, "1", "7", "10", "3", "ZooKeeper", f"{group}_m-0"]
        *_, row = groups("describe", group, "--members").out.splitlines()
        assert re.split("  +", row) == [f"{group}_m", f"{TOPIC} (2 streams)", "3", f"{TOPIC}:0-2"]
        assert [line.split() for line in groups("list").out.splitlines() if group in line] == [[group, "1"]]

        refused = groups("reset-offsets", group, "--topic", TOPIC, "--to-earliest", "--execute")
        assert (refused.code, refused.out) == (1, "")
        assert f"group '{group}' has 1 member in ZooKeeper, such as {group}_m: stop them first" in refused.err
        assert groups("delete", group) == (
            1, "", f"kafkapy: group '{group}' still has members in ZooKeeper: stop them first.\n"
        )  # fmt: skip
        assert "stop them first" in groups("delete-offsets", group, "--topic", TOPIC).err
        assert bench.offsets(group)["1"] in (7, 10)
    finally:
        member.kill()


def test_offsets_stored_in_kafka_are_shown(bench: Bench, groups: Call) -> None:
    bench.put("moving", {"0": b"4", "1": b"5", "2": b"1"})
    bench.commit_to_kafka("moving", {1: 6, 2: 1})
    rows = described(groups, "moving")["offsets"]
    assert [(row["committed"], row["inZooKeeper"], row["inKafka"]) for row in rows] == [
        (4, 4, None), (6, 5, 6), (1, 1, 1)
    ]  # fmt: skip
    shown = [re.split("  +", line)[5] for line in groups("describe", "moving").out.splitlines()[2:]]
    assert shown == ["ZooKeeper", "Kafka (ZooKeeper: 5)", "both"]
    assert we_say(groups, "moving") == kafka_says(bench, "moving")


def test_a_reset_is_written_where_the_offsets_are_stored(bench: Bench, groups: Call) -> None:
    bench.put("dual", {"0": b"4"})
    bench.commit_to_kafka("dual", {0: 5})
    bench.put("zk-only", {"0": b"4"})
    bench.zk.ensure_path(f"/consumers/kafka-only/owners/{TOPIC}")
    bench.commit_to_kafka("kafka-only", {0: 5})
    words = ("reset-offsets", "dual", "zk-only", "kafka-only", "new", "--topic", f"{TOPIC}:0", "--to-offset", 7)
    plan = groups(*words)
    assert plan.out.splitlines()[-1] == "This is the plan; nothing was changed. --execute carries it out."
    assert bench.offsets("dual") == {"0": 4}
    assert groups(*words, "--execute").out.splitlines()[-1] == "Committed 4 offsets."
    assert [bench.offsets(name).get("0") for name in ("dual", "zk-only", "kafka-only", "new")] == [7, 7, None, 7]
    assert [bench.in_kafka(name).get((TOPIC, 0)) for name in ("dual", "zk-only", "kafka-only", "new")] == [
        7, None, 7, None
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("goal", "new"),
    [
        (["--to-earliest"], [0, 0]),
        (["--to-latest"], [10, 10]),
        (["--shift-by", "-2"], [2, 7]),
        (["--to-datetime", "@3500"], [4, 4]),
        (["--to-current"], [4, 9]),
        (["--to-offset", "99"], [10, 10]),
    ],
)
def test_resets_have_the_plans_of_groups_in_kafka(bench: Bench, groups: Call, goal: list[str], new: list[int]) -> None:
    if not bench.offsets("planned"):
        bench.put("planned", {"0": b"4", "1": b"9"})
    result = groups("reset-offsets", "planned", "--all-topics", *goal, "--json")
    assert [line["new"] for line in json.loads(result.out)["offsets"]] == new, result


def test_groups_and_offsets_are_deleted(bench: Bench, groups: Call) -> None:
    bench.put("gone", {"0": b"4", "1": b"5", "2": b"6"})
    bench.put("gone", {"0": b"1"}, OTHER)
    assert groups("delete-offsets", "gone", "--topic", f"{TOPIC}:0,7") == (
        1, "", f"kafkapy: group 'gone' has committed nothing for {TOPIC}:7 in ZooKeeper.\n"
    )  # fmt: skip
    result = groups("delete-offsets", "gone", "--topic", f"{TOPIC}:0-1")
    assert result.out == f"Deleted 2 offsets of group gone in topic {TOPIC} from ZooKeeper.\n"
    assert bench.offsets("gone") == {"2": 6}
    assert groups("delete-offsets", "gone", "--topic", TOPIC).code == 0
    assert bench.zk.get_children("/consumers/gone/offsets") == [OTHER]
    assert bench.zk.get_children("/consumers/gone/owners") == [OTHER]
    assert groups("delete", "gone") == (0, "Deleted group gone from ZooKeeper.\n", "")
    assert bench.zk.exists("/consumers/gone") is None
    assert groups("delete", "gone", "--if-exists").out == "Group gone is not there.\n"
    assert f"there is no group 'gone' in ZooKeeper at {bench.connect}" in groups("delete", "gone").err


def test_a_large_group_is_deleted_in_several_transactions(bench: Bench, groups: Call) -> None:
    bench.put("large", {str(number): b"1" for number in range(700)})
    assert groups("delete", "large").code == 0
    assert bench.zk.exists("/consumers/large") is None


def test_nodes_that_cannot_be_parsed_are_named_and_the_rest_is_shown(bench: Bench, groups: Call) -> None:
    bench.put("damaged", {"0": b"4", "1": b"four"})
    bench.zk.create("/consumers/damaged/ids/damaged_m", b"{", ephemeral=True, makepath=True)
    result = groups("describe", "damaged")
    assert result.code == 0
    assert "damaged_m in ZooKeeper is ignored: '{' is not the subscription of a consumer" in result.err
    assert f"/consumers/damaged/offsets/{TOPIC}/1 in ZooKeeper has b'four', which is not an offset." in result.err
    assert [line.split()[2] for line in result.out.splitlines()[2:]] == ["4", "-", "-"]
    assert "cannot be read" in groups("describe", "damaged", "--members").out
    exported = groups("export-offsets", "damaged")
    assert (exported.code, exported.out) == (1, f"/consumers/damaged/offsets/{TOPIC}/0:4\n")
    assert "/1 in ZooKeeper has b'four', which is not an offset." in exported.err
    bench.zk.delete("/consumers/damaged/ids/damaged_m")
    assert groups("reset-offsets", "damaged", "-t", f"{TOPIC}:1", "--to-latest", "--execute").code == 0
    assert bench.offsets("damaged") == {"0": 4, "1": 10}


def test_without_brokers_the_offsets_in_zookeeper_are_shown(
    bench: Bench, run: Call, caplog: pytest.LogCaptureFixture
) -> None:
    for path in ("/brokers/ids", "/brokers/topics", "/consumers/g/offsets/t", "/consumers/g/owners/t"):
        bench.zk.ensure_path(f"/alone{path}")
    bench.zk.create("/alone/brokers/topics/t", b'{"version"')
    bench.zk.create("/alone/brokers/ids/5", b"{")
    bench.zk.create("/alone/consumers/g/offsets/t/0", b"5")
    bench.zk.create("/alone/consumers/g/offsets/t/8-0", b"6")
    connect = f"{bench.connect}/alone"
    result = run("groups", "describe", "g", "--zookeeper", connect)
    assert result.out.splitlines()[1:] == [
        "topic  partition  committed  end  lag  kept in",
        "t              0          5    -    -  ZooKeeper",
        "t            8-0          6    -    -  ZooKeeper",
    ]
    assert "no broker with a plain text listener is registered" in result.err
    assert "/brokers/topics/t in ZooKeeper has b'{\"version\"', which does not name partitions." in result.err
    assert "/brokers/ids/5 in ZooKeeper is ignored: b'{' has no usable broker address" in caplog.text
    assert run("groups", "delete", "g", "--zookeeper", connect).code == 0


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["describe", "nobody"], 1, "there is no group 'nobody' in ZooKeeper at"),
        (["describe", "a/b"], 2, "a group called 'a/b' cannot be in ZooKeeper"),
        (["describe", "--state"], 2, "--state does not go with --zookeeper"),
        (["list", "--state", "stable"], 2, "--state and --type do not go with --zookeeper"),
        (["list", "-b", "127.0.0.1:9092"], 2, "one of --bootstrap-server and --zookeeper"),
        (["delete-offsets", "nobody", "-t", "t"], 1, "there is no group 'nobody'"),
        (["export-offsets", "nobody"], 1, "there is no group 'nobody' in ZooKeeper"),
    ],
)
def test_impossible_calls_are_reported(groups: Call, words: list[str], code: int, says: str) -> None:
    result = groups(*words)
    assert (result.code, result.out, result.err.count("\n")) == (code, "", 1)
    assert says in result.err


def test_a_wrong_address_is_reported(bench: Bench, run: Call, tmp_path: Path) -> None:
    result = run("groups", "list", "--zookeeper", f"{bench.connect}/wrong")
    assert (result.code, result.out) == (1, "")
    assert "has no /brokers/ids: is the chroot of the cluster missing, as in HOST:2181/kafka?" in result.err
    quick = tmp_path / "quick.properties"
    quick.write_text("zookeeper.connection.timeout.ms=300\n")
    result = run("groups", "list", "--zookeeper", "127.0.0.1:1/kafka", "--command-config", quick)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("kafkapy: ZooKeeper at 127.0.0.1:1 does not answer within 0.3 s")


def test_offset_files_can_be_exchanged_with_kafkas_tools(bench: Bench, groups: Call, run: Call, tmp_path: Path) -> None:
    bench.put("exported", {"0": b"4", "1": b"5", "2": b"10"})
    theirs, ours, back = (tmp_path / name for name in ("theirs.txt", "ours.txt", "back.txt"))
    words = ("--zkconnect", bench.connect, "--group", "exported", "--output-file", theirs)
    kafka("0.8.2.2", "kafka.tools.ExportZkOffsets", *words)
    result = groups("export-offsets", "exported", "--output", ours)
    assert result.out == f"Wrote 3 offsets of 1 group to {ours}.\n"
    assert sorted(ours.read_text().splitlines()) == sorted(theirs.read_text().splitlines())
    assert ours.read_text().splitlines()[0] == f"/consumers/exported/offsets/{TOPIC}/0:4"

    # Import the file of Kafka's tool into Kafka, then export a file that Kafka's tool reads.
    assert groups("delete", "exported").code == 0
    plan = run("groups", "import-offsets", theirs)
    assert plan.out.splitlines()[-1] == "This is the plan; nothing was changed. --execute carries it out."
    assert bench.in_kafka("exported") == {}
    assert run("groups", "import-offsets", theirs, "--execute").out.splitlines()[-1] == "Committed 3 offsets."
    assert bench.in_kafka("exported") == {(TOPIC, 0): 4, (TOPIC, 1): 5, (TOPIC, 2): 10}
    assert run("groups", "export-offsets", "exported", "-o", back).code == 0
    assert back.read_text() == ours.read_text()
    kafka("0.8.2.2", "kafka.tools.ImportZkOffsets", "--zkconnect", bench.connect, "--input-file", back)
    assert bench.offsets("exported") == {"0": 4, "1": 5, "2": 10}

    back.write_text(back.read_text().replace("/0:4", "/0:8"))
    plan = json.loads(groups("import-offsets", back, "--json").out)
    assert plan["executed"] is False
    new = {"group": "exported", "topic": TOPIC, "partition": "0", "committed": 4, "new": 8}
    assert plan["offsets"][0] == new
    row = groups("import-offsets", back, "exported", "--execute").out.splitlines()[1]
    assert row.split() == ["exported", TOPIC, "0", "4", "8"]
    assert bench.offsets("exported") == {"0": 8, "1": 5, "2": 10}


def test_offsets_of_kafka_0_7_stay_in_zookeeper(bench: Bench, groups: Call, run: Call, tmp_path: Path) -> None:
    file = tmp_path / "old.txt"
    file.write_text("/consumers/seven/offsets/two-partitions/8-0:137\n/consumers/seven/offsets/two-partitions/8-1:0\n")
    assert groups("import-offsets", file, "--execute").code == 0
    assert groups("export-offsets", "seven").out == file.read_text()
    result = run("groups", "import-offsets", file, "--execute")
    assert (result.code, "two-partitions/8-0 is a partition of Kafka 0.7" in result.err) == (1, True)


def test_an_import_that_fails_in_the_middle_says_what_is_done(bench: Bench, run: Call, tmp_path: Path) -> None:
    file = tmp_path / "both.txt"
    file.write_text(f"/consumers/half/offsets/{TOPIC}/0:3\n/consumers/old/offsets/two-partitions/8-0:137\n")
    result = run("groups", "import-offsets", file, "--execute")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(
        "kafkapy: committed already: 1 group, half.\nkafkapy: two-partitions/8-0 is a partition"
    )
    assert bench.in_kafka("half") == {(TOPIC, 0): 3}


def test_an_import_into_a_group_with_members_is_refused(bench: Bench, groups: Call, tmp_path: Path) -> None:
    file = tmp_path / "offsets.txt"
    file.write_text(f"/consumers/busy/offsets/{TOPIC}/0:1\n")
    bench.zk.create("/consumers/busy/ids/busy_m", b"{}", ephemeral=True, makepath=True)
    result = groups("import-offsets", file, "--execute")
    assert (result.code, result.out, "stop them first" in result.err) == (1, "", True)
    assert bench.offsets("busy") == {}
