"""The tests do not depend on how the shell started them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEEDS_SIGINT = "tests/tools/log/test_tail.py::test_the_command_follows_until_it_is_interrupted"


def test_children_can_be_interrupted_though_the_shell_ignores_sigint():
    pytest = f"{sys.executable} -m pytest -q -p no:cacheprovider --timeout 60 {NEEDS_SIGINT}"
    command = ["sh", "-c", f"trap '' INT QUIT; exec {pytest}"]  # as with &, nohup and cron
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
