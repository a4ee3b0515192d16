"""The small text files: whether they can be read, and whether checkpoints name offsets inside their logs."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from kafkapy.log import checkpoints, clean_shutdown, leader_epochs, meta_properties, names, partition_metadata
from kafkapy.log.checkpoints import numbers, parse_lines
from kafkapy.log.cleaner_offsets import NAME as CLEANER_OFFSETS
from kafkapy.tools.log.checks.epochs import read_epochs
from kafkapy.tools.log.checks.report import Report

# What an offset in each of them is.
CHECKPOINTS = {
    checkpoints.RECOVERY_POINTS: "recovery point",
    checkpoints.HIGH_WATERMARKS: "high watermark",
    checkpoints.LOG_START_OFFSETS: "log start offset",
    CLEANER_OFFSETS: "first offset that was not cleaned",
}
NAMES = (
    *CHECKPOINTS,
    leader_epochs.NAME,
    partition_metadata.NAME,
    meta_properties.NAME,
    clean_shutdown.NAME,
)

Offsets = dict[tuple[str, int], int]


def check_small_file(path: Path, report: Report) -> None:
    """One of NAMES, for itself. Raises OSError."""
    if path.name == leader_epochs.NAME:
        report.checked(path)
        read_epochs(path, report)
        return
    if path.name in CHECKPOINTS:
        read_checkpoint(path, report)
        return
    data = path.read_bytes()
    report.checked(path, len(data))
    try:
        if path.name == partition_metadata.NAME:
            partition_metadata.parse_metadata(data, str(path))
        elif path.name == meta_properties.NAME:
            meta_properties.parse_properties(data, str(path))
    except ValueError as error:
        report.add(path, _without(path, error))


def read_checkpoint(path: Path, report: Report) -> Offsets:
    """Offsets by topic and partition; empty when the file cannot be read, which is reported."""
    data = path.read_bytes()
    report.checked(path, len(data))
    offsets: Offsets = {}
    try:
        for line in parse_lines(data, str(path)):
            topic, _, rest = line.partition(" ")
            partition, offset = numbers(rest, 2, str(path))
            if (topic, partition) in offsets:
                report.add(path, f"has {topic} {partition} twice")
            offsets[topic, partition] = offset
    except ValueError as error:
        report.add(path, _without(path, error))
        return {}
    return offsets


def check_offsets(
    path: Path,
    offsets: Offsets,
    logs: Mapping[tuple[str, int], tuple[int, int | None]],
    report: Report,
    *,
    clean: bool = False,
) -> None:
    """A checkpoint against (start, end) of the logs that are there; the end is None where it is not known.

    `offsets` are from `read_checkpoint`, before the logs were read: those of a running broker grow. clean: the broker
    has stopped cleanly, and with that its last recovery points are where the logs end.

    Lines of partitions that are not there are left over from deletions and moves: the broker passes over them.
    """
    what = CHECKPOINTS[path.name]
    at_the_end = clean and path.name == checkpoints.RECOVERY_POINTS
    for key, offset in offsets.items():
        said = f"has {offset} as the {what} of {key[0]}-{key[1]}"
        if offset < 0:
            report.add(path, said, offset=offset)
            continue
        end = logs[key][1] if key in logs else None
        if end is not None and offset > end:
            report.add(path, f"{said}, but that log ends at {end}", offset=offset)
        elif end is not None and offset < end and at_the_end:
            report.add(path, f"{said}, written by a clean stop, but that log goes on to {end}", offset=offset)


def check_topic_ids(directories: Iterable[Path], report: Report) -> None:
    """All partitions of a topic have the same id in `partition.metadata`, where they have one that can be read."""
    first: dict[str, tuple[bytes, Path]] = {}
    for directory in directories:
        path = directory / partition_metadata.NAME
        parsed = names.parse_dir_name(directory.name)
        if parsed is None or parsed.kind != names.LIVE_DIR or not path.exists():
            continue
        try:
            found = partition_metadata.parse_metadata(path.read_bytes(), str(path))
        except ValueError:
            continue
        expected, where = first.setdefault(parsed.topic, (found, directory))
        if found != expected:
            report.add(path, f"has another topic id than {where.name}, which is of the same topic")


def _without(path: Path, error: ValueError) -> str:
    return str(error).removeprefix(f"{path} ").rstrip(".")
