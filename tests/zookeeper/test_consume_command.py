"""`kafkapy consume --zookeeper`, alone and in one group with Kafka's own consumer of 0.8.2.2; white and black lists."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from kazoo.exceptions import NoNodeError

from kafkapy.tools.main import main
from tests.harness.group_bench import OTHER, PARTITIONS, RECORDS, TOPIC, Bench, group_bench
from tests.harness.original import Member
from tests.harness.waiting import eventually
from tests.harness.zookeeper import ZooKeeper

ALL = {f"{partition}-{number}" for partition in range(PARTITIONS) for number in range(RECORDS)}
RAIN = {f"rain-{number}" for number in range(RECORDS)}


@pytest.fixture(scope="module")
def bench(zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with group_bench(f"{zookeeper.address}/consume-command", tmp_path_factory.mktemp("log")) as bench:
        yield bench


class Said(NamedTuple):
    code: int
    out: str
    err: str


Call = Callable[..., Said]


@pytest.fixture
def through_broker(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, bench: Bench) -> Call:
    """Return a function that runs `kafkapy consume WORDS` with the bench's broker."""
    monkeypatch.setenv("KAFKAPY_BOOTSTRAP_SERVER", bench.bootstrap)

    def call(*words: object) -> Said:
        capfdbinary.readouterr()
        code = main(["consume", *map(str, words)])
        out, err = capfdbinary.readouterr()
        return Said(code, out.decode(), err.decode())

    return call


@pytest.fixture
def consume(through_broker: Call, bench: Bench) -> Call:
    """Return a function that runs `kafkapy consume WORDS --zookeeper`."""
    return lambda *words: through_broker(*words, "--zookeeper", bench.connect)


def test_a_consumer_without_a_group_leaves_no_nodes(bench: Bench, consume: Call) -> None:
    result = consume(TOPIC)
    assert (result.code, result.err) == (0, "")
    assert Counter(result.out.split()) == Counter(ALL)
    assert len(consume(TOPIC, "--max", 7).out.split()) == 7
    assert consume(TOPIC, "--from", "latest") == (0, "", "")
    record = json.loads(consume(TOPIC, "--max", 1, "--json").out)
    assert (record["topic"], record["offset"]) == (TOPIC, 0)
    groups = bench.zk.get_children("/consumers")
    assert [name for name in groups if name.startswith("console-consumer-")] == []


def test_a_group_resumes_at_its_committed_offsets(bench: Bench, consume: Call) -> None:
    first = consume(TOPIC, "--group", "goes-on", "--max", 7).out.split()
    assert len(first) == 7
    assert sum(bench.offsets("goes-on").values()) == 7
    rest = consume(TOPIC, "--group", "goes-on").out.split()
    assert Counter(first + rest) == Counter(ALL)
    assert bench.offsets("goes-on") == {"0": 10, "1": 10, "2": 10}
    assert consume(TOPIC, "--group", "goes-on") == (0, "", "")
    assert bench.zk.get_children("/consumers/goes-on/ids") == []


def test_a_consumers_properties_say_where_offsets_are_kept(bench: Bench, consume: Call, tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text("groupid=in-kafka\nzk.connect=x\noffsets.storage=kafka\ndual.commit.enabled=false\n")
    assert len(consume(TOPIC, "--consumer-config", file).out.split()) == 30
    assert bench.in_kafka("in-kafka") == {(TOPIC, number): 10 for number in range(PARTITIONS)}
    assert bench.offsets("in-kafka") == {}
    file.write_text("auto.offset.reset=largest\n")
    assert consume(TOPIC, "--consumer-config", file).out == ""
    assert len(consume(TOPIC, "--consumer-config", file, "--from", "earliest").out.split()) == 30
    file.write_text("rebalance.max.retries=many\n")
    assert consume(TOPIC, "--consumer-config", file).err.startswith("kafkapy: --consumer-config: rebalance.max.retries")


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["--whitelist", "fl.*"], ALL),
        (["--whitelist", "weath|flights"], ALL),
        (["--whitelist", "weather,flights"], ALL | RAIN),
        (["--blacklist", TOPIC], RAIN),
        (["--blacklist", "nothing"], ALL | RAIN),
    ],
)
def test_white_and_black_lists(consume: Call, through_broker: Call, words: list[str], values: set[str]) -> None:
    group = "listed-" + "".join(filter(str.isalnum, " ".join(words)))
    for result in (consume(*words), through_broker(*words), through_broker(*words, "--group", group)):
        assert (result.code, result.err) == (0, "")
        assert Counter(result.out.split()) == Counter(values)


def test_records_of_several_topics_are_shown_with_their_topic(through_broker: Call) -> None:
    lines = through_broker("--whitelist", ".*", "--format", "full").out.splitlines()
    assert {line.split(":")[0] for line in lines} == {TOPIC, OTHER}
    assert through_broker(OTHER, "--format", "full").out.startswith("0:0\t")


