"""README.md and docs/: link targets and named files exist, commands and examples match the code."""

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from kafkapy.tools.cli import app_for

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
# Pages name files from the root of the repository, or from the package.
TOP = "docs|ext|kafkapy|perf|scripts|tests|client|log|metadata|network|runtime|server|tools"
REPOSITORY_PATH = re.compile(rf"`((?:{TOP})/[\w./-]+)`")


def prose(page: Path) -> str:
    return BLOCK.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_point_to_existing_files_and_headings(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file) if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_named_files_exist(page: Path) -> None:
    for name in REPOSITORY_PATH.findall(prose(page)):
        # docs/architecture.md names compiled modules without their ending.
        assert any((base / f"{name}{end}").exists() for base in (ROOT, ROOT / "kafkapy") for end in ("", ".pyx")), name


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the calls of kafkapy in a page's blocks and inline code, up to a pipe, a redirection or a comment."""
    text = page.read_text()
    lines = [line for kind, block in BLOCK.findall(text) if kind != "python" for line in block.splitlines()]
    lines += re.findall(r"`(kafkapy [^`]+)`", BLOCK.sub("", text).replace("\n", " "))
    for line in lines:
        if found := re.match(r"\s*(?:\$ )?(?:[^'\"#]*\| *)?(kafkapy [a-z-].*)", line):
            reader = shlex.shlex(found[1], posix=True, punctuation_chars="|><;&")
            reader.whitespace_split = True
            words: list[str] = []
            for word in reader:
                if set(word) <= set("|><;&"):
                    break
                words.append(word)
            yield words[1:]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_and_their_options_exist(page: Path) -> None:
    for words in commands(page):
        command = typer.main.get_command(app_for(words))
        options: set[str] = {"--help"}
        for word in words:
            known = getattr(command, "commands", None)
            if known and re.fullmatch(r"[a-z][a-z-]*", word):
                assert word in known, words
                command = known[word]
            options |= {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
            assert not word.startswith("--") or word.partition("=")[0] in options, (word, words)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_names_that_examples_import_from_kafkapy_exist(page: Path) -> None:
    for kind, block in BLOCK.findall(page.read_text()):
        if kind != "python":
            continue
        for node in ast.walk(ast.parse(block.replace(", ...)", ")"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kafkapy"):
                module = importlib.import_module(node.module)
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


def test_the_architecture_names_every_compiled_module() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert [path.stem for path in sorted((ROOT / "ext").glob("*.pyx")) if f"`{path.stem}`" not in page] == []


def test_the_checks_find_what_they_look_for() -> None:
    every = [words for page in PAGES for words in commands(page)]
    assert ["groups", "describe", "--state"] in every
    assert ["produce", "numbers"] in every  # behind a pipe
    assert len(every) > 100
    assert "moving-in-and-out" in anchors(ROOT / "docs" / "zookeeper.md")
    assert "docs/examples/totals_in_sqlite.py" in LINK.findall(prose(ROOT / "README.md"))
    for page, name in (
        ("add-an-api.md", "server/call.py"),
        ("add-a-setting.md", "kafkapy/server/config/keys/row.py"),
        ("add-a-metric.md", "kafkapy/runtime/counters.py"),
    ):
        assert name in REPOSITORY_PATH.findall(prose(ROOT / "docs" / page))
        assert f"docs/{page}" in LINK.findall(prose(ROOT / "README.md"))
