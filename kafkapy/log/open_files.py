"""How many files of the logs are open at a time (`kafkapy.log.max.open.files`).

A file is opened by its name when somebody needs it, and stays open. Over the limit one is let go that nobody has used
for a while: each gets a second chance, so that a file that is in use costs its users one flag and no lock. Whoever is
at it just now, a reader that sends from it above all, holds a handle of its own, and the descriptor closes after that;
so the limit is what the logs keep, and what is under way comes on top.

An active segment is let go like any other, with records that no fsync has seen: the next one opens the file anew, and
is told of a write that failed meanwhile, as Linux reports such an error to whoever comes first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkapy.log.named_file import NamedFile

UNLIMITED = 1 << 62


class OpenFiles:
    """Of one broker. The files call it; `shed` is for whoever finds no descriptor left."""

    __slots__ = ("_files", "_lock", "limit")

    def __init__(self, limit: int = UNLIMITED) -> None:
        self.limit = limit
        self._files: OrderedDict[NamedFile, None] = OrderedDict()  # in the order of their opening, or second chance
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._files)

    def opened(self, file: NamedFile) -> None:
        with self._lock:
            file.used = True  # else it would be the first to go where all others are in use
            self._files[file] = None
            while len(self._files) > self.limit:
                self._let_one_go()

    def closed(self, file: NamedFile) -> None:
        """The file was let go for another reason, or has to stay open."""
        with self._lock:
            self._files.pop(file, None)

    def shed(self) -> bool:
        """The process has no descriptor left: lets half of the files go; False if there was none."""
        with self._lock:
            many = (len(self._files) + 1) // 2
            for _ in range(many):
                self._let_one_go()
            return many > 0

    def _let_one_go(self) -> None:
        for _ in range(len(self._files)):
            file, _none = self._files.popitem(last=False)
            if not file.used:
                break
            file.used = False
            self._files[file] = None
        else:  # all were in use: the one that was looked at first
            file, _none = self._files.popitem(last=False)
        file.handle_dropped()
