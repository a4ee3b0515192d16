"""The metadata cache, which a broker's controller updates."""

from functools import partial

from kafkapy.metadata.cache import LEADER_DURING_DELETE, Leader, LiveBroker, MetadataCache, Node, TopicUpdate
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.metadata.roles import PartitionRole

ID, OTHER_ID = b"i" * 16, b"o" * 16
ISR, REPLICAS = (1, 2), (1, 2, 3)


def role(topic: str, partition: int, leader: int, epoch: int = 0) -> PartitionRole:
    return PartitionRole(topic, partition, ID, leader, epoch, 7, ISR, REPLICAS)


def leader(broker_id: int, epoch: int = 0, offline: tuple[int, ...] = REPLICAS) -> Leader:
    return Leader(broker_id, epoch, ISR, REPLICAS, offline, 7)


def test_an_update_replaces_the_named_partitions_and_keeps_the_others() -> None:
    cache = MetadataCache()
    cache.update([role("t", 0, 1), role("t", 1, 2), role("u", 0, 1)])
    cache.update([role("t", 1, 1, epoch=4)])
    assert [cache.leader("t", index) for index in range(3)] == [leader(1), leader(1, 4), None]
    assert cache.partitions("t") == {0: leader(1), 1: leader(1, 4)}
    assert cache.leader("u", 0) == leader(1)
    assert cache.leader("v", 0) is None
    assert cache.partitions("v") == {}
    assert sorted(cache.names()) == ["t", "u"]
    assert (len(cache), "t" in cache, "v" in cache) == (2, True, False)
    assert list(cache.indexes("t")) == [0, 1]
    assert not cache.indexes("v")


def test_an_update_copies_no_partition_that_it_does_not_name() -> None:
    cache = MetadataCache()
    cache.update(role("t", index, 1) for index in range(10_000))
    before = cache._partitions["t"]
    cache.update([role("t", 3, 2)])
    assert cache._partitions["t"] is before
    assert cache.leader("t", 4) is cache.leader("t", 5)  # equal partitions share one object


def test_deleted_partitions_leave_the_cache_before_the_callback_runs() -> None:
    cache, changes = MetadataCache(), []
    cache.on_deleted = lambda topic, partitions: changes.append((topic, partitions, cache.leader(topic, 0)))
    cache.update([role("t", 0, 1), role("t", 1, 2)])
    cache.update([role("t", 0, LEADER_DURING_DELETE), role("gone", 3, LEADER_DURING_DELETE)])
    assert changes == [("t", [0], None), ("gone", [3], None)]
    assert cache.leader("t", 1) is not None
    assert cache.name_of(ID) == "t"
    cache.update([role("t", 1, LEADER_DURING_DELETE)])
    assert cache.leader("t", 1) is None
    assert ("t" in cache, cache.name_of(ID), cache.topic_id("t")) == (False, None, ZERO_ID)


def test_brokers_are_those_of_the_listener() -> None:
    cache = MetadataCache()
    one = LiveBroker(1, {"INSIDE": ("in", 1), "OUTSIDE": ("out", 2)})
    cache.set_brokers(1, [one, LiveBroker(0, {"INSIDE": ("in", 3)}, "r")])
    assert cache.controller_id == 1
    assert cache.nodes("INSIDE") == [Node(0, "in", 3, "r"), Node(1, "in", 1, None)]
    assert cache.nodes("NONE") == []
    assert cache.node(1, "OUTSIDE") == Node(1, "out", 2, None)
    assert cache.node(0, "OUTSIDE") is None
    assert (cache.is_alive(0), cache.is_alive(2)) == (True, False)
    cache.set_brokers(0, [one])
    assert (cache.controller_id, cache.is_alive(0)) == (0, False)


def test_a_controller_is_forgotten_only_by_its_id() -> None:
    cache = MetadataCache()
    cache.set_brokers(1, [])
    cache.forget_controller(2)
    assert cache.controller_id == 1
    cache.forget_controller(1)
    assert cache.controller_id == -1


def test_replicas_on_dead_brokers_are_offline_in_roles() -> None:
    cache = MetadataCache()
    cache.set_brokers(1, [LiveBroker(1, {}), LiveBroker(3, {})])
    cache.update([role("t", 0, 1)])
    assert cache.leader("t", 0) == leader(1, offline=(2,))


