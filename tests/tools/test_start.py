"""The arguments of `kafkapy start`, and the line that says that the broker is ready."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkapy.tools.common.errors import CallError
from kafkapy.tools.start import _freeze_logs, config_of, parse, ready_line
from kafkapy.version import VERSION


@pytest.mark.parametrize(
    ("args", "file", "overrides"),
    [
        ([], None, {}),
        (["s.properties"], "s.properties", {}),
        (["-o", "a=1", "s.properties", "--override", "b=2"], "s.properties", {"a": "1", "b": "2"}),
        (["-oa=1", "--override=b=x=y"], None, {"a": "1", "b": "x=y"}),
        (["-o", "a=1", "-o", "a=2"], None, {"a": "2"}),
        (["-o", "a="], None, {"a": ""}),
    ],
)
def test_arguments_are_a_file_and_settings(args, file, overrides):
    assert parse(args) == (file, overrides)


@pytest.mark.parametrize("args", [["-x"], ["a", "b"], ["-o"], ["-o", "=1"], ["--override", "x"]])
def test_other_arguments_are_refused(args):
    with pytest.raises(CallError):
        parse(args)


def test_settings_in_the_arguments_override_those_in_the_file(tmp_path):
    (tmp_path / "s.properties").write_text("num.partitions=3\nlog.dirs=/a\n")
    config = config_of(str(tmp_path / "s.properties"), {"num.partitions": "5"})
    assert (config.num_partitions, config.log_dirs) == (5, (Path("/a"),))


def test_the_ready_line_has_addresses_directories_and_pid():
    line = ready_line(["PLAINTEXT://127.0.0.1:41873", "B://[::1]:2"], [Path("/a"), Path("/b")])
    assert line == (f"kafkapy {VERSION} ready: PLAINTEXT://127.0.0.1:41873,B://[::1]:2 data=/a,/b pid={os.getpid()}")


@pytest.mark.parametrize(("asked", "times"), [(1, 1), (3, 3), (1000, 51)])
def test_the_garbage_collector_skips_the_logs_once_they_are_loaded(asked, times):
    """If loading takes long because of recoveries, the loaded logs are frozen again and again until all are loaded."""
    patience = []

    class Server:
        def wait_until_loaded(self, timeout):
            patience.append(timeout)
            return len(patience) == asked

    before = gc.get_freeze_count()
    try:
        _freeze_logs(Server())
        assert gc.get_freeze_count() > before
        assert len(patience) == times
        assert (patience[-1] is None) is (asked > times)
    finally:
        gc.unfreeze()


START = """
import gc, sys, time
gc.disable()  # as `serve` does
UNWANTED = {"_hashlib", "inspect", "encodings.idna", "ssl", "tempfile", "typer"}
from kafkapy.tools import start
start._run(
    start.config_of(None, {"log.dirs": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0"}),
    must_stop=lambda: True,
    # The collector may be paused for a moment, while the controller handles an event.
    wait=lambda reload: print(
        any(gc.isenabled() or time.sleep(0.01) for _ in range(1000)), UNWANTED & sys.modules.keys()
    ),
    on_failure=print,
)
"""


def test_a_start_imports_no_module_that_would_slow_it_down(tmp_path):
    """inspect, which dataclasses import, takes 5 ms, the codec of international names takes 2 ms."""
    call = [sys.executable, "-c", START, str(tmp_path)]
    done = subprocess.run(call, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "True set()\n"
