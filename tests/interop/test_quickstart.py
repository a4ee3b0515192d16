"""scripts/quickstart, after its build, sends 336,776 real records through a real client, each once and in order."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.brokers import Broker

pytestmark = pytest.mark.not_quick

SCRIPT = Path(__file__).parents[2] / "scripts" / "quickstart_flights.py"


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_flights_go_in_and_come_out() -> None:
    result = run("--partitions", "5")
    assert "336,776 records, each once and in order" in result
    assert re.search(r"UA United Air Lines Inc\. +58,665 +12\.1 +3\.6\n", result)
    assert re.search(r"all +336,776 +12\.6 +6\.9\n", result)
    assert re.search(r"stop the broker .* exit code 0\n", result)


def test_they_can_go_to_a_broker_that_runs_already(broker: Broker) -> None:
    assert "336,776 records, each once and in order" in run("--bootstrap", broker.bootstrap, "--topic", "flights")
