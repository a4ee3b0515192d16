"""ConsumerConnector: streams, how members share partitions, offsets, and failures."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from kafkapy.client import Admin, Cluster, RecordProducer
from kafkapy.client.administration.group_admin import GroupAdmin
from kafkapy.client.fetched import ConsumerRecord, read_records
from kafkapy.client.groups.group_types import OffsetAndMetadata
from kafkapy.client.original.consuming.connector import ConsumerConnector
from kafkapy.client.original.consuming.streams import Stream
from kafkapy.client.original.errors import ConsumerIdTaken, ConsumerTimeout, OwnershipLost, RebalanceFailed
from kafkapy.client.original.filters import Whitelist
from kafkapy.client.original.znodes.layouts import Layout
from kafkapy.client.original.znodes.subscriptions import Subscription
from kafkapy.errors import KafkaError
from kafkapy.metadata.zookeeper.client import ZooKeeperError
from tests.harness.waiting import eventually
from tests.harness.zookeeper import PATIENT_MS, SESSION_MS, end_session
from tests.zookeeper.conftest import Start

TOPIC = "t"
Open = Callable[..., ConsumerConnector]


@pytest.fixture
def zk(zookeeper: object, connect: str) -> Iterator[KazooClient]:
    client = KazooClient(connect)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def bootstrap(start: Start) -> str:
    more = {"zookeeper_session_timeout_ms": str(5 * SESSION_MS), "offsets_topic_num_partitions": "1"}
    bootstrap = start(**more).bootstrap_servers
    with Admin(bootstrap) as admin:
        admin.create_topic(TOPIC, 4)
    return bootstrap


@pytest.fixture
def consumer(connect: str, bootstrap: str) -> Iterator[Open]:
    """Return a function that opens consumers of group g, which wait 10 s for a record."""
    opened: list[ConsumerConnector] = []

    def opener(**settings: str) -> ConsumerConnector:
        quick = {"zookeeper.session.timeout.ms": str(PATIENT_MS), "rebalance.backoff.ms": "100"}
        quick |= {"auto.offset.reset": "smallest", "consumer.timeout.ms": "10000", "rebalance.max.retries": "5"}
        given = {name.replace("_", "."): value for name, value in settings.items()}
        connector = ConsumerConnector({"zookeeper.connect": connect, "group.id": "g", **quick, **given})
        opened.append(connector)
        return connector

    yield opener
    for connector in opened:
        connector.shutdown()


def produce(bootstrap: str, count: int, topic: str = TOPIC, partitions: int = 4) -> None:
    with RecordProducer(bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % partitions)


def take(stream: Stream, count: int) -> list[ConsumerRecord]:
    return [next(stream) for _ in range(count)]


def owners(zk: KazooClient, group: str = "g", topic: str = TOPIC) -> dict[str, str]:
    return {name: data.decode() for name, data in below(zk, f"/consumers/{group}/owners/{topic}").items()}


def offsets(zk: KazooClient) -> dict[str, bytes]:
    return below(zk, f"/consumers/g/offsets/{TOPIC}")


def below(zk: KazooClient, path: str) -> dict[str, bytes]:
    """Return the data of a node's children by name."""
    found = {}
    try:
        for name in sorted(zk.get_children(path)):
            found[name] = zk.get(f"{path}/{name}")[0]
    except NoNodeError:
        pass  # not created yet, or deleted meanwhile: callers that wait call again
    return found


def read_in_threads(streams: list[Stream], seen: Counter[tuple[int, int]]) -> None:
    def read(stream: Stream) -> None:
        for record in stream:
            seen[record.partition, record.offset] += 1

    for stream in streams:
        threading.Thread(target=read, args=(stream,), daemon=True).start()


