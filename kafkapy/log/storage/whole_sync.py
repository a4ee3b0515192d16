"""Sync a whole file system with one system call, in place of many files one by one.

A stop of a broker with 10,000 written logs would sync 50,000 files and directories. That takes seconds, as every sync
waits for the file system's journal or for the disk. syncfs(2) writes everything first and then waits once. It is only
used where its success proves as much as that of fsync for every file:

- Linux 5.17 and newer, where syncfs reports that a write to any file of the file system has failed (since 5.8), and
  that the file system could not commit its journal;
- file systems of the disk, in which syncfs waits for the data, commits the journal and empties the disk's own cache.
  FUSE does not pass it on, for example, and overlay file systems depend on what is below.

syncfs also writes what other programs have written to the file system. So it is not used if much is waiting.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from kafkapy._ext import syscalls

_FIRST_KERNEL = 5, 17
_TYPES = frozenset({0xEF53, 0x58465342, 0x9123683E})  # ext2 to ext4, XFS, Btrfs: statfs(2)
_MOST_WAITING_KIB = 1 << 20
_WAITING = re.compile(r"^(?:Dirty|Writeback): +([0-9]+) kB", re.MULTILINE)


def sync_file_system(fd: int) -> bool:
    """Sync all files of the file system that the open file `fd` belongs to, without the GIL. Return False, and sync
    nothing, if that may not be used: see the module.

    Raises OSError if any write to that file system has failed since `fd` was opened, even one of another program.
    """
    if not _may_be_used(fd):
        return False
    syscalls.syncfs(fd)
    return True


def _may_be_used(fd: int) -> bool:
    kernel = tuple(map(int, re.findall("[0-9]+", os.uname().release)[:2]))
    if kernel < _FIRST_KERNEL or syscalls.file_system_type(fd) not in _TYPES:
        return False
    return sum(map(int, _WAITING.findall(Path("/proc/meminfo").read_text()))) <= _MOST_WAITING_KIB
