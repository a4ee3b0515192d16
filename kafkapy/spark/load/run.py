"""A run of a load: finds the offsets to load, and loads the records batch by batch."""

import collections
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

from kafkapy.client.administration.admin import Admin
from kafkapy.client.cluster import Cluster, TopicPartition
from kafkapy.spark.load.broker_side import available, offsets_at, topic_ids
from kafkapy.spark.load.compaction import compact
from kafkapy.spark.load.errors import LoadError
from kafkapy.spark.load.files import StagedFile, final_name
from kafkapy.spark.load.intervals import size
from kafkapy.spark.load.landing import Landing
from kafkapy.spark.load.plan import Plan, batches, cut, plan
from kafkapy.spark.load.rebuild import has_rows_of, rebuild
from kafkapy.spark.load.settings import Settings
from kafkapy.spark.load.state import Decision, State, Topic
from kafkapy.spark.load.task import Piece, Runner, Written, schema_of, write_piece
from kafkapy.spark.retries import with_retries

COMPACT_EVERY_S = 60.0  # the interval of compactions in follow mode


@dataclass
class PartitionSummary:
    """How far a partition was loaded, at the end of a run.

    Attributes:
        reached: The next offset to load.
        end: The latest offset of the partition.
        lag: The number of offsets that are not loaded yet.
    """

    reached: int
    end: int
    lag: int


@dataclass
class Summary:
    """The result of a run.

    Attributes:
        rows, bytes, files: The numbers of rows, bytes and files that were written, before compaction.
        rejected: The number of values that did not match the schema. They are written to separate files.
        batches: The number of batches that were loaded.
        merged: The decrease in the number of files by compaction.
        seconds: The duration of the run.
        reasons: The number of rejected values by reason.
        lost: The number of offsets that were deleted before they were loaded, by partition, if that was accepted.
        partitions: How far each partition was loaded.
    """

    rows: int = 0
    bytes: int = 0
    files: int = 0
    rejected: int = 0
    batches: int = 0
    merged: int = 0
    seconds: float = 0.0
    reasons: dict[str, int] = field(default_factory=collections.Counter)
    lost: dict[TopicPartition, int] = field(default_factory=dict)
    partitions: dict[TopicPartition, PartitionSummary] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    """The progress of a load, which is reported after each batch.

    Attributes:
        done: The number of offsets that are loaded so far. In follow mode, it begins again at each look for records.
        total: The number of offsets to load, counted like `done`.
        summary: The result of the run so far.
    """

    done: int
    total: int
    summary: Summary


@dataclass(frozen=True)
class WriteWork:
    """A callable for workers that takes a Piece as JSON, writes its rows to staged files, and returns a Written as
    text."""

    settings: Settings
    room: str
    accept_loss: bool

    def __call__(self, text: str) -> str:
        piece = Piece(**json.loads(text))
        return write_piece(piece, self.settings, Path(self.room), accept_loss=self.accept_loss).text()


