"""The result of a verification: the problems, and how much was checked."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

# Problems printed of one file; further ones are only counted.
MOST_PER_FILE = 100


class Problem(NamedTuple):
    """A problem at byte `position` of a file and at log offset `offset`; None if it has none. The sentence has no full
    stop."""

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
    """Collects problems. Each goes to `found` at once, so that a long run prints them as they come; `advance` gets the
    number of bytes read."""

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
        """Add a problem of a file or a directory."""
        self._by_file[path] += 1
        count = self._by_file[path]
        if count <= MOST_PER_FILE:
            self._found(Problem(path, sentence, position, offset))

    def checked(self, path: Path, size: int | None = None) -> None:
        """Count a checked file; `size`: those of its bytes that were not passed to `read`."""
        self.files += 1
        self.read(path.stat().st_size if size is None and path.exists() else size or 0)

    def read(self, count: int) -> None:
        """Count bytes that were read."""
        self.bytes += count
        self._advance(self.bytes)

    def damaged_files(self) -> dict[Path, list[Path]]:
        """Return the files with problems by directory."""
        found: dict[Path, list[Path]] = {}
        for path in self._by_file:
            found.setdefault(path if path.is_dir() else path.parent, []).append(path)
        return found

    def not_shown(self) -> list[tuple[Path, int]]:
        """Return the files with more problems than are printed, and the number of the others."""
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
