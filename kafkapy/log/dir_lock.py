"""The lock file of a log directory: one broker at a time, in this process or another, Apache Kafka included.

Kafka's FileLock takes a POSIX record lock through java.nio; this is the same kind, so the two exclude each
other. Such a lock belongs to the process, and closing any descriptor of the file drops it: that is why the
directories that this process holds are also remembered here.
"""

from __future__ import annotations

import fcntl
import os
import threading

NAME = ".lock"

_held: set[str] = set()
_guard = threading.Lock()


class DirLocked(RuntimeError):
    """Another broker uses the directory."""


class DirLock:
    """Held from construction to `release`; raises DirLocked, or OSError if the file cannot be made."""

    def __init__(self, log_dir: str) -> None:
        self._key = os.path.realpath(log_dir)
        path = os.path.join(log_dir, NAME)
        with _guard:
            if self._key in _held:
                raise DirLocked(f"{path} is held by another broker in this process: give each its own log.dirs")
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                os.close(self._fd)
                raise DirLocked(
                    f"{path} is held by another broker: stop it, or give this one its own log.dirs"
                ) from None
            except OSError:
                os.close(self._fd)
                raise
            _held.add(self._key)

    def release(self) -> None:
        """Idempotent."""
        with _guard:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
                _held.discard(self._key)
