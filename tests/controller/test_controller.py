"""Changes of topics that fail halfway."""

import pytest

from kafkapy.controller.controller import Counts
from kafkapy.controller.isr_changes import IsrRequest
from kafkapy.controller.outside_changes import OutsideChanges
from kafkapy.controller.reassignment import target_of, with_target
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.cache import Leader
from kafkapy.metadata.controller_fence import ControllerFence
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.metadata.roles import PartitionRole
from kafkapy.metadata.topic_nodes import Move, PartitionState, Topic
from kafkapy.metadata.tree import Create, wait
from kafkapy.tools.topics.zookeeper import ZooKeeperTopics
from tests.harness.waiting import eventually
from tests.server.requests import batch, start_broker


def test_a_topic_is_removed_again_if_its_logs_cannot_be_created(tmp_path, monkeypatch):
    server = start_broker(tmp_path)
    services = server.services
    make = services.log_manager.create

    def full(topic, partition, *args, **settings):
        if partition == 2:
            raise KafkaError(Errors.KAFKA_STORAGE_ERROR, "no room for it")
        return make(topic, partition, *args, **settings)

    try:
        monkeypatch.setattr(services.log_manager, "create", full)
        with pytest.raises(KafkaError, match="no room") as raised:
            services.controller.create("big", partitions=4)
        assert raised.value.code == Errors.KAFKA_STORAGE_ERROR
        assert "big" not in services.topics
        assert not services.topics.marked()
        monkeypatch.undo()
        assert len(services.controller.create("big", partitions=4).assignment) == 4
        assert all(services.replicas.holds("big", index) for index in range(4))
    finally:
        server.stop()


def test_adding_partitions_fails_if_their_logs_cannot_be_created(tmp_path, monkeypatch):
    server = start_broker(tmp_path)
    services = server.services

    def full(*_args, **_settings):
        raise KafkaError(Errors.KAFKA_STORAGE_ERROR, "no room for it")

    try:
        services.controller.create("grows", partitions=1)
        monkeypatch.setattr(services.log_manager, "create", full)
        with pytest.raises(KafkaError, match="no room"):
            services.controller.add_partitions("grows", 2, None, validate_only=False)
    finally:
        server.stop()
    server = start_broker(tmp_path)
    try:
        assert server.services.replicas.holds("grows", 1)
    finally:
        server.stop()


def test_a_topic_deleted_while_this_broker_becomes_its_leader_leaves_no_log(tmp_path, monkeypatch):
    """The deletion comes after the check that the topic exists and before the creation of the missing log."""
    server = start_broker(tmp_path)
    controller, roles = server.services.controller, server.services.roles
    stored = roles._config_of

    def delete_meanwhile(topic):
        monkeypatch.undo()
        controller.delete("t")
        return stored(topic)

    try:
        created = controller.create("t", partitions=1)
        monkeypatch.setattr(roles, "_config_of", delete_meanwhile)
        me = server.services.broker_id
        (failure,) = roles.apply(1, [PartitionRole("t", 0, created.id, me, 1, 1, [me], [me])]).values()
        assert failure.code == Errors.UNKNOWN_TOPIC_OR_PARTITION
        assert server.services.log_manager.get("t", 0) is None
        assert not (tmp_path / "t-0").exists()
        controller.create("t", partitions=1)
        assert server.services.replicas.holds("t", 0)
    finally:
        server.stop()


