"""A ZooKeeper session that expires and is replaced while partitions are claimed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkapy.client.original.assignment import Partition, Thread
from kafkapy.client.original.consuming.rebalance import Rebalancer
from kafkapy.client.original.consuming.settings import ConsumerSettings
from kafkapy.client.original.znodes.layouts import Layout
from kafkapy.client.original.znodes.subscriptions import Subscription


class Tree:
    """The znodes of a group with the members "a" and `others`. After `left` claims the next session begins."""

    layout = Layout.V08

    def __init__(self) -> None:
        self.cluster = self
        self.session = 1
        self.left = 1
        self.others: list[str] = []
        self.owned: dict[Partition, int] = {}  # partition -> the session that claimed it

    def register(self, consumer: str, data: bytes, *, timeout_s: float = 0.0) -> int:
        return self.session

    def members(self, watch: Any) -> dict[str, Subscription]:
        return dict.fromkeys(["a", *self.others], Subscription({"t": 1}))

    def topics(self, watch: Any) -> list[str]:
        return ["t"]

    def partitions(self, topic: str, watch: Any) -> list[str]:
        return ["0", "1"]

    def claim(self, partition: Partition, thread: Thread) -> bool:
        self.owned[partition] = self.session
        self.left -= 1
        if not self.left:
            self.owned.clear()
            self.session += 1
        return True

    def release(self, partition: Partition) -> None:
        if self.owned.get(partition) == self.session:
            del self.owned[partition]


class Holder:
    def stop_reading(self, partitions: list[Partition], *, lost: bool) -> None:
        pass

    def start_reading(self, partitions: Mapping[Partition, Thread]) -> None:
        pass


def test_partitions_claimed_in_the_new_session_are_released_when_others_get_them() -> None:
    tree: Any = Tree()
    rebalancer = Rebalancer(tree, ConsumerSettings("zk", "g"), "a", Subscription({"t": 1}), Holder())
    assert rebalancer.attempt()
    assert tree.owned == {("t", "1"): 2}
    tree.others = ["b"]
    assert rebalancer.attempt()
    assert tree.owned == {("t", "0"): 2}
