"""`kafkapy mirror`: wrong arguments, and a whole run."""

import signal
import subprocess
import sys
import time

import pytest

from kafkapy.client import Admin, Cluster, Consumer, GroupAdmin, RecordProducer
from kafkapy.mirror.counts import Counts, Waiting
from kafkapy.testing.broker import Broker
from kafkapy.tools.mirror import progress as mirror_progress
from kafkapy.tools.mirror.progress import MirrorProgress

PATIENCE_S = 60.0


@pytest.fixture
def files(tmp_path):
    """Write properties of a source and a target at addresses without a broker."""
    (tmp_path / "src").write_text("bootstrap.servers=127.0.0.1:1\ngroup.id=g\n")
    (tmp_path / "dst").write_text("bootstrap.servers=127.0.0.1:1\n")
    (tmp_path / "wrong").write_text("bootstrap.servers=127.0.0.1:1\ngroup.id=g\nfetch.max.byte=1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("code", "words", "says"),
    [
        (2, [], "one of --whitelist and --blacklist is needed to say which topics are mirrored; none is given."),
        (2, ["--whitelist", "a", "--blacklist", "b"], "which topics are mirrored; both are given."),
        (2, ["--whitelist", "a(b"], "--whitelist 'a(b' is no regular expression: missing ), unterminated subpattern"),
        (
            2,
            ["--whitelist", "a", "--create-topics", "maybe"],
            "--create-topics 'maybe' is none of source, target, never",
        ),
        (2, ["--whitelist", "a", "--abort.on.send.failure", "no"], "--abort-on-send-failure 'no' is neither true nor"),
        (2, ["--whitelist", "a", "--metrics", "9404"], "--metrics '9404' is not HOST:PORT, as in 127.0.0.1:9404."),
        (2, ["--whitelist", "a", "--log-level", "loud"], "--log-level 'loud' is not a log level"),
        (2, ["--whitelist", "a", "--streams", "0"], "'--num.streams'"),
        (1, ["--whitelist", "a", "nowhere"], "the properties file nowhere cannot be read: No such file or directory."),
        (
            1,
            ["--whitelist", "a", "{wrong}"],
            "fetch.max.byte is not a property of Kafka's consumer; did you mean fetch.max",
        ),
        (1, ["--whitelist", "a"], "No connection to 127.0.0.1:1: connection refused. Is a broker listening there?"),
    ],
)
def test_wrong_arguments_are_reported_in_one_sentence(kafkapy, files, code, words, says):
    words = [str(files / "wrong") if word == "{wrong}" else word for word in words]
    result = kafkapy("mirror", "--consumer", files / "src", "--producer", files / "dst", *words)
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith("kafkapy: ")
    assert says in result.err
    assert result.err.count("\n") == 1


@pytest.fixture(scope="module")
def brokers():
    quick = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 2}
    with Broker(**quick) as one, Broker(**quick) as two, Broker(**quick) as three:
        yield [broker.bootstrap_servers for broker in (one, two, three)]


