"""`python -m perf NAME --profile DIR`, with a program that stands in for `perf` of Linux."""

import os

import pytest

from perf.__main__ import main
from perf.profile import Profiler, table_of_waits
from tests.harness.waiting import eventually

# `perf record ... -o FILE` makes the file and waits for a signal; `perf report` prints its arguments.
PERF = """#!/bin/sh
trap 'exit 0' INT
for last; do :; done
case $1 in
    record) : > "$last"; while :; do sleep 0.01; done;;
    report) echo "50.00%  $*";;
    *) echo "perf: no tracefs" >&2; exit 1;;
esac
"""
TIMEHIST = """
           time    cpu  task name                       wait time  sch delay   run time  state
                        [tid/pid]                          (msec)     (msec)     (msec)
--------------- ------  ------------------------------  ---------  ---------  ---------  -----
    2004.125421 [0001]  network-0[901]                      0.500      0.100      2.000      S
    2004.225421 [0000]  network-0[901]                      9.000      0.200      4.000      R+
    2004.235421 [0000]  network-0[901]                      0.700      0.000      1.000      D
    2004.245421 [0000]  network-0[901]                      5.500      0.000      1.000      S
    2004.325421 [0000]  kafkapy-disk[905/901]               0.000      0.000      1.500      S
"""


@pytest.fixture
def perf(tmp_path, monkeypatch):
    """Put the stand-in in front of the programs on PATH."""
    program = tmp_path / "bin" / "perf"
    program.parent.mkdir()
    program.write_text(PERF)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def test_each_timed_part_becomes_a_file_with_the_shares_of_threads_and_functions(perf, tmp_path, capsys):
    profiler = Profiler(tmp_path / "out", waits=False)
    for number in (1, 2):
        with profiler.used(os.getpid()) as usage:
            eventually((tmp_path / "out" / f"{number}.data").exists)
        assert usage.wall > 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["1.txt", "2.txt", "perf.log"]
    text = (tmp_path / "out" / "2.txt").read_text()
    assert [line.partition("--sort ")[2].split()[0] for line in text.splitlines() if line] == [
        "pid",
        "pid,dso",
        "pid,dso,symbol",
    ]
    assert "2.txt" in capsys.readouterr().err


def test_a_recording_that_fails_is_an_error_that_names_the_log_of_perf(perf, tmp_path):
    profiler = Profiler(tmp_path / "out", waits=True)
    log = tmp_path / "out" / "perf.log"
    with pytest.raises(SystemExit, match=r"perf\.log says why .*mount -t tracefs"), profiler.used(os.getpid()):
        eventually(lambda: log.read_text() == "perf: no tracefs\n")


def test_the_runs_waits_and_blocks_of_each_thread_are_a_line():
    heads, first, second = table_of_waits(TIMEHIST).splitlines()
    assert heads.split()[:3] == ["thread", "runs", "sum"]
    assert first.split()[:3] == ["network-0[901]", "4", "8"]
    assert first.split()[3:7] == ["1.000", "4.000", "4.000", "4.000"]
    assert first.split()[7:11] == ["0.100", "0.700", "0.700", "0.700"]  # after a sleep only the delay is a wait
    assert first.split()[11:] == ["1", "6", "5.500"]
    assert second.split()[:4] == ["kafkapy-disk[905/901]", "1", "2", "1.500"]


def test_without_the_program_the_command_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="needs the program perf"):
        main(["start", "--quick", "--profile", str(tmp_path / "out")])


def test_waits_need_a_directory(capsys):
    with pytest.raises(SystemExit):
        main(["start", "--waits"])
    assert "--waits belongs to --profile DIR" in capsys.readouterr().err
