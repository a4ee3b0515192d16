"""How tests call the command line: in this process, with what it printed and its exit code."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from kafkapy.tools.main import main


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def kafkapy(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """`kafkapy("log", "dump", path)` runs that command."""
    monkeypatch.delenv("KAFKAPY_DEBUG", raising=False)

    def call(*words: object) -> Said:
        capfdbinary.readouterr()
        code = main([str(word) for word in words])
        out, err = capfdbinary.readouterr()
        return Said(code, out.decode(), err.decode())

    return call
