"""What is known of a far tree: never in disorder, whatever order the reads came in."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from kafkapy.metadata.mirror import Mirror
from kafkapy.metadata.tree import CHANGED, CHILDREN, CREATED, DELETED, Event, Node, split_path


def node(created: int = 1, changed: int | None = None) -> Node:
    return Node(b"", 0, created, created if changed is None else changed, False)


def test_what_is_found_becomes_what_is_known_with_its_events() -> None:
    mirror = Mirror()
    assert mirror.apply({"/a/b": node(), "/a": node()}) == [
        Event(CREATED, "/a"),
        Event(CHILDREN, "/"),
        Event(CREATED, "/a/b"),
        Event(CHILDREN, "/a"),
    ]
    assert mirror.apply({"/a": node(1, 5), "/a/b": node()}) == [Event(CHANGED, "/a")]
    assert mirror.children("/a") == ["b"]
    assert mirror.apply({"/a": None}) == [
        Event(DELETED, "/a/b"),
        Event(CHILDREN, "/a"),
        Event(DELETED, "/a"),
        Event(CHILDREN, "/"),
    ]
    assert list(mirror.nodes) == ["/"]


def test_a_node_that_was_made_again_takes_nothing_over_from_the_old_one() -> None:
    mirror = Mirror()
    mirror.apply({"/a": node(1), "/a/old": node(1)})
    events = mirror.apply({"/a": node(9), "/a/new": node(9)})
    assert mirror.children("/a") == ["new"]
    assert [event for event in events if event.path == "/a" and event.kind != CHILDREN] == [
        Event(DELETED, "/a"),
        Event(CREATED, "/a"),
    ]


def test_a_child_whose_parent_is_not_known_is_not_known() -> None:
    mirror = Mirror()
    assert mirror.apply({"/a/b": node()}) == []
    assert list(mirror.nodes) == ["/"]


paths = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/a/x/1", "/b/x"])
founds = st.dictionaries(paths, st.none() | st.builds(node, st.integers(1, 3), st.none() | st.integers(4, 6)))


def replayed(events: list[Event]) -> Iterator[tuple[str, str]]:
    return ((event.kind, event.path) for event in events)


@given(st.lists(founds, max_size=12))
def test_it_is_a_tree_at_every_moment_and_its_events_tell_how_it_came_about(
    batches: list[dict[str, Node | None]],
) -> None:
    mirror = Mirror()
    told: set[str] = {"/"}
    for found in batches:
        for kind, path in replayed(mirror.apply(found)):
            if kind == CREATED:
                assert path not in told
                assert split_path(path)[0] in told
                told.add(path)
            elif kind == DELETED:
                told.remove(path)
                assert not any(other.startswith(f"{path}/") for other in told)
        assert told == set(mirror.nodes)
        for path in mirror.nodes:
            below = sorted(split_path(other)[1] for other in told if other != "/" and split_path(other)[0] == path)
            assert mirror.children(path) == below
        for path, one in found.items():
            if one is not None and path in mirror.nodes:
                assert mirror.nodes[path] == one
