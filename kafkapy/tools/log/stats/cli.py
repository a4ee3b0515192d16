"""The command `kafkapy log stats`: counts the content of segment files."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from kafkapy.log.offline.places import Place, places_in
from kafkapy.log.offline.selection import INTERNAL, is_asked
from kafkapy.tools.common.options import Json
from kafkapy.tools.common.output import counted, print_json, print_table, progress
from kafkapy.tools.common.pictures import FORMATS, picture_file, save
from kafkapy.tools.log.stats.counting import gather
from kafkapy.tools.log.stats.document import document
from kafkapy.tools.log.stats.plot import draw
from kafkapy.tools.log.stats.table import PARTITION_COLUMNS, partition_row, rows
from kafkapy.tools.log.stats.totals import Stats

MIB = 1 << 20


def stats(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH", help="Segment files, partitions, topics or log directories.")
    ],
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also count empty partitions and Kafka's own topics of a log directory.")
    ] = False,
    as_json: Json = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help=f"Also draw a picture: {', '.join(FORMATS)}.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing picture.")] = False,
    top: Annotated[int, typer.Option("--top", min=0, help="How many of the largest keys and producers to name.")] = 10,
    key_memory: Annotated[
        int, typer.Option("--key-memory", metavar="MIB", min=1, help="Memory for the keys of a partition.")
    ] = 32,
) -> None:
    """Count what is in segment files: batches, records, bytes, codecs, offsets, times, producers, keys.

    A topic is named by its directories without the number: data/flights for data/flights-0, data/flights-1 ... In a log
    directory, empty partitions and Kafka's own topics (__consumer_offsets ...) are skipped without --all.

    Keys are counted exactly as long as they fit into --key-memory, 32 bytes each (a million in 32 MiB). With more keys,
    the figures on all keys are estimated from a sample, and the largest keys have lower and upper bounds. "compaction"
    is what compacting everything now would remove. The exit code is 1 if a file is damaged; readable records are
    counted.

    Examples:

        kafkapy log stats data/flights-0

        kafkapy log stats --plot flights.png data/flights

        kafkapy log stats --json data | jq '.partitions[] | select(.gaps > 0) | .name'
    """
    picture = None if plot is None else picture_file(plot, force=force)
    places, left_out = _chosen(places_in(paths), paths, everything)
    total = Stats(places[0].name if len(places) == 1 else ", ".join(map(str, paths)))
    documents: list[dict[str, Any]] = []
    lines: list[Sequence[object]] = []
    done = 0
    with progress("Counting", sum(place.size for place in places), prints_lines=False) as show:
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
        print_json({"total": document(total, top), "partitions": documents, "leftOut": left_out})
    else:
        if len(places) > 1:
            print_table(PARTITION_COLUMNS, lines)
            print()
        print_table((total.name, ""), rows(total, top))
        if sentence := _left_out_sentence(left_out):
            print(f"\n{sentence}")
    if picture is not None:
        save(picture, partial(draw, total))
    for sentence in total.damage:
        print(f"kafkapy: {sentence}", file=sys.stderr)
    if total.damage:
        raise typer.Exit(1)


def _chosen(places: list[Place], asked: list[Path], everything: bool) -> tuple[list[Place], dict[str, int]]:
    """Return the partitions to count, and how many are skipped because they are empty or internal.

    A partition is not skipped if the user named it or its topic. If all partitions would be skipped, none is.
    """
    left_out = {"empty": 0, "internal": 0}
    chosen = []
    for place in places:
        if everything or is_asked(place, asked) or (place.size and place.topic not in INTERNAL):
            chosen.append(place)
        else:
            left_out["internal" if place.topic in INTERNAL else "empty"] += 1
    return (chosen, left_out) if chosen else (places, dict.fromkeys(left_out, 0))


def _left_out_sentence(left_out: dict[str, int]) -> str:
    """Return a sentence about the number of skipped partitions; empty if none was skipped."""
    found = [counted(count, f"{kind} partition") for kind, count in left_out.items() if count]
    return f"Left out: {' and '.join(found)} (--all counts them too)." if found else ""
