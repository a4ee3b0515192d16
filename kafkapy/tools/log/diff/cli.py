"""The command `kafkapy log diff`: compares two replicas of partitions."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from kafkapy.log.offline.errors import OfflineError
from kafkapy.log.offline.places import Place, places_in
from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.common.output import print_table, progress
from kafkapy.tools.log.decoders.values import compact
from kafkapy.tools.log.diff.replicas import Comparison, Replica, compare, replica_of


def diff(
    one: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="A partition, a topic or a log directory.")],
    other: Annotated[Path, typer.Argument(metavar="OTHER", help="The same of another broker.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line, for programs.")] = False,
) -> None:
    """Compare the logs of two replicas: offsets, batches, bytes and leader epochs.

    Offsets that only one replica has, before the other's start (retention) or after its end (it lags), are reported but
    are no difference. The exit code is 1 if records that both should have differ; the first difference is shown. A is
    the first replica.

    Examples:

        kafkapy log diff broker-1/flights-0 broker-2/flights-0

        kafkapy log diff broker-1 broker-2
    """
    pairs, alone = _pairs(one, other)
    total = sum(left.size + right.size for left, right in pairs)
    done = failed = differ = empty = 0
    with progress("Comparing", total, prints_lines=False) as advance:
        for left, right in pairs:
            try:
                found = compare(replica_of(left), replica_of(right), partial(_advanced, advance, done))
            except (ToolError, OfflineError) as error:
                if len(pairs) == 1:
                    raise
                advance.hide()
                print(error, file=sys.stderr)
                failed += 1
                continue
            finally:
                done += left.size + right.size
            advance.hide()
            differ += found.differ
            empty += found.both_empty
            if as_json:
                print(compact(_object(found)))
            elif found.differ or len(pairs) == 1:
                _print(found)
            elif not found.both_empty:
                print(f"{found.one.place.name}: {'. '.join(_sentences(found))}.")
    for sentence in alone:
        print(compact({"type": "alone", "message": sentence}) if as_json else f"{sentence}.")
    if len(pairs) > 1 and not as_json:
        without = f", {empty:,} of them empty" if empty else ""
        print(f"Compared {len(pairs):,} partitions{without}: {_counted(differ, failed)}.")
    if differ or failed:
        raise typer.Exit(1)


def _advanced(advance: Callable[[int], object], before: int, count: int) -> None:
    advance(before + count)


def _pairs(one: Path, other: Path) -> tuple[list[tuple[Place, Place]], list[str]]:
    """Return the pairs of partitions to compare, and a sentence for each partition that only one of the two directories
    has. Raises CallError for a file, ToolError if there is no pair."""
    left, right = places_in([one]), places_in([other])
    for path, places in ((one, left), (other, right)):
        if any(not place.whole for place in places):
            raise CallError(f"log diff compares directories, and {path} is a file")
    if len(left) == len(right) == 1:
        return [(left[0], right[0])], []
    others = {place.name: place for place in right}
    pairs = [(place, others[place.name]) for place in left if place.name in others]
    if not pairs:
        raise ToolError(f"{one} and {other} have no partition in common.")
    paired = {place.name for place, _ in pairs}
    alone = [f"only {one} has {place.name}" for place in left if place.name not in paired]
    return pairs, alone + [f"only {other} has {place.name}" for place in right if place.name not in paired]


def _print(found: Comparison) -> None:
    def row(name: str, of: Replica) -> tuple[object, ...]:
        return name, of.place.directory, of.start, of.end, len(of.place.segments), of.place.size

    columns = ["", "directory", "start offset>", "end offset>", "segments>", "bytes>"]
    print_table(columns, [row("A", found.one), row("B", found.other)], title=found.one.place.name)
    for sentence in _sentences(found):
        print(f"{sentence}.")


def _sentences(found: Comparison) -> list[str]:
    """Return the result of a comparison as sentences without full stops."""
    if found.begin >= found.end:
        sentences = ["They have no offsets in common"]
    else:
        sentences = [f"Compared offsets {found.begin} to {found.end - 1}: {_verdict(found)}"]
    if found.first is not None:
        sentences.append(f"The first difference: {found.first}")
    sentences += [f"{sentence[0].upper()}{sentence[1:]}" for sentence in found.other_differences]
    return sentences + _only(found)


def _counted(differ: int, failed: int) -> str:
    found = [f"{differ:,} {'differs' if differ == 1 else 'differ'}" if differ else "none differs"]
    return ", ".join([*found, f"{failed:,} could not be compared"] if failed else found)


def _verdict(found: Comparison) -> str:
    same = f"{found.same:,} {'batch is' if found.same == 1 else 'batches are'} the same ({found.bytes:,} bytes)"
    if found.first is None:
        return same
    return f"{same}, {found.different:,} differ, {found.only_one:,} are only in A, {found.only_other:,} only in B"


def _only(found: Comparison) -> list[str]:
    """Return sentences about the offsets that only one of the two replicas has, at the start and at the end."""
    one, other = found.one, found.other
    sentences = []
    name, replica = ("A", one) if one.start < other.start else ("B", other)
    if one.start != other.start and not replica.is_empty:
        sentences.append(f"Only {name} has the offsets before {found.begin}: retention")
    name, replica = ("A", one) if one.end > other.end else ("B", other)
    if one.end != other.end and not replica.is_empty:
        sentences.append(f"Only {name} has the offsets from {found.end} on: the other lags behind")
    return sentences


def _object(found: Comparison) -> dict[str, Any]:
    return {
        "type": "diff",
        "partition": found.one.place.name,
        "differ": found.differ,
        "replicas": [found.one.summary, found.other.summary],
        "from": found.begin,
        "to": found.end,
        "same": found.same,
        "different": found.different,
        "onlyInFirst": found.only_one,
        "onlyInSecond": found.only_other,
        "firstDifference": found.first,
        "firstDifferenceOffset": found.first_offset,
        "besides": found.other_differences,
    }
