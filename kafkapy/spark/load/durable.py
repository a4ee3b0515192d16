"""Changes of the file system that are whole or not there, and that a crash of the machine does not undo.

`exchange` is Linux's renameat2(2) with RENAME_EXCHANGE: two directories change names in one step, so that whoever opens
either name sees all of the one or all of the other. ext4, XFS, Btrfs, tmpfs and overlayfs have it, NFS has not.
"""

import ctypes
import errno
import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kafkapy.spark.load.errors import LoadError

_AT_FDCWD = -100
_EXCHANGE = 2
SYNCS = 16  # at a time


def sync_files(paths: Iterable[Path]) -> None:
    """What is in these files survives a power cut."""
    _sync_all(paths, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directories(directories: Iterable[Path]) -> None:
    """The names in these directories survive a power cut."""
    _sync_all(set(directories), os.O_RDONLY | os.O_DIRECTORY)


def _sync_all(paths: Iterable[Path], flags: int) -> None:
    """Several at a time, which the disk takes together: a thousand small files in a tenth of the time."""
    listed = list(paths)
    if len(listed) < 2:
        for path in listed:
            _sync(path, flags)
        return
    with ThreadPoolExecutor(SYNCS) as threads:
        list(threads.map(lambda path: _sync(path, flags), listed))


def write_json(path: Path, document: Any) -> None:
    """Replaces a file: readers and crashes see the old one or the new one."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(document, file, separators=(",", ":"))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directories([path.parent])


def exchange(one: Path, other: Path) -> None:
    """Two directories of a file system change names. Raises LoadError where the file system cannot do that."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        raise LoadError("this system's C library has no renameat2, with which directories change places in one step")
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0:
        return
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        raise LoadError(
            f"the file system of {other} cannot let two directories change places in one step, so that files cannot be "
            "compacted or loaded again without a reader seeing rows twice or not at all; use --no-compact"
        )
    raise OSError(code, os.strerror(code), str(one), None, str(other))
