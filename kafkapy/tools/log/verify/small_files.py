"""Checks the small text files of a log directory: that they can be parsed, and that the offsets in checkpoints are in
the range of their logs."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from kafkapy.log import leader_epochs, names
from kafkapy.log.cleaner.offsets import NAME as CLEANER_OFFSETS
from kafkapy.log.directories import checkpoints, clean_shutdown, meta_properties, partition_metadata
from kafkapy.log.directories.checkpoints import numbers, parse_lines
from kafkapy.tools.log.verify.epochs import read_epochs
from kafkapy.tools.log.verify.report import Report

# What the offsets in each file are called in messages.
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
    """Check that a file whose name is in NAMES can be parsed, and report problems. Raises OSError."""
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
    """Return the offsets in a checkpoint by topic and partition. A checkpoint that cannot be parsed is reported, and
    the result is empty."""
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
    """Compare the offsets in a checkpoint with `logs`, the (start, end) of each existing log. An end is None if it is
    not known.

    `offsets` must have been read by `read_checkpoint` before the logs were, because the logs of a running broker grow.
    `clean` is True if the broker was stopped cleanly; recovery points must then be the ends of the logs. Lines of
    partitions that do not exist are ignored, as by the broker, because deletions and moves leave such lines.
    """
    what = CHECKPOINTS[path.name]
    at_the_end = clean and path.name == checkpoints.RECOVERY_POINTS
    for key, offset in offsets.items():
        finding = f"has {offset} as the {what} of {key[0]}-{key[1]}"
        if offset < 0:
            report.add(path, finding, offset=offset)
            continue
        end = logs[key][1] if key in logs else None
        if end is not None and offset > end:
            report.add(path, f"{finding}, but that log ends at {end}", offset=offset)
        elif end is not None and offset < end and at_the_end:
            report.add(path, f"{finding}, written by a clean stop, but that log ends at {end}", offset=offset)


def check_topic_ids(directories: Iterable[Path], report: Report) -> None:
    """Report partitions of the same topic that have different topic ids in `partition.metadata`."""
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
