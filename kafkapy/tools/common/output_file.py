"""Output files that get their final name only when they are complete."""

import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from kafkapy.tools.common.errors import CallError, ToolError


class ResultFile:
    """A context manager for an output file. It is written under a temporary name in the same directory; `commit` gives
    it its final name, and without `commit` it is deleted. An existing file is replaced only with `force`."""

    def __init__(self, path: Path, *, force: bool = False) -> None:
        """Raise CallError if the path is a directory, if its directory is missing, or if the file exists and `force` is
        not set."""
        if path.is_dir():
            raise CallError(f"{path} is a directory; a file's name is needed, as in {path / 'records.parquet'}")
        if not path.parent.is_dir():
            raise CallError(f"{path} cannot be written: there is no directory {path.parent}")
        if path.exists() and not force:
            raise CallError(f"{path} exists already; --force replaces it")
        self.path = path
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.part")

    def __enter__(self) -> "ResultFile":
        try:
            self.file: BinaryIO = open(self._temporary, "wb")
        except OSError as error:
            raise ToolError(f"{self.path} cannot be written: {error.strerror or error}") from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # On a full disk `close` cannot write what is still buffered; without `commit` those bytes are not needed. The
        # file is closed even then.
        with suppress(OSError):
            self.file.close()
        self._temporary.unlink(missing_ok=True)

    def commit(self) -> None:
        """Make the complete file durable and give it its final name."""
        self.file.flush()
        os.fsync(self.file.fileno())
        os.replace(self._temporary, self.path)
