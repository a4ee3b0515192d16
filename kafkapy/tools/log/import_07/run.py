"""The import of partitions of Kafka 0.7, which may be interrupted and continued.

First a log is read to its end. This shows whether it is complete, and gives every message its new offset: the base
offset of the import plus the number of records before the message. The new offsets are written to the offsets file,
which is durable before the first record is sent. From then on the partition's end offset says how much is imported, so
a second run continues there, or does nothing if all records are there.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from kafkapy.record.compression import NONE
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.log.import_07.offsets_file import Head07, OffsetsWriter, name_of, read_head
from kafkapy.tools.log.import_07.partition import Damage07, Log07
from kafkapy.tools.log.import_07.targets import Demand, Target

Show = Callable[[int], None]


@dataclass
class Job:
    """The import of one partition, and its result: `records` is the number of records in total, and `before` how many
    of them earlier runs have imported."""

    log: Log07
    topic: str
    partition: int
    offsets_file: Path
    base_offset: int = 0
    records: int = 0
    before: int = 0
    largest: int = 0
    codec: int = NONE
    damages: list[Damage07] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


class Import:
    """Imports partitions into a Target. `skip_damaged`: leave out unreadable messages instead of failing. `codec`: the
    codec of the new batches; None means the codec that most messages of the log have."""

    def __init__(
        self, target: Target, offsets_dir: Path, *, skip_damaged: bool = False, codec: int | None = None
    ) -> None:
        self._target = target
        self._offsets_dir = offsets_dir
        self._skip_damaged = skip_damaged
        self._codec = codec

    def job(self, log: Log07, topic: str, partition: int) -> Job:
        return Job(log, topic, partition, self._offsets_dir / name_of(topic, partition))

    def run(self, jobs: list[Job], show: Show = lambda done: None) -> None:
        """Import all partitions. `show` is called with the number of bytes done; the total is twice the size of the
        logs, because each is read twice. Raises ToolError, KafkaError."""
        _refuse_the_same(jobs)
        self._offsets_dir.mkdir(parents=True, exist_ok=True)
        done = 0
        for job in jobs:
            self._number(job, _behind(show, done))
            done += job.log.size
        self._target.prepare(_demands(jobs))
        for job in jobs:
            self._send(job, _behind(show, done))
            done += job.log.size

    def _number(self, job: Job, show: Show) -> None:
        """Read the log of a job to its end, write its offsets file, and set the job's counts. Raises ToolError if the
        target partition has records that are not of this import."""
        first, following = self._target.offsets(job.topic, job.partition)
        known = read_head(job.offsets_file) if job.offsets_file.exists() else None
        if known is not None:
            _check_same(job, known)
            job.base_offset = known.base_offset
        elif first == following:
            job.base_offset = following
        else:
            raise ToolError(
                f"{job.name} holds records already ({following - first}), and there is no {job.offsets_file}, which "
                "would say that they are of this import: name another --topic, or the first run's --offsets-dir."
            )
        self._read(job, show)
        job.before = following - job.base_offset
        if not 0 <= job.before <= job.records:
            raise ToolError(
                f"{job.name} ends at offset {following}, but the import goes from {job.base_offset} to "
                f"{job.base_offset + job.records}: another producer has written to it. Name another --topic."
            )

    def _read(self, job: Job, show: Show) -> None:
        codecs: Counter[int] = Counter()
        end = job.log.start
        writer = OffsetsWriter(job.offsets_file)
        try:
            for stored in job.log.messages(self._damaged(job), show):
                writer.add(stored.offset, job.base_offset + job.records)
                for payload in stored.payloads:
                    if len(payload) > job.largest:
                        job.largest = len(payload)
                job.records += len(stored.payloads)
                codecs[stored.codec] += 1
                end = stored.next_offset
            writer.add(end, job.base_offset + job.records)
            writer.finish(
                Head07(
                    job.topic,
                    job.partition,
                    job.base_offset,
                    job.records,
                    0,
                    str(job.log.directory.absolute()),
                    job.log.start,
                    end,
                )
            )
        except BaseException:
            writer.abandon()
            raise
        job.codec = self._codec if self._codec is not None else max(codecs, key=codecs.__getitem__, default=NONE)

    def _damaged(self, job: Job) -> Callable[[Damage07], None]:
        def note(damage: Damage07) -> None:
            job.damages.append(damage)
            # A crash leaves an incomplete last message, which 0.7 truncated at its next start.
            torn = damage.is_torn and damage.path == job.log.segments[-1].path
            if not torn and not self._skip_damaged:
                raise ToolError(f"{damage}. Nothing was imported; --skip-damaged leaves out what cannot be read.")

        return note

    def _send(self, job: Job, show: Show) -> None:
        if job.before == job.records:
            return
        skip = job.before
        writer = self._target.writer(job.topic, job.partition, job.codec, job.base_offset + skip)
        for stored in job.log.messages(lambda damage: None, show):
            payloads = stored.payloads
            if skip:
                payloads, skip = payloads[skip:], max(0, skip - len(payloads))
            for payload in payloads:
                writer.append(payload, stored.timestamp)
        writer.flush()


def _behind(show: Show, done: int) -> Show:
    return lambda more: show(done + more)


def _refuse_the_same(jobs: Iterable[Job]) -> None:
    seen: dict[str, Job] = {}
    for job in jobs:
        other = seen.setdefault(job.name, job)
        if other is not job:
            raise ToolError(f"{other.log.directory} and {job.log.directory} would both be imported as {job.name}.")


def _check_same(job: Job, known: Head07) -> None:
    if known.start != job.log.start:
        raise ToolError(
            f"{job.offsets_file} is of an import that began at offset {known.start} of {known.source}, but "
            f"{job.log.directory} begins at {job.log.start}. Bring the missing segments back, or name another --topic "
            "and --offsets-dir."
        )


def _demands(jobs: Iterable[Job]) -> dict[str, Demand]:
    by_topic: defaultdict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        by_topic[job.topic].append(job)
    return {
        topic: Demand(
            max(job.partition for job in its) + 1,
            max(job.largest for job in its),
            min(job.log.segments[0].modified_ms for job in its),
        )
        for topic, its in by_topic.items()
    }
