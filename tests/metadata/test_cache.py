"""The metadata cache, which a broker's controller updates."""

from kafkapy.metadata.cache import LEADER_DURING_DELETE, Leader, MetadataCache, Node
from kafkapy.metadata.roles import PartitionRole

ID = bytes(16)


def role(topic: str, partition: int, leader: int, epoch: int = 0) -> PartitionRole:
    return PartitionRole(topic, partition, ID, leader, epoch, 0, [1, 2], [1, 2, 3])


def test_an_update_replaces_the_named_partitions_and_keeps_the_others() -> None:
    cache = MetadataCache()
    cache.update([role("t", 0, 1), role("t", 1, 2), role("u", 0, 1)])
    cache.update([role("t", 1, 1, epoch=4)])
    assert [cache.leader("t", index) for index in range(3)] == [Leader(1, 0, (1, 2)), Leader(1, 4, (1, 2)), None]
    assert cache.leader("u", 0) == Leader(1, 0, (1, 2))
    assert cache.leader("v", 0) is None


def test_deleted_partitions_leave_the_cache_before_the_callback_runs() -> None:
    cache, told = MetadataCache(), []
    cache.on_deleted = lambda topic, partitions: told.append((topic, partitions, cache.leader(topic, 0)))
    cache.update([role("t", 0, 1), role("t", 1, 2)])
    cache.update([role("t", 0, LEADER_DURING_DELETE), role("gone", 3, LEADER_DURING_DELETE)])
    assert told == [("t", [0], None), ("gone", [3], None)]
    assert cache.leader("t", 1) is not None
    cache.update([role("t", 1, LEADER_DURING_DELETE)])
    assert cache.leader("t", 1) is None


def test_brokers_are_those_of_the_listener() -> None:
    cache = MetadataCache()
    inside, outside, other = Node(1, "in", 1, None), Node(1, "out", 2, None), Node(0, "in", 3, "r")
    cache.set_brokers(1, {"INSIDE": [inside, other], "OUTSIDE": [outside]})
    assert cache.controller_id == 1
    assert cache.nodes("INSIDE") == [other, inside]
    assert cache.nodes("NONE") == []
    assert cache.node(1, "OUTSIDE") == outside
    assert cache.node(0, "OUTSIDE") is None
