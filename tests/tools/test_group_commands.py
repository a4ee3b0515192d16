"""`kafkapy groups`, `kafkapy transactions` and `kafkapy consume --group` with a running broker."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter

import pytest

from kafkapy.client import Admin, NewTopic, RecordProducer
from kafkapy.client.producing.transactional_producer import TransactionalProducer
from kafkapy.testing.broker import Broker
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.consume import kafka_member
from kafkapy.tools.groups.kafka import KafkaGroups
from tests.harness.brokers import free_port
from tests.harness.waiting import eventually


@pytest.fixture(scope="module")
def group_broker():
    """Start a broker that does not wait for further members of a new group."""
    with Broker(group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=3) as broker:
        yield broker


@pytest.fixture
def topic(group_broker, request):
    """Create a topic with three partitions, each with the values p-0 to p-9."""
    name = re.sub(r"\W", "-", request.node.name)
    with Admin(group_broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, 3)])
    send(group_broker, name, range(10))
    return name


def send(broker, topic, numbers):
    with RecordProducer(broker.bootstrap_servers) as producer:
        for number in numbers:
            for partition in range(3):
                producer.send(topic, f"{partition}-{number}".encode(), partition=partition)


@pytest.fixture
def run(kafkapy, group_broker, monkeypatch):
    """Return a function that runs a command that must succeed and returns its output."""
    monkeypatch.setenv("KAFKAPY_BOOTSTRAP_SERVER", group_broker.bootstrap_servers)

    def call(*words):
        code, out, err = kafkapy(*words)
        assert (code, err) == (0, "")
        return out

    return call


@pytest.fixture
def fails(kafkapy, run):
    """Return a function that runs a command that must fail with one sentence and returns it."""

    def call(*words):
        code, _, err = kafkapy(*words)
        assert (code, err.count("\n")) == (1, 1)
        return err

    return call


@pytest.fixture
def member(group_broker, tmp_path):
    """Return a function that starts `kafkapy consume TOPIC --group GROUP --follow` as a process; output to a file."""
    children = []

    def start(topic, group, address=group_broker.bootstrap_servers):
        output = tmp_path / f"member-{len(children)}"
        with output.open("wb") as file:
            child = subprocess.Popen(
                [sys.executable, "-m", "kafkapy", "consume", topic, "--group", group, "--follow"],
                env={**os.environ, "KAFKAPY_BOOTSTRAP_SERVER": address},
                stdout=file,
                stderr=subprocess.PIPE,
            )
        child.lines = lambda: output.read_text().split()
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        child.wait()
        child.stderr.close()


def offsets(run, group):
    """Return the group's committed offsets by partition."""
    (described,) = json.loads(run("groups", "describe", group, "--json"))
    return {one["partition"]: one["committed"] for one in described["offsets"]}


def everything(numbers=range(10)):
    return {f"{partition}-{number}" for partition in range(3) for number in numbers}


def test_a_group_resumes_at_its_committed_offsets(run, topic):
    first = run("consume", topic, "--group", "goes-on", "--max", 7).split()
    assert len(first) == 7
    assert sum(offsets(run, "goes-on").values()) == 7
    rest = run("consume", topic, "--group", "goes-on").split()
    assert len(rest) == 23
    assert {*first, *rest} == everything()
    assert run("consume", topic, "--group", "goes-on") == ""
    assert offsets(run, "goes-on") == {0: 10, 1: 10, 2: 10}


def test_a_group_that_begins_at_the_end_continues_from_there(run, topic, group_broker):
    assert run("consume", topic, "--group", "begins-late", "--from", "latest") == ""
    send(group_broker, topic, [10])
    printed = run("consume", topic, "--group", "begins-late", "--from", "latest", "--json")
    assert {json.loads(line)["value"] for line in printed.splitlines()} == everything([10])


def test_without_records_nothing_is_printed_or_committed(run, fails, topic):
    assert run("consume", topic, "--group", "wants-none", "--max", 0) == ""
    assert fails("groups", "describe", "wants-none") == "kafkapy: there is no group 'wants-none'.\n"


def test_no_group_is_created_for_a_topic_that_does_not_exist(run, fails):
    assert "topic 'nowhere'" in fails("consume", "nowhere", "--group", "none")
    assert "none" not in run("groups", "list")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_member_commits_and_leaves(run, topic, member, number):
    child = member(topic, "interrupted")
    eventually(lambda: len(child.lines()) == 30)
    child.send_signal(number)
    assert child.wait(20) == 130
    assert child.stderr.read() == b""
    assert "Empty, no members" in run("groups", "describe", "interrupted")
    assert offsets(run, "interrupted") == {0: 10, 1: 10, 2: 10}
    run("groups", "delete", "interrupted")


