"""A file that is opened by its name when somebody first needs it, and stays open from then on.

Readers take no lock, so between the name and the opening all may happen: the file gets another name, or goes, and
another one gets its name (the cleaned segment in its place, the log of a new topic). Then that one must not be taken
for it.
"""

from __future__ import annotations

import errno

from kafkapy.log.files import Files
from kafkapy.record.file_region import FileHandle


class NamedFile:
    """Subclasses know the name, and rename only what is open or does not take another's name."""

    __slots__ = ("_gone", "_handle", "files")

    def __init__(self, files: Files) -> None:
        self.files = files
        self._handle: FileHandle | None = None
        self._gone = False

    def _name(self) -> str:
        """The path, as it is now."""
        raise NotImplementedError

    def handle(self) -> FileHandle:
        """The open file; raises OSError, FileNotFoundError once it is gone."""
        handle = self._handle
        return handle if handle is not None else self._open()

    def _open(self) -> FileHandle:
        while True:
            name = self._name()
            opened = self.files.open(name)
            # Who gives a name away has opened the file before, has retired it, or tells its new name.
            handle = self._handle
            if handle is not None:
                return handle
            if self._gone:
                raise FileNotFoundError(errno.ENOENT, "the file is gone", name)
            if self._name() == name:
                self._handle = opened
                return opened

    def let_go(self) -> None:
        """The descriptor closes when the last reader is done with it; who asks again opens the file again."""
        self._handle = None

    def retire(self) -> None:
        """The file is removed, or its directory gets another name: it is never opened again."""
        self._gone = True
        self.let_go()
