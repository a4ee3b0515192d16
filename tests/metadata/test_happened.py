"""A change whose answer was lost is known by the nodes that it left, or tried again."""

from typing import Any

import pytest

from kafkapy.metadata.happened import happened
from kafkapy.metadata.mirror import Mirror
from kafkapy.metadata.tree import Check, Create, Delete, Node, Operation, Set

SENT = 10  # the last change known when it was sent


@pytest.fixture
def mirror() -> Mirror:
    mirror = Mirror()
    mirror.apply(
        {
            "/old": Node(b"o", 3, 2, 5, False),
            "/set": Node(b"s", 4, 2, 12, False),
            "/made": Node(b"m", 0, 12, 12, False),
            "/later": Node(b"l", 0, 13, 13, False),
            "/q": Node(b"", 0, 2, 2, False),
            "/q/n-0000000007": Node(b"x", 0, 12, 12, True),
            "/q/n-0000000008": Node(b"y", 0, 13, 13, True),
        }
    )
    return mirror


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
def test_it_happened(mirror: Mirror, operations: list[Operation], results: list[Any]) -> None:
    assert happened(operations, SENT, mirror.nodes.get, mirror.children) == results


@pytest.mark.parametrize(
    "operations",
    [
        [Create("/old", b"o")],  # was there before
        [Create("/no", b"")],
        [Set("/old", b"o")],
        [Set("/set", b"other")],  # somebody else's data
        [Set("/no", b"")],
        [Set("/set", b"s"), Create("/later", b"l")],  # two different changes
        [Set("/set", b"s"), Delete("/old")],
        [Create("/q/n-", b"z", True, True)],
        [Create("/no/n-", b"x", True, True)],
        [Delete("/old")],
        [Check("/old")],
    ],
)
def test_it_did_not_or_cannot_be_told(mirror: Mirror, operations: list[Operation]) -> None:
    assert happened(operations, SENT, mirror.nodes.get, mirror.children) is None