def test_a_topic_id_of_zero_removes_the_id_and_another_one_replaces_it() -> None:
    cache = MetadataCache()
    for topic_id in (ID, OTHER_ID):
        cache.store([TopicUpdate("t", topic_id, {0: leader(1)})])
        assert (cache.topic_id("t"), cache.name_of(topic_id)) == (topic_id, "t")
    assert cache.name_of(ID) is None
    cache.store([TopicUpdate("t", ZERO_ID, {0: leader(1)})])
    assert (cache.topic_id("t"), cache.name_of(OTHER_ID)) == (ZERO_ID, None)
    assert cache.leader("t", 0) == leader(1)


def test_a_topic_that_is_expected_has_partitions_without_known_leaders() -> None:
    cache = MetadataCache()
    cache.update([role("t", 0, 1)])
    cache.expect("t", ID, {0: [5], 1: [1, 2]})
    assert cache.leader("t", 0) == leader(1)
    assert cache.leader("t", 1) is None
    assert cache.has("t", 1)
    assert not cache.has("t", 2)
    assert cache.partitions("t")[1].replicas == (1, 2)
    cache.update([role("t", 1, -1, epoch=3)])  # the controller has decided that there is no leader
    assert cache.leader("t", 1) == leader(-1, 3)


def test_who_waits_for_brokers_is_called_once_when_they_are_known() -> None:
    cache = MetadataCache()
    called: list[str] = []
    cache.when_brokers_are_known(lambda: called.append("waited"))
    cache.set_brokers(-1, [])
    assert (called, cache.knows_brokers) == ([], False)
    cache.set_brokers(1, [LiveBroker(1, {})])
    cache.set_brokers(1, [LiveBroker(1, {}), LiveBroker(2, {})])
    assert (called, cache.knows_brokers) == (["waited"], True)
    cache.when_brokers_are_known(lambda: called.append("at once"))
    assert called == ["waited", "at once"]


def test_who_waits_for_brokers_waits_for_topics_too_if_some_are_expected() -> None:
    cache = MetadataCache()
    cache.expects_topics = True
    called: list[str] = []
    cache.when_brokers_are_known(lambda: called.append("waited"))
    cache.set_brokers(1, [LiveBroker(1, {})])
    assert (called, cache.knows_brokers) == ([], False)
    cache.complete()
    assert (called, cache.knows_brokers) == (["waited"], True)


def test_a_call_that_fails_does_not_stop_the_others_that_wait_for_brokers() -> None:
    cache = MetadataCache()
    called: list[str] = []

    def failing() -> None:
        raise RuntimeError("the pool is stopped")

    cache.when_brokers_are_known(failing)
    cache.when_brokers_are_known(lambda: called.append("second"))
    cache.set_brokers(1, [LiveBroker(1, {})])
    assert (called, cache.knows_brokers) == (["second"], True)


def test_a_call_that_stops_waiting_for_brokers_is_not_made() -> None:
    cache = MetadataCache()
    called: list[str] = []
    calls = {name: partial(called.append, name) for name in "abc"}
    for call in calls.values():
        cache.when_brokers_are_known(call)
    assert cache.stop_waiting(calls["b"])
    assert not cache.stop_waiting(calls["b"])
    cache.set_brokers(1, [LiveBroker(1, {})])
    assert called == ["a", "c"]
    assert not cache.stop_waiting(calls["a"])


def test_the_brokers_that_are_gone_are_named_when_they_are_not_alive_any_more() -> None:
    cache = MetadataCache()
    gone: list[tuple[set[int], list[int]]] = []
    cache.on_brokers_gone = lambda ids: gone.append((set(ids), [one for one in (1, 2, 3) if cache.is_alive(one)]))
    cache.set_brokers(1, [LiveBroker(one, {}) for one in (1, 2, 3)])
    assert gone == []
    cache.set_brokers(1, [LiveBroker(1, {})])
    cache.set_brokers(1, [LiveBroker(1, {}), LiveBroker(2, {})])
    assert gone == [({2, 3}, [1])]
