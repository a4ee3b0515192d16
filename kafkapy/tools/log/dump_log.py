"""The dump of a .log file: its batches, and with them their records."""

from pathlib import Path
from typing import Any

from kafkapy.log.offline.stored_batches import LogReader, StoredBatch
from kafkapy.record.batch import Record
from kafkapy.tools.log import dump_json, dump_text
from kafkapy.tools.log.decoders import DEFAULT, Shown
from kafkapy.tools.log.dump_options import Output


def dump_log(path: Path, base_offset: int, out: Output) -> None:
    """Streamed: memory holds a chunk or one batch, whatever the size of the file. Raises ToolError."""
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
            if log.size > end and whole:
                out.findings.invalid_tail(str(path), end, log.size - end)
        finally:
            if log.size > end and whole:
                out.text(f"Found {log.size - end} invalid bytes at the end of {path.name}")


def _batch(path: Path, number: int, batch: StoredBatch, previous: int | None, out: Output) -> int | None:
    """Shows one batch; returns the offset of the last record seen so far, to find gaps."""
    valid = batch.crc_is_right
    as_json = out.options.as_json
    if not valid:
        out.findings.bad_crc(str(path), batch)
    shown = dump_json.batch_object(path.name, number, batch, valid=valid) if as_json else {}
    if not as_json:
        out.write(dump_text.batch_line(batch, valid=valid))
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
        objects.append(dump_json.record_object(batch, record, shown))
    else:
        metadata = not out.options.skip_record_metadata
        out.write(dump_text.record_line(batch, record, shown, checksum, metadata=metadata))


def _decoded(path: Path, batch: StoredBatch, record: Record, out: Output) -> Shown:
    """Key and value; as they would be without a decoder where it does not understand them."""
    decoder = DEFAULT if batch.header.is_control else out.options.decoder
    try:
        return decoder.objects(record) if out.options.as_json else decoder.text(record)
    except ValueError as error:
        out.findings.undecoded(str(path), record.offset, str(error))
        return DEFAULT.objects(record) if out.options.as_json else DEFAULT.text(record)
