"""A file that is opened by its name when somebody needs it, and stays open until there are too many (see OpenFiles).

Readers take no lock, so between the name and the opening all may happen: the file gets another name, or goes, and
another one gets its name (the cleaned segment in its place, the log of a new topic). Then that one must not be taken
for it.
"""

from __future__ import annotations

import errno

from kafkapy.log.files import Files
from kafkapy.record.file_region import FileHandle


class NamedFile:
    """Subclasses know the name, and rename only what is pinned or does not take another's name."""

    __slots__ = ("_gone", "_handle", "_pinned", "files", "used")

    def __init__(self, files: Files) -> None:
        self.files = files
        self.used = False  # since OpenFiles last looked
        self._handle: FileHandle | None = None
        self._pinned = False
        self._gone = False

    def _name(self) -> str:
        """The path, as it is now."""
        raise NotImplementedError

    def handle(self, nowait: bool = False) -> FileHandle:
        """The open file; raises OSError, FileNotFoundError once it is gone. Who works with it keeps the answer.

        With `nowait` BlockingIOError where it is not open: to find it by its name may take a read of its directory.
        """
        handle = self._handle
        if handle is None:
            if nowait:
                raise BlockingIOError(errno.EAGAIN, "not open")
            return self._open()
        self.used = True
        return handle

    def _open(self) -> FileHandle:
        while True:
            name = self._name()
            opened = self.files.open(name)
            # Who gives a name away has pinned the file before, has retired it, or tells its new name.
            handle = self._handle
            if handle is not None:
                return handle
            if self._gone:
                raise FileNotFoundError(errno.ENOENT, "the file is gone", name)
            if self._name() == name:
                self._keep(opened)
                return opened

    def _keep(self, handle: FileHandle) -> None:
        self._handle = handle
        if not self._pinned:
            self.files.open_files.opened(self)

    def pin(self) -> None:
        """Opens the file, and keeps it open until it is let go: its name changes hands."""
        self._pinned = True
        self.files.open_files.closed(self)  # which is over: from here on nobody closes it
        self._handle = self.handle()

    def handle_dropped(self) -> None:
        """By OpenFiles: there are too many."""
        if not self._pinned:
            self._handle = None

    def let_go(self) -> None:
        """The descriptor closes when the last reader is done with it; who asks again opens the file again."""
        self._pinned = False
        if self._handle is not None:
            self._handle = None
            self.files.open_files.closed(self)

    def retire(self) -> None:
        """The file is removed, or its directory gets another name: it is never opened again."""
        self._gone = True
        self.let_go()
