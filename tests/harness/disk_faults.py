"""Makes a disk fail, full or slow below one directory of a running process: a small library for LD_PRELOAD, which works
with a JVM as well as with Python."""

import errno
import struct
from pathlib import Path

from tests.harness.preloaded import library

SOURCE = Path(__file__).with_name("disk_faults.c")
CONTROL = struct.Struct("=ii4096s")


class DiskFaults:
    """The faults of one process's files below one directory. At first there are none."""

    def __init__(self, control: Path) -> None:
        """Create the file `control`, in which the process finds the current fault."""
        self._control = control
        control.parent.mkdir(parents=True, exist_ok=True)
        control.write_bytes(bytes(CONTROL.size))
        self.library = library(SOURCE)
        self.environment = {"KAFKAPY_DISK": str(control)}

    def fail(self, directory: Path) -> None:
        """Make every operation fail with EIO. A failing write leaves the first half of its bytes."""
        self._write(errno.EIO, 0, directory)

    def fill(self, directory: Path) -> None:
        """Make every operation that needs space fail with ENOSPC. A write that fails has written half of its bytes."""
        self._write(errno.ENOSPC, 0, directory)

    def slow_down(self, directory: Path, seconds: float) -> None:
        """Make every write and every sync take so much longer."""
        self._write(0, int(seconds * 1e6), directory)

    def end(self) -> None:
        """End the fault."""
        with self._control.open("r+b") as file:
            file.write(struct.pack("=ii", 0, 0))

    def _write(self, error: int, delay_us: int, directory: Path) -> None:
        with self._control.open("r+b") as file:
            file.seek(8)
            file.write(str(directory.absolute()).encode().ljust(4096, b"\0"))
            file.seek(0)
            file.write(struct.pack("=ii", error, delay_us))