class Load:
    """One run of `kafkapy spark load`: copies the records of topics to Parquet files in a directory, exactly once.

    `state` is the opened state of that directory. It holds the directory's lock, so no other load can use the directory
    at the same time.
    """

    def __init__(
        self,
        topics: Sequence[str],
        state: State,
        cluster: Cluster,
        runner: Runner,
        settings: Settings,
        *,
        tasks: int,
        accept_loss: bool = False,
        compact_files: int | None = 16,
        stopped: threading.Event | None = None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        """Check the directory's settings, and finish a batch that an earlier run had decided to load but not finished.

        `stopped` is an event that ends the run after the current batch. Raises LoadError if the directory has other
        columns or another isolation level, or comes from another cluster.
        """
        self._topics, self._state, self._cluster, self._runner = list(topics), state, cluster, runner
        self._settings, self._tasks, self._accept_loss = settings, tasks, accept_loss
        self._compact_files, self._on_progress = compact_files, on_progress
        self._stopped = stopped or threading.Event()
        self.summary = Summary()
        self._began = time.monotonic()
        self._check_form()
        self._landing = Landing(state)

    def once(self, start_ms: int | None = None, end_ms: int | None = None) -> None:
        """Load the existing records that are not in the directory yet, optionally only those between two times (ms)."""
        planned = self._plan(start_ms, end_ms)
        total, done = sum(map(size, planned.todo.values())), 0
        for batch in batches(planned.todo, self._settings.batch_rows):
            self._land(batch, self._write(batch, accept_loss=self._accept_loss))
            done += sum(piece.end - piece.start for piece in batch)
            self._on_progress(Progress(done, total, self.summary))
            if self._stopped.is_set():
                return

    def again(self, start_ms: int | None, end_ms: int | None) -> None:
        """Load the records between two times (ms) and replace their rows in the directory: all of them or none.

        Raises LoadError if the run is stopped before the replacement.
        """
        planned = self._plan(start_ms, end_ms, again=True)
        total, done = sum(map(size, planned.todo.values())), 0
        written: list[Written] = []
        pieces: list[Piece] = []
        for batch in batches(planned.todo, self._settings.batch_rows):
            written += self._write(batch, accept_loss=False)  # existing rows of deleted records stay
            pieces += batch
            done += sum(piece.end - piece.start for piece in batch)
            self._on_progress(Progress(done, total, self.summary))
            if self._stopped.is_set():
                raise LoadError("the load was interrupted; nothing was replaced")
        if pieces:
            self._replace(planned, pieces, written)

    def follow(self, every_s: float, start_ms: int | None = None) -> None:
        """Load new records every `every_s` seconds, and compact the directory at times, until the run is stopped."""
        compacted = time.monotonic()
        while not self._stopped.is_set():
            self.once(start_ms)
            start_ms = None
            if time.monotonic() - compacted >= COMPACT_EVERY_S:
                self.compact()
                compacted = time.monotonic()
            self._stopped.wait(every_s)

    def compact(self) -> None:
        """Merge small files of the directory, unless compaction is disabled."""
        if self._compact_files is not None:
            self.summary.merged += compact(
                self._landing,
                self._runner,
                prefix=self._settings.prefix,
                file_bytes=self._settings.file_bytes,
                files=self._compact_files,
            )

    def finish(self) -> Summary:
        """Return the summary of the run, which includes the lag of each partition."""
        there = with_retries(
            lambda: available(self._cluster, self._topics, self._settings.isolation), self._settings.timeout_s
        )
        for (topic, partition), has in there.items():
            known = self._state.topics.get(topic, Topic()).next_offset(partition)
            reached = has.earliest if known is None else known
            lag = max(0, has.latest - max(reached, has.earliest))
            self.summary.partitions[topic, partition] = PartitionSummary(reached, has.latest, lag)
        self.summary.seconds = time.monotonic() - self._began
        return self.summary

    def _check_form(self) -> None:
        """Raise LoadError if this run's columns, isolation level or cluster are not those of the directory's rows.

        If nothing has been loaded into the directory yet, these settings are stored in its state.
        """
        columns = ", ".join(f"{field.name} {field.type}" for field in schema_of(self._settings))
        form = {
            "columns": columns,
            "isolation": self._settings.isolation,
            "cluster": Admin(self._cluster).describe_cluster().cluster_id or "",
        }
        loaded = any(topic.have for topic in self._state.topics.values()) or self._state.decision is not None
        had = self._state.form if loaded else None  # a run that has loaded nothing may have had other settings
        for what in form:
            if had is not None and had[what] != form[what]:
                raise LoadError(
                    f"{self._state.directory} was loaded with other {what} ({had[what]}) than requested now "
                    f"({form[what]}); load into another directory"
                )
        if had is None:
            self._state.form = form
            self._state.write()

    def _plan(self, start_ms: int | None, end_ms: int | None, *, again: bool = False) -> Plan:
        """Return the offsets to load, after looking up topics and offsets at the brokers.

        A broker that cannot be reached is asked again until the settings' time limit. Raises LoadError if a topic was
        recreated, or records are lost.
        """
        return with_retries(lambda: self._plan_once(start_ms, end_ms, again), self._settings.timeout_s)

    def _plan_once(self, start_ms: int | None, end_ms: int | None, again: bool) -> Plan:
        ids = topic_ids(self._cluster, self._topics)
        for name, id in ids.items():
            known = self._state.topics.setdefault(name, Topic(id))
            if known.id and id and known.id != id:
                raise LoadError(
                    f"topic {name!r} was deleted and recreated since it was loaded into {self._state.directory}; "
                    "load it into another directory"
                )
            known.id = known.id or id
        there = available(self._cluster, self._topics, self._settings.isolation)
        start = None if start_ms is None else offsets_at(self._cluster, there, start_ms)
        end = None if end_ms is None else offsets_at(self._cluster, there, end_ms)
        planned = plan(self._state.topics, there, start, end, again=again, accept_loss=self._accept_loss)
        for where, count in planned.lost.items():
            self._count_lost(where, count)
        self._leave_out({where: there[where].earliest for where in planned.lost})
        if start is not None and not again:
            before = {}
            for (name, partition), offset in start.items():
                known = self._state.topics[name]
                # A load with an end may be of older records: it does not change where later loads begin.
                if not known.have.get(partition) and (end is None or partition not in known.begin):
                    before[name, partition] = offset
            self._leave_out(before)
        return planned

    def _count_lost(self, where: TopicPartition, count: int) -> None:
        self.summary.lost[where] = self.summary.lost.get(where, 0) + count

    def _leave_out(self, before: Mapping[TopicPartition, int]) -> None:
        """Store that the offsets before these are left out by later loads without a start.

        Otherwise, the next load would begin at the earliest offset of a partition of which nothing is loaded.
        """
        for (topic, partition), offset in before.items():
            self._state.topics[topic].begin[partition] = offset
        if before:
            self._state.write()

    def _write(self, batch: list[Piece], *, accept_loss: bool) -> list[Written]:
        """Let the workers write the rows of a batch to staged files.

        Return the results, and add them to the summary.
        """
        pieces = cut(batch, self._tasks)
        work = WriteWork(self._settings, str(self._landing.room), accept_loss)
        written = [Written.of(text) for text in self._runner(work, [json.dumps(piece.__dict__) for piece in pieces])]
        for piece, one in zip(pieces, written, strict=True):
            if one.lost:
                self._count_lost((piece.topic, piece.partition), one.lost)
            self.summary.rows += one.rows
            self.summary.bytes += sum(file.bytes for file in one.files)
            self.summary.files += len(one.files)
            self.summary.rejected += sum(file.rows for file in one.rejected)
            for reason, count in one.reasons.items():
                self.summary.reasons[reason] = self.summary.reasons.get(reason, 0) + count
        self.summary.batches += 1
        return written

    def _after(self, pieces: Iterable[Piece]) -> dict[str, Topic]:
        """Return the loaded offsets by topic, as they are after these pieces (ranges of offsets) have been loaded."""
        topics = deepcopy(self._state.topics)
        for piece in pieces:
            topics[piece.topic].add(piece.partition, piece.start, piece.end)
        return topics

    def _land(self, batch: list[Piece], written: list[Written]) -> None:
        """Move the staged files of a batch into the directory, and store that its offsets are loaded."""
        decision = Decision(self._after(batch))
        for root, file in self._placed(written):
            place = self._directory(root, file.topic, file.date) / final_name(file.spans)
            decision.moves.append((file.path, str(place)))
        self._landing.land(decision)

    def _placed(self, written: list[Written]) -> Iterable[tuple[Path, StagedFile]]:
        """Yield (root directory, staged file) for the files of rows and the files of rejected values.

        The root directory is the one that the file will be moved to: rows and rejected values have different ones.
        """
        for one in written:
            yield from ((self._state.directory, file) for file in one.files)
            yield from ((self._state.rejected, file) for file in one.rejected)

    def _directory(self, root: Path, topic: str, date: str) -> Path:
        """Return the directory for the files of a topic and date, below a root directory."""
        prefix = self._settings.prefix
        return root / _of(prefix, topic) / f"{prefix}date={date}"

    def _replace(self, planned: Plan, pieces: list[Piece], written: list[Written]) -> None:
        """Replace the rows of these pieces (ranges of offsets) in the directory with the staged files, all at once.

        Each directory of a date that has, or gets, rows of these offsets is rebuilt. Then all of them are exchanged.
        """
        decision = Decision(self._after(pieces))
        prefix, room = self._settings.prefix, self._landing.room
        added: dict[Path, list[StagedFile]] = collections.defaultdict(list)
        for root, file in self._placed(written):
            added[self._directory(root, file.topic, file.date)].append(file)
        for topic in {piece.topic for piece in pieces}:
            without = {partition: pairs for (name, partition), pairs in planned.todo.items() if name == topic}
            new = {place for place in added if place.parent.name == _of(prefix, topic)}
            for place in self._directories_of(topic) | new:
                if place in added or any(has_rows_of(file, prefix, without) for file in place.glob("*.parquet")):
                    rebuilt = rebuild(place, room, prefix=prefix, without=without, add=added.get(place, ()))
                    decision.swaps.append((str(rebuilt), str(place), rebuilt.stat().st_ino))
        self._landing.land(decision)

    def _directories_of(self, topic: str) -> set[Path]:
        """Return the existing directories of all dates of a topic, those of rows and those of rejected values."""
        name = _of(self._settings.prefix, topic)
        return {place for root in (self._state.directory, self._state.rejected) for place in root.glob(f"{name}/*")}


def _of(prefix: str, topic: str) -> str:
    """Return the name of a topic's directory, such as topic=flights."""
    return f"{prefix}topic={topic}"
