"""The command `kafkapy spark`: loads topics into Parquet files with Spark, exactly once."""

import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.common.interrupts import until_interrupted
from kafkapy.tools.common.options import (
    DEFAULT_SERVER,
    CommandConfig,
    Servers,
    key_values,
    security_of_file,
    timestamp_of,
)
from kafkapy.tools.common.output import counted, print_table, progress, utf_8
from kafkapy.tools.common.times import duration_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkapy.spark.load import AvroValues, JsonValues, Progress, Settings, Summary

MIB = 1 << 20
QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "FATAL"}


app = typer.Typer(no_args_is_help=True, help="Load topics into Parquet with Spark.")


@app.callback()
def _spark() -> None:
    """Load topics into Parquet with Spark."""


@app.command("load")
def load(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...")],
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="The directory of the files, which all workers must see.")
    ],
    start: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Begin with the first record at or after this time.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="End before the first record at or after this time.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Load everything from --from on again, and replace its rows.")
    ] = False,
    as_json: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="COLUMNS|FILE",
            help="Values are JSON objects; their columns: 'carrier STRING, delay INT'.",
        ),
    ] = None,
    avro: Annotated[
        list[str] | None,
        typer.Option(
            "--avro",
            metavar="FILE",
            help="Values are Avro with the schema in FILE. ID=FILE: values begin with the five bytes of a registry, "
            "and FILE has the schema with this id (may be repeated; the last one defines the columns). any=FILE: the "
            "schema for all ids.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Fail at a value that does not fit; without this it is written to rejected/."),
    ] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Add the records' headers to the rows.")] = False,
    prefix: Annotated[
        str,
        typer.Option(
            "--prefix", metavar="TEXT", help="Prefix of the columns of the record itself, such as its offset."
        ),
    ] = "",
    uncommitted: Annotated[
        bool, typer.Option("--read-uncommitted", help="Also load records of open and aborted transactions.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new records, until Ctrl-C.")] = False,
    every: Annotated[
        str,
        typer.Option(
            "--every", metavar="TIME", help="How often --follow loads: each time may write one file per date."
        ),
    ] = "30s",
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Continue if records were deleted before they were loaded.")
    ] = False,
    batch_rows: Annotated[
        int, typer.Option("--batch-rows", min=1, metavar="N", help="Records that become visible at once.")
    ] = 4_000_000,
    file_mib: Annotated[
        int, typer.Option("--file-size", min=1, metavar="MIB", help="The approximate size limit of a file.")
    ] = 256,
    compact_files: Annotated[
        int, typer.Option("--compact-files", min=2, metavar="N", help="Merge this many small files of a date into one.")
    ] = 16,
    no_compact: Annotated[bool, typer.Option("--no-compact", help="Do not merge small files.")] = False,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="DIR", help="Where the state is kept, instead of DIR.kafkapy.")
    ] = None,
    master: Annotated[
        str,
        typer.Option(
            "--master", metavar="URL", help="local[4], spark://host:7077, yarn, ... or sc://host for Connect."
        ),
    ] = "local[*]",
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
    ] = None,
    summary_file: Annotated[
        Path | None,
        typer.Option("--summary", metavar="FILE", help="Also write the summary as JSON; -: to standard output."),
    ] = None,
    servers: Servers = DEFAULT_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Load topics into Parquet files, a directory for each topic and date (UTC), each record exactly once.

    Run it again to load new records. It may be killed at any moment: the next run continues, no row is lost or
    duplicated, and readers of the Parquet files see complete files only. Ctrl-C and SIGTERM end it after the current
    batch, with exit code 130; with --follow it is 0, with --again 1, and nothing is replaced. The state is kept in
    DIR.kafkapy, next to DIR, and so are values that do not fit --json or --avro (rejected/: topic, partition, offset,
    reason).

    Times are as in 2024-01-31T12:00:00Z, or @MILLISECONDS.

    Examples:

        kafkapy spark load flights --to landed

        kafkapy spark load flights --to landed --json 'carrier STRING, dep_delay INT' --follow

        kafkapy spark load flights --to landed --json columns.ddl --again --from 2024-01-31 --until 2024-02-01
    """
    start_ms, end_ms = _time("--from", start), _time("--until", until)
    every_ms = duration_of("--every", every)
    spark_conf = key_values("--conf", conf or ())
    _require()
    from kafkapy.spark.load import LoadError, Settings, WrongOption, check_call
    from kafkapy.spark.load import load as run

    try:
        settings = Settings(
            servers,
            isolation="read_uncommitted" if uncommitted else "read_committed",
            values=_values(as_json, avro),
            headers=headers,
            prefix=prefix,
            strict=strict,
            batch_rows=batch_rows,
            file_bytes=file_mib * MIB,
            security=security_of_file(command_config),
        )
        _check(settings)
        check_call(
            topics,
            settings,
            start_ms=start_ms,
            end_ms=end_ms,
            again=again,
            follow_s=every_ms / 1000 if follow else None,
        )
        _require_java(master)
        _topics_are_there(topics, settings)
        with _session(master, spark_conf) as spark, until_interrupted() as stopped, _shown(follow) as show:
            summary = run(
                topics,
                to,
                settings,
                spark=spark,
                start_ms=start_ms,
                end_ms=end_ms,
                again=again,
                follow_s=every_ms / 1000 if follow else None,
                stopped=stopped,
                accept_loss=accept_loss,
                compact_files=None if no_compact else compact_files,
                state=state,
                on_progress=show,
            )
    except WrongOption as error:
        raise CallError(str(error)) from error
    except LoadError as error:
        raise ToolError(str(error)) from error
    from kafkapy.spark.load.state import rejected_of

    _print(summary, to, rejected_of(to, state))
    if summary_file is not None:
        _write(summary, summary_file)
    if stopped.is_set() and not follow:  # not everything may be loaded
        raise KeyboardInterrupt


def _time(option: str, text: str | None) -> int | None:
    try:
        return None if text is None else timestamp_of(text)
    except ValueError as error:
        raise CallError(f"{option} {text!r} is no time, as in 2024-01-31T12:00:00Z or @1706702400000") from error


def _require() -> None:
    """Raise CallError if a library that Spark loads need is not installed. The message says what to install."""
    from kafkapy.spark.requirements import MissingRequirement, check_requirements

    try:
        check_requirements()
    except MissingRequirement as error:
        raise CallError(str(error)) from error


def _require_java(master: str) -> None:
    """Raise CallError if there is no JVM. A Spark Connect server (sc://) has its own, so nothing is checked for it."""
    from kafkapy.spark.requirements import MissingRequirement, check_java

    if not master.startswith("sc://"):
        try:
            check_java()
        except MissingRequirement as error:
            raise CallError(str(error)) from error


def _values(as_json: str | None, avro: list[str] | None) -> "JsonValues | AvroValues | None":
    from kafkapy.spark.load import ANY_ID, AvroValues, JsonValues

    if as_json is not None and avro:
        raise CallError("values are either JSON or Avro: give one of --json and --avro")
    if as_json is not None:
        return JsonValues(_text("--json", Path(as_json)) if _is_file_name(as_json) else as_json)
    if not avro:
        return None
    by_id: list[tuple[int, str]] = []
    for one in avro:
        id, equals, name = one.partition("=")
        if not equals:
            if len(avro) > 1:
                raise CallError("--avro is given more than once, which needs ids: --avro 7=old.avsc --avro 9=new.avsc")
            return AvroValues(plain=_text("--avro", Path(one)))
        if id != "any" and not (id.isascii() and id.isdigit()):
            raise CallError(f"--avro {one!r}: {id!r} is no id of a schema, which is a number, or any")
        by_id.append((ANY_ID if id == "any" else int(id), _text("--avro", Path(name))))
    return AvroValues(by_id=tuple(by_id))


def _is_file_name(text: str) -> bool:
    """Return True if the value of --json is a file name: the file exists, or the text has no space or colon, which
    separate a column's name and type."""
    return not any(mark in text.strip() for mark in " :") or Path(text).is_file()


def _text(option: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise CallError(f"{option}: {path} cannot be read: {reason}") from error


def _check(settings: "Settings") -> None:
    """Raise an error for invalid columns or server addresses. This is done before Spark is started, which takes
    seconds."""
    from kafkapy.client.addresses import parse_addresses
    from kafkapy.spark.load.task import schema_of

    try:
        parse_addresses(settings.servers)
    except ValueError as error:
        raise CallError(f"--bootstrap-server: {error}") from error
    schema_of(settings)


def _topics_are_there(topics: list[str], settings: "Settings") -> None:
    from kafkapy.client.cluster import Cluster
    from kafkapy.spark.load.broker_side import topic_ids

    with Cluster(settings.servers, timeout_s=settings.timeout_s, security=settings.security) as cluster:
        topic_ids(cluster, topics)


@contextmanager
def _session(master: str, conf: dict[str, str]) -> "Iterator[SparkSession]":
    """Context manager that starts a Spark session, or connects to a Spark Connect server, and stops the session at the
    end. Raises ToolError if Spark does not start."""
    remote = master.startswith("sc://")
    _prepare(master)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("kafkapy spark load")
    builder = builder.remote(master) if remote else builder.master(master)
    for key, value in {**({} if remote else QUIET), **conf}.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # py4j, gRPC and PySpark raise many types for a wrong URL or setting
        message = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ToolError(f"Spark did not start with --master {master}: {message.strip()}") from error
    try:
        yield spark
    finally:
        spark.stop()


def _prepare(master: str) -> None:
    """Set Spark's environment variables that are not set yet: this Python interpreter for the workers, and 127.0.0.1
    for a local master."""
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


@contextmanager
def _shown(follow: bool) -> "Iterator[Any]":
    """Context manager that yields a function to call with the progress of a load. It shows a bar on a terminal, or with
    --follow a line for each batch."""
    bar: Any = None
    with ExitStack() as stack:

        def show(now: "Progress") -> None:
            nonlocal bar
            if follow:
                sums = now.summary
                print(f"{counted(sums.rows, 'row')} loaded, {sums.rejected:,} kept aside", file=sys.stderr)
                return
            if bar is None:
                bar = stack.enter_context(progress("Loading", now.total, unit="records", prints_lines=False))
            bar(now.done)

        yield show


def _print(summary: "Summary", to: Path, rejected: Path) -> None:
    print_table(
        ["topic", "partition>", "reached>", "end>", "lag>"],
        [(topic, index, one.reached, one.end, one.lag) for (topic, index), one in sorted(summary.partitions.items())],
    )
    took = max(summary.seconds, 0.001)
    print(
        f"{counted(summary.rows, 'row')} in {counted(summary.files, 'file')} of {summary.bytes:,} bytes are new in "
        f"{to} ({took:.1f} s, {summary.rows / took:,.0f} rows/s)."
    )
    if summary.merged:
        print(f"Compaction reduced the number of files by {summary.merged:,}.")
    if summary.rejected:
        print(f"{counted(summary.rejected, 'value')} did not fit and are kept aside in {rejected}:")
        for reason, count in sorted(summary.reasons.items(), key=lambda item: -item[1])[:10]:
            print(f"  {count:,} x {reason}")
    for (topic, index), offsets in sorted(summary.lost.items()):
        print(f"kafkapy: {topic}-{index}: {offsets:,} offsets were deleted before they were loaded.", file=sys.stderr)


def _write(summary: "Summary", path: Path) -> None:
    document = {
        "rows": summary.rows,
        "bytes": summary.bytes,
        "files": summary.files,
        "rejected": summary.rejected,
        "reasons": summary.reasons,
        "seconds": round(summary.seconds, 3),
        "partitions": [
            {
                "topic": topic,
                "partition": index,
                "reached": one.reached,
                "end": one.end,
                "lag": one.lag,
                "lost": summary.lost.get((topic, index), 0),
            }
            for (topic, index), one in sorted(summary.partitions.items())
        ],
    }
    text = json.dumps(document, ensure_ascii=False) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
        return
    try:
        path.write_bytes(utf_8(text))
    except OSError as error:
        raise ToolError(f"--summary: {path} cannot be written: {error.strerror}") from error
