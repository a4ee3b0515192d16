"""What a directory has been loaded with: the offsets of each partition, and a decision that may not be finished.

    landed/                                     for readers; never anything but whole files of rows that count
        topic=flights/date=2013-01-01/00000-00000000000000000000-00000000000000000841.parquet
    landed.kafkapy/                             beside it, on the same file system
        state.json                              replaced as a whole, by rename
        lock                                    held (flock) while a load runs
        staging/RUN/                            what the tasks of one run write; it counts when it is decided
        rejected/topic=flights/date=.../        values that did not fit, with the reason, as Parquet

The state is beside the directory and not in it because readers take what they find: Polars reads every file below a
directory that it is given, `_` or `.` in front of a name or not, and DuckDB's `**` goes everywhere too; only Spark and
PyArrow leave such names out.
"""

import fcntl
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kafkapy.spark.load.durable import sync_directories, write_json
from kafkapy.spark.load.errors import DirectoryInUse, LoadError
from kafkapy.spark.load.intervals import Interval, union

FORMAT = 1


@dataclass
class Topic:
    """`id` is the topic's id in hex, "" where the broker has none; `have` the offsets that are in, by partition."""

    id: str = ""
    have: dict[int, list[Interval]] = field(default_factory=dict)

    def add(self, partition: int, start: int, end: int) -> None:
        self.have[partition] = union(self.have.get(partition, ()), [(start, end)])


@dataclass
class Decision:
    """A batch that will be in the directory whatever happens: what there is to do, and the state when it is done.

    moves: (staged file, its place). swaps: (staged directory, its place, inode of the staged one): a directory takes
    the place of another one; by the inode it is known whether that has happened, for to do it twice would undo it.
    """

    topics: dict[str, Topic]
    moves: list[tuple[str, str]] = field(default_factory=list)
    swaps: list[tuple[str, str, int]] = field(default_factory=list)


class State:
    """Belongs to one process at a time; use it as a context manager.

    form: what must stay as it was when the directory was first loaded (columns, cluster), None before that.
    """

    def __init__(self, directory: Path, home: Path | None = None) -> None:
        """Raises LoadError where the directory cannot be loaded into, DirectoryInUse where another load does it."""
        self.directory = Path(os.path.abspath(directory))  # which has a name, also where `directory` is "."
        self.home = home_of(self.directory) if home is None else home.absolute()
        self.rejected = rejected_of(self.directory, self.home)
        self.staging = self.home / "staging"
        self._file = self.home / "state.json"
        self.form: dict[str, str] | None = None
        self.topics: dict[str, Topic] = {}
        self.decision: Decision | None = None
        if not self._file.exists() and self.directory.exists() and any(self.directory.iterdir()):
            raise LoadError(
                f"{directory} is not empty and was not loaded by kafkapy (there is no {self._file}); "
                "name a directory that is new or empty"
            )
        if self._file.exists() and not self.directory.exists():
            raise LoadError(
                f"{directory} is gone, though {self.home} says what is in it; put it back, or remove {self.home} "
                "too to load everything anew"
            )
        _make(self.directory)
        _make(self.home)
        if self.home.stat().st_dev != self.directory.stat().st_dev:
            raise LoadError(
                f"{self.home} and {directory} are on different file systems, so that files cannot change over in one "
                "step; name a directory below the mount point"
            )
        self._lock = os.open(self.home / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._take_lock()
            if self._file.exists():
                self._read()
        except BaseException:
            os.close(self._lock)
            raise

    def __enter__(self) -> "State":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._lock)

    def write(self) -> None:
        """Makes what this object says what the next run finds."""
        document: dict[str, Any] = {"format": FORMAT, "form": self.form}
        document["topics"] = {name: asdict(topic) for name, topic in self.topics.items()}
        document["decision"] = None if self.decision is None else asdict(self.decision)
        write_json(self._file, document)

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 100, 0).decode(errors="replace").strip()
            raise DirectoryInUse(
                f"{self.directory} is being loaded by another process ({holder or 'unknown'}); wait for it or stop it"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"pid {os.getpid()} on {os.uname().nodename}".encode(), 0)

    def _read(self) -> None:
        try:
            document = json.loads(self._file.read_bytes())
            if document["format"] != FORMAT:
                raise LoadError(
                    f"{self._file} is of format {document['format']}; this version of kafkapy knows {FORMAT}"
                )
            self.form = document["form"]
            self.topics = _topics(document["topics"])
            if (decision := document["decision"]) is not None:
                self.decision = Decision(
                    _topics(decision["topics"]),
                    [(source, place) for source, place in decision["moves"]],
                    [(source, place, inode) for source, place, inode in decision["swaps"]],
                )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LoadError(
                f"{self._file} cannot be read ({type(error).__name__}: {error}); without it nobody knows what is in "
                f"{self.directory}: put it back, or load into another directory"
            ) from error


def home_of(directory: Path) -> Path:
    """Where the state is kept unless something else is said: beside the directory."""
    directory = Path(os.path.abspath(directory))
    return directory.with_name(f"{directory.name}.kafkapy")


def rejected_of(directory: Path, home: Path | None = None) -> Path:
    """Where values are kept that did not fit."""
    return (home or home_of(directory)) / "rejected"


def _make(directory: Path) -> None:
    """The directory and those above it, so that a power cut takes none of them."""
    new = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    sync_directories(each.parent for each in new)


def _topics(document: dict[str, Any]) -> dict[str, Topic]:
    return {
        name: Topic(topic["id"], {int(partition): union(pairs) for partition, pairs in topic["have"].items()})
        for name, topic in document.items()
    }
