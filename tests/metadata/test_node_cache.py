"""The node cache is always a consistent tree, whatever the order in which reads arrive."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from kafkapy.metadata.tree import CHANGED, CHILDREN, CREATED, DELETED, Event, Node, split_path
from kafkapy.metadata.zookeeper.node_cache import NodeCache


def node(created: int = 1, changed: int | None = None) -> Node:
    return Node(b"", 0, created, created if changed is None else changed, False)


def test_found_nodes_are_cached_with_their_events() -> None:
    cache = NodeCache()
    assert cache.apply({"/a/b": node(), "/a": node()}) == [
        Event(CREATED, "/a"),
        Event(CHILDREN, "/"),
        Event(CREATED, "/a/b"),
        Event(CHILDREN, "/a"),
    ]
    assert cache.apply({"/a": node(1, 5), "/a/b": node()}) == [Event(CHANGED, "/a")]
    assert cache.children("/a") == ["b"]
    assert cache.apply({"/a": None}) == [
        Event(DELETED, "/a/b"),
        Event(CHILDREN, "/a"),
        Event(DELETED, "/a"),
        Event(CHILDREN, "/"),
    ]
    assert list(cache.nodes) == ["/"]


def test_a_recreated_node_inherits_nothing_from_the_deleted_one() -> None:
    cache = NodeCache()
    cache.apply({"/a": node(1), "/a/old": node(1)})
    events = cache.apply({"/a": node(9), "/a/new": node(9)})
    assert cache.children("/a") == ["new"]
    assert [event for event in events if event.path == "/a" and event.kind != CHILDREN] == [
        Event(DELETED, "/a"),
        Event(CREATED, "/a"),
    ]


def test_a_child_of_an_unknown_parent_is_not_cached() -> None:
    cache = NodeCache()
    assert cache.apply({"/a/b": node()}) == []
    assert list(cache.nodes) == ["/"]


paths = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/a/x/1", "/b/x"])
founds = st.dictionaries(paths, st.none() | st.builds(node, st.integers(1, 3), st.none() | st.integers(4, 6)))


def replayed(events: list[Event]) -> Iterator[tuple[str, str]]:
    return ((event.kind, event.path) for event in events)


@given(st.lists(founds, max_size=12))
def test_the_cache_is_always_a_tree_that_its_events_explain(
    batches: list[dict[str, Node | None]],
) -> None:
    cache = NodeCache()
    notified: set[str] = {"/"}
    for found in batches:
        for kind, path in replayed(cache.apply(found)):
            if kind == CREATED:
                assert path not in notified
                assert split_path(path)[0] in notified
                notified.add(path)
            elif kind == DELETED:
                notified.remove(path)
                assert not any(other.startswith(f"{path}/") for other in notified)
        assert notified == set(cache.nodes)
        for path in cache.nodes:
            below = sorted(split_path(other)[1] for other in notified if other != "/" and split_path(other)[0] == path)
            assert cache.children(path) == below
        for path, one in found.items():
            if one is not None and path in cache.nodes:
                assert cache.nodes[path] == one
