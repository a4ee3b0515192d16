"""kafkapy and Apache Kafka 3.9.1 take turns with the same broker id, log directory and chroot; nothing is lost."""

import json
from pathlib import Path
from typing import Any

from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from tests.harness.brokers import QUICK, KafkaBroker, KafkapyBroker
from tests.harness.records import committed, consume, create, produce
from tests.harness.waiting import eventually
from tests.harness.zookeeper import ZooKeeper

SETTINGS = {
    **QUICK,
    "broker.id": "3",
    "zookeeper.session.timeout.ms": "4000",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def znodes(client: KazooClient, path: str = "/") -> dict[str, tuple[Any, int]]:
    data, stat = client.get(path)
    found = {path: (data, stat.version)}
    for name in client.get_children(path):
        found.update(znodes(client, f"{path.rstrip('/')}/{name}"))
    return found


def steady(nodes: dict[str, tuple[Any, int]]) -> dict[str, Any]:
    """Return the nodes that must not change when the other broker takes over: topics, settings, ids."""
    same = {}
    for path, (data, _) in nodes.items():
        if path.startswith(("/brokers/topics", "/config/topics", "/cluster")):
            value = json.loads(data) if data and data.startswith(b"{") else data
            if path.endswith("/state"):
                value = {key: value[key] for key in ("leader", "isr", "version")}
            same[path] = value
    return same


def test_kafka_takes_over_from_kafkapy_and_gives_back(zookeeper: ZooKeeper, connect: str, tmp_path: Path) -> None:
    settings = {**SETTINGS, "zookeeper.connect": connect}
    first = [f"a{number}" for number in range(200)]
    second = [f"b{number}" for number in range(200)]
    third = [f"c{number}" for number in range(200)]

    ours = KafkapyBroker(tmp_path, settings)
    client = KazooClient(connect)
    client.start()
    try:
        create(ours.bootstrap, NewTopic("t", 3, 1, config={"segment.bytes": "100000"}))
        produce(ours.bootstrap, "t", first[:100])
        produce(ours.bootstrap, "t", first[100:], **{"transactional.id": "tx", "compression.type": "lz4"})
        assert consume(ours.bootstrap, "t", "g", 200) == sorted(first)
        ours.stop()
        before = znodes(client)
        assert not client.get_children("/brokers/ids")
        assert "/controller" not in before

        kafka = KafkaBroker(tmp_path, SETTINGS, zookeeper=connect)
        try:
            assert steady(znodes(client)) == steady(before)
            assert committed(kafka.bootstrap, "g", "t", 3) >= 200
            assert consume(kafka.bootstrap, "t", "another", 200) == sorted(first)
            produce(kafka.bootstrap, "t", second[:100])
            produce(kafka.bootstrap, "t", second[100:], **{"transactional.id": "tx"})
            assert consume(kafka.bootstrap, "t", "g", 200) == sorted(second)
            create(kafka.bootstrap, NewTopic("theirs", 2, 1))
            produce(kafka.bootstrap, "theirs", third[:50])
        finally:
            kafka.stop()
        between = znodes(client)

        ours = KafkapyBroker(tmp_path, settings)
        assert steady(znodes(client)) == steady(between)
        assert consume(ours.bootstrap, "theirs", "g2", 50) == sorted(third[:50])
        produce(ours.bootstrap, "t", third, **{"transactional.id": "tx"})
        assert consume(ours.bootstrap, "t", "g", 200) == sorted(third)
        assert consume(ours.bootstrap, "t", "all", 600) == sorted(first + second + third)
        registered = json.loads(client.get("/brokers/ids/3")[0])
        assert registered["version"] == 5
        epoch, stat = client.get("/controller_epoch")
        assert (epoch, stat.version) == (b"3", 3)
        eventually(lambda: not list((tmp_path / "data").glob("*-stray")))
        ours.stop()
    finally:
        client.stop()
        client.close()
        ours.process.child.kill()
