"""A file that a command makes: there when it is whole, and not before."""

import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from kafkapy.tools.errors import CallError, ToolError


class ResultFile:
    """Written under a temporary name beside its own, which it takes by `commit`; without that it is gone again.

    A file of that name is not replaced unless `force` says so.
    """

    def __init__(self, path: Path, *, force: bool = False) -> None:
        """Raises CallError where the file cannot be wanted: its directory is missing, or it is there already."""
        if path.is_dir():
            raise CallError(f"{path} is a directory; a file's name is needed, as in {path / 'records.parquet'}")
        if not path.parent.is_dir():
            raise CallError(f"{path} cannot be written: there is no directory {path.parent}")
        if path.exists() and not force:
            raise CallError(f"{path} is there already; --force replaces it")
        self.path = path
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.part")

    def __enter__(self) -> "ResultFile":
        try:
            self.file: BinaryIO = open(self._temporary, "wb")
        except OSError as error:
            raise ToolError(f"{self.path} cannot be written: {error.strerror or error}") from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.file.close()
        self._temporary.unlink(missing_ok=True)

    def commit(self) -> None:
        """All is written: gives the file its name."""
        self.file.flush()
        os.fsync(self.file.fileno())
        os.replace(self._temporary, self.path)
