"""The original consumer survives when the network, ZooKeeper or the broker is away for a while."""

import itertools
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafkapy.client import Admin, RecordProducer
from kafkapy.client.original.consuming.connector import ConsumerConnector
from kafkapy.client.original.consuming.streams import SLICE
from tests.harness import original_child
from tests.harness.brokers import Process
from tests.harness.tcp_proxy import TcpProxy
from tests.harness.waiting import eventually
from tests.harness.zookeeper import PATIENT_MS, SESSION_MS, ZooKeeper, refuse_logins
from tests.zookeeper.conftest import Start

TOPIC = "t"
SHARED = {
    "0": "g_one-0",
    "1": "g_one-0",
    "2": "g_two-0",
    "3": "g_two-0",
}  # owners of the partitions while both members are there
# Settings of brokers with a long session time-out, so that only members lose their sessions.
PATIENT = {"zookeeper_session_timeout_ms": str(PATIENT_MS)}


class Reader:
    """A member with one stream, and a thread that reads it and records the places of the records in `read`."""

    def __init__(self, connect: str, name: str, session_ms: int = PATIENT_MS) -> None:
        quick = {"zookeeper.session.timeout.ms": str(session_ms), "rebalance.backoff.ms": "200"}
        quick |= {"auto.offset.reset": "smallest", "auto.commit.interval.ms": "50", "rebalance.max.retries": "30"}
        self.connector = ConsumerConnector(
            {"zookeeper.connect": connect, "group.id": "g", "consumer.id": name, **quick}
        )
        self.read: list[tuple[int, int]] = []  # (partition, offset), in the order of arrival
        self._stream = self.connector.create_message_streams({TOPIC: 1})[TOPIC][0]
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for record in self._stream:
            self.read.append((record.partition, record.offset))


def seen(*readers: Reader) -> Counter[tuple[int, int]]:
    """Return how often each record has been read so far."""
    return Counter(itertools.chain.from_iterable(reader.read.copy() for reader in readers))


def produce(bootstrap: str, count: int) -> None:
    with RecordProducer(bootstrap) as producer:
        send(producer, count)


def send(producer: RecordProducer, count: int) -> None:
    for number in range(count):
        producer.send(TOPIC, b"x", partition=number % 4)
    producer.flush()


def owners(zk: KazooClient) -> dict[str, str]:
    path = f"/consumers/g/owners/{TOPIC}"
    try:
        return {name: zk.get(f"{path}/{name}")[0].decode() for name in zk.get_children(path)}
    except NoNodeError:
        return {}


def committed(zk: KazooClient) -> int:
    path = f"/consumers/g/offsets/{TOPIC}"
    try:
        return sum(int(zk.get(f"{path}/{name}")[0]) for name in zk.get_children(path))
    except NoNodeError:
        return 0


def test_a_member_that_is_cut_off_loses_its_partitions_and_gets_them_back(
    zookeeper: ZooKeeper, connect: str, start: Start
) -> None:
    bootstrap = start(**PATIENT).bootstrap_servers
    with Admin(bootstrap) as admin:
        admin.create_topic(TOPIC, 4)
    proxy = TcpProxy(zookeeper.port)
    zk = KazooClient(connect)
    zk.start()
    one = Reader(f"{proxy.address}/{connect.partition('/')[2]}", "one", SESSION_MS)
    two = Reader(connect, "two")
    eventually(lambda: owners(zk) == SHARED)
    produce(bootstrap, 200)
    eventually(lambda: len(one.read) + len(two.read) == 200)
    eventually(lambda: committed(zk) == 200)
    proxy.cut()
    eventually(lambda: owners(zk) == dict.fromkeys("0123", "g_two-0"))
    produce(bootstrap, 200)
    eventually(lambda: len(seen(two)) >= 300, what="who has taken over does not read")
    eventually(lambda: committed(zk) == 400)
    proxy.mend()
    eventually(lambda: owners(zk) == SHARED)
    assert committed(zk) == 400  # the member that was away has not overwritten the other's commits
    produce(bootstrap, 200)
    eventually(lambda: len(seen(one, two)) == 600)
    eventually(lambda: committed(zk) == 600)
    # Only records written while the first member was cut off may have been read by both members.
    twice = [place for place, times in seen(one, two).items() if times > 1]
    assert all(50 <= offset < 100 for _, offset in twice)
    one.connector.shutdown()
    two.connector.shutdown()
    proxy.close()
    zk.stop()
    zk.close()


