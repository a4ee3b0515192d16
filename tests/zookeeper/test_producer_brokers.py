"""The original producer finds the brokers in ZooKeeper, and follows their changes."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from kazoo.client import KazooClient

from kafkapy.client.errors import ConnectionFailed
from kafkapy.client.original.producing import producer_brokers
from kafkapy.client.original.producing.producer import Producer
from kafkapy.client.original.producing.producer_brokers import ZooKeeperBrokers
from kafkapy.client.original.producing.producer_messages import KeyedMessage
from kafkapy.testing.broker import Broker
from tests.harness.tcp_proxy import TcpProxy
from tests.harness.waiting import eventually
from tests.harness.zookeeper import SESSION_MS, ZooKeeper, refuse_logins

OF_0_8 = b'{"jmx_port":-1,"timestamp":"1","host":"a.example","version":1,"port":9092}'
OF_0_7 = b"b.example-1:b.example:9093"
OF_3_9 = (
    b'{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://[::1]:9094"],"port":-1}'
)


@pytest.fixture
def keeper(zookeeper: ZooKeeper, connect: str) -> Iterator[Any]:
    chroot = connect.partition("/")[2]
    root: Any = KazooClient(zookeeper.address)
    root.start()
    root.ensure_path(chroot)
    root.chroot = f"/{chroot}"
    yield root
    root.stop()
    root.close()


def test_the_addresses_of_all_layouts_are_read_and_a_broken_node_is_named(
    keeper: Any, connect: str, caplog: pytest.LogCaptureFixture
) -> None:
    for name, data in {"10": OF_0_7, "2": OF_0_8, "11": OF_3_9, "3": b"{", "4": b"[1]"}.items():
        keeper.create(f"/brokers/ids/{name}", data, makepath=True)
    brokers = ZooKeeperBrokers(connect, 6000, 6000)
    try:
        assert brokers.addresses() == ["a.example:9092", "b.example:9093", "[::1]:9094"]
        assert "/brokers/ids/3 in ZooKeeper is ignored" in caplog.text
        assert "/brokers/ids/4 in ZooKeeper is ignored" in caplog.text
    finally:
        brokers.close()


def test_added_and_removed_brokers_and_topics_are_noticed(keeper: Any, connect: str) -> None:
    keeper.create("/brokers/ids/1", OF_0_8, makepath=True)
    keeper.create("/brokers/topics", makepath=True)
    brokers = ZooKeeperBrokers(connect, 6000, 6000)
    try:
        brokers.addresses()
        assert not brokers.has_changed()
        changes: list[Callable[[], object]] = [
            lambda: keeper.create("/brokers/ids/2", OF_0_7),
            lambda: keeper.create("/brokers/topics/t", b"{}"),
            lambda: keeper.delete("/brokers/ids/1"),
        ]
        for change in changes:
            change()
            eventually(brokers.has_changed)
            found = brokers.addresses()
            assert not brokers.has_changed()
        assert found == ["b.example:9093"]
    finally:
        brokers.close()


def test_nothing_is_read_again_while_zookeeper_cannot_be_reached(
    zookeeper: ZooKeeper, keeper: Any, connect: str
) -> None:
    keeper.create("/brokers/ids/1", OF_0_8, makepath=True)
    keeper.create("/brokers/topics", makepath=True)
    proxy = TcpProxy(zookeeper.port)
    brokers = ZooKeeperBrokers(f"{proxy.address}/{connect.partition('/')[2]}", SESSION_MS, 6000)
    try:
        brokers.addresses()
        proxy.cut()
        eventually(brokers._has_changed.is_set)  # the connection is lost
        assert not brokers.has_changed()
        keeper.create("/brokers/ids/2", OF_0_7)
        proxy.mend()
        eventually(brokers.has_changed)
        assert brokers.addresses() == ["a.example:9092", "b.example:9093"]
    finally:
        brokers.close()
        proxy.close()


def test_brokers_are_read_again_after_logins_that_zookeeper_has_refused_for_a_while(
    zookeeper: ZooKeeper, keeper: Any, connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a refused login, kazoo does not reconnect by itself."""
    monkeypatch.setattr(producer_brokers, "RETRY_S", 0.1)
    keeper.create("/brokers/ids/1", OF_0_8, makepath=True)
    keeper.create("/brokers/topics", makepath=True)
    proxy = TcpProxy(zookeeper.port)
    brokers = ZooKeeperBrokers(f"{proxy.address}/{connect.partition('/')[2]}", SESSION_MS, 6000)
    refusals = refuse_logins(monkeypatch, brokers._client._connection, 3)

    def are_read_again() -> bool:
        with suppress(ConnectionFailed):  # kazoo is connected for a moment before its login is refused
            return brokers.has_changed() and not refusals and brokers.addresses() == ["a.example:9092"]
        return False

    try:
        brokers.addresses()
        proxy.mend()  # breaks the connection
        eventually(are_read_again)
    finally:
        brokers.close()
        proxy.close()


def test_a_missing_broker_or_a_missing_zookeeper_is_reported_in_a_sentence(keeper: Any, connect: str) -> None:
    with pytest.raises(ConnectionFailed, match=r"has no broker at /brokers/ids.*is the chroot right"):
        Producer({"zk.connect": connect})
    with pytest.raises(ConnectionFailed, match=r"ZooKeeper at 127\.0\.0\.1:1 does not answer within 0\.3 s"):
        Producer({"zk.connect": "127.0.0.1:1", "zk.connectiontimeout.ms": "300"})


def test_a_producer_follows_its_broker_to_another_port(keeper: Any, connect: str) -> None:
    def register(broker: Broker) -> None:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        keeper.ensure_path("/brokers/ids")
        if keeper.exists("/brokers/ids/1"):
            keeper.delete("/brokers/ids/1")
        keeper.create("/brokers/ids/1", b'{"host":"%s","port":%s}' % (host.encode(), port.encode()))

    with Broker() as first, Broker() as second:
        register(first)
        with Producer({"zk.connect": connect, "retry.backoff.ms": "200"}) as producer:
            producer.send(KeyedMessage("t", b"to the first"))
            register(second)
            first.stop()
            eventually(lambda: _sent(producer))
            assert producer.stats["failed"] == 0


def _sent(producer: Producer) -> bool:
    producer.send(KeyedMessage("t", b"to the second"))
    return True
