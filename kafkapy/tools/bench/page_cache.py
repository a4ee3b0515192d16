"""Brings files into the page cache, drops them from it, and counts the bytes that were read from disk."""

from __future__ import annotations

import os
import re
from pathlib import Path

from kafkapy._ext import residency

OLD_S = 1_000_000_000  # in 2001
FADVISE_CALLS = 50  # most calls of posix_fadvise; the first nearly always drops the whole file


def read_from_disk() -> int:
    """Return the bytes that the machine has read from block devices since its start, including read-ahead."""
    found = re.search(r"^pgpgin (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def bring_in(path: Path) -> None:
    """Read the file into the page cache, where a broker leaves it."""
    size = path.stat().st_size
    with path.open("rb", buffering=0) as file:
        if size:
            residency.load(file.fileno(), 0, size)


def evict(path: Path) -> int:
    """Flush the file and drop its pages; return how many bytes are still in the page cache.

    The file's modification time is set back, because a broker does not take a new file for one that is on disk only.
    """
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        left = 1 if size else 0
        os.fsync(fd)
        for _ in range(FADVISE_CALLS if size else 0):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            left = residency.resident_pages(fd, 0, size)
            if not left:
                break
        os.utime(fd, (OLD_S, OLD_S))
        return int(left * os.sysconf("SC_PAGESIZE"))
    finally:
        os.close(fd)
