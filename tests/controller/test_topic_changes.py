"""Changes of topics when a part of them cannot be done."""

import pytest

from kafkapy.errors import Errors, KafkaError
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
    controller = server.services.controller
    check = controller._check_config

    def delete_meanwhile(overrides):
        monkeypatch.undo()
        controller.delete("t")
        return check(overrides)

    try:
        controller.create("t", partitions=1)
        monkeypatch.setattr(controller, "_check_config", delete_meanwhile)
        controller.lead("t", 0)
        assert server.services.log_manager.get("t", 0) is None
        assert not (tmp_path / "t-0").exists()
        controller.create("t", partitions=1)
        assert server.services.replicas.holds("t", 0)
    finally:
        server.stop()
