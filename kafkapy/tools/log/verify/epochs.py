"""Checks the file `leader-epoch-checkpoint` against the leader epochs in the batches."""

from bisect import bisect_right
from itertools import pairwise
from pathlib import Path

from kafkapy.log import leader_epochs
from kafkapy.log.directories.checkpoints import CheckpointError, numbers, parse_lines
from kafkapy.tools.log.verify.report import Report
from kafkapy.tools.log.verify.segment import EpochRun

NAME = leader_epochs.NAME


def check_epochs(directory: Path, runs: list[EpochRun], next_offset: int | None, report: Report) -> None:
    """Check a partition's leader-epoch-checkpoint against `runs`, the leader epochs in the batches of all its segments
    in order.

    Batches of epoch -1 (from followers of old brokers, or from tools) are not compared. `next_offset` is the log end
    offset, or None if it is not known. Offsets below the first start offset in the file may have any older epoch,
    because the file drops epochs that end before the log start offset.
    """
    path = directory / NAME
    known_runs = [run for run in runs if run.epoch >= 0]
    if not path.exists():
        if known_runs and directory.exists():  # else a broker has deleted or moved the whole partition
            first = known_runs[0]
            report.add(path, f"is missing, and batches from offset {first.first_offset} on have epoch {first.epoch}")
        return
    report.checked(path)
    entries = read_epochs(path, report)
    if entries is None:
        return
    for (epoch, start), (following, following_start) in pairwise(entries):
        if following <= epoch or following_start < start:
            report.add(path, f"has epoch {following} from offset {following_start} after epoch {epoch} from {start}")
            return
    if entries and next_offset is not None and entries[-1][1] > next_offset:
        report.add(path, f"has epoch {entries[-1][0]} from offset {entries[-1][1]}, but the log ends at {next_offset}")
    starts = [start for _, start in entries]
    for run in known_runs:
        for offset in (run.first_offset, run.last_offset):
            slot = bisect_right(starts, offset) - 1
            if slot < 0 and entries and run.epoch <= entries[0][0]:
                continue
            known = entries[slot][0] if slot >= 0 else None
            if known != run.epoch:
                says = "no epoch" if known is None else f"epoch {known}"
                report.add(path, f"has {says} for offset {offset}, its batch has epoch {run.epoch}", offset=offset)
                break


def read_epochs(path: Path, report: Report) -> list[tuple[int, int]] | None:
    """Return (epoch, start offset) for each line of the file. If the file is invalid, report that and return None."""
    try:
        entries = [tuple(numbers(line, 2, str(path))) for line in parse_lines(path.read_bytes(), str(path))]
    except CheckpointError as error:
        report.add(path, str(error).removeprefix(f"{path} "))
        return None
    for epoch, start in entries:
        if epoch < 0 or start < 0:
            report.add(path, f"has epoch {epoch} from offset {start}: neither can be negative")
            return None
    return [(epoch, start) for epoch, start in entries]
