"""The settings that are listed as having an effect are those that the sources read."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import kafkapy
from kafkapy.server.config.keys import BROKER_KEYS

ROOT = Path(kafkapy.__file__).parent
BROKER = ("coordinator", "controller", "log", "metadata", "network", "replica", "runtime", "server")
TABLES = ROOT / "server/config/keys"
# These modules only check values.
CHECKS = {ROOT / "server/config/rules.py", ROOT / "server/config/security.py"}


def subscripts(path: Path) -> Iterator[str]:
    """Yield the constant strings in square brackets, as in `config["log.dirs"]`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            yield node.slice.value


def test_settings_that_the_broker_reads_are_listed_as_having_an_effect() -> None:
    paths = [path for package in BROKER for path in (ROOT / package).rglob("*.py") if path not in CHECKS]
    read = {name for path in paths for name in subscripts(path) if name in BROKER_KEYS}
    assert "log.cleaner.enable" in read
    assert [name for name in sorted(read) if not BROKER_KEYS[name].effect] == []


def test_settings_that_are_listed_as_having_an_effect_are_named_in_the_sources() -> None:
    text = "\n".join(path.read_text() for path in ROOT.rglob("*.py") if path.parent != TABLES)
    names = set(re.findall(r"[\"']([a-z0-9.]+)[\"']", text)) | set(re.findall(r"\.([a-z0-9_]+)\b", text))
    with_effect = (name for name, key in BROKER_KEYS.items() if key.effect)
    assert [name for name in with_effect if name not in names and name.replace(".", "_") not in names] == []
