"""The command line for tests: run in this process, with its output and its exit code."""

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
    """Return a function that runs a command: `kafkapy("log", "dump", path)`."""
    monkeypatch.delenv("KAFKAPY_DEBUG", raising=False)

    def call(*words: object) -> Said:
        capfdbinary.readouterr()
        code = main([str(word) for word in words])
        out, err = capfdbinary.readouterr()
        return Said(code, out.decode(), err.decode())

    return call
