"""The commands about brokers, leaders and replicas, with a cluster of three brokers."""

import json

import pytest

import kafkapy
from kafkapy.client import Admin, GroupConsumer, RecordProducer
from kafkapy.client.administration.admin import BROKER, SET, TOPIC
from kafkapy.client.administration.descriptions import NewTopic
from kafkapy.tools.partitions.throttle import FOLLOWERS, LEADERS, RATES
from tests.harness.waiting import eventually
from tests.harness.zookeeper import jars_in

pytestmark = pytest.mark.other_runtime


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    jars = jars_in(tmp_path_factory.mktemp("jars") / "libs")
    config = {"auto.leader.rebalance.enable": False, "replica.lag.time.max.ms": 2000}
    with kafkapy.Cluster(3, zookeeper_jars=jars, config=config) as cluster:
        yield cluster


@pytest.fixture
def command(kafkapy, cluster, monkeypatch):
    """Return a function that runs a command on the cluster, and returns its exit code, output and error output."""
    monkeypatch.setenv("KAFKAPY_BOOTSTRAP_SERVER", cluster.bootstrap_servers)
    return kafkapy


@pytest.fixture
def run(command):
    """Return a function that runs a command that must succeed and returns its output."""

    def call(*words):
        code, out, err = command(*words)
        assert (code, err) == (0, "")
        return out

    return call


@pytest.fixture
def topic(cluster, request):
    """Return a function that creates a topic of the test with the given replicas of each partition."""
    names = []

    def create(*replicas):
        name = f"{request.node.name[:100].partition('[')[0]}-{len(names)}"
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(name, assignment=dict(enumerate(replicas)))])
        names.append(name)
        return name

    yield create
    with Admin(cluster.bootstrap_servers) as admin:
        admin.delete_topics(names)


def partitions(cluster, name):
    with Admin(cluster.bootstrap_servers) as admin:
        return admin.describe_topic(name).partitions


def test_the_brokers_are_shown_with_what_they_lead_and_lack(run, cluster, topic):
    topic([1, 2], [1, 3], [2, 1])
    found = json.loads(run("cluster", "--json"))
    assert found["controller"] == cluster.controller_id
    assert (found["partitions"], found["leaderless"]) == (3, 0)
    assert [(one["id"], one["leads"], one["replicas"], one["notInSync"]) for one in found["brokers"]] == [
        (1, 2, 3, 0),
        (2, 1, 2, 0),
        (3, 0, 1, 0),
    ]
    assert [one["id"] for one in found["brokers"] if one["controller"]] == [cluster.controller_id]
    addresses = [f"{one['host']}:{one['port']}" for one in found["brokers"]]
    assert ",".join(addresses) == cluster.bootstrap_servers
    lines = run("cluster").splitlines()
    assert lines[0] == f"Cluster {found['id']}, 3 partitions"
    assert lines[1].split()[:4] == ["broker", "address", "rack", "controller"]
    assert [line.split()[1] for line in lines[2:]] == addresses
    assert [line.split()[-3:] for line in lines[2:]] == [["2", "3", "0"], ["1", "2", "0"], ["0", "1", "0"]]


def test_a_broker_that_is_not_running_is_shown_with_its_replicas(run, cluster, topic):
    topic([3, 1])
    topic([3])
    cluster.stop(3)
    try:
        found = json.loads(run("cluster", "--json", "--bootstrap-server", cluster.bootstrap_servers))
        stopped = found["brokers"][2]
        assert stopped == {
            "id": 3,
            "host": None,
            "port": None,
            "rack": None,
            "running": False,
            "controller": False,
            "leads": 0,
            "replicas": 2,
            "notInSync": 1,  # the last replica stays in the ISR
        }
        assert found["leaderless"] == 1
        out = run("cluster", "--bootstrap-server", cluster.bootstrap_servers)
        assert ", 2 partitions, 1 without a leader\n" in out
        assert "not running" in out
    finally:
        cluster.start(3)


