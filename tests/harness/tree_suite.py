"""Tests of the metadata tree, run with the embedded tree and with ZooKeeper.

A module that runs them has the fixtures `tree` (empty), and `reopened`: closes a tree and opens it again.
"""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.metadata.tree import (
    BadVersion,
    Check,
    Create,
    Delete,
    Event,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Set,
    Tree,
    TreeError,
    TreeUnavailable,
)

Reopen = Callable[[Tree], Tree]


class TreeSuite:
    def test_a_node_has_data_a_version_and_children(self, tree: Tree) -> None:
        assert tree.commit([Create("/a", b"1"), Create("/a/c"), Create("/a/b")]) == ["/a", "/a/c", "/a/b"]
        assert tree.get("/a").data == b"1"
        assert tree.get("/a").version == 0
        assert tree.children("/a") == ["b", "c"]
        assert tree.children("/a/b") == []
        (node,) = tree.commit([Set("/a", b"2")])
        assert (node.data, node.version) == (b"2", 1)
        assert tree.get("/a") == node
        assert node.changed > node.created

    def test_reads_of_missing_nodes(self, tree: Tree) -> None:
        assert tree.find("/no") is None
        assert not tree.exists("/no")
        with pytest.raises(NoNode, match="/no"):
            tree.get("/no")
        with pytest.raises(NoNode):
            tree.children("/no")

    @pytest.mark.parametrize(
        ("operation", "error"),
        [
            (Create("/a"), NodeExists),
            (Create("/"), NodeExists),
            (Create("/no/child"), NoNode),
            (Create("/e/child"), NoChildrenForEphemerals),
            (Set("/no", b""), NoNode),
            (Set("/a", b"", 7), BadVersion),
            (Delete("/no"), NoNode),
            (Delete("/a"), NotEmpty),
            (Delete("/"), NotEmpty),
            (Delete("/a/b", 3), BadVersion),
            (Check("/a", 3), BadVersion),
            (Check("/no"), NoNode),
            (Create("no/slash"), TreeUnavailable),
            (Create("/a//b"), TreeUnavailable),
            (Create("/a/../b"), TreeError),
            (Create("/a/.."), TreeUnavailable),
        ],
    )
    def test_a_change_that_fails_in_one_part_changes_nothing(self, tree: Tree, operation: Any, error: type) -> None:
        tree.commit([Create("/a", b"x"), Create("/a/b"), Create("/e", ephemeral=True)])
        before = {path: tree.find(path) for path in tree.subtree("/")}
        with pytest.raises(error):
            tree.commit([Set("/a", b"changed"), Create("/new"), Delete("/a/b"), Create("/a/b"), operation])
        assert {path: tree.find(path) for path in tree.subtree("/")} == before

    def test_versions_prevent_overwriting_changes_of_others(self, tree: Tree) -> None:
        tree.commit([Create("/a")])
        tree.commit([Set("/a", b"1", 0), Check("/a", 1), Set("/a", b"2", 1)])
        assert tree.get("/a").version == 2

    def test_sequences_count_on_after_deletion_and_reopening(self, tree: Tree, reopened: Reopen) -> None:
        tree.commit([Create("/q")])
        assert tree.commit([Create("/q/n-", sequence=True), Create("/q/n-", sequence=True)]) == [
            "/q/n-0000000000",
            "/q/n-0000000001",
        ]
        tree.commit([Delete("/q/n-0000000001")])
        again = reopened(tree)
        assert again.commit([Create("/q/", sequence=True)]) == ["/q/0000000002"]
        again.commit([Delete("/q/0000000002"), Delete("/q/n-0000000000"), Delete("/q")])
        assert again.commit([Create("/q"), Create("/q/n-", sequence=True)]) == ["/q", "/q/n-0000000000"]
        again.close()

    def test_a_failed_change_takes_no_sequence_number(self, tree: Tree) -> None:
        tree.commit([Create("/q")])
        with pytest.raises(NoNode):
            tree.commit([Create("/q/n-", sequence=True), Delete("/no")])
        assert tree.commit([Create("/q/n-", sequence=True)]) == ["/q/n-0000000000"]

    def test_everything_but_ephemeral_nodes_is_there_after_reopening(self, tree: Tree, reopened: Reopen) -> None:
        tree.commit([Create("/a", b"\x00\xff"), Create("/a/b", "ü".encode()), Create("/a/e", b"x", ephemeral=True)])
        tree.commit([Set("/a", b"y")])
        a = tree.get("/a")
        assert tree.get("/a/e").ephemeral
        again = reopened(tree)
        assert again.get("/a") == a
        assert again.children("/a") == ["b"]
        again.close()

    def test_change_numbers_grow_over_restarts(self, tree: Tree, reopened: Reopen) -> None:
        tree.commit([Create("/e", ephemeral=True)])
        first = tree.get("/e").created
        again = reopened(tree)
        again.commit([Create("/e", ephemeral=True)])
        assert again.get("/e").created > first
        again.close()

    def test_changes_submitted_together_all_happen_in_order(self, tree: Tree) -> None:
        outcomes: list[Any] = []
        last = threading.Event()
        tree.submit([Create("/n", b"")], lambda results, error: outcomes.append((results, error)))
        for number in range(200):
            tree.submit([Set("/n", str(number).encode())], lambda results, error: outcomes.append(results))
        tree.submit([Check("/n", 200)], lambda results, error: last.set())
        assert last.wait(30)
        assert [outcome[0].version for outcome in outcomes[1:]] == list(range(1, 201))
        assert tree.get("/n").data == b"199"

    def test_a_change_is_visible_when_done_is_called(self, tree: Tree) -> None:
        seen: list[bytes] = []
        finished = threading.Event()

        def done(results: Any, error: Any) -> None:
            seen.append(tree.get("/n").data)
            finished.set()

        tree.submit([Create("/n", b"now")], done)
        assert finished.wait(30)
        assert seen == [b"now"]

    def test_one_failing_change_does_not_affect_its_group(self, tree: Tree) -> None:
        gate = threading.Event()

        def held(results: Any, error: Any) -> None:
            gate.wait(30)

        def last(results: Any, error: Any) -> None:
            outcomes.append(error)
            finished.set()

        tree.submit([], held)  # holds the thread, so that the next three are one group
        outcomes: list[Any] = []
        finished = threading.Event()
        tree.submit([Create("/a")], lambda results, error: outcomes.append(error))
        tree.submit([Create("/a"), Create("/b")], lambda results, error: outcomes.append(error))
        tree.submit([Create("/a/c")], last)
        gate.set()
        assert finished.wait(30)
        assert outcomes[0] is None
        assert isinstance(outcomes[1], NodeExists)
        assert outcomes[2] is None
        assert tree.subtree("/") == ["/a/c", "/a", "/"]

    def test_a_parent_and_its_child_can_go_in_one_change_after_the_parent_was_written(self, tree: Tree) -> None:
        tree.commit([Create("/p"), Create("/p/c")])
        tree.commit([Set("/p", b"x"), Delete("/p/c"), Delete("/p")])
        assert tree.children("/") == []
        tree.commit([Create("/p")])
        assert tree.children("/p") == []

    def test_a_callback_that_fails_does_not_stop_the_tree(self, tree: Tree) -> None:
        def broken(results: Any, error: Any) -> None:
            raise ZeroDivisionError

        tree.submit([Create("/a")], broken)
        tree.commit([Create("/b")])
        assert tree.children("/") == ["a", "b"]

    def test_a_callback_must_not_wait_for_the_tree(self, tree: Tree) -> None:
        caught: list[BaseException] = []
        finished = threading.Event()

        def done(results: Any, error: Any) -> None:
            try:
                tree.commit([Create("/b")])
            except RuntimeError as problem:
                caught.append(problem)
            finished.set()

        tree.submit([Create("/a")], done)
        assert finished.wait(30)
        assert caught

    def test_watches_see_changes_of_a_node_and_of_its_children_until_cancelled(self, tree: Tree) -> None:
        events: list[Event] = []
        tree.commit([Create("/a")])
        cancel = tree.watch("/a", events.append)
        tree.commit([Set("/a", b"x")])
        tree.commit([Create("/a/b")])
        tree.commit([Set("/a/b", b"not mine")])
        tree.commit([Delete("/a/b"), Delete("/a")])
        tree.commit([Create("/a")])
        with pytest.raises(NodeExists):
            tree.commit([Set("/a", b"y"), Create("/a")])
        assert events == [
            Event("changed", "/a"),
            Event("children", "/a"),
            Event("children", "/a"),
            Event("deleted", "/a"),
            Event("created", "/a"),
        ]
        cancel()
        tree.commit([Set("/a", b"z")])
        assert len(events) == 5

    def test_ensure_creates_a_missing_node_with_its_parents(self, tree: Tree) -> None:
        tree.ensure("/x/y/z", "/x/w", "/x/y")
        tree.ensure("/x/y/z")
        assert tree.subtree("/x")[-1] == "/x"
        assert set(tree.subtree("/x")) == {"/x", "/x/w", "/x/y", "/x/y/z"}
        assert tree.subtree("/no") == []

    def test_a_closed_tree_refuses_changes_and_can_be_closed_twice(self, tree: Tree) -> None:
        tree.close()
        tree.close()
        with pytest.raises(TreeUnavailable):
            tree.commit([Create("/a")])

    def test_changes_submitted_before_closing_are_applied(self, tree: Tree, reopened: Reopen) -> None:
        tree.submit([Create("/late")], lambda results, error: None)
        again = reopened(tree)
        assert again.exists("/late")
        again.close()
