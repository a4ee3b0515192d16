"""Checks the paths given to `kafkapy log verify`: files, partition directories and log directories."""

import os
from collections.abc import Iterator
from pathlib import Path

from kafkapy.log import names
from kafkapy.log.directories import clean_shutdown
from kafkapy.log.offline.files_07 import SUFFIX as SUFFIX_07
from kafkapy.log.offline.files_07 import is_segment_07, partition_of_07, segments_07
from kafkapy.log.offline.index_files import size_to_read
from kafkapy.log.offline.stored_batches import base_offset_of
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.log.verify.kafka_07 import check_partition_07, check_segment_07
from kafkapy.tools.log.verify.partition import check_partition, segments_in
from kafkapy.tools.log.verify.producers import ProducerCheck
from kafkapy.tools.log.verify.report import Problem, Report
from kafkapy.tools.log.verify.segment import check_segment
from kafkapy.tools.log.verify.small_files import (
    CHECKPOINTS,
    NAMES,
    check_offsets,
    check_small_file,
    check_topic_ids,
    read_checkpoint,
)


def check_path(path: Path, report: Report) -> None:
    """Check the file or directory at a path, and report problems. A file that cannot be read is reported too. Raises
    ToolError if the path does not exist or is neither a log's file, nor a partition's directory, nor a log directory.
    """
    if not path.exists():
        raise ToolError(f"{path} does not exist.")
    try:
        if not path.is_dir():
            _check_file(path, report)
        elif is_partition(path):
            _check_partition(path, report)
        else:
            _check_log_dir(path, report)
    except OSError as error:
        _unreadable(path, error, report)


def is_partition(directory: Path) -> bool:
    """Return True if the directory has log segments, of any version of Kafka."""
    return bool(segments_in(directory) or segments_07(directory))


def partitions_in(log_dir: Path) -> Iterator[Path]:
    """Yield the partition directories in a log directory, without those marked for deletion."""
    for path in sorted(log_dir.iterdir()):
        if path.is_dir():
            parsed = names.parse_dir_name(path.name)
            live = parsed is not None and parsed.kind != names.DELETE_DIR
            if live or (parsed is None and partition_of_07(path.name) is not None and segments_07(path)):
                yield path


def size_of(path: Path) -> int:
    """Return roughly how many bytes the check of a file or directory reads, for a progress bar."""
    if not path.is_dir():
        return size_to_read(path) if path.exists() else 0
    return sum(size_to_read(one) for one in path.rglob("*") if one.is_file())


def _check_partition(directory: Path, report: Report) -> tuple[int, int | None] | None:
    if not segments_in(directory):
        check_partition_07(directory, report)
        return None
    return check_partition(directory, report)


def _check_log_dir(directory: Path, report: Report) -> None:
    partitions = list(partitions_in(directory))
    small = [directory / name for name in NAMES if (directory / name).is_file()]
    if not partitions and not small:
        raise ToolError(
            f"{directory} is neither a partition's directory (it has no .log files) nor a log directory (it has no "
            "directories named TOPIC-PARTITION and no checkpoints)."
        )
    checkpoints = {path: read_checkpoint(path, report) for path in small if path.name in CHECKPOINTS}
    logs: dict[tuple[str, int], tuple[int, int | None]] = {}
    for path in partitions:
        try:
            if not is_partition(path):
                report.add(path, "has no segments (.log files)")
                continue
            found = _check_partition(path, report)
        except OSError as error:
            if path.exists():  # else a broker has deleted or moved the partition since the directory was listed
                _unreadable(path, error, report)
            continue
        parsed = names.parse_dir_name(path.name)
        if found is not None and parsed is not None and parsed.kind == names.LIVE_DIR:
            logs[parsed.topic, parsed.partition] = found
    check_topic_ids(partitions, report)
    clean = (directory / clean_shutdown.NAME).exists()
    for path in small:
        if path in checkpoints:
            check_offsets(path, checkpoints[path], logs, report, clean=clean)
        else:
            check_small_file(path, report)


def _unreadable(path: Path, error: OSError, report: Report) -> None:
    where = path if error.filename is None else Path(os.fsdecode(error.filename))
    report.add(where, f"could not be read: {error.strerror or error}")


def _check_file(path: Path, report: Report) -> None:
    if path.name in NAMES:
        _check_against_log(path, report) if segments_in(path.parent) else check_small_file(path, report)
    elif is_segment_07(path):
        check_segment_07(path, report)
    elif path.suffix == names.LOG:
        producers = ProducerCheck(report, by_coordinator=False)
        base = base_offset_of(path)
        check_segment(path, base, report, indexes=False, follow=lambda got, read: producers.follow(path, got, read))
    elif path.suffix in (*names.INDEXES, names.SNAPSHOT):
        base_offset_of(path)
        _check_against_log(path, report)
    else:
        suffixes = ", ".join((names.LOG, *names.INDEXES, names.SNAPSHOT, SUFFIX_07))
        raise ToolError(f"{path} is neither a file of a log (names end in {suffixes}) nor a checkpoint.")


def _check_against_log(path: Path, report: Report) -> None:
    """Check a file whose content can only be compared with its log: read the log, but report only problems of this
    file. Raises ToolError if the log is missing or damaged."""
    directory = path.parent
    if path.suffix in names.INDEXES[:2]:
        log = path.with_suffix(names.LOG)
        if not log.exists():
            raise ToolError(f"{path} cannot be checked: {log.name} is not in the same directory.")
        segments = [(base_offset_of(log), log)]
    else:
        segments = segments_in(directory)
        if not segments:
            raise ToolError(f"{path} cannot be checked: there are no .log files in the same directory.")
    elsewhere: list[Problem] = []

    def found(problem: Problem) -> None:
        if problem.path == path:
            report.add(path, problem.sentence, position=problem.position, offset=problem.offset)
        elif problem.path.suffix == names.LOG:
            elsewhere.append(problem)

    inner = Report(found)
    if path.suffix in names.INDEXES[:2]:
        check_segment(segments[0][1], segments[0][0], inner)
    else:
        check_partition(directory, inner)
    report.checked(path)
    if elsewhere:
        raise ToolError(f"{path} cannot be checked against a damaged log. {elsewhere[0].line}")