def test_members_share_the_partitions_and_each_record_is_printed_once(run, topic, member, group_broker):
    members = [member(topic, "shares"), member(topic, "shares")]

    def shared():
        (described,) = json.loads(run("groups", "describe", "shares", "--members", "--json"))
        return sorted(len(one["partitions"]) for one in described["members"]) == [1, 2]

    eventually(lambda: "shares" in run("groups", "list", "--state", "stable"))
    eventually(shared)
    send(group_broker, topic, range(10, 20))
    eventually(lambda: sum(len(child.lines()) for child in members) >= 60)
    members[0].send_signal(signal.SIGINT)
    assert members[0].wait(20) == 130
    send(group_broker, topic, range(20, 30))
    eventually(lambda: sum(len(child.lines()) for child in members) >= 90)
    members[1].send_signal(signal.SIGINT)
    members[1].wait(20)
    printed = Counter(line for child in members for line in child.lines())
    assert set(printed) == everything(range(30))
    assert set(printed.values()) == {1}


def test_a_member_survives_a_restart_of_a_killed_broker(tmp_path, monkeypatch, member):
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("KAFKAPY_BOOTSTRAP_SERVER", address)
    settings = {"listeners": f"PLAINTEXT://{address}", "group.initial.rebalance.delay.ms": 0, "num.partitions": 3}
    broker = Broker(tmp_path / "data", process=True, config=settings)
    with broker:
        send(broker, "endures", range(10))
        child = member("endures", "endures", address)
        eventually(lambda: len(child.lines()) == 30)
        broker.kill()
        broker.start()
        send(broker, "endures", range(10, 20))
        eventually(lambda: set(child.lines()) == everything(range(20)))
        child.send_signal(signal.SIGINT)
        assert child.wait(20) == 130
        assert child.stderr.read() == b""


def test_records_of_open_and_aborted_transactions_can_be_left_out(run, topic, group_broker):
    def values(*options):
        return set(run("consume", topic, *options).split())

    with TransactionalProducer(group_broker.bootstrap_servers, "isolated") as producer:
        for ending, commit in (("done", True), ("undone", False)):
            producer.begin()
            producer.send(topic, ending.encode(), partition=0)
            producer.flush()
            producer.commit() if commit else producer.abort()
        producer.begin()
        producer.send(topic, b"open", partition=1)
        producer.flush()
        assert values() == {*everything(), "done", "undone", "open"}
        assert values("--isolation", "read_committed") == {*everything(), "done"}
        committed = values("--isolation", "read_committed", "--group", "isolated")
        assert committed == {*everything(), "done"}
        producer.abort()
    assert offsets(run, "isolated") == {0: 14, 1: 10, 2: 10}


def test_a_group_is_shown_with_its_members_and_its_lag(run, topic, member, group_broker):
    child = member(topic, "shown")
    eventually(lambda: len(child.lines()) == 30)
    eventually(lambda: offsets(run, "shown") == {0: 10, 1: 10, 2: 10})
    head, columns, *rows = run("groups", "describe", "shown").splitlines()
    coordinator = f"1001 ({group_broker.bootstrap_servers})"
    assert head == f"Group shown: Stable, 1 member, range assignor, coordinator {coordinator}, lag 0"
    assert re.split("  +", columns) == [
        "topic", "partition", "committed", "end", "lag", "member", "host", "client id"
    ]  # fmt: skip
    assert [re.split("  +", row)[:5] for row in rows] == [[topic, str(n), "10", "10", "0"] for n in range(3)]
    row = run("groups", "describe", "shown", "--members").splitlines()[-1]
    assert re.split("  +", row)[1:] == ["-", "127.0.0.1", "kafkapy", "3", f"{topic}:0-2"]
    row = run("groups", "describe", "shown", "--state").splitlines()[-1]
    assert re.split("  +", row) == [
        "shown",
        "Stable",
        "consumer",
        "range",
        "1",
        coordinator.removeprefix("coordinator "),
    ]
    (row,) = (row for row in run("groups", "list").splitlines() if row.startswith("shown "))
    assert row.split() == ["shown", "Stable", "classic", "consumer", "1001"]


