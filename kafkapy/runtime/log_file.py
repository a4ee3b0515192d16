"""A log handler that writes to a separate file, with rotation, on its own thread, so that no caller waits for a disk.

The file is opened again if it was renamed or removed, so that logrotate can be used instead of the rotation here.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from pathlib import Path

from kafkapy.runtime.threads import Thread

log = logging.getLogger("kafkapy.runtime.log_file")

MOST_WAITING = 50_000  # records that wait for the disk; further ones are lost, and counted
_FLUSH_S = 5.0  # how long `close` waits for the disk
_MODE = 0o600  # only this user may read who did what


class LogFile(logging.Handler):
    """Writes log records to `path`, one a line.

    Above `max_bytes` (0: never) the file is renamed to `PATH.1`, that to `PATH.2` and so on, up to `PATH.count`; the
    oldest is removed. The constructor raises OSError if the file cannot be opened. Call `close` at the end.
    """

    def __init__(self, path: Path, formatter: logging.Formatter, *, max_bytes: int = 0, count: int = 0) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lost = 0  # records that were not written
        self._path = path
        self._max_bytes = max_bytes
        self._count = count
        self._waiting: deque[logging.LogRecord] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._fd = -1
        self._size = 0
        self._has_failed = False  # the last write has failed, and this was logged
        self._is_torn = False  # the file ends in the beginning of a line
        self._open()
        self._thread = Thread(self._run, "kafkapy-log-file")
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Have the record written soon."""
        with self._changed:
            if len(self._waiting) >= MOST_WAITING or self._closing:
                self.lost += 1
                return
            self._waiting.append(record)
            if len(self._waiting) == 1:
                self._changed.notify()

    def close(self) -> None:
        """Write what waits, and close the file. Records that come later are lost."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify()
        self._thread.join(_FLUSH_S)
        super().close()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                records, self._waiting = self._waiting, deque()
                if not records:
                    break
            self._write(records)
        if self._fd >= 0:
            os.close(self._fd)

    def _write(self, records: deque[logging.LogRecord]) -> None:
        written = 0
        try:
            self._look_at_path()
            for written, record in enumerate(records):  # noqa: B007 - the number is used when a write fails
                self._write_line((self.format(record) + "\n").encode(errors="backslashreplace"))
            self._has_failed = False
        except Exception as error:
            self.lost += len(records) - written
            if not self._has_failed:
                self._has_failed = True
                log.error("cannot write to %s, so lines are lost: %s", self._path, error)

    def _write_line(self, line: bytes) -> None:
        if self._max_bytes and self._size and self._size + len(line) > self._max_bytes:
            self._rotate()
        view = memoryview(b"\n" + line if self._is_torn else line)
        while view:
            done = os.write(self._fd, view)
            view = view[done:]
            self._size += done
            self._is_torn = bool(view)

    def _look_at_path(self) -> None:
        """Open the file again if another program has renamed or removed it, or if it could not be opened before."""
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            there = None
        if self._fd >= 0:
            ours = os.fstat(self._fd)
            if there is not None and (there.st_ino, there.st_dev) == (ours.st_ino, ours.st_dev):
                self._size = ours.st_size  # another program may have truncated it
                return
        self._open()

    def _rotate(self) -> None:
        names = [self._path, *(self._path.with_name(f"{self._path.name}.{n}") for n in range(1, self._count + 1))]
        for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
            if newer.exists():
                newer.replace(older)
        if not self._count:
            self._path.unlink(missing_ok=True)
        self._open()

    def _open(self) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _MODE)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd
        self._size = os.fstat(fd).st_size
