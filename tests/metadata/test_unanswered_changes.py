"""A change whose response was lost is recognized by its nodes, or retried."""

from typing import Any

import pytest

from kafkapy.metadata.tree import Check, Create, Delete, Node, Operation, Set
from kafkapy.metadata.zookeeper.node_cache import NodeCache
from kafkapy.metadata.zookeeper.unanswered_changes import results_if_applied

SENT = 10  # the last change known when it was sent


@pytest.fixture
def cache() -> NodeCache:
    cache = NodeCache()
    cache.apply(
        {
            "/old": Node(b"o", 3, 2, 5, False),
            "/set": Node(b"s", 4, 2, 12, False),
            "/made": Node(b"m", 0, 12, 12, False),
            "/same": Node(b"2", 2, 2, 12, False),
            "/later": Node(b"l", 0, 13, 13, False),
            "/q": Node(b"", 0, 2, 2, False),
            "/q/n-0000000007": Node(b"x", 0, 12, 12, True),
            "/q/n-0000000008": Node(b"y", 0, 13, 13, True),
        }
    )
    return cache


@pytest.mark.parametrize(
    ("operations", "results"),
    [
        ([Create("/made", b"m")], ["/made"]),
        ([Create("/made", b""), Set("/made", b"m", 0)], ["/made", Node(b"m", 0, 12, 12, False)]),
        ([Set("/set", b"s", 3)], [Node(b"s", 4, 2, 12, False)]),
        ([Create("/made", b"m"), Set("/set", b"s"), Delete("/gone")], ["/made", Node(b"s", 4, 2, 12, False), None]),
        ([Create("/q/n-", b"x", True, True)], ["/q/n-0000000007"]),
        ([Delete("/gone/below"), Delete("/gone")], [None, None]),
        ([Check("/old"), Set("/set", b"s")], [Node(b"o", 3, 2, 5, False), Node(b"s", 4, 2, 12, False)]),
    ],
)
def test_an_applied_change_gives_its_results(cache: NodeCache, operations: list[Operation], results: list[Any]) -> None:
    assert results_if_applied(operations, SENT, cache.nodes.get, cache.children) == results


@pytest.mark.parametrize(
    "operations",
    [
        [Create("/old", b"o")],  # was there before
        [Create("/no", b"")],
        [Create("/made", b"other")],  # another process has created it
        [Create("/made", b"other"), Set("/same", b"2", 1)],  # and has set another node to the same data
        [Set("/old", b"o")],
        [Set("/set", b"other")],  # another writer's data
        [Set("/no", b"")],
        [Set("/set", b"s"), Create("/later", b"l")],  # two different changes
        [Set("/set", b"s"), Delete("/old")],
        [Create("/q/n-", b"z", True, True)],
        [Create("/no/n-", b"x", True, True)],
        [Delete("/old")],
        [Check("/old")],
    ],
)
def test_a_change_that_was_not_applied_or_is_hidden_gives_none(cache: NodeCache, operations: list[Operation]) -> None:
    assert results_if_applied(operations, SENT, cache.nodes.get, cache.children) is None
