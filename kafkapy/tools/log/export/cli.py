"""The command `kafkapy log export`: writes the records of segment files as JSON lines or to a Parquet file."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from kafkapy.log.offline.places import Place, places_in
from kafkapy.log.offline.record_source import RecordSource, Wanted
from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.common.options import timestamp_of
from kafkapy.tools.common.output import progress
from kafkapy.tools.common.output_file import ResultFile
from kafkapy.tools.log.export.sinks import (
    GROUP_BYTES,
    GROUP_ROWS,
    JSON_BYTES,
    JSON_COLUMNS,
    JSON_ROWS,
    PARQUET_COLUMNS,
    TOPIC,
    JsonSink,
    ParquetSink,
    Sink,
)


def export(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH", help="Segment files, partitions, topics or log directories.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines, as consume --json prints them.")] = False,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", metavar="FILE", help="A Parquet file, compressed with zstd.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The file for JSON lines; default: standard output."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--from", "-f", metavar="OFFSET|TIME", help="Only records from this offset or time on."),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", "-t", metavar="OFFSET|TIME", help="Only records before this offset or time.")
    ] = None,
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="Without aborted transactions, and only up to the first open one.")
    ] = False,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="C1,C2", help="Which columns of the Parquet file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write the records of segment files, of any message format, as JSON lines or to a Parquet file.

    A topic is named by its directories without the number: data/flights for data/flights-0, data/flights-1 ...

    --from and --to take an offset (of each partition), an ISO 8601 time (2024-01-31, 2024-01-31T12:00:00Z; UTC if it
    names no zone) or @ and milliseconds since 1970. The exit code is 1 if a file is damaged; readable records are
    written nevertheless.

    Columns of the Parquet file: topic, partition, offset, timestamp (null: none), timestamp_type (0 of the producer, 1
    of the append, -1 none), key, value, headers (key, value), producer_id, producer_epoch, sequence, leader_epoch (-1:
    none).

    Examples:

        kafkapy log export --json data/flights-0 | jq .value

        kafkapy log export --parquet flights.parquet --from 2024-01-01 --to 2024-02-01 data/flights

        kafkapy log export --parquet flights.parquet --columns offset,key,value --read-committed data/flights
    """
    wanted = Wanted(JSON_COLUMNS, JSON_ROWS, JSON_BYTES, read_committed=read_committed)
    wanted = _bounded(wanted, "--from", start, "min_offset", "min_timestamp")
    wanted = _bounded(wanted, "--to", end, "end_offset", "end_timestamp")
    if as_json == (parquet is not None):
        raise CallError("log export needs either --json or --parquet FILE, as in: kafkapy log export --json flights-0")
    if parquet is not None and output is not None:
        raise CallError("--output is where JSON lines go; a Parquet file is named by --parquet itself")
    chosen = _columns(columns, parquet)
    if parquet is not None:
        wanted = replace(wanted, columns=chosen, max_rows=GROUP_ROWS, max_bytes=GROUP_BYTES)
    target = parquet or output
    result = ResultFile(target, force=force) if target else None
    places = places_in(paths)
    if result is None:
        _finish(_copy(places, wanted, JsonSink(sys.stdout.buffer), to_stdout=True), None)
        return
    with result:
        sink = ParquetSink(result.file, chosen) if parquet else JsonSink(result.file)
        try:
            source = _copy(places, wanted, sink, to_stdout=False)
            result.commit()
        except OSError as error:
            sink.give_up()
            raise ToolError(f"{result.path} could not be written: {error.strerror or error}") from error
        except BaseException:
            sink.give_up()
            raise
    _finish(source, f"{sink.rows:,} records are in {result.path} ({result.path.stat().st_size:,} bytes).")


def _copy(places: list[Place], wanted: Wanted, sink: Sink, *, to_stdout: bool) -> RecordSource:
    source = RecordSource(replace(wanted, columns=tuple(name for name in wanted.columns if name != TOPIC)))
    with progress("Exporting", source.work(places), prints_lines=to_stdout) as show:
        source.progress = show
        for place in places:
            for columns in source.read(place):
                sink.write(columns, place)
                del columns  # otherwise its memory would be kept until the next columns are read
        sink.close()
    return source


def _finish(source: RecordSource, line: str | None) -> None:
    if line:
        print(line, file=sys.stderr)
    for sentence in source.damage:
        print(f"kafkapy: {sentence}", file=sys.stderr)
    if source.damage:
        raise typer.Exit(1)


def _columns(text: str | None, parquet: Path | None) -> tuple[str, ...]:
    everything = (TOPIC, *PARQUET_COLUMNS)
    if text is None:
        return everything
    if parquet is None:
        raise CallError("--columns is for --parquet; a line of JSON always has the same fields")
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := set(names) - set(everything):
        raise CallError(f"--columns: there is no column {sorted(unknown)[0]!r}; there are {', '.join(everything)}")
    if not names:
        raise CallError("--columns needs the name of a column, as in --columns offset,key,value")
    return tuple(names)


def _bounded(wanted: Wanted, option: str, text: str | None, offset: str, timestamp: str) -> Wanted:
    """Return `wanted` with the bound that --from or --to gives, an offset or a time. Raises CallError if `text` is
    neither."""
    if text is None:
        return wanted
    bound: dict[str, Any]
    try:
        bound = {offset: int(text)} if text.isascii() and text.isdigit() else {timestamp: timestamp_of(text)}
    except ValueError as error:
        raise CallError(f"{option} {text!r} is neither an offset nor a time as in 2024-01-31T12:00:00Z") from error
    return replace(wanted, **bound)
