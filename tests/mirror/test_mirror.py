"""A mirror as a whole: settings that it refuses, and its output."""

import re
import time
import urllib.request

import pytest

from kafkapy.client import Admin, Cluster, ConnectionFailed, GroupAdmin, RecordProducer, TransactionalProducer
from kafkapy.client.original.filters import Blacklist, Whitelist
from kafkapy.mirror.counts import Counts
from kafkapy.mirror.group_member import pattern_of
from kafkapy.mirror.metrics import metrics_page
from kafkapy.mirror.mirror import CannotMirror, Mirror
from kafkapy.mirror.options import MirrorOptions
from kafkapy.mirror.source_settings import read_source
from kafkapy.mirror.target_settings import read_target
from kafkapy.mirror.target_topics import NoTopic
from kafkapy.testing.broker import Broker
from tests.mirror.conftest import read

TOPICS = Whitelist("orders.*")


def source_at(address, **more):
    given = {"bootstrap.servers": address, "group.id": "g", **more}
    return read_source(given, "src.properties")


def test_a_source_that_is_the_target_is_refused(target):
    mirror = Mirror([source_at(target)], read_target({"bootstrap.servers": target}, "dst"), TOPICS, MirrorOptions())
    with pytest.raises(CannotMirror, match=r"src\.properties and dst name the same cluster, .{22}: topics keep"):
        mirror.start()


def test_an_unreachable_address_is_reported_at_once(target):
    nowhere = "127.0.0.1:1"
    with pytest.raises(ConnectionFailed, match=nowhere):
        Mirror([source_at(nowhere)], read_target({"bootstrap.servers": target}), TOPICS, MirrorOptions()).start()
    with pytest.raises(ConnectionFailed, match=nowhere):
        Mirror([source_at(target)], read_target({"bootstrap.servers": nowhere}), TOPICS, MirrorOptions()).start()


@pytest.mark.parametrize(
    ("source", "target_has", "options", "says"),
    [
        ({}, {}, {"abort_on_send_failure": False}, "contradicts abort-on-send-failure=false"),
        ({}, {"acks": "1"}, {}, "exactly-once needs acks=all and enable.idempotence=true"),
        ({"isolation.level": "read_uncommitted"}, {}, {}, "isolation.level is read_uncommitted; exactly-once needs"),
    ],
)
def test_settings_that_exclude_exactly_once_are_refused(source, target_has, options, says):
    reads = source_at("127.0.0.1:1", **source)
    target = read_target({"bootstrap.servers": "127.0.0.1:1", **target_has})
    with pytest.raises(CannotMirror, match=says):
        Mirror([reads], target, TOPICS, MirrorOptions(exactly_once=True, **options)).start()


@pytest.mark.parametrize(
    ("topics", "taken", "left"),
    [
        (Whitelist("orders.*,bills"), ["orders", "orders-1", "bills"], ["my-orders", "bills2"]),
        (Blacklist("test.*|tmp"), ["orders", "tmp2", "my-test"], ["test", "test-1", "tmp"]),
    ],
)
def test_expressions_match_whole_names(topics, taken, left):
    pattern = pattern_of(topics)
    assert [name for name in [*taken, *left] if pattern.search(name)] == taken
    assert [name for name in [*taken, *left] if topics.allows(name)] == taken


def test_counts_are_served_for_prometheus():
    streams = [
        ("a", Counts(records=2, size=200, lags={("t", 0): 5})),
        ("a", Counts(records=3, lost=1)),
        ("b", Counts(records=7, commits=4, lags={("t", 0): 1})),
    ]
    page = metrics_page(("127.0.0.1", 0), lambda: streams)
    try:
        with urllib.request.urlopen(f"http://{page.address}/metrics") as answer:
            body = answer.read().decode()
    finally:
        page.stop()
    found = dict(re.findall(r"^kafkapy_mirror_(\S+) (\S+)$", body, re.MULTILINE))
    assert found['records_total{source="a"}'] == "5.0"
    assert found['bytes_total{source="a"}'] == "200.0"
    assert found['lost_total{source="a"}'] == "1.0"
    assert found['commits_total{source="b"}'] == "4.0"
    assert found['lag{partition="0",source="a",topic="t"}'] == "5.0"
    assert found['lag{partition="0",source="b",topic="t"}'] == "1.0"


@pytest.mark.parametrize("exactly_once", [False, True])
def test_aborted_records_of_the_source_are_not_copied(target, exactly_once):
    topic = f"orders-{exactly_once}"
    with Broker(group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=2) as source:
        servers = source.bootstrap_servers
        with Admin(servers) as admin, TransactionalProducer(servers, "x") as producer:
            admin.create_topic(topic, 2)
            for number in range(20):
                producer.begin()
                producer.send(topic, b"%d" % number, partition=number % 2)
                producer.flush()
                producer.abort() if number % 4 < 2 else producer.commit()
        options = MirrorOptions(commit_interval_s=0.05, exactly_once=exactly_once)
        with Mirror([source_at(servers)], read_target({"bootstrap.servers": target}), TOPICS, options) as mirror:
            deadline = time.monotonic() + 30
            while sum(counts.records for _, counts in mirror.counts) < 10:
                assert time.monotonic() < deadline
                assert mirror.failure is None
                time.sleep(0.01)
    while len(found := sorted(int(record.value) for record in read(target, topic))) < 10:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert found == [n for n in range(20) if n % 4 >= 2]


def test_a_mirror_that_cannot_continue_says_why_when_it_is_stopped(target):
    with Broker(group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=2) as source:
        with RecordProducer(source.bootstrap_servers) as producer:
            producer.send("orders-never", b"x")
        options = MirrorOptions(create_topics="never")
        sources = [source_at(source.bootstrap_servers)]
        mirror = Mirror(sources, read_target({"bootstrap.servers": target}), TOPICS, options)
        mirror.start()
        deadline = time.monotonic() + 30
        while mirror.failure is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(NoTopic, match="the target has no topic 'orders-never'"):
            mirror.stop()
        with Cluster(source.bootstrap_servers) as cluster:
            assert GroupAdmin(cluster).offsets(["g"])["g"] == {}
