"""The modules and settings from outside that perf needs, and those that it keeps from the brokers that it starts."""

import ast
from pathlib import Path

import pytest

from perf.brokers import Fleet
from perf.machine import ROOT


def test_perf_imports_nothing_of_the_tests() -> None:
    imported = {
        (path.name, name)
        for path in (ROOT / "perf").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
    }
    assert not [pair for pair in imported if pair[1].split(".")[0] == "tests"]


def test_a_broker_may_keep_its_compiled_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    with Fleet(tmp_path).running("kafkapy", tmp_path / "data") as broker:
        environment = Path(f"/proc/{broker.pid}/environ").read_bytes().split(b"\0")
    assert not [each for each in environment if each.startswith(b"PYTHONDONTWRITEBYTECODE")]
