"""The command `kafkapy log import`: imports logs of Kafka 0.7 as records of topics."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from kafkapy.log.offline.files_07 import is_segment_07
from kafkapy.record.compression import NAMES
from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.common.options import DEFAULT_SERVER, CommandConfig, Servers, cluster_of
from kafkapy.tools.common.output import print_table, progress
from kafkapy.tools.log.import_07.broker import BrokerTarget
from kafkapy.tools.log.import_07.directory import DirectoryTarget
from kafkapy.tools.log.import_07.offsets_file import look_up, read_head
from kafkapy.tools.log.import_07.partition import Log07
from kafkapy.tools.log.import_07.run import Import, Job


def import_(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Partitions (topic-0) of Kafka 0.7, or log directories with such."),
    ],
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="The topic to import into; default: the same name."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", "-p", min=0, help="With one PATH: the partition to import into; default: the same number."
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIRECTORY", help="Write a log directory for `log adopt`, with no broker."),
    ] = None,
    offsets_dir: Annotated[
        Path | None,
        typer.Option(
            "--offsets-dir",
            metavar="DIRECTORY",
            help="Directory of the offsets files; default: ./kafka07-offsets, or next to --to.",
        ),
    ] = None,
    codec: Annotated[
        str | None,
        typer.Option("--codec", "-z", help=f"{', '.join(NAMES)}; default: the codec that the log has most of."),
    ] = None,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Skip unreadable messages instead of failing.")
    ] = False,
    lookup: Annotated[
        list[int] | None,
        typer.Option(
            "--lookup", metavar="OFFSET", help="Show the new offset of this old one; PATH is an offsets file."
        ),
    ] = None,
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Import logs of Kafka 0.7 into topics, through a running broker or into a new log directory.

    Records keep their order and get the time of their file. Offsets of Kafka 0.7 are byte positions. The file
    TOPIC-PARTITION.offsets07 maps them to the new offsets, for the offsets that consumers have stored. Call an
    interrupted import again to continue it; a complete one does nothing.

    Missing topics are created with retention.ms=-1, because their records are old.

    Examples:

        kafkapy log import /var/kafka07/clicks-0 --bootstrap-server localhost:9092

        kafkapy log import /var/kafka07 --to /var/lib/kafkapy-import

        kafkapy log import kafka07-offsets/clicks-0.offsets07 --lookup 1048576
    """
    if lookup:
        _look_up(paths, lookup)
        return
    if codec is not None and codec not in NAMES:
        raise CallError(f"--codec {codec!r} is none of {', '.join(NAMES)}")
    logs = [Log07(directory) for path in paths for directory in _partitions(path)]
    if partition is not None and len(logs) > 1:
        raise CallError(f"--partition is for one partition, and there are {len(logs)}")
    if topic is not None and len({log.topic for log in logs}) > 1:
        raise CallError("--topic is for one topic, and there are several")
    target = BrokerTarget(cluster_of(servers, command_config)) if to is None else DirectoryTarget(to)
    with target:
        number = None if codec is None else NAMES.index(codec)
        kept = offsets_dir or (Path("kafka07-offsets") if to is None else Path(f"{to}-offsets"))
        work = Import(target, kept, skip_damaged=skip_damaged, codec=number)
        jobs = [work.job(log, topic or log.topic, log.partition if partition is None else partition) for log in logs]
        with progress("Importing", 2 * sum(log.size for log in logs), prints_lines=False) as show:
            work.run(jobs, show)
    _print_summary(jobs, to)


def _partitions(path: Path) -> Iterator[Path]:
    """Yield the directories of the partitions of Kafka 0.7 at `path`: the directory itself if it has segments, else the
    partitions in it. Raises ToolError if there are none."""
    if not path.is_dir():
        raise ToolError(f"{path} is no directory of Kafka 0.7: name a partition (topic-0) or a log directory.")
    if any(is_segment_07(file) for file in path.iterdir()):
        yield path
        return
    found = [one for one in sorted(path.iterdir()) if one.is_dir() and any(map(is_segment_07, one.iterdir()))]
    if not found:
        raise ToolError(f"{path} holds no partition of Kafka 0.7: those are named topic-0 and hold .kafka files.")
    yield from found


def _look_up(paths: Sequence[Path], offsets: Sequence[int]) -> None:
    rows = []
    for path in paths:
        end = read_head(path).end
        for asked, found in zip(offsets, look_up(path, offsets), strict=True):
            if found.old_offset == end:
                remark = f"after the last message: the old log ends at {end}"
            else:
                remark = "" if found.exact else f"no message begins there; this is the one at {found.old_offset}"
            rows.append((path.name.removesuffix(path.suffix), asked, found.new_offset, remark))
    print_table(["partition", "old offset>", "new offset>", ""], rows)


def _print_summary(jobs: Sequence[Job], to: Path | None) -> None:
    print_table(
        ["from", "to", "records>", "first offset>", "next offset>", ""],
        [
            (
                job.log.directory,
                job.name,
                job.records,
                job.base_offset,
                job.base_offset + job.records,
                _state(job),
            )
            for job in jobs
        ],
    )
    lines = []
    for job in jobs:
        lines += [f"Left out, {damage.skipped} bytes: {damage}." for damage in job.damages]
        if not job.log.times_ascend:
            lines.append(
                f"Take care: the modification times of the files in {job.log.directory} do not ascend; were the files "
                "copied without their times? Records have the times of their files, but times never go back."
            )
    lines.append(f"Old offsets and their new ones are in {jobs[0].offsets_file.parent}.")
    if to is None:
        lines.append("Topics that this import created keep all records (retention.ms=-1), until you change that.")
    else:
        lines.append(f"Next: kafkapy log adopt {to} --broker-id 0")
    print("\n".join(lines))


def _state(job: Job) -> str:
    if job.before == 0:
        return "imported"
    return "was there already" if job.before == job.records else f"imported, {job.before} were there already"
