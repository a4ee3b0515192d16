"""scripts/cluster after its build: brokers run until Ctrl-C, and nothing is left."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafkapy.client import Admin
from kafkapy.testing.zookeeper import JARS_VARIABLE
from tests.harness.zookeeper import jars_in

SCRIPT = Path(__file__).parents[2] / "scripts" / "run_cluster.py"


def run(*words, **more):
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **more,
    )


def runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.other_runtime
@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_brokers_run_until_the_script_is_interrupted(tmp_path, ended_by):
    jars = jars_in(tmp_path / "libs")
    script = run("--zookeeper-jars", str(jars), "--brokers", "2", "-o", "num.partitions=5")
    said = []
    for line in script.stdout:
        said.append(line)
        if "Ctrl-C" in line:
            break
    text = "".join(said)
    assert "Ctrl-C stops all and removes the data.\n" in text, script.stderr.read()
    assert text.count(", the controller\n") == 1
    servers = re.search(r"^export KAFKAPY_BOOTSTRAP_SERVER=(\S+)$", text, re.MULTILINE)[1]
    with Admin(servers) as admin:
        assert len(admin.describe_cluster().brokers) == 2
        assert len(admin.create_topic("t").partitions) == 5
    os.killpg(script.pid, ended_by)  # as the terminal does at Ctrl-C
    rest, errors = script.communicate(timeout=60)
    assert (script.returncode, rest, errors) == (0, "Stopping.\n", "")
    pids = [int(pid) for pid in re.findall(r"pid=(\d+)", text)]
    assert len(pids) == 2
    assert not any(map(runs, pids))
    assert not any(Path(directory).exists() for directory in re.findall(r"data=(\S+)", text))


def test_a_start_that_fails_says_why(tmp_path):
    script = run(env={**os.environ, JARS_VARIABLE: str(tmp_path)})
    said, errors = script.communicate(timeout=60)
    assert (script.returncode, said) == (1, "")
    assert errors == f"scripts/cluster: There is no zookeeper-*.jar in {tmp_path}, where ZooKeeper's jars should be.\n"


@pytest.mark.parametrize(("words", "named"), [(["--brokers", "0"], "'0'"), (["-o", "x"], "'x' is not KEY=VALUE")])
def test_a_wrong_call_is_named(words, named):
    script = run(*words)
    _, errors = script.communicate(timeout=60)
    assert script.returncode == 2
    assert named in errors
