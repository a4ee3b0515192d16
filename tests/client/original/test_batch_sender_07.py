"""The producer's view of a cluster of Kafka 0.7, read from ZooKeeper."""

import pytest

from kafkapy.client.errors import ConnectionFailed
from kafkapy.client.original.kafka_07.batch_sender import Cluster07
from kafkapy.client.original.producing.producer_config import read_config


class Discovery:
    """Brokers 8 and 9 in ZooKeeper, and the names of a topic's partitions; None while ZooKeeper cannot be reached."""

    def __init__(self):
        self.names = ["8-1", "8-0", "9-0"]

    def brokers(self):
        return {8: ("a", 1), 9: ("b", 1)}

    def partitions(self, topic):
        if self.names is None:
            raise ConnectionFailed("connection refused")
        return self.names


def test_without_zookeeper_the_partitions_of_known_topics_stay_known():
    discovery = Discovery()
    cluster = Cluster07(read_config({"zk.connect": "z:1"}), discovery)
    cluster.refresh(["t"])
    discovery.names = None
    cluster.topics.clear()  # as the event handler does when topic.metadata.refresh.interval.ms has passed
    cluster.refresh(["t"])
    assert [cluster.topics["t"].partitions[number].leader for number in range(3)] == [8, 8, 9]
    assert [cluster.number("t", number) for number in range(3)] == [0, 1, 0]
    with pytest.raises(ConnectionFailed):
        cluster.refresh(["unknown"])
    discovery.names = ["9-0"]
    cluster.refresh(["t"])
    assert len(cluster.topics["t"].partitions) == 1
