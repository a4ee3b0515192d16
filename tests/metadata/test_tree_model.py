"""The local tree against a plain dict, with restarts, and after SIGKILL of the writing process."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafkapy.metadata.local.tree import FILE_NAME, LocalTree
from kafkapy.metadata.tree import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    TreeError,
)
from tests.harness.examples import examples

PATHS = ["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/1"]
paths = st.sampled_from(PATHS)
versions = st.sampled_from([ANY_VERSION, ANY_VERSION, 0, 1, 2])
data = st.binary(max_size=20)
operations = st.one_of(
    st.builds(Create, paths, data, st.booleans(), st.just(False)),
    st.builds(Create, paths, data, st.just(False), st.booleans()),
    st.builds(Set, paths, data, versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
)
changes = st.lists(operations, min_size=1, max_size=5)


class Model:
    """path -> [data, version, ephemeral]; sequence counters by path."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int, bool]] = {"/": (b"", 0, False)}
        self.sequences: dict[str, int] = {}

    def apply(self, change: list[Operation]) -> type[TreeError] | None:
        nodes, sequences = dict(self.nodes), dict(self.sequences)
        for operation in change:
            error = self._one(nodes, sequences, operation)
            if error is not None:
                return error
        self.nodes, self.sequences = nodes, sequences
        return None

    def _one(self, nodes: dict[str, Any], sequences: dict[str, int], operation: Operation) -> type[TreeError] | None:
        path = operation.path
        if isinstance(operation, Create):
            parent = path.rpartition("/")[0] or "/"
            if parent not in nodes:
                return NoNode
            if nodes[parent][2]:
                return NoChildrenForEphemerals
            if operation.sequence:
                number = sequences.get(parent, 0)
                sequences[parent] = number + 1
                path = f"{path}{number:010d}"
            if path in nodes:
                return NodeExists
            nodes[path] = (operation.data, 0, operation.ephemeral)
            return None
        if path not in nodes:
            return NoNode
        _, version, ephemeral = nodes[path]
        if operation.version not in (ANY_VERSION, version):
            return BadVersion
        if isinstance(operation, Set):
            nodes[path] = (operation.data, version + 1, ephemeral)
        elif isinstance(operation, Delete):
            if any(other.startswith(path + "/") for other in nodes):
                return NotEmpty
            del nodes[path]
            sequences.pop(path, None)
        return None

    def restart(self) -> None:
        self.nodes = {path: node for path, node in self.nodes.items() if not node[2]}


class TreeMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = tempfile.TemporaryDirectory()
        self.tree = LocalTree(Path(self.home.name) / FILE_NAME)
        self.model = Model()

    @rule(change=changes)
    def one_change(self, change: list[Operation]) -> None:
        expected = self.model.apply(change)
        try:
            self.tree.commit(change)
            results_if_applied: type[TreeError] | None = None
        except TreeError as error:
            results_if_applied = type(error)
        assert results_if_applied is expected

    @rule(group=st.lists(changes, min_size=2, max_size=5))
    def several_changes_at_once(self, group: list[list[Operation]]) -> None:
        outcomes: list[type[TreeError] | None] = []
        for change in group:
            self.tree.submit(change, lambda _, error: outcomes.append(type(error) if error is not None else None))
        self.tree.commit([])
        assert outcomes == [self.model.apply(change) for change in group]

    @rule()
    def restart(self) -> None:
        self.tree.close()
        self.tree = LocalTree(Path(self.home.name) / FILE_NAME)
        self.model.restart()

    @invariant()
    def same_nodes(self) -> None:
        found = {path: self.tree.get(path) for path in self.tree.subtree("/")}
        assert {path: (node.data, node.version, node.ephemeral) for path, node in found.items()} == self.model.nodes

    def teardown(self) -> None:
        self.tree.close()
        self.home.cleanup()


TestTreeAgainstModel = TreeMachine.TestCase
TestTreeAgainstModel.settings = settings(max_examples=examples(25), stateful_step_count=15, deadline=None)


WRITER = """
import sys
from pathlib import Path
from kafkapy.metadata.local.tree import LocalTree
from kafkapy.metadata.tree import Create, Set

tree = LocalTree(Path(sys.argv[1]))
tree.commit([Create("/n", b"0"), Create("/m", b"0"), Create("/q"), Create("/mine", ephemeral=True)])

def acknowledged(number):
    def done(results, error):
        assert error is None
        sys.stdout.write(f"{number}\\n")
        sys.stdout.flush()
    return done

number = 0
while True:
    number += 1
    text = str(number).encode()
    change = [Set("/n", text), Set("/m", text), Create("/q/", b"", False, True)]
    if number % 10:
        tree.submit(change, acknowledged(number))
    else:
        tree.commit(change)  # lets the queue run empty
        acknowledged(number)(None, None)
"""


def test_after_sigkill_acknowledged_changes_exist_and_none_is_partial(tmp_path: Path) -> None:
    for round in range(3):
        path = tmp_path / f"{round}.db"
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        wanted = 35 + 40 * round
        for line in writer.stdout:
            if int(line) >= wanted:
                break
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged = [int(line) for line in writer.stdout.read().splitlines() if line]
        writer.wait()
        last = max(acknowledged, default=wanted)

        tree = LocalTree(path)
        reached = int(tree.get("/n").data)
        assert reached >= last
        assert tree.get("/m").data == tree.get("/n").data
        assert len(tree.children("/q")) == reached
        assert not tree.exists("/mine")
        tree.close()
