"""The state of a directory: the loaded offsets of each partition, and a decided batch that may be unfinished.

    landed/                                     for readers; it only has complete files of loaded rows
        topic=flights/date=2013-01-01/00000-00000000000000000000-00000000000000000841.parquet
    landed.kafkapy/                             next to it, on the same file system
        state.json                              replaced as a whole, by rename
        lock                                    held (flock) while a load runs
        staging/RUN/                            files written by the tasks of a run, until they are moved
        rejected/topic=flights/date=.../        values that did not match, with the reason, as Parquet

The state is not in the directory because readers take all files that they find: Polars reads every file below a
directory, also with names that begin with `_` or `.`, and so does DuckDB's `**`. Only Spark and PyArrow skip those.
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
    """The loaded offsets of a topic, by partition (`have`). `id` is the topic id in hex, "" if the broker has none.

    `begin` has offsets by partition: a load without a start leaves out the offsets before them, because they are before
    the start of an earlier load, or were deleted and that was accepted.
    """

    id: str = ""
    have: dict[int, list[Interval]] = field(default_factory=dict)
    begin: dict[int, int] = field(default_factory=dict)

    def add(self, partition: int, start: int, end: int) -> None:
        """Add the offsets from `start` to before `end` to the loaded offsets of a partition."""
        self.have[partition] = union(self.have.get(partition, ()), [(start, end)])

    def next_offset(self, partition: int) -> int | None:
        """Return the offset where a load without a start begins in a partition. None: at the earliest offset."""
        known = [end for _, end in self.have.get(partition, ())]
        if partition in self.begin:
            known.append(self.begin[partition])
        return max(known, default=None)


@dataclass
class Decision:
    """The decision to add a batch of files to a loaded directory. If it is interrupted, the next process completes it.

    Attributes:
        topics: The loaded offsets by topic, as they are afterwards.
        moves: Pairs (staged file, its path in the directory).
        swaps: Triples (staged directory, the directory to exchange with it, the inode of the staged directory). The
            inode shows whether the exchange has already happened, because a second exchange would undo it.
    """

    topics: dict[str, Topic]
    moves: list[tuple[str, str]] = field(default_factory=list)
    swaps: list[tuple[str, str, int]] = field(default_factory=list)


class State:
    """The state of a loaded directory, which only one process at a time can open. It is a context manager.

    `form` has the settings that must not change after the first load (columns, isolation, cluster), or None before
    that.
    """

    def __init__(self, directory: Path, home: Path | None = None) -> None:
        """Lock the directory and read its state.

        `home` is the directory that the state is stored in, or None for the default.

        Raises DirectoryInUse if the directory is locked by another load, and LoadError if it cannot be loaded into.
        """
        self.directory = Path(os.path.abspath(directory))  # has a name even if `directory` is "."
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
                f"{directory} does not exist, but {self.home} says what is in it; restore it, or remove {self.home}, "
                "too, to load everything again"
            )
        _make(self.directory)
        _make(self.home)
        if self.home.stat().st_dev != self.directory.stat().st_dev:
            raise LoadError(
                f"{self.home} and {directory} are on different file systems, so files cannot be moved in one "
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
        """Store this state in state.json."""
        document: dict[str, Any] = {"format": FORMAT, "form": self.form}
        document["topics"] = {name: asdict(topic) for name, topic in self.topics.items()}
        document["decision"] = None if self.decision is None else asdict(self.decision)
        write_json(self._file, document)

    def _take_lock(self) -> None:
        """Lock the directory and write this process's id into the lock file.

        Raise DirectoryInUse if the directory is locked.
        """
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
        """Read this state from state.json. Raise LoadError if the file is malformed or has another format version."""
        try:
            document = json.loads(self._file.read_bytes())
            if document["format"] != FORMAT:
                raise LoadError(
                    f"{self._file} has format {document['format']}; this version of kafkapy supports {FORMAT}"
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
                f"{self._file} cannot be read ({type(error).__name__}: {error}); only this file says what is in "
                f"{self.directory}: restore it, or load into another directory"
            ) from error


def home_of(directory: Path) -> Path:
    """Return the default directory for the state of a loaded directory, which is next to it."""
    directory = Path(os.path.abspath(directory))
    return directory.with_name(f"{directory.name}.kafkapy")


def rejected_of(directory: Path, home: Path | None = None) -> Path:
    """Return the directory for values that did not match the schema, which is below the state's directory `home`."""
    return (home or home_of(directory)) / "rejected"


def _make(directory: Path) -> None:
    """Create a directory and its missing parents, and sync them, so that they survive a power cut."""
    new = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    sync_directories(each.parent for each in new)


def _topics(document: dict[str, Any]) -> dict[str, Topic]:
    """Return the loaded offsets by topic name from a JSON object in state.json."""
    return {
        name: Topic(
            topic["id"],
            {int(partition): union(pairs) for partition, pairs in topic["have"].items()},
            {int(partition): int(offset) for partition, offset in topic.get("begin", {}).items()},
        )
        for name, topic in document.items()
    }