def test_a_partition_that_is_moved_to_this_broker_alone_takes_acks_all_at_once(tmp_path):
    """The other replica does not exist in this cluster of one, so the ISR is too small until the replica is removed."""
    server = start_broker(tmp_path, broker_id=0)
    wait(server.services.topics.create, "t", {0: [0, 7]}, {"min.insync.replicas": "2"})
    server.stop()
    server = start_broker(tmp_path, broker_id=0)
    services = server.services
    try:
        eventually(lambda: services.replicas.holds("t", 0))
        partition = services.replicas.get("t", 0)
        assert partition.refusal(-1).code == Errors.NOT_ENOUGH_REPLICAS
        partition.append([batch(b"before")], print)
        eventually(lambda: partition.log.log_end_offset == 1)
        assert partition.log.high_watermark == 0
        services.controller.reassign("t", 0, [0])
        assert services.topics.state("t", 0) == PartitionState(0, 2, [0], services.topics.controller_epoch)
        assert services.cache.leader("t", 0) == Leader(0, 2, (0,), (0,), (), 2)
        again = services.replicas.get("t", 0)
        assert (again.replicas, again.isr, again.leader_epoch) == ((0,), (0,), 2)
        assert again.refusal(-1) is None
        assert again.log.high_watermark == 1
        assert partition.gone.code == Errors.NOT_LEADER_OR_FOLLOWER
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("isr", "code"), [([0, 7], Errors.PREFERRED_LEADER_NOT_AVAILABLE), ([7], Errors.ELECTION_NOT_NEEDED)]
)
def test_an_election_is_answered_by_the_state_of_the_partition(tmp_path, isr, code):
    server = start_broker(tmp_path, broker_id=0)
    controller, topics = server.services.controller, server.services.topics
    try:
        wait(topics.create, "t", {0: [7, 0], 1: [0, 7]}, {})
        wait(topics.set_states, {("t", 0): PartitionState(isr[0], 3, isr, 1)})
        asked = [("t", 0), ("t", 1), ("t", 2)]
        codes = {key: None if error is None else error.code for key, error in controller.elect(0, asked).items()}
        assert codes == {
            ("t", 0): code,
            ("t", 1): Errors.ELECTION_NOT_NEEDED,
            ("t", 2): Errors.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert controller.elect(1, None) == ({("t", 0): None} if isr == [7] else {})
        assert topics.state("t", 0).leader == 0
    finally:
        server.stop()


def test_other_brokers_partitions_have_no_leader_here_and_deleted_ones_are_unknown(tmp_path):
    server = start_broker(tmp_path, broker_id=0)
    wait(server.services.topics.create, "t", {0: [7], 1: [0]}, {})
    server.stop()
    server = start_broker(tmp_path, broker_id=0)
    services = server.services

    def code(index):
        with pytest.raises(KafkaError) as raised:
            services.replicas.get("t", index)
        return raised.value.code

    try:
        eventually(lambda: services.cache.is_complete)
        assert code(0) == Errors.NOT_LEADER_OR_FOLLOWER
        assert code(2) == Errors.UNKNOWN_TOPIC_OR_PARTITION
        assert services.replicas.holds("t", 1)
        assert not (tmp_path / "t-0").exists()
        services.controller.delete("t")
        assert code(0) == code(1) == Errors.UNKNOWN_TOPIC_OR_PARTITION
    finally:
        server.stop()


@pytest.mark.parametrize("target", [[0, 7], [7, 0], None])
def test_a_reassignment_to_the_original_replicas_cancels_the_one_in_progress(target):
    topic = Topic("t", bytes(16), {0: [7, 0, 8], 1: [0]}, {0: Move([8], [])})
    changed = with_target(topic, 0, target)
    assert changed.assignment == {0: [7, 0] if target is None else target, 1: [0]}
    assert changed.moves == {}
    assert target_of(changed, 0) == changed.assignment[0]
    changed = with_target(topic, 0, [8])
    assert changed.assignment[0] == [8, 7, 0]
    assert changed.moves == {0: Move([8], [7, 0])}
    assert target_of(changed, 0) == [8]


def test_a_topic_created_elsewhere_with_bad_settings_is_left_alone_until_they_are_corrected(tmp_path, caplog):
    server = start_broker(tmp_path, broker_id=0)
    services, tree = server.services, server._tree
    changes = outside_changes(server)
    try:
        ZooKeeperTopics(tree).create("theirs", 1, 1, {}, validate_only=False)
        services.configs.alter_topic("theirs", lambda _: {"segment.bytes": "none"})
        changes.start()
        eventually(lambda: "segment.bytes=none" in caplog.text)
        assert "theirs" not in services.topics
        assert services.topics.read("theirs").id == ZERO_ID
        services.configs.alter_topic("theirs", lambda _: {"segment.bytes": "5000"})
        eventually(lambda: services.replicas.holds("theirs", 0))
        assert services.replicas.config_of("theirs", 0).segment_bytes == 5000
    finally:
        changes.stop()
        server.stop()


def test_a_topic_whose_stored_settings_others_correct_is_served_again(tmp_path):
    server = start_broker(tmp_path, broker_id=0)
    server.services.controller.create("t", partitions=1)
    server.services.configs.alter_topic("t", lambda _: {"segment.bytes": "none"})
    server.stop()
    server = start_broker(tmp_path, broker_id=0)
    services = server.services
    changes = outside_changes(server)
    try:
        changes.start()
        assert not services.replicas.holds("t", 0)
        services.configs.alter_topic("t", lambda _: {"segment.bytes": "5000"})
        eventually(lambda: services.replicas.holds("t", 0))
        assert services.replicas.config_of("t", 0).segment_bytes == 5000
    finally:
        changes.stop()
        server.stop()


def test_a_topic_that_was_refused_for_its_settings_can_be_deleted(tmp_path):
    server = start_broker(tmp_path, broker_id=0)
    server.services.controller.create("t", partitions=1)
    server.services.configs.alter_topic("t", lambda _: {"segment.bytes": "none"})
    server.stop()
    server = start_broker(tmp_path, broker_id=0)
    try:
        server.services.controller.delete("t")
        server.services.controller.create("t", partitions=1)
        assert server.services.replicas.holds("t", 0)
    finally:
        server.stop()


def test_a_topic_with_replicas_on_dead_brokers_stays_marked_as_deleted(tmp_path):
    """Those brokers would keep their logs, and refuse a new topic of the same name."""
    server = start_broker(tmp_path, broker_id=0)
    services, tree = server.services, server._tree
    try:
        services.controller.create("here", partitions=1)
        services.controller.create("both", partitions=1)
        wait(services.topics.reassign, *moved_to(services.topics.get("both"), [0, 7]))
        for name in ("here", "both"):
            services.controller.delete(name)
            assert name not in services.cache
            assert not services.replicas.holds(name, 0)
        assert tree.children("/admin/delete_topics") == ["both"]
        assert tree.children("/brokers/topics") == ["both"]
    finally:
        server.stop()


def test_the_settings_of_a_topic_whose_deletion_another_controller_has_begun_are_removed(tmp_path, caplog):
    """Kafka's controller removes the topic's node, then its settings, then the mark. It may end in between."""
    server = start_broker(tmp_path, broker_id=0)
    tree = server._tree
    changes = outside_changes(server)
    try:
        tree.commit([Create("/config/topics/gone", b'{"version":1,"config":{}}')])
        tree.commit([Create(f"/admin/delete_topics/{name}") for name in ("gone", "never-was")])
        changes.start()
        eventually(lambda: not tree.children("/admin/delete_topics"))
        assert not tree.exists("/config/topics/gone")
        assert "topic never-was for deletion, but it is not deleted: there is no such topic" in caplog.text
    finally:
        changes.stop()
        server.stop()


def test_an_isr_is_changed_only_for_the_topic_id_that_the_leader_knows(tmp_path):
    """The topic may have been deleted and created again meanwhile: the epochs of both begin at 0."""
    server = start_broker(tmp_path, broker_id=0)
    controller = server.services.controller
    try:
        topic = controller.create("t", partitions=1)
        (epoch,) = [one.epoch for one in controller._cluster.registered.values()]
        asked = IsrRequest("t", 0, 0, 0, [0], topic_id=topic.id)
        assert controller.alter_partitions(0, epoch, [asked])["t", 0].state.isr == [0]
        refused = controller.alter_partitions(0, epoch, [asked._replace(topic_id=bytes(15) + b"x")])["t", 0]
        assert refused.code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    finally:
        server.stop()


def test_the_metrics_count_partitions_without_a_live_and_without_the_preferred_leader(tmp_path):
    server = start_broker(tmp_path, broker_id=0)
    wait(server.services.topics.create, "t", {0: [0, 7], 1: [7, 0], 2: [7]}, {})
    wait(server.services.topics.create, "gone", {0: [7]}, {})
    server.stop()
    server = start_broker(tmp_path, broker_id=0)
    try:
        controller = server.services.controller
        eventually(lambda: server.services.replicas.holds("t", 1))
        assert server.wait_until_loaded(30)
        controller.delete("gone")
        counts = Counts(1, brokers=1, partitions=3, offline_partitions=1, preferred_replica_imbalance=2)
        assert controller.counts() == counts._replace(topics_to_delete=1)
        assert controller.queue_time.count > 0
        assert controller.unclean_elections == 0
    finally:
        server.stop()


def outside_changes(server):
    """Return OutsideChanges for a broker. It has none itself, since no other program can change its metadata."""
    services, tree = server.services, server._tree
    return OutsideChanges(
        tree,
        ControllerFence(tree),
        services.topics,
        services.controller,
        is_controller=lambda: True,
        may_delete=lambda: True,
        on_topic_settings=services.topic_settings.reload,
        on_broker_settings=services.dynamic_config.reload,
    )


def moved_to(topic, replicas):
    """Return the topic before and after a change: as it is, and with these replicas of partition 0."""
    return topic, topic._replace(assignment={0: replicas})