def test_a_consumer_resumes_where_the_last_one_stopped(consumer: Open, bootstrap: str, zk: KazooClient) -> None:
    produce(bootstrap, 400)
    first = consumer()
    (stream,) = first.create_message_streams({TOPIC: 1})[TOPIC]
    got = take(stream, 150)
    first.shutdown()
    assert list(stream) == []
    assert sum(int(data) for data in offsets(zk).values()) == 150
    assert zk.get_children("/consumers/g/ids") == []
    assert owners(zk) == {}
    (stream,) = consumer().create_message_streams({TOPIC: 1})[TOPIC]
    rest = take(stream, 250)
    values = [int(one.value or b"") for one in got + rest]
    assert sorted(values) == list(range(400))


def test_uncommitted_records_are_read_again(consumer: Open, bootstrap: str, zk: KazooClient) -> None:
    produce(bootstrap, 40)
    first = consumer(auto_commit_enable="false")
    (stream,) = first.create_message_streams({TOPIC: 1})[TOPIC]
    take(stream, 10)
    first.commit_offsets()
    take(stream, 10)
    first.shutdown()
    assert sum(int(data) for data in offsets(zk).values()) == 10
    (stream,) = consumer().create_message_streams({TOPIC: 1})[TOPIC]
    assert len(take(stream, 30)) == 30


def test_members_share_the_partitions_as_others_join_and_leave(consumer: Open, bootstrap: str, zk: KazooClient) -> None:
    seen: Counter[tuple[int, int]] = Counter()
    one = consumer(consumer_id="one")
    read_in_threads(one.create_message_streams({TOPIC: 1})[TOPIC], seen)
    assert owners(zk) == dict.fromkeys("0123", "g_one-0")
    two = consumer(consumer_id="two")
    read_in_threads(two.create_message_streams({TOPIC: 2})[TOPIC], seen)
    expected = {"0": "g_one-0", "1": "g_one-0", "2": "g_two-0", "3": "g_two-1"}
    eventually(lambda: owners(zk) == expected)
    produce(bootstrap, 400)
    many = [consumer(consumer_id=f"x{number}") for number in range(3)]  # more threads than partitions
    for other in many:
        read_in_threads(other.create_message_streams({TOPIC: 1})[TOPIC], seen)
    produce(bootstrap, 400)
    one.shutdown()
    many[0].shutdown()
    eventually(lambda: owners(zk) == {"0": "g_two-0", "1": "g_two-1", "2": "g_x1-0", "3": "g_x2-0"})
    produce(bootstrap, 400)
    eventually(lambda: len(seen) == 1200)
    assert set(seen.values()) == {1}


def test_round_robin_spreads_all_topics(consumer: Open, bootstrap: str, zk: KazooClient) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic("u", 1)
    how = {"partition_assignment_strategy": "roundrobin"}
    for name in ("a", "b"):
        consumer(consumer_id=name, **how).create_message_streams({TOPIC: 1, "u": 1})
    eventually(lambda: len(owners(zk)) == 4 and len(owners(zk, topic="u")) == 1)
    counts = Counter([*owners(zk).values(), *owners(zk, topic="u").values()])
    assert sorted(counts.values()) == [2, 3]


def test_a_filter_includes_topics_that_are_created_later(consumer: Open, bootstrap: str) -> None:
    streams = consumer().create_message_streams_by_filter(Whitelist("new.*|t"), 1)
    produce(bootstrap, 4)
    assert {record.topic for record in take(streams[0], 4)} == {"t"}
    with Admin(bootstrap) as admin:
        admin.create_topic("other", 1)
        admin.create_topic("newer", 2)
    produce(bootstrap, 10, "other", 1)
    produce(bootstrap, 10, "newer", 2)
    assert {record.topic for record in take(streams[0], 10)} == {"newer"}


def test_partitions_that_are_added_are_read(consumer: Open, bootstrap: str) -> None:
    (stream,) = consumer().create_message_streams({TOPIC: 1})[TOPIC]
    with Admin(bootstrap) as admin:
        admin.create_partitions(TOPIC, 5)
    produce(bootstrap, 10, partitions=5)
    assert {record.partition for record in take(stream, 10)} == {0, 1, 2, 3, 4}


