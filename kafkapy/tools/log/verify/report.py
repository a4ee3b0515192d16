"""The result of a verification: the problems found, and how much was checked."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

# Problems printed of one file; further ones are only counted.
MOST_PER_FILE = 100


class Problem(NamedTuple):
    """A problem in a file, at byte `position` and log offset `offset`; both are None if not known. `sentence` says what
    is wrong, without a full stop."""

    path: Path
    sentence: str
    position: int | None
    offset: int | None

    @property
    def line(self) -> str:
        return f"{self.path}: {self.sentence}."

    @property
    def object(self) -> dict[str, Any]:
        return {
            "type": "problem",
            "file": str(self.path),
            "position": self.position,
            "offset": self.offset,
            "message": self.sentence,
        }


class Report:
    """Collects problems and counts what was checked. `found` is called with each problem at once, so that a long run
    prints problems as they come. `advance` is called with the number of bytes read so far."""

    def __init__(
        self, found: Callable[[Problem], object] = lambda _: None, advance: Callable[[int], object] = lambda _: None
    ) -> None:
        self._found = found
        self._advance = advance
        self._by_file: Counter[Path] = Counter()
        self.files = 0
        self.bytes = 0
        self.batches = 0
        self.records = 0

    @property
    def problems(self) -> int:
        return self._by_file.total()

    def add(self, path: Path, sentence: str, *, position: int | None = None, offset: int | None = None) -> None:
        """Add a problem of a file or a directory. Only the first MOST_PER_FILE problems of each are passed to
        `found`."""
        self._by_file[path] += 1
        count = self._by_file[path]
        if count <= MOST_PER_FILE:
            self._found(Problem(path, sentence, position, offset))

    def checked(self, path: Path, size: int | None = None) -> None:
        """Count a file as checked. `size` is how many of its bytes to count as read; None counts the whole file."""
        self.files += 1
        self.read(path.stat().st_size if size is None and path.exists() else size or 0)

    def read(self, count: int) -> None:
        """Count `count` more bytes as read, and report progress."""
        self.bytes += count
        self._advance(self.bytes)

    def damaged_files(self) -> dict[Path, list[Path]]:
        """Return the files that have problems, by directory."""
        found: dict[Path, list[Path]] = {}
        for path in self._by_file:
            found.setdefault(path if path.is_dir() else path.parent, []).append(path)
        return found

    def not_shown(self) -> list[tuple[Path, int]]:
        """Return each file with more than MOST_PER_FILE problems, and how many of them were not printed."""
        return [(path, count - MOST_PER_FILE) for path, count in self._by_file.items() if count > MOST_PER_FILE]

    def summary(self) -> dict[str, Any]:
        return {
            "type": "summary",
            "files": self.files,
            "bytes": self.bytes,
            "batches": self.batches,
            "records": self.records,
            "problems": self.problems,
        }
