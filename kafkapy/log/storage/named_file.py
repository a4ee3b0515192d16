"""A file that is opened by its name on first use, and stays open until OpenFiles closes it.

Readers take no lock. Between reading the name and opening the file another thread may rename or remove the file, and
another file may take its name: a cleaned segment takes the name of an old one, and a topic that is created again uses
the old file names. A reader must not use that other file.
"""

from __future__ import annotations

import errno

from kafkapy.log.storage.files import Files
from kafkapy.record.file_region import FileHandle


class NamedFile:
    """A file that is opened by its name when it is needed.

    Before a subclass gives the name to another file, it must call `pin` or `retire`.
    """

    __slots__ = ("_gone", "_handle", "_pinned", "files", "used")

    def __init__(self, files: Files) -> None:
        self.files = files
        self.used = False  # set by users, cleared when OpenFiles looks for a file to close
        self._handle: FileHandle | None = None
        self._pinned = False
        self._gone = False

    def _name(self) -> str:
        """Return the file's present path. Implemented by subclasses."""
        raise NotImplementedError

    def handle(self, nowait: bool = False) -> FileHandle:
        """Return the open file. The caller must keep a reference to the handle while using it.

        Raises OSError, in particular FileNotFoundError once the file was retired. With `nowait`, raises BlockingIOError
        if the file is not open, because opening it by name may read its directory from the disk.
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
            try:
                opened = self.files.open(name)
            except FileNotFoundError:
                # The file was renamed after `name` was read. The renaming thread had pinned it, so an open handle
                # exists.
                if (handle := self._handle) is not None:
                    return handle
                raise
            # Another file may have taken `name` between reading and opening it. But a thread that gives a name to
            # another file first pins this one (there is a handle), retires it (`_gone`), or changes the name that
            # _name() returns.
            handle = self._handle
            if handle is not None:
                return handle
            if self._gone:
                raise FileNotFoundError(errno.ENOENT, "the file is gone", name)
            if self._name() == name:
                self._keep(opened)
                if not self._gone:
                    return opened
                self._handle = None  # `retire` has been called since the check above
                self.files.open_files.closed(self)

    def _keep(self, handle: FileHandle) -> None:
        self._handle = handle
        if not self._pinned:
            self.files.open_files.opened(self)

    def pin(self) -> None:
        """Open the file and keep it open until `release`, because another file is about to take its name."""
        self._pinned = True
        self.files.open_files.closed(self)  # now OpenFiles cannot close it
        self._handle = self.handle()

    def handle_dropped(self) -> None:
        """Drop the file's handle, unless the file is pinned. OpenFiles calls this when too many files are open."""
        if not self._pinned:
            self._handle = None

    def release(self) -> None:
        """Drop the file's handle.

        The descriptor closes when its last user is done, and the next use opens the file again.
        """
        self._pinned = False
        if self._handle is not None:
            self._handle = None
            self.files.open_files.closed(self)

    def retire(self) -> None:
        """Drop the file's handle permanently, because the file is removed or its directory renamed.

        From now on `handle` raises FileNotFoundError.
        """
        self._gone = True
        self.release()