def test_a_stream_raises_when_it_waits_too_long_and_can_be_read_again_later(consumer: Open, bootstrap: str) -> None:
    (stream,) = consumer(consumer_timeout_ms="50").create_message_streams({TOPIC: 1})[TOPIC]
    with pytest.raises(ConsumerTimeout, match=r"within 0\.05 s"):
        next(stream)
    produce(bootstrap, 1)

    def comes() -> bool:
        try:
            return next(stream).value == b"0"
        except ConsumerTimeout:
            return False

    eventually(comes)


def test_an_id_that_is_taken_is_refused(consumer: Open, zk: KazooClient) -> None:
    consumer(consumer_id="one").create_message_streams({TOPIC: 1})
    with pytest.raises(ConsumerIdTaken, match=r"/consumers/g/ids/g_one in ZooKeeper exists"):
        consumer(consumer_id="one").create_message_streams({TOPIC: 1})
    assert owners(zk) == dict.fromkeys("0123", "g_one-0")


def test_the_error_names_an_owner_that_never_releases_its_partition_and_nothing_is_stolen(
    consumer: Open, zk: KazooClient
) -> None:
    zk.create(f"/consumers/g/owners/{TOPIC}/2", b"somebody-0", makepath=True)
    with pytest.raises(RebalanceFailed, match=r"/consumers/g/owners/t/2 in ZooKeeper is still 'somebody-0'"):
        consumer(rebalance_max_retries="2").create_message_streams({TOPIC: 1})
    assert owners(zk) == {"2": "somebody-0"}
    assert zk.get_children("/consumers/g/ids") == []


def test_a_member_waits_for_an_owner_that_releases_its_partition_late(consumer: Open, zk: KazooClient) -> None:
    path = f"/consumers/g/owners/{TOPIC}/2"
    zk.create(path, b"somebody-0", makepath=True)
    done = threading.Timer(0.5, zk.delete, [path])
    done.start()
    consumer(consumer_id="one", rebalance_max_retries="5", rebalance_backoff_ms="10000").create_message_streams(
        {TOPIC: 1}
    )
    assert owners(zk) == dict.fromkeys("0123", "g_one-0")


def test_members_that_join_and_leave_do_not_use_up_the_time_for_a_former_owner(consumer: Open, zk: KazooClient) -> None:
    path = f"/consumers/g/owners/{TOPIC}/2"
    zk.create(path, b"somebody-0", makepath=True)

    def let_go() -> None:
        for number in range(8):
            zk.create(f"/consumers/g/ids/g_{number}", Subscription({"other": 1}).written(Layout.V08, 0), makepath=True)
            eventually(lambda number=number: len(owners(zk)) == 1)
        zk.delete(path)

    done = threading.Thread(target=let_go)
    done.start()
    one = consumer(consumer_id="one", rebalance_max_retries="2", rebalance_backoff_ms="10000")
    one.create_message_streams({TOPIC: 1})
    assert owners(zk) == dict.fromkeys("0123", "g_one-0")
    done.join()


def test_a_member_registers_again_after_its_session_expires(
    consumer: Open, bootstrap: str, zk: KazooClient, connect: str
) -> None:
    seen: Counter[tuple[int, int]] = Counter()
    connector = consumer(consumer_id="one", auto_commit_interval_ms="50")
    read_in_threads(connector.create_message_streams({TOPIC: 1})[TOPIC], seen)
    produce(bootstrap, 100)
    eventually(lambda: len(seen) == 100)
    eventually(lambda: sum(map(int, offsets(zk).values())) == 100)
    before = zk.get("/consumers/g/ids/g_one")[1].ephemeralOwner
    end_session(connect, connector._source.client.client_id)

    def is_back() -> bool:
        stat = zk.exists("/consumers/g/ids/g_one")
        return stat is not None and stat.ephemeralOwner != before and len(owners(zk)) == 4

    eventually(is_back)
    produce(bootstrap, 100)
    eventually(lambda: len(seen) == 200)
    assert set(seen.values()) == {1}


