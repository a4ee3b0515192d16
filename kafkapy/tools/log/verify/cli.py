"""The command `kafkapy log verify`: checks that every byte of a log is valid, and reports where it is not."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from kafkapy.tools.common.errors import CallError, ToolError, fail_if_any
from kafkapy.tools.common.output import counted, progress
from kafkapy.tools.log.decoders.values import compact
from kafkapy.tools.log.verify.paths import check_path, is_partition, size_of
from kafkapy.tools.log.verify.report import Problem, Report


def verify(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH", help="Files, partition directories or log directories.", show_default=False),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line, for programs.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Then recover damaged partitions, as a starting broker does.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --repair: do not ask.")] = False,
) -> None:
    """Check every checksum, every record, index entries, offset and sequence order, transaction indexes, producer
    snapshots, leader epochs and checkpoints, in all message formats.

    Prints where something is wrong; then the exit code is 1. --repair truncates a damaged log after its last valid
    batch, deletes the segments after it, and rebuilds its indexes. It is refused while a broker runs on the directory.

    Examples:

        kafkapy log verify /var/lib/kafkapy

        kafkapy log verify flights-0/00000000000000000000.log

        kafkapy log verify --repair /var/lib/kafkapy/flights-0
    """
    if repair and not yes and not sys.stdin.isatty():
        raise CallError("--repair asks before it changes anything; without a terminal, say --yes")
    report = _check(paths, as_json)
    if not report.problems:
        return
    if not repair:
        raise typer.Exit(1)
    _repair(paths, report, as_json, yes)


def _check(paths: list[Path], as_json: bool) -> Report:
    """Check the files at the paths. Print problems as they are found, and a summary at the end. Return the report."""
    out = sys.stdout

    def show(problem: Problem) -> None:
        advance.hide()
        out.write((compact(problem.object) if as_json else problem.line) + "\n")
        out.flush()

    with progress("Checking", sum(map(size_of, paths)), prints_lines=False) as advance:
        report = Report(show, advance)
        for path in paths:
            check_path(path, report)
    for path, more in report.not_shown():
        if not as_json:
            out.write(f"{path}: {more} problems more.\n")
    summary = report.summary()
    if as_json:
        out.write(compact(summary) + "\n")
    else:
        found = {0: "no problem found", 1: "1 problem"}.get(report.problems, f"{report.problems} problems")
        out.write(
            f"Checked {counted(report.files, 'file')}, {report.bytes:,} bytes, {counted(report.batches, 'batch')}, "
            f"{counted(report.records, 'record')}: {found}.\n"
        )
    out.flush()
    return report


def _repair(paths: list[Path], report: Report, as_json: bool, yes: bool) -> None:
    from kafkapy.tools.log.verify import repair

    files = report.damaged_files()
    damaged = sorted(path for path in files if is_partition(path))
    if not damaged:
        raise ToolError("Nothing of this can be repaired: it is not in a partition's directory.")
    if not yes:
        print("To be recovered; everything after the first damage of a log is deleted:", file=sys.stderr)
        for path in damaged:
            print(f"  {path}", file=sys.stderr)
        if not typer.confirm("Continue?", err=True):
            raise ToolError("Nothing was changed.")
    refused: list[str] = []
    for log_dir in sorted({path.absolute().parent for path in damaged}):
        with repair.locked(log_dir):
            for path in damaged:
                if path.absolute().parent == log_dir:
                    try:
                        message = repair.repair(path.absolute(), files[path])
                    except ToolError as error:
                        refused.append(str(error).rstrip("."))
                    else:
                        print(compact({"type": "repair", "message": message}) if as_json else message)
    left = _check(paths, as_json).problems
    fail_if_any(refused)
    if left:
        raise typer.Exit(1)
