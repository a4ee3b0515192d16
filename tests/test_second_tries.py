"""The second try that scripts/test gives to failed tests."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = """
from pathlib import Path

import pytest
from tests.cluster.histories import Violation


@pytest.mark.parametrize("number", range({flaky}))
def test_passes_the_second_time(number):
    once = Path(__file__).with_name(str(number))
    if not once.exists():
        once.touch()
        raise RuntimeError("not yet")


def test_loses_something():
    if {loses}:
        raise Violation("lost: 7")
"""


@pytest.mark.parametrize(
    ("flaky", "loses", "code", "summary"),
    [
        (1, False, 0, "2 passed, 1 rerun"),
        (3, False, 0, "4 passed, 3 rerun"),
        (4, False, 1, "5 passed, 4 rerun"),
        (1, True, 1, "1 failed, 1 passed, 1 rerun"),
    ],
)
def test_three_tests_of_a_run_may_need_a_second_try_and_a_violation_gets_none(
    tmp_path: Path, flaky: int, loses: bool, code: int, summary: str
) -> None:
    (tmp_path / "test_some.py").write_text(TESTS.format(flaky=flaky, loses=loses))
    options = ["-p", "tests.harness.second_tries", "--reruns", "1", "--rerun-except", "Violation"]
    alone = ["-c", "/dev/null", "--rootdir", str(tmp_path), "--confcutdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", "-q", *alone, *options]
    run = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert (run.returncode, run.stdout.splitlines()[-1].partition(" in ")[0]) == (code, summary), run.stdout
    assert run.stdout.count("RuntimeError: not yet") >= flaky
