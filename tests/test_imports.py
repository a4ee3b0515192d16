"""Imports go downwards only, through the layers that docs/architecture draws."""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "kafkapy"
EXT = PACKAGE.parent / "ext"
# From the top to the bottom. Parts on one line do not import each other.
LAYERS = [
    {"__main__"},
    {"tools"},
    {"testing"},
    {"server", "spark", "mirror"},
    {"arrow"},
    {"coordinator", "controller", "client"},
    {"replica"},
    {"log", "metadata", "network", "protocol"},
    {"record", "security"},
    {"runtime"},
    {"_ext"},
    {"errors", "extras", "version"},  # tables that import nothing, so that compiled modules can raise these errors
]
HEIGHT = {name: -level for level, names in enumerate(LAYERS) for name in names}
# The package itself exports Broker and the version, and imports their modules only on first use.
LAZY = {"__init__"}


def part_of(path: Path) -> str:
    """Return the name of a file's part: its top folder, or its own name."""
    return "_ext" if path.parent == EXT else path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, part of kafkapy) of every import, also of those inside functions and for types only."""
    if path.parent == EXT:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if found := re.match(r"\s*(?:from|import|cimport) kafkapy\.(\w+)", line):
                yield number, found[1]
        return
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            words = name.split(".")
            if words[0] == "kafkapy" and len(words) > 1:
                yield node.lineno, words[1]


def sources() -> list[Path]:
    """Return all Python and Cython files. Type stubs are left out: they import nothing at run time."""
    return sorted([*PACKAGE.rglob("*.py"), *EXT.glob("*.pyx"), *EXT.glob("*.pxd")])


def test_every_part_has_a_layer() -> None:
    assert {part_of(path) for path in sources()} - LAZY <= set(HEIGHT)


@pytest.mark.parametrize("part", sorted({part_of(path) for path in sources()} - LAZY))
def test_imports_go_downwards_only(part: str) -> None:
    wrong = [
        f"{path.relative_to(PACKAGE.parent)}:{line} imports kafkapy.{other}"
        for path in sources()
        if part_of(path) == part
        for line, other in imported(path)
        if other != part and HEIGHT[other] >= HEIGHT[part]
    ]
    assert not wrong, "\n".join(wrong)


def test_the_package_itself_imports_only_its_version_at_once() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    at_once = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    modules = {node.module for node in at_once if isinstance(node, ast.ImportFrom)}
    assert modules <= {"kafkapy.version", "typing", "__future__"}


def test_the_controller_imports_no_replica_or_log() -> None:
    """The controller may be on another broker than the replicas and logs that it decides about."""
    wrong = [
        f"{path.relative_to(PACKAGE.parent)}:{line} imports kafkapy.{other}"
        for path in (PACKAGE / "controller").rglob("*.py")
        for line, other in imported(path)
        if other in ("replica", "log")
    ]
    assert not wrong, "\n".join(wrong)


def imported_at_run_time(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield (module, name in it) of every import, also of those inside functions, but not of those for types only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((str(node.module), alias.name) for alias in node.names)
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield from imported_at_run_time(node)


def test_there_are_no_import_cycles() -> None:
    """An import inside a function may save time, but it may not hide that two modules need each other."""
    trees = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path.read_text()
        for path in PACKAGE.rglob("*.py")
    }
    graph = {
        module: {
            f"{other}.{name}" if f"{other}.{name}" in trees else other
            for other, name in imported_at_run_time(ast.parse(text))
        }
        for module, text in trees.items()
    }
    assert "kafkapy.mirror.group_member" in graph["kafkapy.mirror.sources"], "imports inside functions are not seen"
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))
