"""Prints the content of files as Kafka's `DumpLogSegments` does.

Problems that Kafka's tool reports at its end (index entries that do not match the log, gaps between offsets) are
collected as Findings.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from kafkapy.log.names import parse_dir_name
from kafkapy.log.offline import files_07
from kafkapy.log.offline.errors import OfflineError
from kafkapy.log.offline.index_files import aborted_transactions, offset_entries, producer_entries, size_to_read
from kafkapy.log.offline.stored_batches import base_offset_of
from kafkapy.tools.common.errors import ToolError
from kafkapy.tools.log.dump import json_lines, text
from kafkapy.tools.log.dump.checkpoints import DUMPS, dump_checkpoint
from kafkapy.tools.log.dump.findings import Findings
from kafkapy.tools.log.dump.indexes import (
    check_offset_index,
    check_time_index,
    sanity_of_offset_index,
    sanity_of_time_index,
)
from kafkapy.tools.log.dump.kafka_07 import dump_07
from kafkapy.tools.log.dump.options import DumpOptions, Output
from kafkapy.tools.log.dump.segment import dump_log

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", files_07.SUFFIX)


class Dump:
    """Prints the content of several files. `write` gets each line of output, `progress` the number of bytes read so
    far."""

    def __init__(
        self,
        options: DumpOptions,
        write: Callable[[str], object],
        progress: Callable[[int], object] = lambda _: None,
    ) -> None:
        self._out = Output(options, write, progress)

    def run(self, files: Iterable[Path]) -> Findings:
        """Print the content of the files one by one, and return the findings. A file that cannot be read becomes a
        finding, and the next file follows."""
        out = self._out
        for path in files:
            try:
                self._file(path)
            except (ToolError, OfflineError) as error:
                out.findings.failed(str(error))
            except BrokenPipeError:  # from standard output, not from the file: its reader has closed the pipe
                raise
            except OSError as error:
                out.findings.failed(f"{path} could not be read: {error.strerror or error}.")
            out.done_before += size_to_read(path) if path.exists() else 0
            out.advance(0)
        return out.findings

    def _file(self, path: Path) -> None:
        if path.name in DUMPS:
            self._out.text(f"Dumping {path}")
            dump_checkpoint(path, self._out)
            return
        if path.suffix not in SUFFIXES:
            suffixes = ", ".join(SUFFIXES)
            raise ToolError(f"{path} is not a segment file (names end in {suffixes}), and not a checkpoint either.")
        base_offset = base_offset_of(path)
        self._out.text(f"Dumping {path}")
        if path.suffix == ".log":
            dump_log(path, base_offset, self._out)
        elif path.suffix == files_07.SUFFIX:
            dump_07(path, base_offset, self._out)
        elif path.suffix == ".index":
            self._offset_index(path, base_offset)
        elif path.suffix == ".timeindex":
            self._time_index(path, base_offset)
        elif path.suffix == ".txnindex":
            for aborted in aborted_transactions(path):
                self._out.either(text.aborted_line(aborted), json_lines.aborted_object(path.name, aborted))
        else:
            for producer in producer_entries(path):
                self._out.either(text.producer_line(producer), json_lines.producer_object(path.name, producer))

    def _offset_index(self, path: Path, base_offset: int) -> None:
        out = self._out
        if next(offset_entries(path, base_offset), None) is None:
            out.text(f"{path} is empty.")
        elif out.options.index_sanity_check:
            sanity_of_offset_index(path, base_offset)
            out.text(f"{path} passed sanity check.")
        else:
            for entry in check_offset_index(path, base_offset, out.findings):
                if not out.options.verify_index_only:
                    line = f"offset: {entry.offset} position: {entry.position}"
                    out.either(line, {"type": "offsetIndex", "file": path.name, **entry._asdict()})

    def _time_index(self, path: Path, base_offset: int) -> None:
        out = self._out
        if out.options.index_sanity_check:
            sanity_of_time_index(path, base_offset)
            out.text(f"{path} passed sanity check.")
            return
        for entry in check_time_index(path, base_offset, out.findings):
            if not out.options.verify_index_only:
                line = f"timestamp: {entry.timestamp} offset: {entry.offset}"
                out.either(line, {"type": "timeIndex", "file": path.name, **entry._asdict()})


def files_in(paths: Iterable[Path]) -> list[Path]:
    """Return the files to dump. A partition's directory stands for its non-empty segment files in the order of their
    names, as Kafka's tool is usually called. A log directory stands for its checkpoints and the files of all
    partitions.

    Raises ToolError for a path that does not exist and for a directory without such files.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found.extend(_segments_in(path) or _all_in(path))
        elif path.exists():
            found.append(path)
        else:
            raise ToolError(f"{path} does not exist.")
    return found


def _segments_in(directory: Path) -> list[Path]:
    return sorted(p for p in directory.iterdir() if p.suffix in SUFFIXES and p.stat().st_size > 0)


def _all_in(directory: Path) -> list[Path]:
    found = sorted(directory / name for name in DUMPS if (directory / name).is_file())
    for inside in sorted(directory.iterdir()):
        if inside.is_dir() and (parse_dir_name(inside.name) or files_07.partition_of_07(inside.name)):
            found += sorted(inside / name for name in DUMPS if (inside / name).is_file())
            found += _segments_in(inside)
    if not found:
        raise ToolError(f"{directory} has no segment files with something in them ({', '.join(SUFFIXES)}).")
    return found
