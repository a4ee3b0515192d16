"""The small text files: whether they can be read, and whether checkpoints name offsets inside their logs."""

from collections.abc import Mapping
from pathlib import Path

from kafkapy.log import checkpoints, clean_shutdown, leader_epochs, meta_properties, partition_metadata
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
    path: Path, offsets: Offsets, logs: Mapping[tuple[str, int], tuple[int, int | None]], report: Report
) -> None:
    """A checkpoint against (start, end) of the logs that are there; the end is None where it is not known.

    `offsets` are from `read_checkpoint`, before the logs were read: those of a running broker grow.

    Lines of partitions that are not there are left over from deletions and moves: the broker passes over them.
    """
    what = CHECKPOINTS[path.name]
    for key, offset in offsets.items():
        name = f"{key[0]}-{key[1]}"
        if offset < 0:
            report.add(path, f"has {offset} as the {what} of {name}", offset=offset)
        elif (found := logs.get(key)) is not None and found[1] is not None and offset > found[1]:
            report.add(path, f"has {offset} as the {what} of {name}, but that log ends at {found[1]}", offset=offset)


def _without(path: Path, error: ValueError) -> str:
    return str(error).removeprefix(f"{path} ").rstrip(".")
