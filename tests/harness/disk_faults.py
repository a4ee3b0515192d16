"""Processes one of whose directories is on a disk that fails, is full or is slow, while they run: a small library for
LD_PRELOAD, which a JVM accepts as well as Python."""

import errno
import struct
from pathlib import Path

from tests.harness.preloaded import library

SOURCE = Path(__file__).with_name("disk_faults.c")
CONTROL = struct.Struct("=ii4096s")


class DiskFaults:
    """What happens to the files of one process below one directory. At first nothing does."""

    def __init__(self, control: Path) -> None:
        """Make the file `control`, through which the process learns what happens."""
        self._control = control
        control.parent.mkdir(parents=True, exist_ok=True)
        control.write_bytes(bytes(CONTROL.size))
        self.library = library(SOURCE)
        self.environment = {"KAFKAPY_DISK": str(control)}

    def fail(self, directory: Path) -> None:
        """Let every operation fail with EIO. A write that fails leaves the first half of its bytes there."""
        self._write(errno.EIO, 0, directory)

    def fill(self, directory: Path) -> None:
        """Let everything that needs space fail with ENOSPC. A write leaves the first half of its bytes there."""
        self._write(errno.ENOSPC, 0, directory)

    def slow_down(self, directory: Path, seconds: float) -> None:
        """Let every write and every sync take so much longer."""
        self._write(0, int(seconds * 1e6), directory)

    def end(self) -> None:
        """Let nothing happen any more."""
        with self._control.open("r+b") as file:
            file.write(struct.pack("=ii", 0, 0))

    def _write(self, error: int, delay_us: int, directory: Path) -> None:
        with self._control.open("r+b") as file:
            file.seek(8)
            file.write(str(directory.absolute()).encode().ljust(4096, b"\0"))
            file.seek(0)
            file.write(struct.pack("=ii", error, delay_us))
