"""Runs kafkapy's commands in this process, and returns their output and exit code."""

import contextlib
import io
import json
from typing import Any

from kafkapy.tools.main import main
from tests.harness.kafka_tools import Said


def kafkapy(bootstrap: str, *words: object) -> Said:
    """Run `kafkapy WORDS --bootstrap-server BOOTSTRAP`."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*map(str, words), "--bootstrap-server", bootstrap])
    return Said(code, out.getvalue(), err.getvalue())


def kafkapy_json(bootstrap: str, *words: object) -> Any:
    """Return the document that the command prints with --json. The command must succeed."""
    result = kafkapy(bootstrap, *words, "--json")
    assert (result.code, result.err) == (0, ""), result
    return json.loads(result.out)
