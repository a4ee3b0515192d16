"""Limit how many log files stay open at a time (`kafkapy.log.max.open.files`).

A file is opened by its name when it is first used, and stays open. When the limit is exceeded, a file that was not used
for a while is closed. The choice is the second-chance (clock) algorithm, so that using a file costs its users one flag
and no lock. A thread that is using the file, for instance to send records from it, holds its own reference to the
handle, and the descriptor closes when the last reference is gone. So the limit covers the files that the logs keep
open; files of operations in progress come on top.

An active segment is closed like any other file, even with records that are not synced yet. Linux keeps a write-back
error and reports it to the next open descriptor that syncs the file, so the reopened file still reports a write that
failed in between.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkapy.log.storage.named_file import NamedFile

UNLIMITED = 1 << 62


class OpenFiles:
    """The log files that one broker keeps open, at most `limit` at a time.

    NamedFile calls `opened` and `closed`. Files calls `shed` when the system refuses another descriptor (EMFILE,
    ENFILE).
    """

    __slots__ = ("_files", "_lock", "limit")

    def __init__(self, limit: int = UNLIMITED) -> None:
        self.limit = limit
        # in the order in which they were opened, or given a second chance
        self._files: OrderedDict[NamedFile, None] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._files)

    def opened(self, file: NamedFile) -> None:
        """Add a file that was just opened, and close other files while more than `limit` are open."""
        with self._lock:
            file.used = True  # else this new file would be closed first if all the others are in use
            self._files[file] = None
            while len(self._files) > self.limit:
                self._close_one()

    def closed(self, file: NamedFile) -> None:
        """Stop counting a file towards the limit, because its NamedFile has closed it or must keep it open."""
        with self._lock:
            self._files.pop(file, None)

    def shed(self) -> bool:
        """Close half of the files, because the process has no descriptor left. Return False if no file was open."""
        with self._lock:
            many = (len(self._files) + 1) // 2
            for _ in range(many):
                self._close_one()
            return many > 0

    def _close_one(self) -> None:
        for _ in range(len(self._files)):
            file, _none = self._files.popitem(last=False)
            if not file.used:
                break
            file.used = False
            self._files[file] = None
        else:  # all were in use: take the file that was examined first
            file, _none = self._files.popitem(last=False)
        file.handle_dropped()