def test_a_reset_of_all_topics_covers_the_committed_partitions(run, topic):
    other = f"{topic}-2"
    run("topics", "create", other)
    run("groups", "reset-offsets", "of-all", "-t", topic, "-t", other, "--to-latest", "--execute")
    run("topics", "alter", topic, "--partitions", 4)
    plan = run("groups", "reset-offsets", "of-all", "--all-topics", "--to-earliest", "--export", "-")
    assert plan.splitlines() == [*(f"{topic},{number},0" for number in range(3)), f"{other},0,0"]


def test_a_reset_is_first_shown_and_then_executed(run, topic):
    words = ["groups", "reset-offsets", "moved", "--topic", topic, "--to-offset", 4]
    shown = run(*words).splitlines()
    assert shown[0].split() == ["group", "topic", "partition", "committed", "new"]
    assert [row.split() for row in shown[1:4]] == [["moved", topic, str(n), "-", "4"] for n in range(3)]
    assert shown[4] == "This is the plan; nothing was changed. --execute carries it out."
    assert run(*words, "--dry-run").splitlines() == shown
    assert run(*words, "--execute").splitlines()[-1] == "Committed 3 offsets."
    assert run("consume", topic, "--group", "moved", "--max", 1).split()[0].endswith("-4")
    document = json.loads(run("groups", "reset-offsets", "moved", "-t", f"{topic}:2", "--shift-by", 99, "--json"))
    assert document["executed"] is False
    (line,) = document["offsets"]
    assert (line["topic"], line["partition"], line["new"]) == (topic, 2, 10)
    assert line["note"].endswith(" is after the end")


def test_a_reset_that_fails_in_the_middle_says_what_is_done(run, kafkapy, topic, monkeypatch):
    commit = KafkaGroups.commit

    def refusing(self, name, offsets):
        if name == "reset-second":
            raise ToolError(f"group {name!r} has members by now")
        commit(self, name, offsets)

    monkeypatch.setattr(KafkaGroups, "commit", refusing)
    words = ["groups", "reset-offsets", "reset-first", "reset-second", "--topic", topic, "--to-latest", "--execute"]
    assert kafkapy(*words) == (
        1,
        "",
        "kafkapy: committed already: 1 group, reset-first.\nkafkapy: group 'reset-second' has members by now.\n",
    )
    assert offsets(run, "reset-first") == {0: 10, 1: 10, 2: 10}


def test_a_reset_whose_plan_cannot_be_written_changes_nothing(fails, topic, tmp_path):
    words = ["groups", "reset-offsets", "unwritten", "--topic", topic, "--to-latest", "--execute"]
    assert "cannot be written: No such file" in fails(*words, "--export", tmp_path / "nowhere" / "plan.csv")
    assert "there is no group 'unwritten'" in fails("groups", "describe", "unwritten")


def test_a_reset_of_missing_topics_or_partitions_is_refused(run, fails, topic):
    def refused(*words):
        return fails("groups", "reset-offsets", *words, "--execute")

    assert "topic 'nowhere'" in refused("g", "-t", "nowhere", "--to-latest")
    assert "has no partition 7: it has 3" in refused("g", "-t", f"{topic}:7", "--to-latest")
    assert "group 'g' has committed nothing; name the topics with --topic" in refused(
        "g", "--all-topics", "--to-latest"
    )
    assert f"has committed nothing for {topic}:1, so" in refused("g", "-t", f"{topic}:1", "--shift-by", 1)
    assert "there is no group 'g'" in fails("groups", "describe", "g")


def test_a_plan_in_a_file_applies_to_the_groups_that_it_names(run, fails, topic, tmp_path):
    file = tmp_path / "plan.csv"
    file.write_text(f"one,{topic},0,3\ntwo,{topic},1,4\n")
    assert run("groups", "reset-offsets", "--from-file", file, "--execute").endswith("Committed 2 offsets.\n")
    assert (offsets(run, "one"), offsets(run, "two")) == ({0: 3}, {1: 4})
    sentence = fails("groups", "reset-offsets", "three", "--from-file", file)
    assert sentence == f"kafkapy: {file} has no line for group 'three'.\n"