def test_a_member_whose_login_is_refused_for_a_while_joins_its_group_again(
    zookeeper: ZooKeeper, connect: str, start: Start, zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a refused login, kazoo does not reconnect, and forgets its session."""
    bootstrap = start(**PATIENT).bootstrap_servers
    with Admin(bootstrap) as admin:
        admin.create_topic(TOPIC, 4)
    proxy = TcpProxy(zookeeper.port)
    reader = Reader(f"{proxy.address}/{connect.partition('/')[2]}", "one", SESSION_MS)
    eventually(lambda: owners(zk) == dict.fromkeys("0123", "g_one-0"))
    rebalancer, kazoo = reader.connector._rebalancer, reader.connector._source.client._connection
    assert rebalancer is not None
    session, refusals = rebalancer.session, refuse_logins(monkeypatch, kazoo, 3)
    proxy.mend()  # breaks the connection
    eventually(lambda: not refusals)
    eventually(lambda: rebalancer.session != session and len(rebalancer.owned) == 4)
    produce(bootstrap, 100)
    eventually(lambda: len(seen(reader)) == 100)
    reader.connector.shutdown()
    proxy.close()


def test_a_paused_member_delivers_no_records_of_partitions_that_another_has_taken_over(
    connect: str, start: Start, zk: KazooClient, tmp_path: Path
) -> None:
    bootstrap = start(**PATIENT).bootstrap_servers
    with Admin(bootstrap) as admin:
        admin.create_topic(TOPIC, 4)
    count = 100_000
    settings = {"zookeeper.connect": connect, "group.id": "g", "consumer.id": "one", "auto.offset.reset": "smallest"}
    settings |= {"zookeeper.session.timeout.ms": str(SESSION_MS), "rebalance.backoff.ms": "200"}
    settings |= {"rebalance.max.retries": "30", "auto.commit.interval.ms": "50"}
    arguments = [TOPIC, "1", *(f"{name}={value}" for name, value in settings.items())]
    one = Process([sys.executable, original_child.__file__, *arguments], tmp_path / "one.log")
    eventually(lambda: "ready" in one.lines)
    two = Reader(connect, "two")
    eventually(lambda: owners(zk) == SHARED)
    try:
        produce(bootstrap, count)
        eventually(lambda: len(one.lines) > 100)
        one.freeze()
        eventually(lambda: owners(zk) == dict.fromkeys("0123", "g_two-0"))
        eventually(lambda: committed(zk) == count, seconds=60)
        before = len(one.lines)
        assert before < count / 2, "it was stopped too late: it has read everything"
    finally:
        one.thaw()
    eventually(lambda: owners(zk) == SHARED)
    # The member may deliver the slice that it was reading, and a line that was only partly in the pipe.
    assert len(one.lines) - before <= SLICE + 1
    assert committed(zk) == count
    one.child.terminate()
    two.connector.shutdown()


def test_reading_continues_when_the_broker_comes_back(connect: str, start: Start) -> None:
    server = start(**PATIENT)
    bootstrap = server.bootstrap_servers
    with Admin(bootstrap) as admin:
        admin.create_topic(TOPIC, 4)
    reader = Reader(connect, "one")
    produce(bootstrap, 100)
    eventually(lambda: len(seen(reader)) == 100)
    server.stop()
    start(listeners=f"PLAINTEXT://{bootstrap}", **PATIENT)
    produce(bootstrap, 100)
    eventually(lambda: len(seen(reader)) == 200)
    assert set(seen(reader).values()) == {1}
    reader.connector.shutdown()


def test_a_zookeeper_that_comes_back_finds_the_group_as_it_was(tmp_path: Path, start: Start) -> None:
    zookeeper = ZooKeeper(tmp_path / "zookeeper")
    proxy = TcpProxy(zookeeper.port)
    try:
        bootstrap = start(where=proxy.address, **PATIENT).bootstrap_servers
        with Admin(bootstrap) as admin:
            admin.create_topic(TOPIC, 4)
        # The session time-outs are long enough for a restart of ZooKeeper.
        one, two = (Reader(proxy.address, name, session_ms=15 * SESSION_MS) for name in ("one", "two"))
        zk = KazooClient(zookeeper.address)
        zk.start()
        eventually(lambda: owners(zk) == SHARED)  # before that, both members may get the same record
        zk.stop()
        producer = RecordProducer(bootstrap)
        send(producer, 100)
        eventually(lambda: len(seen(one, two)) == 100)
        zookeeper.stop()
        send(producer, 100)  # owned partitions are still read meanwhile
        eventually(lambda: len(seen(one, two)) == 200)
        proxy.cut()
        zookeeper.start()
        proxy.mend()
        zk.start()
        eventually(lambda: owners(zk) == SHARED)
        eventually(lambda: committed(zk) == 200)
        send(producer, 100)
        eventually(lambda: len(seen(one, two)) == 300)
        assert set(seen(one, two).values()) == {1}
        producer.close()
        one.connector.shutdown()
        eventually(lambda: owners(zk) == dict.fromkeys("0123", "g_two-0"))
        two.connector.shutdown()
        zk.stop()
        zk.close()
    finally:
        proxy.close()
        zookeeper.stop()
