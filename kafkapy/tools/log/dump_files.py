"""`kafkapy log dump`: what is in the files of a partition, as Kafka's `DumpLogSegments` prints it.

Reads .log (message format 2), .index, .timeindex, .txnindex and .snapshot. Findings of the kinds that Kafka's tool
reports (index entries that do not fit the log, gaps between offsets) are gathered and shown at the end on standard
error. Files are streamed: memory holds a chunk or one batch, whatever the size of the file.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafkapy.record.batch import Record, records_of
from kafkapy.tools.errors import ToolError
from kafkapy.tools.log import dump_json, dump_text
from kafkapy.tools.log.dump_indexes import (
    check_offset_index,
    check_time_index,
    sanity_of_offset_index,
    sanity_of_time_index,
)
from kafkapy.tools.log.findings import Findings
from kafkapy.tools.log.segment_files import (
    LogReader,
    StoredBatch,
    aborted_transactions,
    base_offset_of,
    producer_entries,
)

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@dataclass(frozen=True)
class DumpOptions:
    """The switches of Kafka's tool that are known here; `max_bytes` limits how much of each .log file is read."""

    deep_iteration: bool = False
    print_data_log: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    skip_record_metadata: bool = False
    max_bytes: int | None = None
    as_json: bool = False

    @property
    def deep(self) -> bool:
        return self.deep_iteration or self.print_data_log


@dataclass
class Dump:
    """One run: `write` takes lines of standard output, `progress` the number of bytes read so far of all files."""

    options: DumpOptions
    write: Callable[[str], object]
    progress: Callable[[int], object] = lambda _: None
    findings: Findings = field(default_factory=Findings)

    def run(self, files: Iterable[Path]) -> Findings:
        """Dumps file by file; one that cannot be read becomes a finding, and the next one follows."""
        done = 0
        for path in files:
            self._done_before = done
            try:
                self._file(path)
            except ToolError as error:
                self.findings.failed(str(error))
            except BrokenPipeError:  # not of the file: whoever reads our output has seen enough
                raise
            except OSError as error:
                self.findings.failed(f"{path} could not be read: {error.strerror or error}.")
            done += path.stat().st_size if path.exists() else 0
            self.progress(done)
        return self.findings

    def _file(self, path: Path) -> None:
        if path.suffix not in SUFFIXES:
            raise ToolError(f"{path} is not a segment file: names end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}.")
        base_offset = base_offset_of(path)
        self._text(f"Dumping {path}")
        if path.suffix == ".log":
            self._log(path, base_offset)
        elif path.suffix == ".index":
            self._offset_index(path, base_offset)
        elif path.suffix == ".timeindex":
            self._time_index(path, base_offset)
        elif path.suffix == ".txnindex":
            for aborted in aborted_transactions(path):
                self._line(dump_text.aborted_line, dump_json.aborted_object, path, aborted)
        else:
            for producer in producer_entries(path):
                self._line(dump_text.producer_line, dump_json.producer_object, path, producer)

    def _log(self, path: Path, base_offset: int) -> None:
        self._text(f"Log starting offset: {base_offset}")
        end = 0
        previous: int | None = None
        with LogReader(path, self.options.max_bytes) as log:
            try:
                for number, batch in enumerate(log.batches()):
                    end = batch.position + batch.header.size
                    previous = self._batch(path, number, batch, previous)
                    self.progress(self._done_before + end)
                if log.size > end and self.options.max_bytes is None:
                    self.findings.invalid_tail(str(path), end, log.size - end)
            finally:
                if log.size > end and self.options.max_bytes is None:
                    self._text(f"Found {log.size - end} invalid bytes at the end of {path.name}")

    def _batch(self, path: Path, number: int, batch: StoredBatch, previous: int | None) -> int | None:
        """Shows one batch; returns the offset of the last record seen so far, to find gaps."""
        valid = batch.crc_is_right
        if not valid:
            self.findings.bad_crc(str(path), batch.position, batch.header.base_offset)
        shown = dump_json.batch_object(path.name, number, batch, valid=valid) if self.options.as_json else {}
        if not self.options.as_json:
            self.write(dump_text.batch_line(batch, valid=valid))
        if self.options.deep:
            shown["records"] = []
            try:
                for record in records_of(batch.data, batch.header):
                    if previous is not None and record.offset != previous + 1:
                        self.findings.gap(str(path), previous, record.offset)
                    previous = record.offset
                    self._record(batch, record, shown["records"])
            except ValueError as error:
                self.findings.failed(
                    f"{path} is damaged: the records of the batch at position {batch.position} (base offset "
                    f"{batch.header.base_offset}) cannot be read: {error}."
                )
        self._json(shown)
        return previous

    def _record(self, batch: StoredBatch, record: Record, objects: list[dict[str, Any]]) -> None:
        contents = self.options.print_data_log
        if self.options.as_json:
            objects.append(dump_json.record_object(batch, record, contents=contents))
        else:
            metadata = not self.options.skip_record_metadata
            self.write(dump_text.record_line(batch, record, metadata=metadata, contents=contents))

    def _offset_index(self, path: Path, base_offset: int) -> None:
        if path.stat().st_size < 8:
            self._text(f"{path} is empty.")
        elif self.options.index_sanity_check:
            sanity_of_offset_index(path, base_offset)
            self._text(f"{path} passed sanity check.")
        else:
            for entry in check_offset_index(path, base_offset, self.findings):
                if not self.options.verify_index_only:
                    self._text(f"offset: {entry.offset} position: {entry.position}")
                    self._json({"type": "offsetIndex", "file": path.name, **entry._asdict()})

    def _time_index(self, path: Path, base_offset: int) -> None:
        if self.options.index_sanity_check:
            sanity_of_time_index(path, base_offset)
            self._text(f"{path} passed sanity check.")
            return
        for entry in check_time_index(path, base_offset, self.findings):
            if not self.options.verify_index_only:
                self._text(f"timestamp: {entry.timestamp} offset: {entry.offset}")
                self._json({"type": "timeIndex", "file": path.name, **entry._asdict()})

    def _line(
        self, as_text: Callable[[Any], str], as_object: Callable[[str, Any], Any], path: Path, it: object
    ) -> None:
        if self.options.as_json:
            self._json(as_object(path.name, it))
        else:
            self.write(as_text(it))

    def _text(self, line: str) -> None:
        if not self.options.as_json:
            self.write(line)

    def _json(self, shown: dict[str, Any]) -> None:
        if self.options.as_json:
            self.write(json.dumps(shown, ensure_ascii=False, separators=(",", ":")))


def files_in(paths: Iterable[Path]) -> list[Path]:
    """The files to dump: a directory stands for its non-empty segment files in the order of their names."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES and p.stat().st_size > 0)
            if not inside:
                raise ToolError(f"{path} has no segment files with something in them ({', '.join(SUFFIXES)}).")
            found.extend(inside)
        elif path.exists():
            found.append(path)
        else:
            raise ToolError(f"{path} does not exist.")
    return found
