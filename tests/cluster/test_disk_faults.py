"""DiskFaults make a process's disk fail, full or slow below one directory only, until they end."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.disk_faults import DiskFaults

PROGRAM = """
import os, sys, time
for line in sys.stdin:
    begin = time.monotonic()
    try:
        fd = os.open(line.strip() + "/file", os.O_RDWR | os.O_CREAT)
        os.pwrite(fd, b"12345678", 0)
        os.fsync(fd)
        what = os.pread(fd, 8, 0).decode()
        os.close(fd)
    except OSError as error:
        what = error.strerror
    print(what, int(time.monotonic() - begin), flush=True)
"""


class Program:
    """A program that writes to a file in each directory that is sent to its standard input."""

    def __init__(self, directory: Path) -> None:
        self.faults = DiskFaults(directory / "control")
        self.bad, self.good = directory / "bad", directory / "good"
        for each in (self.bad, self.good):
            each.mkdir()
        environment = {**os.environ, "LD_PRELOAD": str(self.faults.library), **self.faults.environment}
        self._child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def write_to(self, directory: Path) -> tuple[str, int]:
        """Make the program write. Return (data that was read back or text of the error, duration in seconds)."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        print(directory, file=self._child.stdin, flush=True)
        said, _, seconds = self._child.stdout.readline().rpartition(" ")
        return said, int(seconds)

    def end(self) -> None:
        self._child.communicate()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path)
    yield program
    program.end()


def test_a_failing_disk(program: Program) -> None:
    program.faults.fail(program.bad)
    assert program.write_to(program.bad)[0] == "Input/output error"
    assert program.write_to(program.good)[0] == "12345678"
    program.faults.end()
    assert program.write_to(program.bad)[0] == "12345678"


def test_a_full_disk_leaves_a_part_of_a_write(program: Program) -> None:
    (program.bad / "file").touch()
    program.faults.fill(program.bad)
    assert program.write_to(program.bad)[0] == "No space left on device"
    assert (program.bad / "file").read_bytes() == b"1234"
    assert program.write_to(program.good)[0] == "12345678"
    program.faults.end()
    assert program.write_to(program.bad)[0] == "12345678"


def test_a_slow_disk(program: Program) -> None:
    program.faults.slow_down(program.bad, 0.5)
    said, seconds = program.write_to(program.bad)
    assert (said, seconds > 0) == ("12345678", True)  # 0.5 s for each of at least two operations
