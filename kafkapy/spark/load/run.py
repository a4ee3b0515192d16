"""A run of a load: finds the offsets to load, and loads them batch by batch."""

import collections
import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
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

COMPACT_EVERY_S = 60.0  # in follow mode


@dataclass
class PartitionSummary:
    """A partition at the end of a run.

    reached: The next offset to load. end: The partition's end. lag: The number of offsets not loaded yet.
    """

    reached: int
    end: int
    lag: int


@dataclass
class Summary:
    """The result of a run.

    rows, bytes: In the files that were written, before compaction. rejected: Values set aside; `reasons` counts them.
    lost: The number of offsets deleted before they were loaded, by partition, if that was accepted.
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
    """Reported after each batch: offsets done, offsets to do in total in this round, and the sums so far."""

    done: int
    total: int
    summary: Summary


@dataclass(frozen=True)
class WriteWork:
    """A worker's task for a Piece."""

    settings: Settings
    room: str

    def __call__(self, text: str) -> str:
        return write_piece(Piece(**json.loads(text)), self.settings, Path(self.room)).text()


class Load:
    """One run of a load, which uses the directory until it ends."""

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
        """Finish a batch that an earlier run had decided. `stopped`: When it is set, the current batch is the last one.

        Raises LoadError if the directory has other columns or comes from another cluster.
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
        """Load the existing records that the directory does not have, optionally between two times (ms)."""
        planned = self._plan(start_ms, end_ms)
        total, done = sum(map(size, planned.todo.values())), 0
        for batch in batches(planned.todo, self._settings.batch_rows):
            self._land(batch, self._write(batch))
            done += sum(piece.end - piece.start for piece in batch)
            self._on_progress(Progress(done, total, self.summary))
            if self._stopped.is_set():
                return

    def again(self, start_ms: int | None, end_ms: int | None) -> None:
        """Load the records between two times and replace their rows in the directory: all or none."""
        planned = self._plan(start_ms, end_ms, again=True)
        total, done = sum(map(size, planned.todo.values())), 0
        written: list[Written] = []
        pieces: list[Piece] = []
        for batch in batches(planned.todo, self._settings.batch_rows):
            written += self._write(batch)
            pieces += batch
            done += sum(piece.end - piece.start for piece in batch)
            self._on_progress(Progress(done, total, self.summary))
            if self._stopped.is_set():
                raise LoadError("it was interrupted; nothing was replaced")
        if pieces:
            self._replace(planned, pieces, written)

    def follow(self, every_s: float, start_ms: int | None = None) -> None:
        """Load new records at intervals, until stopped."""
        compacted = time.monotonic()
        while not self._stopped.is_set():
            self.once(start_ms)
            start_ms = None
            if time.monotonic() - compacted >= COMPACT_EVERY_S:
                self.compact()
                compacted = time.monotonic()
            self._stopped.wait(every_s)

    def compact(self) -> None:
        """Merge small files, unless that is disabled."""
        if self._compact_files is not None:
            self.summary.merged += compact(
                self._landing,
                self._runner,
                prefix=self._settings.prefix,
                file_bytes=self._settings.file_bytes,
                files=self._compact_files,
            )

    def finish(self) -> Summary:
        """Return the summary, with position and lag of each partition."""
        there = available(self._cluster, self._topics, self._settings.isolation)
        for (topic, partition), has in there.items():
            have = self._have(topic, partition)
            reached = have[-1][1] if have else has.earliest
            lag = max(0, has.latest - max(reached, has.earliest))
            self.summary.partitions[topic, partition] = PartitionSummary(reached, has.latest, lag)
        self.summary.seconds = time.monotonic() - self._began
        return self.summary

    def _have(self, topic: str, partition: int) -> list[tuple[int, int]]:
        """Return the loaded offsets of a partition."""
        known = self._state.topics.get(topic)
        return known.have.get(partition, []) if known else []

    def _check_form(self) -> None:
        """Raise LoadError if the directory's rows have other columns or come from another cluster than this run's."""
        columns = ", ".join(f"{field.name} {field.type}" for field in schema_of(self._settings))
        form = {
            "columns": columns,
            "isolation": self._settings.isolation,
            "cluster": Admin(self._cluster).describe_cluster().cluster_id or "",
        }
        had = self._state.form
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
        """Look up topics and offsets, and return the offsets to load."""
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
        self.summary.lost.update(planned.lost)
        return planned

    def _write(self, batch: list[Piece]) -> list[Written]:
        """Let the workers write a batch to staged files, and add up the results."""
        pieces = cut(batch, self._tasks)
        work = WriteWork(self._settings, str(self._landing.room))
        written = [Written.of(text) for text in self._runner(work, [json.dumps(piece.__dict__) for piece in pieces])]
        for one in written:
            self.summary.rows += one.rows
            self.summary.bytes += sum(file.bytes for file in one.files)
            self.summary.files += len(one.files)
            self.summary.rejected += sum(file.rows for file in one.rejected)
            for reason, count in one.reasons.items():
                self.summary.reasons[reason] = self.summary.reasons.get(reason, 0) + count
        self.summary.batches += 1
        return written

    def _after(self, pieces: Iterable[Piece]) -> dict[str, Topic]:
        """Return the state of topics with these pieces loaded."""
        topics = deepcopy(self._state.topics)
        for piece in pieces:
            topics[piece.topic].add(piece.partition, piece.start, piece.end)
        return topics

    def _land(self, batch: list[Piece], written: list[Written]) -> None:
        """Move a batch's files into the directory."""
        decision = Decision(self._after(batch))
        for root, file in self._placed(written):
            place = self._directory(root, file.topic, file.date) / final_name(file.spans)
            decision.moves.append((file.path, str(place)))
        self._landing.land(decision)

    def _placed(self, written: list[Written]) -> Iterable[tuple[Path, StagedFile]]:
        """Yield (root directory, file) for rows and rejected values."""
        for one in written:
            yield from ((self._state.directory, file) for file in one.files)
            yield from ((self._state.rejected, file) for file in one.rejected)

    def _directory(self, root: Path, topic: str, date: str) -> Path:
        """Return the directory of a topic and date."""
        prefix = self._settings.prefix
        return root / _of(prefix, topic) / f"{prefix}date={date}"

    def _replace(self, planned: Plan, pieces: list[Piece], written: list[Written]) -> None:
        """Rebuild every directory that has, or gets, rows of these offsets, then exchange all of them."""
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
                    made = rebuild(place, room, prefix=prefix, without=without, add=added.get(place, ()))
                    decision.swaps.append((str(made), str(place), made.stat().st_ino))
        self._landing.land(decision)

    def _directories_of(self, topic: str) -> set[Path]:
        """Return the existing directories of a topic."""
        name = _of(self._settings.prefix, topic)
        return {place for root in (self._state.directory, self._state.rejected) for place in root.glob(f"{name}/*")}


def _of(prefix: str, topic: str) -> str:
    """Return the name of a topic's directory."""
    return f"{prefix}topic={topic}"
