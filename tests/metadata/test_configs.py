"""Changes of stored settings, and the notifications of them in `/config/changes`, which Kafka's brokers read."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkapy.errors import Errors, KafkaError
from kafkapy.metadata import paths
from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.configs import ConfigRegistry
from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.topics import TopicRegistry
from kafkapy.metadata.tree import Delete, wait


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[LocalTree]:
    """Return a tree with the topic "t"."""
    tree = LocalTree(tmp_path / FILE_NAME)
    ClusterRegistry(tree)  # creates the nodes that always exist
    wait(TopicRegistry(tree).create, "t", {0: [0]}, {})
    yield tree
    tree.close()


@pytest.mark.parametrize("before", [{}, {"old": "0"}], ids=["new", "old"])
def test_a_change_that_another_broker_makes_at_the_same_time_is_kept(tree: LocalTree, before: dict[str, str]) -> None:
    configs, others = ConfigRegistry(tree), ConfigRegistry(tree)
    if before:
        others.alter_broker_default(lambda _: before)
    seen: list[dict[str, str]] = []

    def change(stored: dict[str, str]) -> dict[str, str]:
        if not seen:
            others.alter_broker_default(lambda old: {**old, "theirs": "1"})
        seen.append(stored)
        return {**stored, "ours": "2"}

    assert configs.alter_broker_default(change) == {**before, "theirs": "1", "ours": "2"}
    assert configs.broker_default() == {**before, "theirs": "1", "ours": "2"}
    assert seen == [before, {**before, "theirs": "1"}]


def test_a_change_of_a_topic_that_is_deleted_at_the_same_time_is_refused(tree: LocalTree) -> None:
    def change(stored: dict[str, str]) -> dict[str, str]:
        tree.commit([Delete(paths.config("topics", "t"))])
        return {**stored, "retention.ms": "1"}

    with pytest.raises(KafkaError, match="there is no topic t") as refused:
        ConfigRegistry(tree).alter_topic("t", change)
    assert refused.value.code == Errors.UNKNOWN_TOPIC_OR_PARTITION


def test_settings_that_change_all_the_time_give_a_final_error(tree: LocalTree) -> None:
    others = ConfigRegistry(tree)

    def change(stored: dict[str, str]) -> dict[str, str]:
        others.alter_topic("t", lambda old: {**old, "flush.ms": "1"})
        return {**stored, "retention.ms": "1"}

    with pytest.raises(KafkaError, match="could not be stored") as refused:
        ConfigRegistry(tree).alter_topic("t", change)
    assert refused.value.code == Errors.UNKNOWN_SERVER_ERROR


def test_settings_that_a_change_leaves_are_not_written(tree: LocalTree) -> None:
    before = tree.get(paths.config("topics", "t"))
    assert ConfigRegistry(tree).alter_topic("t", lambda _: None) is None
    assert tree.get(paths.config("topics", "t")) is before


def test_notifications_stay_for_brokers_that_have_not_read_them_and_are_deleted_after_15_minutes(
    tree: LocalTree,
) -> None:
    now = [0.0]
    configs = ConfigRegistry(tree, lambda: now[0])

    def change(seconds: float, count: int) -> list[str]:
        now[0] += seconds
        for _ in range(count):
            configs.alter_topic("t", lambda _: {"retention.ms": "1"})
        return [name[-2:] for name in tree.children(paths.CONFIG_CHANGES)]

    assert change(0, 3) == ["00", "01", "02"]
    assert change(100, 1) == ["00", "01", "02", "03"]  # the first three are seen now
    assert change(899, 1) == ["00", "01", "02", "03", "04"]
    assert change(60, 1) == ["03", "04", "05"]