def test_nothing_is_committed_without_the_session(consumer: Open, bootstrap: str, zk: KazooClient) -> None:
    connector = consumer()
    (stream,) = connector.create_message_streams({TOPIC: 1})[TOPIC]
    produce(bootstrap, 4)
    take(stream, 4)
    assert connector._rebalancer is not None
    connector._rebalancer.session = 1
    with pytest.raises(OwnershipLost, match="has lost its ZooKeeper session"):
        connector.commit_offsets()
    assert zk.exists("/consumers/g/offsets") is None


def test_a_commit_that_fails_again_and_again_is_logged_once_with_its_reason(
    consumer: Open, bootstrap: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    connector = consumer(consumer_id="one", auto_commit_interval_ms="10")
    (stream,) = connector.create_message_streams({TOPIC: 1})[TOPIC]
    problems: list[Exception] = [ConnectionLoss()] * 3 + [KazooTimeoutError()] * 2
    commit = connector._commit_at

    def failing(offsets: Any) -> None:
        if problems:
            raise problems.pop(0)
        commit(offsets)

    monkeypatch.setattr(connector, "_commit_at", failing)
    produce(bootstrap, 4)
    take(stream, 4)
    eventually(lambda: "over: offsets are not committed" in caplog.text)
    messages = [one.getMessage() for one in caplog.records if "not committed" in one.getMessage()]
    assert messages == [
        "g_one: offsets are not committed: ZooKeeper: ConnectionLoss",
        "g_one: offsets are not committed: ZooKeeper: KazooTimeout",
        "g_one: over: offsets are not committed",
    ]


def test_broken_znodes_affect_no_other_member_or_partition(
    consumer: Open, bootstrap: str, zk: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    zk.create("/consumers/g/ids/g_broken", b"{", makepath=True)
    zk.create("/consumers/g/ids/g_dots", Subscription({"..": 1}).written(Layout.V08, 0))
    zk.create("/brokers/ids/00", b"{", makepath=True)
    zk.create(f"/consumers/g/offsets/{TOPIC}/1", b"many", makepath=True)
    zk.create("/brokers/topics/crooked", b"{}", makepath=True)
    produce(bootstrap, 40)
    connector = consumer()
    streams = connector.create_message_streams_by_filter(Whitelist("t|crooked"), 1)
    got: list[ConsumerRecord] = []
    with pytest.raises(KafkaError, match=r"/consumers/g/offsets/t/1 in ZooKeeper has b'many', which is not an offset"):
        got.extend(streams[0])
    got += take(streams[0], 30 - len(got))
    assert Counter(record.partition for record in got) == {0: 10, 2: 10, 3: 10}
    connector.shutdown()
    assert offsets(zk) == {"0": b"10", "1": b"many", "2": b"10", "3": b"10"}
    for path in ("/consumers/g/ids/g_broken", "/consumers/g/ids/g_dots", "/brokers/ids/00", "/brokers/topics/crooked"):
        assert f"{path} in ZooKeeper is ignored: " in caplog.text


def test_an_offset_too_large_for_a_fetch_affects_no_other_partition(
    consumer: Open, bootstrap: str, zk: KazooClient
) -> None:
    zk.create(f"/consumers/g/offsets/{TOPIC}/1", b"9999999999999999999", makepath=True)
    produce(bootstrap, 40)
    (stream,) = consumer().create_message_streams({TOPIC: 1})[TOPIC]
    got: list[ConsumerRecord] = []
    with pytest.raises(KafkaError, match=r"/consumers/g/offsets/t/1 in ZooKeeper has b'9{19}', which is not an offset"):
        got.extend(stream)
    got += take(stream, 30 - len(got))
    assert Counter(record.partition for record in got) == {0: 10, 2: 10, 3: 10}


def test_a_member_that_cannot_get_an_assigned_partition_logs_it_and_keeps_retrying(
    consumer: Open, bootstrap: str, zk: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "kafkapy.client")
    connector = consumer(consumer_id="one", rebalance_max_retries="2")
    connector.create_message_streams({TOPIC: 1})
    assert connector.waits_for is None
    path = f"/consumers/g/owners/{TOPIC}/4"
    zk.create(path, b"somebody-0")
    with Admin(bootstrap) as admin:
        admin.create_partitions(TOPIC, 5)
    eventually(lambda: f"{path} in ZooKeeper is still 'somebody-0' Retrying." in caplog.text)
    eventually(lambda: caplog.text.count("Retrying.") > 1)
    messages = [one for one in caplog.records if "Retrying." in one.getMessage() and one.levelno > logging.DEBUG]
    assert len(messages) == 1
    assert caplog.text.count("g_one waits: ") == 1
    assert owners(zk)["4"] == "somebody-0"
    zk.delete(path)
    eventually(lambda: owners(zk) == dict.fromkeys("01234", "g_one-0"))


def test_an_offset_out_of_range_is_reset(consumer: Open, bootstrap: str, zk: KazooClient) -> None:
    zk.create(f"/consumers/g/offsets/{TOPIC}/1", b"1000", makepath=True)
    produce(bootstrap, 40)
    (stream,) = consumer().create_message_streams({TOPIC: 1})[TOPIC]
    assert len({(one.partition, one.offset) for one in take(stream, 40)}) == 40


@pytest.mark.parametrize(
    ("settings", "in_kafka", "in_zookeeper"),
    [
        ({"offsets_storage": "kafka"}, 10, b"10"),
        ({"offsets_storage": "kafka", "dual_commit_enabled": "false"}, 10, None),
        ({}, None, b"10"),
    ],
)
def test_offsets_are_stored_where_the_settings_say(
    consumer: Open,
    bootstrap: str,
    zk: KazooClient,
    settings: dict[str, str],
    in_kafka: int | None,
    in_zookeeper: bytes | None,
) -> None:
    produce(bootstrap, 40)
    connector = consumer(**settings)
    (stream,) = connector.create_message_streams({TOPIC: 1})[TOPIC]
    take(stream, 40)
    connector.shutdown()
    with Cluster(bootstrap) as cluster:
        found = GroupAdmin(cluster).offsets(["g"])["g"]
    assert isinstance(found, dict)
    assert {where: one.offset for where, one in found.items()} == (
        {} if in_kafka is None else {(TOPIC, number): in_kafka for number in range(4)}
    )
    path = f"/consumers/g/offsets/{TOPIC}/3"
    assert (zk.get(path)[0] if zk.exists(path) else None) == in_zookeeper


def test_with_dual_commits_the_later_offset_is_used(consumer: Open, bootstrap: str, zk: KazooClient) -> None:
    produce(bootstrap, 40)
    for number, offset in enumerate([b"3", b"8", b"10"]):
        zk.create(f"/consumers/g/offsets/{TOPIC}/{number}", offset, makepath=True)
    with Cluster(bootstrap) as cluster:
        kept = {(TOPIC, 0): OffsetAndMetadata(5), (TOPIC, 1): OffsetAndMetadata(6), (TOPIC, 3): OffsetAndMetadata(9)}
        GroupAdmin(cluster).commit("g", kept)
    (stream,) = consumer(offsets_storage="kafka").create_message_streams({TOPIC: 1})[TOPIC]
    got = {(one.partition, one.offset) for one in take(stream, 8)}
    assert got == {(0, 5), (0, 6), (0, 7), (0, 8), (0, 9), (1, 8), (1, 9), (3, 9)}


def test_with_dual_commits_offsets_of_partitions_without_new_records_get_into_both_places(
    consumer: Open, bootstrap: str, zk: KazooClient
) -> None:
    produce(bootstrap, 40)
    for number in range(4):
        zk.create(f"/consumers/g/offsets/{TOPIC}/{number}", b"10", makepath=True)
    connector = consumer(offsets_storage="kafka")
    connector.create_message_streams({TOPIC: 1})
    connector.shutdown()
    with Cluster(bootstrap) as cluster:
        found = GroupAdmin(cluster).offsets(["g"])["g"]
    assert isinstance(found, dict)
    assert {where: one.offset for where, one in found.items()} == {(TOPIC, number): 10 for number in range(4)}


def test_given_offsets_are_committed_only_for_owned_partitions(consumer: Open, bootstrap: str, zk: KazooClient) -> None:
    produce(bootstrap, 40)
    connector = consumer()
    (stream,) = connector.create_message_streams({TOPIC: 1})[TOPIC]
    ends = {}
    while len(ends) < 4:
        chunk = stream.next_chunk(10)
        assert chunk is not None
        ends[chunk.where] = chunk.start + len(read_records(chunk.where, chunk.data, chunk.start)[0])
    assert offsets(zk) == {}
    connector.commit_offsets({(TOPIC, 1): ends[TOPIC, 1], (TOPIC, 2): 3, (TOPIC, 9): 5, ("other", 0): 5})
    assert offsets(zk) == {"1": b"10", "2": b"3"}
    connector.shutdown()
    assert {name: offsets(zk)[name] for name in "12"} == {"1": b"10", "2": b"3"}


class Listener:
    """Commits offset 7 for the partitions that will be released, and records the owners in ZooKeeper at that time."""

    def __init__(self, zk: KazooClient) -> None:
        self.zk = zk
        self.connector: ConsumerConnector | None = None
        self.calls: list[tuple[list[int], dict[str, str]]] = []

    def before_release(self, partitions: list[tuple[str, int]]) -> None:
        self.calls.append((sorted(number for _, number in partitions), owners(self.zk)))
        assert self.connector is not None
        # An application with records in flight would commit from another thread.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(self.connector.commit_offsets, dict.fromkeys(partitions, 7)).result(10)


def test_a_listener_is_called_before_partitions_are_released_and_can_commit_then(
    consumer: Open, bootstrap: str, zk: KazooClient
) -> None:
    listener = Listener(zk)
    listener.connector = one = consumer(consumer_id="one", auto_commit_enable="false")
    one.create_message_streams({TOPIC: 1}, rebalance_listener=listener)
    two = consumer(consumer_id="two", auto_commit_enable="false")
    two.create_message_streams_by_filter(Whitelist(TOPIC))
    eventually(lambda: owners(zk) == {"0": "g_one-0", "1": "g_one-0", "2": "g_two-0", "3": "g_two-0"})
    assert listener.calls == [([2, 3], dict.fromkeys("0123", "g_one-0"))]
    assert offsets(zk) == {"2": b"7", "3": b"7"}
    one.shutdown()
    assert listener.calls[1:] == [([0, 1], {"0": "g_one-0", "1": "g_one-0", "2": "g_two-0", "3": "g_two-0"})]
    assert offsets(zk) == dict.fromkeys("0123", b"7")


def test_after_a_listener_fails_partitions_are_released_and_nothing_is_committed(
    consumer: Open, bootstrap: str, zk: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    produce(bootstrap, 4)
    one = consumer(consumer_id="one")
    (stream,) = one.create_message_streams({TOPIC: 1}, rebalance_listener=Listener(zk))[TOPIC]
    take(stream, 4)
    one.shutdown()
    assert "the rebalance listener failed" in caplog.text
    assert owners(zk) == {}
    assert offsets(zk) == {}


def test_a_path_without_a_cluster_is_refused(consumer: Open, connect: str) -> None:
    with pytest.raises(ZooKeeperError, match=r"which has no /brokers/ids: there is no Kafka cluster"):
        ConsumerConnector({"zookeeper.connect": f"{connect}/wrong", "group.id": "g"})


def test_streams_can_be_created_only_once(consumer: Open) -> None:
    connector = consumer()
    connector.create_message_streams({TOPIC: 1})
    with pytest.raises(RuntimeError, match="once"):
        connector.create_message_streams_by_filter(Whitelist(".*"))


def test_the_time_out_of_the_session_is_the_one_that_zookeeper_grants(consumer: Open) -> None:
    connector = consumer(zookeeper_session_timeout_ms="600000")
    assert connector._source.session_timeout_s() == 60.0  # maxSessionTimeout in tests/harness/zookeeper.py
    connector.shutdown()
    connector = consumer()
    assert connector._source.session_timeout_s() == PATIENT_MS / 1000
