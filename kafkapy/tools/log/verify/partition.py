"""Checks the directory of a partition: its segments in order, and the other files in it."""

from functools import partial
from pathlib import Path
from typing import NamedTuple

from kafkapy.log import names
from kafkapy.log.directories import partition_metadata
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.log.verify.epochs import check_epochs
from kafkapy.tools.log.verify.producers import ProducerCheck
from kafkapy.tools.log.verify.report import Report
from kafkapy.tools.log.verify.segment import CheckedSegment, check_segment
from kafkapy.tools.log.verify.small_files import check_small_file

FAR = 1 << 62
COORDINATORS = ("__consumer_offsets", "__transaction_state")


class CheckedPartition(NamedTuple):
    """The offset range of a checked log: from `start`, the base offset of the first segment, to `end`, which is None if
    it is not known."""

    start: int
    end: int | None


def segments_in(directory: Path) -> list[tuple[int, Path]]:
    """Return (base offset, path) for each .log file in the directory, in ascending order."""
    found = []
    for path in directory.glob(f"*{names.LOG}"):
        offset = names.offset_of(path.name)
        if offset is not None and path.is_file():
            found.append((offset, path))
    return sorted(found)


def check_partition(directory: Path, report: Report) -> CheckedPartition:
    """Check all files in a partition's directory, and report problems. Return the offset range of the log. Raises
    ToolError if there are no segments; OSError."""
    segments = segments_in(directory)
    if not segments:
        raise ToolError(f"{directory} has no segments (.log files): is it the directory of a partition?")
    _check_names(directory, segments, report)
    small = directory / partition_metadata.NAME
    if small.exists():  # brokers before 2.8 wrote none
        check_small_file(small, report)
    snapshots = _snapshots_in(directory)
    parsed = names.parse_dir_name(directory.name)
    by_coordinator = parsed is not None and parsed.topic in COORDINATORS
    producers = ProducerCheck(report, by_coordinator=by_coordinator)
    start = segments[0][0]
    if start in snapshots:
        producers.begin(snapshots[start])
    checked: list[CheckedSegment] = []
    for number, (base, path) in enumerate(segments):
        following = segments[number + 1][0] if number + 1 < len(segments) else None
        try:
            found = check_segment(
                path,
                base,
                report,
                expected=checked[-1].next_offset if checked else -1,
                follow=partial(producers.follow, path),
            )
        except FileNotFoundError:
            if path.exists():
                raise
            # A broker has deleted the segment since the directory was listed, or has cleaned it into an earlier one.
            # Even the last segment: retention rolls the log to delete it, and a topic is deleted with all segments.
            # Transactions that were open before it may have ended in it, so the state of the producers is not known.
            producers = ProducerCheck(report, by_coordinator=by_coordinator)
            if following is not None:
                producers.missing_before(following)
            continue
        if following is None:
            following = found.next_offset
        _check_between(checked[-1] if checked else None, found, report)
        checked.append(found)
        producers.segment_ends(path, FAR if found.grown else following)
        if not found.is_valid or following > found.next_offset:
            producers.missing_before(following)
        # A snapshot at a base offset is the state before that segment; a clean stop writes one at the log's end.
        if following in snapshots and following != start and snapshots[following].exists():
            producers.snapshot(snapshots.pop(following), following, start)
    _check_other_snapshots(snapshots, report)
    last = checked[-1] if checked and checked[-1].path == segments[-1][1] else None  # else the log ends further on
    end = last.next_offset if last is not None and last.readable and not last.grown else None
    check_epochs(directory, [run for one in checked for run in one.epochs], end, report)
    return CheckedPartition(start, end)


def _check_between(before: CheckedSegment | None, found: CheckedSegment, report: Report) -> None:
    if before is not None and before.next_offset > found.base_offset:
        report.add(
            before.path,
            f"has offsets up to {before.next_offset - 1}, but the next segment begins at {found.base_offset}",
            offset=before.next_offset - 1,
        )


def _check_names(directory: Path, segments: list[tuple[int, Path]], report: Report) -> None:
    """Report index files without a segment, which a starting broker deletes, and segments without an offset index,
    which it rebuilds."""
    for _, path in segments:
        index = path.with_suffix(names.OFFSET_INDEX)
        # A broker that deletes a segment renames the .log file first: if that is still there, the index is missing.
        if not index.exists() and path.exists() and path.stat().st_size:
            report.add(index, f"is missing, {path.name} exists")
    bases = {base for base, _ in segments}
    for path in sorted(directory.iterdir()):
        offset = names.offset_of(path.name) if path.suffix in names.INDEXES else None
        if offset is None or offset in bases:
            continue
        # A broker may have rolled the log, or deleted a segment, since its .log files were listed.
        if path.exists() and not path.with_suffix(names.LOG).exists():
            report.add(path, "belongs to no segment: the .log file of that offset is missing")


def _snapshots_in(directory: Path) -> dict[int, Path]:
    found = {}
    for path in directory.glob(f"*{names.SNAPSHOT}"):
        offset = names.offset_of(path.name)
        if offset is not None:
            found[offset] = path
    return found


def _check_other_snapshots(snapshots: dict[int, Path], report: Report) -> None:
    """Check the content of the remaining producer snapshots. They are not compared with the log, because their offsets
    are not between two readable batches."""
    alone = ProducerCheck(report, by_coordinator=False)
    for offset, path in sorted(snapshots.items()):
        if path.exists():  # a broker may have deleted it with its segment
            alone.snapshot(path, max(offset, 1), FAR)