def test_an_exported_plan_names_the_group_unless_the_call_names_it(run, topic, tmp_path):
    file = tmp_path / "plan.csv"
    file.write_text(f"alone,{topic},0,3\n")
    again = tmp_path / "again.csv"
    run("groups", "reset-offsets", "--from-file", file, "--export", again)
    assert again.read_text() == file.read_text()
    run("groups", "reset-offsets", "--from-file", again, "--execute")
    assert offsets(run, "alone") == {0: 3}
    assert run("groups", "reset-offsets", "alone", "--from-file", again, "--export", "-") == f"{topic},0,3\n"


def test_offsets_and_groups_are_deleted(run, fails, topic):
    run("groups", "reset-offsets", "deleted", "-t", topic, "--to-latest", "--execute")
    result = run("groups", "delete-offsets", "deleted", "--topic", f"{topic}:0-1")
    assert result == f"Deleted 2 offsets of group deleted: {topic}:0-1.\n"
    assert fails("groups", "delete-offsets", "deleted", "--topic", f"{topic}:0,2") == (
        f"kafkapy: group 'deleted' has committed nothing for {topic}:0.\n"
    )
    assert "for topic 'nowhere'" in fails("groups", "delete-offsets", "deleted", "--topic", "nowhere")
    assert fails("groups", "delete-offsets", "nobody", "-t", topic) == "kafkapy: there is no group 'nobody'.\n"
    assert run("groups", "delete", "deleted") == "Deleted group deleted.\n"
    assert fails("groups", "delete", "deleted", "nobody") == (
        "kafkapy: there is no group 'deleted'; there is no group 'nobody'.\n"
    )


def test_a_transaction_is_shown_and_aborted(run, fails, topic, group_broker):
    with TransactionalProducer(group_broker.bootstrap_servers, "shown-and-aborted") as producer:
        producer.begin()
        for partition in (0, 1):
            producer.send(topic, b"x", partition=partition)
        producer.flush()
        (row,) = (row for row in run("transactions", "list").splitlines() if row.startswith("shown-and-aborted"))
        assert row.split()[1] == "Ongoing"
        row = run("transactions", "describe", "shown-and-aborted").splitlines()[-1]
        assert re.split("  +", row)[5:7] == ["1m", f"{topic}:0-1"]
        rows = run("transactions", "describe-producers", topic).splitlines()
        opened = [(row.split()[0], row.split()[-1]) for row in rows[1:]]
        assert [one for one in opened if one[1] != "-"] == [("0", "10"), ("1", "10")]
        assert run("transactions", "find-hanging", topic) == "No transaction hangs in 3 partitions.\n"
        sentence = fails("transactions", "abort", "--topic", topic, "--partition", 0, "--start-offset", 9)
        assert sentence == (
            f"kafkapy: no open transaction begins at 9 in {topic}:0: those that are open there begin at 10.\n"
        )
        assert run("transactions", "abort", "shown-and-aborted") == (
            f"Aborted the transaction of shown-and-aborted in {topic}:0-1; its producer is fenced.\n"
        )
        assert "has no open transaction: it is " in fails("transactions", "abort", "shown-and-aborted")


def test_the_error_names_a_missing_group_or_transaction(run, fails, topic):
    assert fails("transactions", "describe", "nobody") == "kafkapy: there is no transactional id 'nobody'.\n"
    assert fails("transactions", "abort", "nobody") == "kafkapy: there is no transactional id 'nobody'.\n"
    assert "topic 'nowhere'" in fails("transactions", "describe-producers", "nowhere")
    assert "has no partition 9: it has 3" in fails("transactions", "describe-producers", topic, "-p", 9)
    assert "there is no broker 5; the cluster has 1001" in fails("transactions", "find-hanging", "--broker", 5)
    assert run("transactions", "list", "--producer-id", 987654) == "There are no such transactional ids.\n"
    assert run("groups", "list", "--state", "PreparingRebalance") == "There are no such groups.\n"
    assert run("transactions", "describe-producers", topic, "-p", 1).startswith("partition  producer id")


def test_consume_says_that_it_waits_for_a_group_that_does_not_start(kafkapy, monkeypatch):
    monkeypatch.setattr(kafka_member, "JOIN_WARNING_AFTER_S", 0.0)
    with Broker(offsets_topic_replication_factor=3) as broker:
        address = broker.bootstrap_servers
        with Admin(address) as admin:
            admin.create_topic("t", 1)
        threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()
        code, out, err = kafkapy("consume", "t", "--group", "g", "--bootstrap-server", address)
    assert (code, out) == (130, "")
    assert err.count("still waiting for group 'g': ") == 1
