"""`kafkapy log stats`: what is in segment files, counted."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from kafkapy.log.offline.places import places_in
from kafkapy.tools.errors import CallError, ToolError
from kafkapy.tools.log.result_file import ResultFile
from kafkapy.tools.log.stats_document import document
from kafkapy.tools.log.stats_gather import Stats, gather
from kafkapy.tools.log.stats_plot import FORMATS, draw, plotting
from kafkapy.tools.log.stats_table import PARTITION_COLUMNS, partition_row, rows
from kafkapy.tools.options import Json
from kafkapy.tools.output import print_json, print_table, progress

MIB = 1 << 20


def stats(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH", help="Segment files, partitions, topics or log directories.")
    ],
    as_json: Json = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help=f"Draw it too: {', '.join(FORMATS)}.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the picture if it is there.")] = False,
    top: Annotated[int, typer.Option("--top", min=0, help="How many of the largest keys and producers to name.")] = 10,
    key_memory: Annotated[
        int, typer.Option("--key-memory", metavar="MIB", min=1, help="Memory for the keys of a partition.")
    ] = 32,
) -> None:
    """Count what is in segment files: batches, records, bytes, codecs, offsets, times, producers, keys.

    A topic is named by its directories without the number: data/flights for data/flights-0, data/flights-1 ...
    Keys are counted exactly as long as they fit into --key-memory, 32 bytes each (a million in 32 MiB); from then on
    what is said of all keys is an estimate from a sample of them, and of the largest keys it is said what they have
    at least and at most. "compaction" is what would be gone if everything were compacted now. The exit code is 1 if
    a file is damaged; what is readable is counted.

    Examples:

        kafkapy log stats data/flights-0

        kafkapy log stats --plot flights.png data/flights

        kafkapy log stats --json data | jq '.partitions[] | select(.gaps > 0) | .name'
    """
    picture = _picture(plot, force)
    places = places_in(paths)
    total = Stats(places[0].name if len(places) == 1 else ", ".join(map(str, paths)))
    documents: list[dict[str, Any]] = []
    lines: list[Sequence[object]] = []
    done = 0
    with progress("Counting", sum(place.size for place in places), beside_lines=False) as show:
        for place in places:
            part = gather(place, key_memory * MIB, lambda at, before=done: show(before + at))  # type: ignore[misc]
            done += place.size
            if as_json:
                documents.append(document(part, top))
            else:
                lines.append(partition_row(part))
            if len(places) > 1:
                total.add(part)
            else:
                total = part
    if as_json:
        print_json({"total": document(total, top), "partitions": documents})
    else:
        if len(places) > 1:
            print_table(PARTITION_COLUMNS, lines)
            print()
        print_table((total.name, ""), rows(total, top))
    if plot and picture:
        _draw(total, picture, plot.suffix[1:])
    for sentence in total.damage:
        print(f"kafkapy: {sentence}", file=sys.stderr)
    if total.damage:
        raise typer.Exit(1)


def _picture(plot: Path | None, force: bool) -> ResultFile | None:
    """The file of --plot, refused before the work where it could not be written after it."""
    if plot is None:
        return None
    if plot.suffix[1:] not in FORMATS:
        raise CallError(f"--plot {plot}: the name has to end in .{', .'.join(FORMATS)}")
    plotting()
    return ResultFile(plot, force=force)


def _draw(total: Stats, picture: ResultFile, kind: str) -> None:
    try:
        with picture:
            draw(total, picture.file, kind)
            picture.commit()
    except OSError as error:
        raise ToolError(f"{picture.path} could not be written: {error.strerror or error}") from error
    print(f"The picture is in {picture.path}.", file=sys.stderr)
