"""Notifications of changed settings in `/config/changes`, which Kafka's brokers read."""

from pathlib import Path

from kafkapy.metadata import paths
from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.configs import ConfigRegistry
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.topics import TopicRegistry
from kafkapy.metadata.tree import wait


def test_notifications_stay_for_brokers_that_have_not_read_them_and_are_deleted_after_15_minutes(
    tmp_path: Path,
) -> None:
    tree = LocalTree(tmp_path / FILE_NAME)
    try:
        ClusterRegistry(tree)  # creates the nodes that always exist
        wait(TopicRegistry(tree).create, "t", {0: [0]}, {})
        now = [0.0]
        configs = ConfigRegistry(tree, lambda: now[0])

        def change(seconds: float, count: int) -> list[str]:
            now[0] += seconds
            for _ in range(count):
                wait(configs.set_topic, "t", {"retention.ms": "1"})
            return [name[-2:] for name in tree.children(paths.CONFIG_CHANGES)]

        assert change(0, 3) == ["00", "01", "02"]
        assert change(100, 1) == ["00", "01", "02", "03"]  # the first three are seen now
        assert change(899, 1) == ["00", "01", "02", "03", "04"]
        assert change(60, 1) == ["03", "04", "05"]
    finally:
        tree.close()
