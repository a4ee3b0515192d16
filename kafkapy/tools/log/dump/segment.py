"""Prints the content of a .log file: its batches and their records."""

from pathlib import Path
from typing import Any

from kafkapy.log.offline.stored_batches import LogReader, StoredBatch
from kafkapy.record.records import Record
from kafkapy.tools.log.decoders.values import DEFAULT, Shown
from kafkapy.tools.log.dump import json_lines, text
from kafkapy.tools.log.dump.options import Output


def dump_log(path: Path, base_offset: int, out: Output) -> None:
    """Print the batches of a .log file. Memory holds one chunk or one batch, whatever the size of the file. Raises
    ToolError."""
    out.text(f"Log starting offset: {base_offset}")
    end = 0
    previous: int | None = None
    whole = out.options.max_bytes is None
    with LogReader(path, out.options.max_bytes) as log:
        try:
            for number, batch in enumerate(log.batches()):
                end = batch.end
                previous = _batch(path, number, batch, previous, out)
                out.advance(end)
            if log.size > end and whole and not log.has_grown:
                out.findings.invalid_tail(str(path), end, log.size - end)
        finally:
            if log.size > end and whole and not log.has_grown:
                out.text(f"Found {log.size - end} invalid bytes at the end of {path.name}")


def _batch(path: Path, number: int, batch: StoredBatch, previous: int | None, out: Output) -> int | None:
    """Print a batch. Return the offset of the last record printed so far, or None: the next record should follow it,
    else there is a gap."""
    valid = batch.crc_is_right
    as_json = out.options.as_json
    if not valid:
        out.findings.bad_crc(str(path), batch)
    shown = json_lines.batch_object(path.name, number, batch, valid=valid) if as_json else {}
    if not as_json:
        out.write(text.batch_line(batch, valid=valid))
    if out.options.deep:
        shown["records"] = []
        try:
            records = batch.records()
            checksums = batch.checksums() if batch.header.magic < 2 and not as_json else None
            if records and as_json and shown["baseOffset"] is None:
                shown["baseOffset"] = records[0].offset
            for place, record in enumerate(records):
                if previous is not None and record.offset != previous + 1:
                    out.findings.gap(str(path), previous, record.offset)
                previous = record.offset
                _record(path, batch, record, checksums[place] if checksums else None, shown["records"], out)
        except ValueError as error:
            out.findings.failed(f"{path} is damaged: the records of the {batch.place} cannot be read: {error}.")
    out.json(shown)
    return previous


def _record(
    path: Path,
    batch: StoredBatch,
    record: Record,
    checksum: tuple[bool, int] | None,
    objects: list[dict[str, Any]],
    out: Output,
) -> None:
    shown = _decoded(path, batch, record, out) if out.options.print_data_log else None
    if out.options.as_json:
        objects.append(json_lines.record_object(batch, record, shown))
    else:
        metadata = not out.options.skip_record_metadata
        out.write(text.record_line(batch, record, shown, checksum, metadata=metadata))


def _decoded(path: Path, batch: StoredBatch, record: Record, out: Output) -> Shown:
    """Return the decoded key and value of a record. If the decoder rejects them, add a finding and return them as the
    default decoder shows them."""
    decoder = DEFAULT if batch.header.is_control else out.options.decoder
    try:
        return decoder.objects(record) if out.options.as_json else decoder.text(record)
    except ValueError as error:
        out.findings.undecoded(str(path), record.offset, str(error))
        return DEFAULT.objects(record) if out.options.as_json else DEFAULT.text(record)
