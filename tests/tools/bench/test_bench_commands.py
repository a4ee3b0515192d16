"""`kafkapy bench` with a running broker: every command counts right, and stops when it is told to."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from kafkapy.client import Admin, Consumer
from kafkapy.client.administration.group_admin import GroupAdmin
from kafkapy.client.cluster import Cluster
from kafkapy.client.errors import ConnectionFailed
from kafkapy.client.security import PLAINTEXT
from kafkapy.errors import Errors, KafkaError
from kafkapy.server.config.broker_config import BrokerConfig
from kafkapy.testing.broker import Broker
from kafkapy.tools.bench.board import RECORDS, Board
from kafkapy.tools.bench.consuming import ConsumeJob
from kafkapy.tools.bench.copies import loads
from kafkapy.tools.bench.leaders import Place
from kafkapy.tools.common.errors import ToolError

SESSION_MS = 1500
SESSION_S = SESSION_MS / 1000
RATE = 100
ORDER = ["min", "p50", "p90", "p95", "p99", "p99.9", "p99.99", "max"]


@pytest.fixture
def bench(kafkapy, kafkapy_broker, monkeypatch):
    """Return a function that runs a benchmark, which must succeed, and returns its JSON."""
    monkeypatch.setenv("KAFKAPY_BOOTSTRAP_SERVER", kafkapy_broker.bootstrap_servers)

    def call(*words):
        code, out, err = kafkapy("bench", *words, "--json")
        assert code == 0, err
        found = json.loads(out)
        if "latencyMs" in found:
            ordered(found["latencyMs"])
        return found

    return call


def ordered(latency):
    values = [latency[name] for name in ORDER]
    assert values == sorted(values)
    assert latency["min"] <= latency["avg"] <= latency["max"]


def end_of(broker, topic, partition=0):
    with Admin(broker.bootstrap_servers) as admin:
        return admin.offsets({(topic, partition): -1})[topic, partition].offset


def test_produced_records_are_stored_and_counted(bench, kafkapy_broker, kafkapy_topic):
    found = bench("produce", "-t", kafkapy_topic, "-n", 1000, "--record-size", 50, "--batch-size", 660)
    assert found["recordsPerRequest"] == 10
    assert (found["records"], found["requests"], found["bytes"]) == (1000, 100, 50_000)
    assert end_of(kafkapy_broker, kafkapy_topic) == 1000
    assert found["clientWasLimit"] in (True, False)
    assert found["samples"]
    with Consumer(kafkapy_broker.bootstrap_servers) as consumer:
        consumer.assign_topic(kafkapy_topic)
        records = list(consumer.records())
    assert {len(record.value) for record in records} == {50}
    assert len({record.value for record in records}) == 10
    assert {record.key for record in records} == {None}


def test_properties_of_kafkas_producer_keys_codecs_and_values_of_a_file(bench, kafkapy_broker, kafkapy_topic, tmp_path):
    (tmp_path / "values").write_bytes(b"first\nsecond\n")
    found = bench(
        *("produce", "-t", kafkapy_topic, "-n", 100, "--payload-file", tmp_path / "values", "--threads", 2),
        *("--keys", 30, "--key-size", 4, "--producer-props", "acks=1", "batch.size=300", "compression.type=lz4"),
    )
    assert (found["acks"], found["codec"], found["threads"], found["recordsPerRequest"]) == ("1", "lz4", 2, 11)
    assert found["records"] == end_of(kafkapy_broker, kafkapy_topic) == 110
    with Consumer(kafkapy_broker.bootstrap_servers) as consumer:
        consumer.assign_topic(kafkapy_topic)
        records = list(consumer.records())
    assert {record.value for record in records} == {b"first", b"second"}
    assert {record.key for record in records} == {b"%04d" % number for number in range(30)}


def test_a_missing_topic_is_refused_or_created(bench, kafkapy, kafkapy_broker):
    code, _, err = kafkapy("bench", "produce", "-t", "bench-missing", "-b", kafkapy_broker.bootstrap_servers)
    assert code == 1
    assert err == (
        "kafkapy: there is no topic 'bench-missing'; --create creates it, and so does: "
        "kafkapy topics create bench-missing.\n"
    )
    words = ("--create", "--partitions", 3, "-n", 300, "--record-size", 0, "--batch-size", 160)
    assert bench("produce", "-t", "bench-missing", *words)["partitions"] == 3
    assert [end_of(kafkapy_broker, "bench-missing", partition) for partition in range(3)] == [100] * 3
    assert bench("consume", "-t", "bench-missing", "--threads", 2)["records"] == 300


def test_acks_0_waits_for_no_response_but_until_the_broker_has_taken_all(bench, kafkapy_broker, kafkapy_topic):
    found = bench("produce", "-t", kafkapy_topic, "-n", 2000, "--acks", 0, "--record-size", 100)
    assert found["records"] == end_of(kafkapy_broker, kafkapy_topic) >= 2000
    assert found["latencyMs"]["max"] == 0


def test_a_rate_is_kept_and_its_requests_are_small(bench, kafkapy_topic):
    found = bench("produce", "-t", kafkapy_topic, "--throughput", 200, "-n", 21, "--record-size", 10)
    assert (found["recordsPerRequest"], found["records"]) == (1, 21)
    assert found["seconds"] >= 20 / 200


def test_stored_records_are_consumed_once_or_again_and_again(bench, kafkapy_broker, kafkapy_topic):
    produced = bench("produce", "-t", kafkapy_topic, "-n", 3000, "--record-size", 100)["records"]
    once = bench("consume", "-t", kafkapy_topic, "--consumer-props", "max.partition.fetch.bytes=40000")
    assert (once["records"], once["fetchSize"], once["timedOut"]) == (produced, 40_000, False)
    assert once["bytes"] > 100 * produced
    assert bench("consume", "-t", kafkapy_topic, "--duration", 0.1)["records"] >= 0
    slot = Board(1).slots[0]
    job = ConsumeJob(
        Place(kafkapy_broker.bootstrap_servers, PLAINTEXT, kafkapy_topic, (0,)), 40_000, 3 * produced, again=True
    )
    job.prepare()
    slot.begin()
    job.run(slot)
    assert slot.number(RECORDS) == 3 * produced
    some = bench("consume", "-t", kafkapy_topic, "--messages", 500, "--fetch-size", 20_000)
    assert 500 <= some["records"] < produced
    late = bench("consume", "-t", kafkapy_topic, "--messages", 10, "--from-latest", "--timeout", 50)
    assert (late["records"], late["timedOut"]) == (0, True)


def test_latency_has_the_way_to_the_consumer_and_to_the_acknowledgement(bench, kafkapy_broker, kafkapy_topic, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "latency.png"
    found = bench("latency", "-t", kafkapy_topic, "-n", 50, "--throughput", 500, "--plot", picture)
    assert found["records"] == end_of(kafkapy_broker, kafkapy_topic) == 50
    ordered(found["ackLatencyMs"])
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_commits_are_counted_and_their_groups_deleted(bench, kafkapy, kafkapy_broker, kafkapy_topic):
    found = bench("commit", "-t", kafkapy_topic, "-n", 60, "--consumers", 6, "--threads", 2, "--group", "bench-c")
    assert (found["records"], found["consumers"], len(found["clients"])) == (60, 6, 2)
    kept = bench("commit", "-t", kafkapy_topic, "-n", 4, "--consumers", 2, "--group", "bench-k", "--keep-groups")
    assert kept["records"] == 4
    with Cluster(kafkapy_broker.bootstrap_servers) as cluster:
        admin = GroupAdmin(cluster)
        assert {one.id for one in admin.list_groups() if one.id.startswith("bench-")} == {
            "bench-k-0",
            "bench-k-1",
        }
        words = ("-t", kafkapy_topic, "--group", "bench-k", "-b", kafkapy_broker.bootstrap_servers)
        code, _, err = kafkapy("bench", "commit", *words)
        assert (code, err.startswith("kafkapy: group bench-k-0 exists already")) == (2, True)
        admin.delete(["bench-k-0", "bench-k-1"])


def test_groups_that_cannot_be_deleted_are_an_error(kafkapy, kafkapy_broker, kafkapy_topic, monkeypatch):
    refused = KafkaError(Errors.GROUP_AUTHORIZATION_FAILED, "group 'bench-left-0': not allowed")
    words = ("-t", kafkapy_topic, "--group", "bench-left", "-n", 2, "-c", 1, "-b", kafkapy_broker.bootstrap_servers)
    with monkeypatch.context() as patched:
        patched.setattr(GroupAdmin, "delete", lambda _, groups: dict.fromkeys(groups, refused))
        code, out, err = kafkapy("bench", "commit", *words, "--json")
    assert (code, json.loads(out)["records"]) == (1, 2)
    assert err == (
        "kafkapy: not all groups were deleted: GROUP_AUTHORIZATION_FAILED: group 'bench-left-0': not allowed.\n"
    )
    with Cluster(kafkapy_broker.bootstrap_servers) as cluster:
        assert GroupAdmin(cluster).delete(["bench-left-0"]) == {"bench-left-0": None}


def test_the_error_of_a_run_comes_also_if_the_groups_cannot_be_deleted(
    kafkapy, kafkapy_broker, kafkapy_topic, monkeypatch
):
    def fail(*_):
        raise ToolError("the broker is gone")

    def fail_later(*_):
        raise ConnectionFailed("No broker can be reached.")

    monkeypatch.setattr("kafkapy.tools.bench.commit.measure", fail)
    monkeypatch.setattr(GroupAdmin, "delete", fail_later)
    words = ("-t", kafkapy_topic, "--group", "bench-gone", "-b", kafkapy_broker.bootstrap_servers)
    assert kafkapy("bench", "commit", *words) == (1, "", "kafkapy: the broker is gone.\n")


def test_tables_are_for_people(kafkapy, kafkapy_broker, kafkapy_topic):
    words = ("-n", 10, "-b", kafkapy_broker.bootstrap_servers, "--print-metrics")
    code, out, _ = kafkapy("bench", "latency", "-t", kafkapy_topic, *words)
    assert code == 0
    assert out.startswith(f"latency through {kafkapy_topic}, acks=all, 100 bytes\nfigure ")
    for text in (
        "\nrecords ",
        "  producer to consumer  producer to acknowledgement\n",
        "\nclient  requests ",
        "\np99.9 ",
    ):
        assert text in out


def test_ctrl_c_prints_the_figures_so_far(kafkapy_broker, kafkapy_topic):
    words = ["bench", "produce", "-t", kafkapy_topic, "--duration", "60", "--record-size", "10", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "kafkapy", *words, "-b", kafkapy_broker.bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ),
    )
    deadline = time.monotonic() + 60
    while not end_of(kafkapy_broker, kafkapy_topic) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    found = json.loads(out)
    assert (process.returncode, found["interrupted"]) == (130, True)
    assert found["records"] == end_of(kafkapy_broker, kafkapy_topic)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("produce", "-t", "t", "--acks", "2"), "--acks '2' is none of all, 1 and 0"),
        (("produce", "-t", "t", "--codec", "rar"), "--codec 'rar' is none of none, gzip, snappy, lz4, zstd"),
        (("produce", "-t", "t", "-n", "0"), "--num-records 0 is not above 0"),
        (("produce", "-t", "t", "--duration", "-1"), "--duration -1 is not above 0"),
        (("produce", "-t", "t", "--duration", "nan"), "--duration nan is not above 0"),
        (("produce", "-t", "t", "--throughput", "0"), "--throughput 0 is neither a rate above 0 nor -1"),
        (("produce", "-t", "t", "--throughput", "nan"), "--throughput nan is neither a rate above 0 nor -1"),
        (("produce", "-t", "t", "--throughput", "inf"), "--throughput inf is neither a rate above 0 nor -1"),
        (("produce", "-t", "t", "--keys", "1000", "--key-size", "2"), "has no room for 1,000 different keys: use 3"),
        (("produce", "-t", "t", "--batch-size", "99999999"), "no broker takes such a request"),
        (("produce", "-t", "t", "--payload-file", "/none"), "--payload-file /none: No such file or directory"),
        (("produce", "-t", "t", "transactional.id=x"), "transactional.id cannot be set: these clients produce without"),
        (
            ("produce", "-t", "t", "batch.sice=x"),
            "batch.sice is not a property of Kafka's clients; did you mean",
        ),
        (("produce", "-t", "t", "batch.size=x"), "batch.size is 'x'"),
        (("produce", "-t", "t", "--plot", "x.gif"), "--plot x.gif: the name has to end in .png, .svg, .pdf"),
        (("consume", "-t", "t", "--from-latest"), "--from-latest needs --messages or --duration"),
        (("latency", "-t", "t", "--acks", "0"), "--acks 0 has no acknowledgement to measure: use all or 1"),
        (("commit", "-t", "t", "--threads", "11"), "--threads 11 is more than --consumers 10"),
        (("copies", "--consumers", "1,x"), "--consumers '1,x' is not numbers from 1 to 1000"),
        (("copies", "--size", "1"), "--size 1 is too small for responses of 1,048,576 bytes"),
        (("copies", "--fetch-size", str(1 << 30)), "--fetch-size 1,073,741,824 is above 57,671,680: no response of a"),
    ],
)
def test_a_bad_value_is_named_with_what_to_do(kafkapy, words, said):
    code, out, err = kafkapy("bench", *words)
    assert (code, out) == (2, "")
    assert said in err


def test_more_keys_than_fit_into_memory_are_refused(kafkapy, kafkapy_broker, kafkapy_topic):
    words = ("-t", kafkapy_topic, "--keys", 1_000_000, "-b", kafkapy_broker.bootstrap_servers)
    code, _, err = kafkapy("bench", "produce", *words)
    assert code == 2
    assert "would take 1,007 MiB: use a smaller --record-size or --batch-size, fewer --keys" in err


def test_a_refusal_of_the_broker_is_an_error_with_its_partition(kafkapy, kafkapy_broker, kafkapy_topic):
    words = ("-t", kafkapy_topic, "-n", 2, "--record-size", 1_500_000, "--batch-size", 2_000_000)
    code, out, err = kafkapy("bench", "produce", *words, "-b", kafkapy_broker.bootstrap_servers)
    assert (code, out) == (1, "")
    assert err == f"kafkapy: {kafkapy_topic}-0: the broker answered MESSAGE_TOO_LARGE (10).\n"


@pytest.fixture(scope="module")
def secured():
    with Broker(tls=True, users={"alice": "secret"}, config={"connections.max.reauth.ms": SESSION_MS}) as broker:
        yield broker


@pytest.fixture
def logged_in(secured, monkeypatch, tmp_path):
    """Have the commands log in at the broker `secured`."""
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in secured.client_properties().items()))
    monkeypatch.setenv("KAFKAPY_COMMAND_CONFIG", str(file))
    monkeypatch.setenv("KAFKAPY_BOOTSTRAP_SERVER", secured.bootstrap_servers)


@pytest.mark.usefixtures("logged_in")
@pytest.mark.parametrize(
    "words",
    [("produce", "--record-size", 10), ("latency",)],
    ids=lambda words: words[0],
)
def test_a_benchmark_outlives_the_sessions_of_its_logins(kafkapy, words):
    more = ("--create", "-n", 1 + int(1.3 * SESSION_S * RATE), "--throughput", RATE, "--json")
    code, out, err = kafkapy("bench", *words, "-t", "sessions", *more)
    assert code == 0, err
    assert json.loads(out)["seconds"] > SESSION_S


@pytest.mark.usefixtures("logged_in")
def test_every_command_logs_in_over_tls(kafkapy, monkeypatch):
    for words, records in (
        (("produce", "--create", "-n", 2000, "--batch-size", 100_000, "--record-size", 1000), 2058),
        (("produce", "-n", 2000, "--acks", 0, "--record-size", 1000), 2000),
        (("consume",), 4058),
        (("latency", "-n", 20), 20),
        (("commit", "-n", 20, "--consumers", 2), 20),
    ):
        code, out, err = kafkapy("bench", *words, "-t", "secured", "--json")
        assert code == 0, err
        assert json.loads(out)["records"] == records
    monkeypatch.delenv("KAFKAPY_COMMAND_CONFIG")
    code, _, err = kafkapy("bench", "consume", "-t", "secured")
    assert code == 1
    assert "Does it need TLS?" in err


def test_when_the_broker_dies_the_figures_so_far_come_before_the_error(tmp_path):
    with Broker(tmp_path / "data", process=True) as broker:
        words = [
            "bench",
            "produce",
            "-t",
            "t",
            "--create",
            "--duration",
            "60",
            "--json",
            "-b",
            broker.bootstrap_servers,
        ]
        process = subprocess.Popen(
            [sys.executable, "-m", "kafkapy", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        log = broker.log_dir / "t-0" / f"{0:020}.log"
        deadline = time.monotonic() + 60
        while not (log.exists() and log.stat().st_size > 1 << 20) and time.monotonic() < deadline:
            time.sleep(0.005)
        broker.kill()
        out, err = process.communicate(timeout=60)
        found = json.loads(out)
        assert (process.returncode, found["records"] > 0) == (1, True)
        assert found["error"] == "the broker closed the connection; its log may say why"
        assert err.decode().endswith(f"kafkapy: {found['error']}.\n")


def test_copies_compares_both_ways_and_says_which_one_to_use(kafkapy, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "copies.png"
    words = ("--size", 8, "--fetch-size", 65_536, "--consumers", "1,2", "--rounds", 1, "--plot", picture, "--json")
    code, out, err = kafkapy("bench", "copies", "--data", tmp_path, *words)
    assert (code, err) == (0, f"The picture is in {picture}.\n")
    found = json.loads(out)
    loads = {(load["state"], load["consumers"]) for load in found["loads"]}
    assert {("hot", 1), ("hot", 2)} <= loads <= {(state, count) for state in ("hot", "cold") for count in (1, 2)}
    for load in found["loads"]:
        for way in ("sendfile", "copy"):
            assert min(load[way]["megabytesPerSecond"]) > 0
    assert found["use"] in ("sendfile", "copy", "either")
    assert "kafkapy.zero.copy.enable" in found["sentence"]
    assert [path.name for path in tmp_path.iterdir()] == ["copies.png"]


def test_a_batch_of_copies_fits_into_the_smallest_response(tmp_path):
    assert len(loads.StoredLog(tmp_path, 1 << 20)._batch) <= 4096  # the least --fetch-size


def test_the_longest_response_of_copies_is_what_a_broker_sends_by_default(tmp_path):
    config = BrokerConfig({"log.dirs": str(tmp_path)})
    assert config.fetch_max_bytes == loads.LONGEST


def test_copies_compares_both_ways_with_a_log_of_several_segments(kafkapy, tmp_path, monkeypatch):
    monkeypatch.setitem(loads._SETTINGS, "log.segment.bytes", 3 << 20)
    words = ("--size", 8, "--fetch-size", 65_536, "--consumers", 1, "--rounds", 1, "--json")
    code, out, err = kafkapy("bench", "copies", "--data", tmp_path, *words)
    assert (code, err) == (0, "")
    assert json.loads(out)["loads"]
