"""Moves the wall clock of running processes: a small library for LD_PRELOAD.

libfaketime can do the same, but a JVM under it needs minutes to start: it also takes over every wait of a thread.
"""

import struct
from pathlib import Path

from tests.harness.preloaded import library

SOURCE = Path(__file__).with_name("moved_clock.c")


class MovedClock:
    """The wall clock of one process (or several), as an offset from the machine's clock that is kept in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(8))
        self.library = library(SOURCE)
        self.environment = {"KAFKAPY_CLOCK": str(file)}

    def move(self, seconds: float) -> None:
        """Set the clock so many seconds ahead of the machine's, or behind if negative."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("=q", int(seconds * 1e9)))
