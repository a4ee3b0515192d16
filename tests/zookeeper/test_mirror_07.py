"""A mirror copies a cluster of Kafka 0.7 into a later cluster."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from kafkapy.client import Admin, Consumer
from kafkapy.client.original.filters import Whitelist
from kafkapy.client.original.kafka_07.wire import Connection07
from kafkapy.mirror.mirror import CannotMirror, Mirror
from kafkapy.mirror.options import MirrorOptions
from kafkapy.mirror.source_settings import read_source
from kafkapy.mirror.target_settings import read_target
from kafkapy.record.compression import GZIP, compress
from kafkapy.record.kafka07 import build_message
from kafkapy.testing.broker import Broker
from tests.harness.broker_07 import AnyBroker07, Broker07, free_port
from tests.harness.waiting import eventually
from tests.harness.zookeeper import PATIENT_MS


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with Broker(offsets_topic_num_partitions=1) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def brokers(connect: str, zk: KazooClient, tmp_path: Path) -> Iterator[list[AnyBroker07]]:
    """Start brokers 9 and 10, each with two partitions of the topic t."""
    started: list[AnyBroker07] = []
    for number in (9, 10):
        started.append(Broker07(tmp_path / str(number), connect, {"t": 2}, free_port(), brokerid=str(number)))
    yield started
    for broker in started:
        broker.stop()


@pytest.fixture
def mirroring(connect: str, target: str) -> Callable[..., Mirror]:
    def mirror(**options: Any) -> Mirror:
        given = {"zk.connect": connect, "groupid": "m", "zk.sessiontimeout.ms": str(PATIENT_MS)}
        given |= {"rebalance.backoff.ms": "100", "rebalance.retries.max": "50"}
        settings = MirrorOptions(commit_interval_s=0.05, keep_partitions=True, **options)
        return Mirror([read_source(given)], read_target({"bootstrap.servers": target}), Whitelist("t"), settings)

    return mirror


class Writer:
    """Sends numbered messages, and keeps those of each partition in `sent`."""

    def __init__(self, brokers: list[AnyBroker07]) -> None:
        self._connections = [Connection07("127.0.0.1", broker.port, 10) for broker in brokers]
        self.sent: dict[int, list[bytes]] = {number: [] for number in range(4)}

    def write(self, count: int, *, packed: bool = False) -> None:
        for number, sent in self.sent.items():
            payloads = [b"%d:%d" % (number, len(sent) + one) for one in range(count)]
            data = b"".join(map(build_message, payloads))
            if packed:
                data = build_message(compress(GZIP, data), codec=GZIP)
            self._connections[number // 2].produce([("t", number % 2, data)], wait=True)
            sent += payloads

    def ends(self) -> dict[str, int]:
        return {
            f"{broker}-{number}": connection.offsets_before("t", number, -1, 1)[0]
            for broker, connection in zip((9, 10), self._connections, strict=True)
            for number in (0, 1)
        }

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


@pytest.fixture
def writer(brokers: list[AnyBroker07]) -> Iterator[Writer]:
    writer = Writer(brokers)
    yield writer
    writer.close()


def copied(target: str) -> dict[int, list[bytes]]:
    with Admin(target) as admin:
        if "t" not in {one.name for one in admin.list_topics()}:
            return {}
    found: dict[int, list[bytes]] = {number: [] for number in range(4)}
    with Consumer(target) as consumer:
        consumer.assign_topic("t")
        for record in consumer.records(until=consumer.end_offsets()):
            assert record.key is None
            found[record.partition].append(record.value or b"")
    return found


def committed(zk: KazooClient) -> dict[str, int]:
    path = "/consumers/m/offsets/t"
    return {name: int(zk.get(f"{path}/{name}")[0]) for name in zk.get_children(path)} if zk.exists(path) else {}


def test_every_message_is_copied_once_and_in_order_over_restarts(
    writer: Writer, target: str, mirroring: Callable[..., Mirror], zk: KazooClient
) -> None:
    writer.write(50)
    writer.write(30, packed=True)
    for round_number in range(3):
        with mirroring(streams=1 + round_number % 2):
            writer.write(20, packed=round_number == 1)
            eventually(lambda: copied(target) == writer.sent)
            eventually(lambda: committed(zk) == writer.ends())
    assert committed(zk) == writer.ends()


def test_what_the_target_did_not_acknowledge_is_not_committed(
    writer: Writer, target: str, mirroring: Callable[..., Mirror], zk: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafkapy.mirror.delivery import SafeDelivery

    writer.write(10)
    flush = SafeDelivery.flush

    def fail(self: SafeDelivery) -> None:
        raise RuntimeError("the target is gone")

    monkeypatch.setattr(SafeDelivery, "flush", fail)
    mirror = mirroring()
    mirror.start()
    eventually(lambda: mirror.failure is not None)
    with pytest.raises(RuntimeError, match="the target is gone"):
        mirror.stop()
    assert committed(zk) == {}
    monkeypatch.setattr(SafeDelivery, "flush", flush)
    with mirroring():
        eventually(lambda: committed(zk) == writer.ends())
    for number, sent in writer.sent.items():
        assert copied(target)[number][-len(sent) :] == sent


def test_exactly_once_is_refused(writer: Writer, mirroring: Callable[..., Mirror]) -> None:
    writer.write(1)
    with pytest.raises(CannotMirror, match="the cluster has no id"):
        mirroring(exactly_once=True).start()
