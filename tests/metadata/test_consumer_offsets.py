"""Offsets of the original consumers, at Kafka's paths in the tree."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy.metadata.cluster import ClusterRegistry
from kafkapy.metadata.consumer_offsets import ConsumerOffsets
from kafkapy.metadata.local.tree import LocalTree
from kafkapy.metadata.tree import Set, TreeUnavailable, wait


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[LocalTree]:
    new_tree = LocalTree(tmp_path / "tree.db")
    ClusterRegistry(new_tree)
    yield new_tree
    new_tree.close()


def kept(offsets: ConsumerOffsets, group: str, *partitions: tuple[str, int]) -> list[Any]:
    found: list[Any] = wait(offsets.get, group, partitions)
    return found


def test_offsets_are_numbers_at_kafkas_paths(tree: LocalTree) -> None:
    offsets = ConsumerOffsets(tree)
    assert kept(offsets, "g", ("t", 0)) == [None]
    wait(offsets.set, "g", [("t", 0, 5), ("t", 12, 1 << 40), ("u", 0, -1)])
    assert tree.get("/consumers/g/offsets/t/12").data == b"1099511627776"
    assert kept(offsets, "g", ("t", 0), ("t", 12), ("u", 0)) == [5, 1 << 40, -1]
    wait(offsets.set, "g", [("t", 0, 6), ("t", 1, 1)])
    assert kept(offsets, "g", ("t", 0), ("t", 1)) == [6, 1]


def test_an_invalid_offset_is_reported_with_its_path(tree: LocalTree) -> None:
    offsets = ConsumerOffsets(tree)
    wait(offsets.set, "g", [("t", 0, 5)])
    tree.commit([Set("/consumers/g/offsets/t/0", b"five")])
    wait(offsets.set, "g", [("t", 1, 6)])
    broken, good = kept(offsets, "g", ("t", 0), ("t", 1))
    assert str(broken) == "the node /consumers/g/offsets/t/0 does not hold an offset: b'five'"
    assert good == 6


@pytest.mark.parametrize("group", ["", ".", "..", "a//b", "/a", "a\0b"])
def test_a_group_id_that_cannot_be_part_of_a_path_is_refused(tree: LocalTree, group: str) -> None:
    with pytest.raises(ValueError, match="cannot be part of a ZooKeeper path"):
        ConsumerOffsets(tree).set(group, [("t", 0, 5)], lambda error: None)


def test_concurrent_first_commits_of_a_group_succeed(tree: LocalTree) -> None:
    offsets = ConsumerOffsets(tree)
    left = threading.Semaphore(0)
    errors: list[Exception | None] = []

    def done(error: Exception | None) -> None:
        errors.append(error)
        left.release()

    for number in range(100):
        offsets.set("g", [("t", number % 7, number)], done)
    for _ in range(100):
        assert left.acquire(timeout=20)
    assert errors == [None] * 100
    # These commits did not wait for each other, so any of a partition's may be the last; the next commit waits.
    seven = [("t", partition) for partition in range(7)]
    assert [number % 7 for number in kept(offsets, "g", *seven)] == list(range(7))
    wait(offsets.set, "g", [("t", partition, 100) for partition in range(7)])
    assert kept(offsets, "g", *seven) == [100] * 7


def test_a_closed_tree_gives_an_error(tree: LocalTree) -> None:
    tree.close()
    with pytest.raises(TreeUnavailable):
        wait(ConsumerOffsets(tree).set, "g", [("t", 0, 5)])
