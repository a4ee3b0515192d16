"""The tests run alike however the shell starts and ends them, and they leave no processes behind."""

import subprocess
import sys
from pathlib import Path

from tests.harness.waiting import eventually

ROOT = Path(__file__).parents[1]
NEEDS_SIGINT = "tests/tools/log/test_tail.py::test_the_command_follows_until_it_is_interrupted"


def test_children_can_be_interrupted_though_the_shell_ignores_sigint():
    pytest = f"{sys.executable} -m pytest -q -p no:cacheprovider --timeout 60 {NEEDS_SIGINT}"
    command = ["sh", "-c", f"trap '' INT QUIT; exec {pytest}"]  # `&`, nohup and cron do the same
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


ENDLESS = """
import threading
from pathlib import Path
import pytest

@pytest.fixture(scope="session")
def broker():
    yield
    Path(__file__).with_name("stopped").touch()

def test_endless(broker):
    Path(__file__).with_name("begun").touch()
    threading.Event().wait()
"""


def test_sigterm_ends_the_tests_after_their_fixtures(tmp_path: Path):
    (tmp_path / "test_endless.py").write_text(ENDLESS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.conftest", str(tmp_path)]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    eventually(lambda: (tmp_path / "begun").exists() or child.poll() is not None, seconds=120)
    child.terminate()
    output, _ = child.communicate()
    assert (tmp_path / "stopped").exists(), output
