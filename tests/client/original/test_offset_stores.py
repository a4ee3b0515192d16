"""Offsets that a group commits to Kafka while its coordinator changes."""

from typing import Any

import pytest

from kafkapy.client.cluster import Cluster
from kafkapy.client.original.consuming.offset_stores import KafkaOffsets
from kafkapy.protocol import apis

FIND, COMMIT = apis.FIND_COORDINATOR, apis.OFFSET_COMMIT


@pytest.fixture
def coordinators(fake_broker: Any, second_broker: Any) -> list[int]:
    """Return a list whose last element is the coordinator's id. Both brokers accept every commit."""
    nodes = [2]

    def find(request: Any) -> Any:
        shape = FIND.Response.Coordinators
        return FIND.Response(coordinators=[shape(key=key, node_id=nodes[-1]) for key in request.coordinator_keys])

    def commit(request: Any) -> Any:
        shape = COMMIT.Response.Topics
        parts = [shape.Partitions(partition_index=one.partition_index) for one in request.topics[0].partitions]
        return COMMIT.Response(topics=[shape(name=request.topics[0].name, partitions=parts)])

    for broker in (fake_broker, second_broker):
        broker.answers |= {FIND.key: find, COMMIT.key: commit}
    return nodes


def test_a_commit_goes_to_the_coordinator_that_has_taken_over(
    fake_broker: Any, second_broker: Any, coordinators: list[int]
) -> None:
    with Cluster(fake_broker.address, timeout_s=5) as cluster:
        store = KafkaOffsets(cluster, "g")
        store.commit({("t", "0"): 5})
        second_broker.close()
        coordinators.append(1)
        store.commit({("t", "0"): 7})
    assert len(second_broker.requests("OffsetCommit")) == 1
    (request,) = fake_broker.requests("OffsetCommit")
    assert request.topics[0].partitions[0].committed_offset == 7