def test_preferred_leaders_are_elected_again_after_a_restart(run, cluster, topic):
    name = topic([2, 1], [1, 2], [2, 3])
    cluster.restart(2)
    eventually(lambda: all(len(one.isr) == 2 for one in partitions(cluster, name).values()))
    assert {one.leader for one in partitions(cluster, name).values()} == {1, 3}
    results = json.loads(run("leaders", "elect", "--topic", name, "--partition", 0, "--partition", 1, "--json"))
    assert [(one["partition"], one["elected"], one["error"]) for one in results] == [
        (0, True, None),
        (1, False, "ELECTION_NOT_NEEDED"),
    ]
    out = run("leaders", "elect", "--all")
    assert out.startswith("Elected the leaders of 1 partition.\n")
    assert f"{name} " in out
    eventually(lambda: [one.leader for one in partitions(cluster, name).values()] == [2, 1, 2])
    out = run("leaders", "elect", "-t", name)
    assert out == "Elected the leaders of 0 partitions.\nNo election was needed for 3 partitions.\n"


def test_a_failed_election_is_shown_with_its_reason(command, cluster, topic):
    name = topic([3, 1])
    cluster.stop(3)
    try:
        code, out, _ = command("leaders", "elect", "-t", name, "-b", cluster.bootstrap_servers)
        assert code == 1
        assert "The election failed for 1 partition.\n" in out
        assert "PREFERRED_LEADER_NOT_AVAILABLE" in out
    finally:
        cluster.start(3)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "either --topic or --all"),
        (["--all", "--topic", "t"], "either --topic or --all"),
        (["--all", "--partition", "1"], "--partition goes with one --topic"),
        (["-t", "a", "-t", "b", "-p", "1"], "--partition goes with one --topic"),
    ],
)
def test_options_of_an_election_that_do_not_fit_are_refused(command, words, named):
    code, _, err = command("leaders", "elect", *words)
    assert code == 2
    assert named in err


def test_an_election_of_a_partition_that_is_not_there_is_refused(command, topic):
    name = topic([1])
    code, _, err = command("leaders", "elect", "-t", name, "-p", 7)
    assert code == 1
    assert "has no partition 7" in err


def test_a_topic_is_created_with_the_assigned_replicas(run, command, cluster):
    assert run("topics", "create", "assigned", "--replica-assignment", "3:1,1:2,2:3", "--validate-only") == (
        "Topic assigned could be created.\n"
    )
    assert run("topics", "create", "assigned", "--replica-assignment", "3:1,1:2,2:3") == (
        "Created topic assigned with 3 partitions.\n"
    )
    assert [one.replicas for one in partitions(cluster, "assigned").values()] == [(3, 1), (1, 2), (2, 3)]
    run("topics", "delete", "assigned")
    assert run("topics", "create", "counted", "-p", 1, "--replication-factor", 2).endswith("with 1 partition.\n")
    assert len(partitions(cluster, "counted")[0].replicas) == 2
    run("topics", "delete", "counted")
    code, _, err = command("topics", "create", "t", "--replica-assignment", "1:x")
    assert (code, "'1:x' is not broker ids" in err) == (2, True)
    code, _, err = command("topics", "create", "t", "--replica-assignment", "1:2", "-p", 1)
    assert (code, "neither --partitions nor --replication-factor" in err) == (2, True)


def test_partitions_with_a_problem_are_shown_alone(run, command, cluster, topic):
    low = topic([1, 2], [1, 3])
    lost = topic([3])
    options = ("--under-replicated-partitions", "--under-min-isr-partitions", "--unavailable-partitions")
    run("topics", "alter", low, "-c", "min.insync.replicas=2")
    none = [run("topics", "describe", option) for option in options]
    assert none == [
        "All replicas are in sync.\n",
        "All partitions have enough replicas in sync.\n",
        "All partitions have a leader.\n",
    ]
    cluster.stop(3)
    try:
        servers = cluster.bootstrap_servers

        def shown(option):
            code, out, err = command("topics", "describe", option, "--json", "-b", servers)
            assert (code, err) == (1, "")
            return [(one["name"], [each["partition"] for each in one["partitions"]]) for one in json.loads(out)]

        assert shown("--under-replicated-partitions") == shown("--under-replicated") == [(low, [1])]
        assert shown("--under-min-isr-partitions") == [(low, [1]), (lost, [0])]
        assert shown("--unavailable-partitions") == [(lost, [0])]
    finally:
        cluster.start(3)
    code, _, err = command("topics", "describe", *options[:2])
    assert code == 2
    assert "say one of --under-replicated-partitions, --under-min-isr-partitions" in err


