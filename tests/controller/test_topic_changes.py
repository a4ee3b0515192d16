"""Changes of topics when a part of them cannot be done."""

import pytest

from kafkapy.controller.outside_changes import OutsideChanges
from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata.controller_fence import ControllerFence
from kafkapy.metadata.ids import ZERO_ID
from kafkapy.metadata.roles import PartitionRole
from kafkapy.metadata.tree import wait
from kafkapy.tools.topics.zookeeper import ZooKeeperTopics
from tests.harness.wire import eventually
from tests.server.conftest import start_broker


def test_a_topic_whose_logs_cannot_be_made_is_not_left_behind(tmp_path, monkeypatch):
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


def test_partitions_whose_logs_cannot_be_made_are_told_of(tmp_path, monkeypatch):
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


def test_a_topic_that_is_deleted_while_its_partition_is_to_be_led_leaves_no_log(tmp_path, monkeypatch):
    """The deletion comes between the look whether there is such a topic and the making of the log that is missing."""
    server = start_broker(tmp_path)
    controller, roles = server.services.controller, server.services.roles
    stored = roles._config_of

    def delete_meanwhile(topic):
        monkeypatch.undo()
        controller.delete("t")
        return stored(topic)

    try:
        made = controller.create("t", partitions=1)
        monkeypatch.setattr(roles, "_config_of", delete_meanwhile)
        me = server.services.broker_id
        (failure,) = roles.apply(1, [PartitionRole("t", 0, made.id, me, 1, 1, [me], [me])]).values()
        assert failure.code == Errors.UNKNOWN_TOPIC_OR_PARTITION
        assert server.services.log_manager.get("t", 0) is None
        assert not (tmp_path / "t-0").exists()
        controller.create("t", partitions=1)
        assert server.services.replicas.holds("t", 0)
    finally:
        server.stop()


def test_a_topic_that_others_made_with_bad_settings_is_not_touched_until_they_are_right(tmp_path, caplog):
    server = start_broker(tmp_path, broker_id=0)
    services, tree = server.services, server._tree
    changes = OutsideChanges(
        tree,
        ControllerFence(tree),
        services.topics,
        services.controller,
        may_delete=lambda: True,
        on_topic_settings=services.topic_settings.reload,
        on_broker_settings=services.dynamic_config.reload,
    )
    try:
        ZooKeeperTopics(tree).create("theirs", 1, 1, {}, validate_only=False)
        wait(services.configs.set_topic, "theirs", {"segment.bytes": "none"})
        changes.start()
        eventually(lambda: "segment.bytes=none" in caplog.text)
        assert "theirs" not in services.topics
        assert services.topics.read("theirs").id == ZERO_ID
        wait(services.configs.set_topic, "theirs", {"segment.bytes": "5000"})
        eventually(lambda: services.replicas.holds("theirs", 0))
        assert services.replicas.config_of("theirs", 0).segment_bytes == 5000
    finally:
        changes.stop()
        server.stop()


def test_a_topic_whose_stored_settings_others_correct_is_served_again(tmp_path):
    server = start_broker(tmp_path, broker_id=0)
    server.services.controller.create("t", partitions=1)
    wait(server.services.configs.set_topic, "t", {"segment.bytes": "none"})
    server.stop()
    server = start_broker(tmp_path, broker_id=0)
    services, tree = server.services, server._tree
    changes = OutsideChanges(
        tree,
        ControllerFence(tree),
        services.topics,
        services.controller,
        may_delete=lambda: True,
        on_topic_settings=services.topic_settings.reload,
        on_broker_settings=services.dynamic_config.reload,
    )
    try:
        changes.start()
        assert not services.replicas.holds("t", 0)
        wait(services.configs.set_topic, "t", {"segment.bytes": "5000"})
        eventually(lambda: services.replicas.holds("t", 0))
        assert services.replicas.config_of("t", 0).segment_bytes == 5000
    finally:
        changes.stop()
        server.stop()


def test_a_topic_that_was_refused_for_its_settings_can_be_deleted(tmp_path):
    server = start_broker(tmp_path, broker_id=0)
    server.services.controller.create("t", partitions=1)
    wait(server.services.configs.set_topic, "t", {"segment.bytes": "none"})
    server.stop()
    server = start_broker(tmp_path, broker_id=0)
    try:
        server.services.controller.delete("t")
        server.services.controller.create("t", partitions=1)
        assert server.services.replicas.holds("t", 0)
    finally:
        server.stop()
