"""The command `kafkapy log dump` and its options. The module `files` does the work."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from kafkapy.log.offline.index_files import size_to_read
from kafkapy.tools.common.errors import CallError
from kafkapy.tools.common.output import progress, utf_8
from kafkapy.tools.log.decoders.options import (
    KeyDecoding,
    OffsetsDecoding,
    TransactionsDecoding,
    ValueDecoding,
    decoder_of,
)
from kafkapy.tools.log.decoders.values import DEFAULT, compact
from kafkapy.tools.log.dump.files import Dump, files_in
from kafkapy.tools.log.dump.options import DumpOptions


def dump(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Files, or partition directories.", show_default=False),
    ] = None,
    files: Annotated[
        str | None,
        typer.Option("--files", metavar="F1,F2", help="Files, separated by commas, as Kafka's tool takes them."),
    ] = None,
    print_data_log: Annotated[bool, typer.Option("--print-data-log", help="Also print keys and values.")] = False,
    deep_iteration: Annotated[
        bool, typer.Option("--deep-iteration", help="Also print the records of each batch.")
    ] = False,
    verify_index_only: Annotated[
        bool, typer.Option("--verify-index-only", help="Only check index entries; do not print them.")
    ] = False,
    index_sanity_check: Annotated[
        bool, typer.Option("--index-sanity-check", help="Only make the check that the broker makes at start.")
    ] = False,
    skip_record_metadata: Annotated[
        bool, typer.Option("--skip-record-metadata", help="Print only keys and values of records.")
    ] = False,
    offsets_decoder: OffsetsDecoding = False,
    transaction_log_decoder: TransactionsDecoding = False,
    key_decoder: KeyDecoding = None,
    value_decoder: ValueDecoding = None,
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", min=0, help="How much of each .log file to read.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line, for programs.")] = False,
) -> None:
    """Print the content of .log, .index, .timeindex, .txnindex and .snapshot files, as Kafka's DumpLogSegments does.

    Reads all message formats, also segments of Kafka 0.7 (.kafka), and checkpoints, partition.metadata and
    meta.properties. A log directory means all these files in it. A decoder implies --print-data-log; a FUNCTION gets
    the bytes and returns what to show.

    The exit code is 1 if a file is damaged: a wrong CRC, bytes that are no batch, an index entry that does not match.

    Examples:

        kafkapy log dump --print-data-log flights-0/00000000000000000000.log

        kafkapy log dump --verify-index-only flights-0

        kafkapy log dump --print-data-log --json flights-0 | jq '.records[].value'

        kafkapy log dump --offsets-decoder __consumer_offsets-12
    """
    given = [*(paths or ()), *(Path(name) for name in (files or "").split(",") if name)]
    if not given:
        raise CallError("log dump needs a file or a directory, as in: kafkapy log dump flights-0")
    decoder = decoder_of(offsets_decoder, transaction_log_decoder, key_decoder, value_decoder)
    options = DumpOptions(
        deep_iteration=deep_iteration,
        print_data_log=print_data_log or decoder is not DEFAULT,
        verify_index_only=verify_index_only,
        index_sanity_check=index_sanity_check,
        skip_record_metadata=skip_record_metadata,
        max_bytes=max_bytes,
        as_json=as_json,
        decoder=decoder,
    )
    found = files_in(given)
    # Written as bytes: lines are UTF-8 in every locale, and encoding by the text layer would slow down large logs.
    out = sys.stdout.buffer
    with progress("Reading", sum(map(size_to_read, found))) as show:
        findings = Dump(options, lambda line: out.write(utf_8(line) + b"\n"), show).run(found)
    if as_json:
        for finding in findings.objects():
            out.write(utf_8(compact(finding)) + b"\n")
    out.flush()
    for line in [] if as_json else findings.lines():
        print(line, file=sys.stderr)
    if findings.damaged:
        raise typer.Exit(1)