def test_two_sources_are_copied_to_one_target_and_sigterm_commits_and_leaves_the_groups(brokers, tmp_path):
    *sources, target = brokers
    for number, source in enumerate(sources):
        (tmp_path / f"{number}.properties").write_text(f"bootstrap.servers={source}\ngroup.id=g\n")
        with Admin(source) as admin, RecordProducer(source) as producer:
            for topic in ("wanted", "other"):
                admin.create_topic(topic, 2)
            for value in range(100):
                producer.send("wanted", b"%d-%d" % (number, value))
                producer.send("other", b"")
            producer.flush()
    (tmp_path / "target.properties").write_text(f"bootstrap.servers={target}\n")
    words = ["--consumer", tmp_path / "0.properties", tmp_path / "1.properties", "--streams", "2", "--progress", "1"]
    words += ["--producer", tmp_path / "target.properties", "--whitelist", "want.*", "--metrics", "127.0.0.1:0"]
    command = [sys.executable, "-m", "kafkapy", "mirror", *map(str, words)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as mirror:
        deadline = time.monotonic() + PATIENCE_S
        with Cluster(target) as cluster:
            while "wanted" not in cluster.topics:
                assert time.monotonic() < deadline
                time.sleep(0.05)
                cluster.refresh()
        values = set()
        with Consumer(target) as consumer:
            consumer.assign_topic("wanted")
            while len(values) < 200:
                assert time.monotonic() < deadline
                values |= {record.value for record in consumer.poll()}
        mirror.send_signal(signal.SIGTERM)
        _, output = mirror.communicate(timeout=PATIENCE_S)
    assert mirror.returncode == 0, output
    assert values == {b"%d-%d" % (number, value) for number in (0, 1) for value in range(100)}
    assert "kafkapy: metrics are at http://127.0.0.1:" in output
    assert f"kafkapy: mirroring {tmp_path}/0.properties (group g), {tmp_path}/1.properties (group g) to " in output
    assert "kafkapy: mirrored 200 records, 0.0 MB; " in output
    with Cluster(target) as cluster:
        cluster.refresh()
        assert "other" not in cluster.topics
    for source in sources:
        with Cluster(source) as cluster:
            groups = GroupAdmin(cluster)
            assert sum(one.offset for one in groups.offsets(["g"])["g"].values()) == 100
            assert not groups.describe(["g"])["g"].members


STUCK = """
import sys, time
from kafkapy.mirror.mirror import Mirror
from kafkapy.tools.main import main

def stop(self):
    print("stopping", file=sys.stderr, flush=True)
    time.sleep(600)

Mirror.start, Mirror.stop = lambda self: None, stop
sys.exit(main(["mirror", *sys.argv[1:]]))
"""


def test_the_second_signal_ends_the_mirror_at_once(files):
    words = ["--consumer", str(files / "src"), "--producer", str(files / "dst"), "--whitelist", "a"]
    with subprocess.Popen([sys.executable, "-c", STUCK, *words], stderr=subprocess.PIPE, text=True) as mirror:
        assert mirror.stderr is not None
        assert "kafkapy: mirroring" in mirror.stderr.readline()
        mirror.send_signal(signal.SIGTERM)
        assert mirror.stderr.readline() == "stopping\n"
        mirror.send_signal(signal.SIGTERM)
    assert mirror.returncode == 130


class Stderr:
    def __init__(self, terminal):
        self.terminal = terminal
        self.text = ""

    def isatty(self):
        return self.terminal

    def write(self, text):
        self.text += text

    def flush(self):
        pass


@pytest.mark.parametrize("terminal", [True, False])
def test_the_progress_line_is_rewritten_on_a_terminal_and_printed_periodically_elsewhere(monkeypatch, terminal):
    out, now = Stderr(terminal), [100.0]
    monkeypatch.setattr(mirror_progress.sys, "stderr", out)
    monkeypatch.setattr(mirror_progress.time, "monotonic", lambda: now[0])
    progress = MirrorProgress(10)
    counts = Counts(records=3000, size=6_000_000, lags={("t", 0): 1234})
    progress.show([("src", counts)])
    now[0] += 0.4
    progress.show([("src", counts)])
    assert out.text == ""
    now[0] += 9.6
    progress.show([("src", counts), ("src", Counts(lost=2))])
    line = "mirrored 3,000 records, 6.0 MB; 300 records/s, 0.6 MB/s; lag 1,234; LOST 2"
    assert out.text == (f"\r\x1b[K{line}" if terminal else f"kafkapy: {line}\n")
    now[0] += 0.1
    progress.show([("src", counts)], last=True)
    assert out.text.endswith("lag 1,234\n")


def test_a_source_without_partitions_says_what_it_waits_for_and_the_lag_of_its_group(monkeypatch):
    out, now = Stderr(False), [100.0]
    monkeypatch.setattr(mirror_progress.sys, "stderr", out)
    monkeypatch.setattr(mirror_progress.time, "monotonic", lambda: now[0])
    progress = MirrorProgress(10)
    busy = Counts(lags={("t", 0): 1000})
    waits = Counts(waiting=Waiting("partitions of group g", "read by a at ::1", 30490))

    def line(*streams, last=True):
        out.text = ""
        progress.show(streams, last=last)
        return out.text.partition("MB/s; ")[2]

    message = "waiting for partitions of group g (read by a at ::1); lag "
    assert line(("src", waits), ("src", waits)) == f"{message}30,490\n"
    assert line(("src", waits), ("other", busy)) == f"{message}31,490\n"
    assert line(("src", waits), ("src", busy)) == "lag 1,000\n"
    waits.waiting = Waiting("partitions of group g", "", None)
    assert line(("src", waits), ("other", busy)) == "waiting for partitions of group g; lag not known\n"
