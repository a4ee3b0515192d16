"""A cluster with groups in ZooKeeper, for tests of the commands that show and change them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kazoo.client import KazooClient

from kafkapy.client import Admin, Cluster, NewTopic, RecordProducer
from kafkapy.client.administration.group_admin import GroupAdmin
from kafkapy.client.groups.group_types import OffsetAndMetadata
from kafkapy.server.broker import BrokerServer
from kafkapy.server.config.broker_config import BrokerConfig
from tests.harness.zookeeper import SESSION_MS

TOPIC, OTHER, PARTITIONS, RECORDS = "flights", "weather", 3, 10


class Bench(NamedTuple):
    """A cluster of one broker with two topics, which have ten records in each partition."""

    connect: str
    bootstrap: str
    zk: KazooClient

    def put(self, group: str, offsets: dict[str, bytes], topic: str = TOPIC) -> None:
        """Write committed offsets by partition, like an old consumer that has left."""
        for path in ("ids", f"owners/{topic}", f"offsets/{topic}"):
            self.zk.ensure_path(f"/consumers/{group}/{path}")
        for partition, data in offsets.items():
            self.zk.create(f"/consumers/{group}/offsets/{topic}/{partition}", data)

    def produce(self, numbers: range) -> None:
        """Write a record of each number to each partition of the topic, a second apart: values 0-0, 1-0, 2-0, ..."""
        with RecordProducer(self.bootstrap) as producer:
            for number in numbers:
                for partition in range(PARTITIONS):
                    value = b"%d-%d" % (partition, number)
                    producer.send(TOPIC, value, partition=partition, timestamp=1000 * number)

    def offsets(self, group: str, topic: str = TOPIC) -> dict[str, int]:
        path = f"/consumers/{group}/offsets/{topic}"
        names = self.zk.get_children(path) if self.zk.exists(path) else []
        return {name: int(self.zk.get(f"{path}/{name}")[0]) for name in sorted(names)}

    def in_kafka(self, group: str) -> dict[tuple[str, int], int]:
        with Cluster(self.bootstrap) as cluster:
            found = GroupAdmin(cluster).offsets([group])[group]
        assert isinstance(found, dict)
        return {where: one.offset for where, one in found.items()}

    def commit_to_kafka(self, group: str, offsets: dict[int, int]) -> None:
        with Cluster(self.bootstrap) as cluster:
            wanted = {(TOPIC, number): OffsetAndMetadata(offset) for number, offset in offsets.items()}
            GroupAdmin(cluster).commit(group, wanted)


@contextmanager
def group_bench(connect: str, directory: Path) -> Iterator[Bench]:
    """Start a Bench with the ZooKeeper and chroot `connect`, whose broker runs in this process."""
    settings = {"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0"}
    settings |= {"broker.id": "0", "zookeeper.connect": connect, "offsets.topic.num.partitions": "1"}
    settings |= {"group.initial.rebalance.delay.ms": "0", "zookeeper.session.timeout.ms": str(5 * SESSION_MS)}
    server = BrokerServer(BrokerConfig(settings))
    server.start()
    assert server.wait_until_loaded(30)
    zk = KazooClient(connect)
    zk.start()
    with Admin(server.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS), NewTopic(OTHER, 1)])
    bench = Bench(connect, server.bootstrap_servers, zk)
    bench.produce(range(RECORDS))
    with RecordProducer(server.bootstrap_servers) as producer:
        for number in range(RECORDS):
            producer.send(OTHER, b"rain-%d" % number)
    yield bench
    zk.stop()
    zk.close()
    server.stop()
