"""Changes of the file system that are atomic and survive a crash of the machine.

`exchange` uses Linux's renameat2(2) with RENAME_EXCHANGE: two directories exchange their names in one step, so that a
process that opens either name sees all of one directory. ext4, XFS, Btrfs, tmpfs and overlayfs support it, NFS does
not.
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
SYNCS = 16  # the number of parallel fsync calls


def sync_files(paths: Iterable[Path]) -> None:
    """Sync (fsync) the content of files, so that the content survives a power cut."""
    _sync_all(paths, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    """Sync (fsync) a file or directory, which is opened with `flags`."""
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directories(directories: Iterable[Path]) -> None:
    """Sync (fsync) directories, so that the file names in them survive a power cut."""
    _sync_all(set(directories), os.O_RDONLY | os.O_DIRECTORY)


def _sync_all(paths: Iterable[Path], flags: int) -> None:
    """Sync (fsync) files or directories in parallel.

    Disks combine parallel syncs, so a thousand small files take a tenth of the time.
    """
    listed = list(paths)
    if len(listed) < 2:
        for path in listed:
            _sync(path, flags)
        return
    with ThreadPoolExecutor(SYNCS) as threads:
        list(threads.map(lambda path: _sync(path, flags), listed))


def write_json(path: Path, document: Any) -> None:
    """Write a JSON document to a file and sync it.

    Readers, also after a crash, see either the old or the new document.
    """
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(document, file, separators=(",", ":"))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directories([path.parent])


def exchange(one: Path, other: Path) -> None:
    """Exchange the names of two directories in one step.

    Raises LoadError if the file system does not support that, and OSError for other failures.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        raise LoadError("this system's C library has no renameat2, which is needed to exchange directories in one step")
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0:
        return
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        raise LoadError(
            f"the file system of {other} cannot exchange two directories in one step, so files cannot be compacted or "
            "loaded again without readers seeing rows twice or not at all; use --no-compact"
        )
    raise OSError(code, os.strerror(code), str(one), None, str(other))