def test_zookeeper_alone_shows_problems_and_assigns_replicas(command, cluster):
    words = ["--zookeeper", cluster.zookeeper]
    created = command("topics", "create", "by-nodes", "--replica-assignment", "1:3,2:1", *words)
    assert created == (0, "Created topic by-nodes with 2 partitions.\n", "")
    with Admin(cluster.bootstrap_servers) as admin:
        found = admin.cluster.topic("by-nodes", refresh=True, wait_for_leaders=True)
        assert [one.replicas for one in found.partitions.values()] == [(1, 3), (2, 1)]
        eventually(lambda: command("topics", "describe", "by-nodes", "--unavailable-partitions", *words)[0] == 0)
        code, _, err = command("topics", "describe", "--under-min-isr-partitions", *words)
        assert (code, "needs --bootstrap-server" in err) == (2, True)
        admin.delete_topics(["by-nodes"])


def fill(cluster, name, size):
    with RecordProducer(cluster.bootstrap_servers) as producer:
        for _ in range(size // 100_000):
            producer.send(name, b"v" * 100_000, partition=0)


def throttles(cluster, name):
    """Return the settings of the throttle that a topic and the brokers have."""
    found = {}
    with Admin(cluster.bootstrap_servers) as admin:
        for entry in admin.describe_configs(TOPIC, name, [LEADERS, FOLLOWERS]):
            if entry.source == "DYNAMIC_TOPIC_CONFIG":
                found[entry.name] = entry.value
        for number in cluster.running:
            for entry in admin.describe_configs(BROKER, str(number), RATES):
                if entry.source == "DYNAMIC_BROKER_CONFIG":
                    found[number, entry.name] = entry.value
    return found


def test_a_plan_is_shown_first_and_then_done(run, command, cluster, topic):
    name = topic([1, 2], [2, 3])
    fill(cluster, name, 200_000)
    words = ["partitions", "reassign", "-t", name, "--replicas", "3,2"]
    planned = json.loads(run(*words, "--json"))
    assert [(one["partition"], one["replicas"], one["target"], one["begun"]) for one in planned] == [
        (0, [1, 2], [3, 2], False),
        (1, [2, 3], [3, 2], False),
    ]
    assert 200_000 < planned[0]["bytes"] < 210_000  # one new replica to copy
    assert planned[1]["bytes"] == 0  # only the preferred leader changes
    out = run(*words)
    assert out.endswith(" bytes to copy. Nothing has been changed; --execute does it.\n")
    assert [one.replicas for one in partitions(cluster, name).values()] == [(1, 2), (2, 3)]

    assert run(*words, "--yes").endswith("Began to move 2 partitions: kafkapy partitions status --wait\n")
    assert run("partitions", "status", "--wait").endswith("No partition is being moved.\n")
    eventually(lambda: [one.replicas for one in partitions(cluster, name).values()] == [(3, 2), (3, 2)])
    assert run(*words, "--execute") == "Nothing is to be moved: the partitions have these replicas already.\n"


def test_a_throttled_move_is_shown_and_canceled_with_its_throttle(run, command, cluster, topic):
    name = topic([1, 2])
    fill(cluster, name, 3_000_000)
    words = ["partitions", "reassign", "-t", name, "--replicas", "3,2"]
    run(*words, "--throttle", 1000, "--execute")
    assert throttles(cluster, name) == {
        LEADERS: "0:1,0:2",
        FOLLOWERS: "0:3",
        **{(number, key): "1000" for number in (1, 2, 3) for key in RATES},
    }
    (moving,) = json.loads(run("partitions", "status", "--json"))
    assert (moving["replicas"], moving["adding"], moving["removing"]) == ([3, 2, 1], [3], [1])
    assert moving["copiedBytes"] < moving["bytes"]
    assert moving["bytes"] > 3_000_000
    assert "3,2,1" in run("partitions", "status")
    assert throttles(cluster, name)  # the throttle stays while a partition is being moved
    code, _, err = command(*words)
    assert (code, "is being moved already" in err) == (1, True)

    assert run("partitions", "cancel", "-t", name) == (
        "Canceled the move of 1 partition.\nRemoved the throttle of 1 topic.\n"
    )
    assert throttles(cluster, name) == {}
    eventually(lambda: partitions(cluster, name)[0].replicas == (2, 1))  # without the added replica, in the new order
    assert run("partitions", "cancel", "--all") == "Canceled the move of 0 partitions.\n"


def test_the_end_of_a_throttled_move_removes_the_throttle(run, cluster, topic):
    name = topic([1])
    run("partitions", "reassign", "-t", name, "-r", 3, "--throttle", 10_000_000, "--execute")
    assert run("partitions", "status", "--wait", "--keep-throttle").endswith("No partition is being moved.\n")
    assert throttles(cluster, name)
    with Admin(cluster.bootstrap_servers) as admin:
        admin.alter_configs(TOPIC, name, [(LEADERS, SET, "*")])
    assert run("partitions", "status") == "No partition is being moved.\nRemoved the throttle of 1 topic.\n"
    assert throttles(cluster, name) == {LEADERS: "*"}  # this throttle was not set for a move
    eventually(lambda: sorted(partitions(cluster, name)[0].isr) == [1, 2, 3])


def test_internal_topics_are_moved_on_request(run, cluster, topic):
    name = topic([1, 2])
    with GroupConsumer(cluster.bootstrap_servers, "g") as consumer:
        consumer.subscribe([name])
        eventually(lambda: consumer.poll(0.1) is not None and consumer.positions())

    def topics(*words):
        planned = json.loads(run("partitions", "reassign", "--replication-factor", 1, "--json", *words))
        return {one["topic"] for one in planned}

    assert topics() == {name}
    assert topics("--internal") == {name, "__consumer_offsets"}
    assert topics("--topic", "__consumer_offsets") == {"__consumer_offsets"}


def test_a_file_of_kafka_says_what_to_move(run, command, cluster, topic, tmp_path):
    name = topic([1, 2], [1, 2])
    file = tmp_path / "move.json"

    def write(*replicas):
        file.write_text(json.dumps({"partitions": [{"topic": name, "partition": 1, "replicas": replicas}]}))

    write(2, 3)
    run("partitions", "reassign", file, "--execute")
    run("partitions", "status", "--wait")
    eventually(lambda: [one.replicas for one in partitions(cluster, name).values()] == [(1, 2), (2, 3)])
    write(2, 7)
    code, _, err = command("partitions", "reassign", file, "--execute")
    assert (code, "broker 7, which does not run; running: 1, 2, 3" in err) == (1, True)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["reassign", "-t", "t"], "one of --replicas, --replication-factor and a file"),
        (["reassign", "-t", "t", "-r", "1", "--replicas", "1"], "one of --replicas"),
        (["reassign", "move.json", "-t", "t"], "do not go with it"),
        (["reassign", "--replicas", "1"], "--replicas needs --topic"),
        (["reassign", "-r", "1", "-p", "0"], "--partition goes with one --topic"),
        (["reassign", "-r", "1", "--throttle", "0"], "--throttle 0"),
        (["reassign", "-r", "0"], "at least one replica"),
        (["cancel"], "either --topic or --all"),
        (["cancel", "--all", "-p", "1"], "--partition goes with one --topic"),
    ],
)
def test_options_of_moves_that_do_not_fit_are_refused(command, topic, words, named):
    topic([1])
    code, _, err = command("partitions", *words)
    assert code == 2
    assert named in err