def test_it_shares_a_group_with_kafkas_own_consumer(bench: Bench, tmp_path: Path) -> None:
    """Each record goes to one member, and when a member leaves, the other takes over its partitions."""
    output = tmp_path / "printed"
    theirs = Member("0.8.2.2", tmp_path, bench.connect, "shared", "theirs", TOPIC)
    ours = None
    try:
        theirs.wait_until_ready()
        words = ["consume", TOPIC, "--group", "shared", "--follow", "--zookeeper", bench.connect, "--format", "full"]
        with output.open("wb") as file:
            ours = subprocess.Popen([sys.executable, "-m", "kafkapy", *words], stdout=file, stderr=subprocess.PIPE)
        owners = f"/consumers/shared/owners/{TOPIC}"

        def owned() -> set[bytes]:
            names = bench.zk.get_children(owners) if bench.zk.exists(owners) else []
            try:
                return {bench.zk.get(f"{owners}/{name}")[0].rpartition(b"-")[0] for name in names if len(names) == 3}
            except NoNodeError:  # a member released a partition in the meantime
                return set()

        eventually(lambda: len(owned()) == 2, seconds=40, what="they do not share the partitions")
        bench.produce(range(10, 20))

        def seen() -> Counter[tuple[int, int]]:
            lines = [line.split("\t")[0].split(":") for line in output.read_text().splitlines()]
            found = Counter((int(partition), int(offset)) for partition, offset in lines)
            return found + Counter({(place[1], place[2]): count for place, count in theirs.seen.items()})

        eventually(lambda: len(seen()) == 60, seconds=40, what="not every record has come")
        ours.send_signal(signal.SIGINT)
        assert ours.wait(30) == 130
        assert ours.stderr is not None
        assert ours.stderr.read() == b""
        bench.produce(range(20, 30))
        eventually(lambda: len(seen()) == 90, seconds=40, what="not every record has come")
        assert set(seen().values()) == {1}
        eventually(lambda: bench.offsets("shared") == {"0": 30, "1": 30, "2": 30})
    finally:
        theirs.kill()
        if ours is not None:
            ours.kill()
            ours.wait()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, "one of TOPIC, --whitelist REGEX and --blacklist REGEX"),
        ([TOPIC, "--whitelist", "x"], 2, "one of TOPIC, --whitelist REGEX and --blacklist REGEX"),
        (["--whitelist", "x", "--blacklist", "y"], 2, "one of TOPIC, --whitelist REGEX and --blacklist REGEX"),
        (["--whitelist", "fl("], 2, "--whitelist: 'fl(' is no regular expression"),
        (["--blacklist", "a(?i)b"], 2, "--blacklist: 'a(?i)b' is no regular expression"),
        (["--whitelist", "nothing"], 1, "no topic is allowed by the white list 'nothing'"),
        (["nowhere"], 1, "there is no topic 'nowhere' in ZooKeeper at"),
        ([TOPIC, "--group", "a b"], 2, "--group: group.id"),
        ([TOPIC, "--group", ""], 2, "--group '' is no name"),
        ([TOPIC, "--from", "5"], 2, "--from '5' does not go with"),
        ([TOPIC, "--partition", "0"], 2, "--partition does not go with"),
        ([TOPIC, "--isolation", "read_committed"], 2, "--isolation read_committed does not go with --zookeeper"),
        ([TOPIC, "-b", "127.0.0.1:9092"], 2, "one of --bootstrap-server and --zookeeper"),
    ],
)
def test_wrong_arguments_are_reported(consume: Call, words: list[str], code: int, says: str) -> None:
    result = consume(*words)
    assert (result.code, result.out, result.err.count("\n")) == (code, "", 1), result
    assert says in result.err


def test_options_that_need_zookeeper_or_exclude_lists_are_refused(through_broker: Call, tmp_path: Path) -> None:
    assert "--consumer-config goes with --zookeeper" in through_broker(TOPIC, "--consumer-config", tmp_path).err
    assert "--partition goes with one TOPIC" in through_broker("--whitelist", ".*", "--partition", 0).err


def test_a_wrong_zookeeper_address_is_reported(bench: Bench, through_broker: Call) -> None:
    result = through_broker(TOPIC, "--zookeeper", f"{bench.connect}/wrong")
    assert (result.code, result.out) == (1, "")
    assert "has no /brokers/ids: is the chroot of the cluster missing" in result.err


def test_no_command_imports_the_zookeeper_client_without_need() -> None:
    program = (
        "import sys; from kafkapy.tools.main import main; main(['consume', '--help']); print('kazoo' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.stdout.splitlines()[-1] == "False"
