"""The broker's log.cleaner.* settings; defaults are Kafka's (CleanerConfig)."""

from __future__ import annotations

import sys
from typing import NamedTuple

_SMALLEST_BUFFER = 4096


class CleanerSettings(NamedTuple):
    """The broker's log.cleaner.* settings. Sizes are in bytes, for all cleaner threads together.

    The comment of each field is the name of the setting without `log.cleaner.`.
    """

    enable: bool = True  # enable
    threads: int = 1  # threads
    dedupe_buffer: int = 134_217_728  # dedupe.buffer.size
    load_factor: float = 0.9  # io.buffer.load.factor
    io_buffer: int = 524_288  # io.buffer.size
    max_bytes_per_second: float = sys.float_info.max  # io.max.bytes.per.second
    backoff_ms: int = 15_000  # backoff.ms

    @property
    def map_bytes(self) -> int:
        """Return the size in bytes of one thread's map of keys."""
        return self.dedupe_buffer // max(self.threads, 1)

    @property
    def read_bytes(self) -> int:
        """Return the size in bytes of one thread's read buffer: half of the thread's share of io.buffer.size.

        The other half is for writes.
        """
        return max(self.io_buffer // max(self.threads, 1) // 2, _SMALLEST_BUFFER)
