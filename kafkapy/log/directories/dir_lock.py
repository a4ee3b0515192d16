"""The lock file of a log directory, which keeps a second broker, including Apache Kafka, from using the directory.

Kafka's FileLock takes a POSIX record lock through java.nio, and so does this module, so each excludes the other. A
POSIX record lock belongs to the process and does not exclude a second broker in the same process. Closing any
descriptor of the file drops the lock. So the directories that this process has locked are also kept in a set.
"""

from __future__ import annotations

import fcntl
import os
import threading

NAME = ".lock"

_held: set[str] = set()
_guard = threading.Lock()


class DirLocked(RuntimeError):
    """Raised when another broker uses the log directory."""


class DirLock:
    """A lock on a log directory, held from construction to `release`.

    The constructor raises DirLocked if another broker uses the directory, and OSError.
    """

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

    @property
    def fd(self) -> int:
        """The descriptor of the lock file, which is open as long as the lock is held."""
        return self._fd

    def release(self) -> None:
        """Release the lock, so that another broker may use the directory. Idempotent."""
        with _guard:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
                _held.discard(self._key)
