"""The broker writes the registry of Kafka 0.7 in ZooKeeper so that clients of 0.7 can read it."""

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import KeeperState

from kafkapy.server.metadata_store import StartError
from tests.harness.tcp_proxy import TcpProxy
from tests.harness.waiting import eventually
from tests.harness.zookeeper import ZooKeeper, end_session
from tests.server.kafka07.bench import Broken, Served, messages, produce

Start = Callable[..., Served]


@pytest.fixture
def start(tmp_path: Path, connect: str) -> Iterator[Start]:
    started: list[Served] = []

    def starter(name: str = "one", **settings: Any) -> Served:
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        given = {"zk_connect": connect, "zk_sessiontimeout_ms": 2000, "enable_zookeeper": "true", "hostname": "host-7"}
        served = Served(directory, **{**given, **settings})
        started.append(served)
        return served

    yield starter
    for served in started:
        served.stop()


def text(zk: KazooClient, path: str) -> str | None:
    try:
        return str(zk.get(path)[0], "ascii")
    except NoNodeError:
        return None


def test_the_broker_and_its_stored_topics_are_registered(start: Start, zk: KazooClient) -> None:
    served = start(brokerid=3)
    found = text(zk, "/brokers/ids/3")
    assert found is not None
    assert re.fullmatch(rf"host-7-\d{{13}}:host-7:{served.port}", found)
    assert zk.exists("/brokers/ids/3").ephemeralOwner
    assert not zk.exists("/brokers/topics")
    with served.connect() as client:
        for topic in ("t", "two"):
            client.send(produce(messages(b"x"), topic))
        client.offsets()
    eventually(lambda: (text(zk, "/brokers/topics/t/3"), text(zk, "/brokers/topics/two/3")) == ("1", "2"))
    served.stop()
    assert zk.get_children("/brokers/ids") == []
    assert zk.get_children("/brokers/topics/t") == []
    start(brokerid=3)
    assert (text(zk, "/brokers/topics/t/3"), text(zk, "/brokers/topics/two/3")) == ("1", "2")
    assert zk.exists("/brokers/topics/t/3").ephemeralOwner


def test_a_topic_is_registered_even_if_its_first_set_is_refused(start: Start, zk: KazooClient) -> None:
    served = start()
    with served.connect() as client:
        client.send(produce(b"\0\0\0\1x"))
        assert client.is_closed()
    eventually(lambda: text(zk, "/brokers/topics/t/0") == "1")


def test_an_id_that_is_taken_stops_the_start(start: Start, zk: KazooClient, tmp_path: Path) -> None:
    zk.create("/brokers/ids/5", b"a-1:a:1", makepath=True)
    with pytest.raises(
        StartError, match=r"a broker is registered as /brokers/ids/5 in ZooKeeper at .*another brokerid"
    ):
        start(brokerid=5)
    assert text(zk, "/brokers/ids/5") == "a-1:a:1"
    assert (tmp_path / "one" / "native" / ".kafka_cleanshutdown").exists()  # so the next start need not recover logs


def test_a_zookeeper_that_does_not_answer_stops_the_start(start: Start) -> None:
    with pytest.raises(StartError, match=r"the registry of Kafka 0.7, zk.connect in .*: ZooKeeper at 127.0.0.1:1 does"):
        start(zk_connect="127.0.0.1:1", zk_connectiontimeout_ms=200)


@pytest.mark.parametrize("path", ["/controller_epoch", "/cluster/id", "/config/topics", "/brokers/ids/9"])
def test_a_chroot_of_later_kafka_is_refused(start: Start, zk: KazooClient, path: str) -> None:
    zk.create(path, b"{}", makepath=True)
    with pytest.raises(StartError, match=rf"where {path} belongs to Kafka 0.8 or later: .*a chroot of its own"):
        start()
    assert not zk.exists("/brokers/ids/0")


def test_everything_is_registered_again_after_a_session_expiry(start: Start, zk: KazooClient, connect: str) -> None:
    served = start()
    with served.connect() as client:
        client.send(produce(messages(b"x")))
        client.offsets()
    eventually(lambda: text(zk, "/brokers/topics/t/0") == "1")
    before = zk.exists("/brokers/ids/0").czxid
    end_session(connect, served.server._kafka07._registry._client.client_id)
    eventually(lambda: zk.exists("/brokers/ids/0") and zk.exists("/brokers/ids/0").czxid > before, seconds=30)
    eventually(lambda: text(zk, "/brokers/topics/t/0") == "1", seconds=30)
    with served.connect() as client:
        client.send(produce(messages(b"x"), "later"))
        eventually(lambda: text(zk, "/brokers/topics/later/0") == "1")


def test_a_failed_directory_ends_the_registration(start: Start, zk: KazooClient) -> None:
    files = Broken()
    served = start(files=files)
    assert text(zk, "/brokers/ids/0") is not None
    files.broken = True
    with served.connect() as client:
        client.send(produce(messages(b"x")))
        assert client.is_closed()
    eventually(lambda: text(zk, "/brokers/ids/0") is None)


def test_the_broker_stops_while_zookeeper_is_away(start: Start, zookeeper: ZooKeeper, connect: str) -> None:
    proxy = TcpProxy(zookeeper.port)
    try:
        served = start(zk_connect=f"{proxy.address}/{connect.partition('/')[2]}")
        kazoo = served.server._kafka07._registry._client
        proxy.cut()
        with served.connect() as client:
            client.send(produce(messages(b"x")))
            client.offsets()  # answered when the log exists; its topic is registered then
        eventually(lambda: kazoo.client_state == KeeperState.CONNECTING and len(kazoo._queue) > 0, seconds=30)
        stopping = threading.Thread(target=served.stop, daemon=True)
        stopping.start()
        stopping.join(30)
        assert not stopping.is_alive()
    finally:
        proxy.mend()
        proxy.close()
