"""The command `kafkapy log find`: finds records by offset or time with the indexes, or by key or value in a scan."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from kafkapy.log.offline.files_07 import Reader07
from kafkapy.log.offline.lookups import Found, record_at, record_since
from kafkapy.log.offline.places import Place, places_in
from kafkapy.log.offline.record_source import RecordSource, Wanted
from kafkapy.record.kafka07 import CorruptMessage, messages_in
from kafkapy.record.records import Record
from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.common.options import timestamp_of
from kafkapy.tools.common.output import progress
from kafkapy.tools.common.record_formats import ChosenFormat, Format, JsonFormat
from kafkapy.tools.log.decoders.options import (
    KeyDecoding,
    OffsetsDecoding,
    TransactionsDecoding,
    ValueDecoding,
    decoder_of,
)
from kafkapy.tools.log.find.scan import COLUMNS, Matcher, record_in
from kafkapy.tools.log.record_lines import RecordLines

ROWS, BYTES = 1 << 16, 8 << 20


def find(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH", help="Segment files, partitions, topics or log directories.")
    ],
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="The record at this offset.")] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="TIME", help="The first record of this time or later.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Records with exactly this key.")] = None,
    key_hex: Annotated[
        str | None, typer.Option("--key-hex", metavar="DIGITS", help="The same, for a key that is not text.")
    ] = None,
    value: Annotated[
        str | None, typer.Option("--value", metavar="REGEX", help="Records in whose value the expression is found.")
    ] = None,
    ignore_case: Annotated[
        bool, typer.Option("--ignore-case", "-i", help="With --value: ignore the case of ASCII letters.")
    ] = False,
    start: Annotated[
        str | None, typer.Option("--from", "-f", metavar="OFFSET|TIME", help="Scan from this offset or time on.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", "-t", metavar="OFFSET|TIME", help="Scan up to before this offset or time.")
    ] = None,
    most: Annotated[int | None, typer.Option("--max", "-n", min=1, help="Stop after this many records.")] = None,
    form: ChosenFormat = Format.FULL,
    as_json: JsonFormat = False,
    offsets_decoder: OffsetsDecoding = False,
    transaction_log_decoder: TransactionsDecoding = False,
    key_decoder: KeyDecoding = None,
    value_decoder: ValueDecoding = None,
) -> None:
    """Find records in segment files of any message format, without a broker.

    --offset and --time use the indexes and print one record for each partition. --key and --value scan the records
    between --from and --to. A time is ISO 8601 (2024-01-31, 2024-01-31T12:00:00Z; UTC if it names no zone) or @ and
    milliseconds since 1970. The expression is Python's, over the bytes of the value. As with grep, the exit code is 1
    if nothing was found.

    Examples:

        kafkapy log find --offset 4711 data/flights-0

        kafkapy log find --time 2024-01-31T12:00:00Z data/flights

        kafkapy log find --key AA --value '"dep_delay": *[0-9]{3}' --from 2024-01-01 data/flights
    """
    given = [name for name, it in (("--offset", offset), ("--time", time)) if it is not None]
    scanned = [name for name, it in (("--key", key), ("--key-hex", key_hex), ("--value", value)) if it is not None]
    if len(given) + bool(scanned) != 1 or (key is not None and key_hex is not None):
        raise CallError(
            "log find needs one of --offset, --time, or --key and --value, as in: log find --key AA flights-0"
        )
    if given and (start is not None or end is not None or ignore_case):
        raise CallError(f"--from, --to and --ignore-case are for --key and --value, not for {given[0]}")
    lines = RecordLines(
        Format.JSON if as_json else form,
        decoder_of(offsets_decoder, transaction_log_decoder, key_decoder, value_decoder),
    )
    matcher = None if given else Matcher(_key(key, key_hex), _expression(value, ignore_case))
    moment = None if time is None else _time(time)
    wanted = Wanted(COLUMNS, ROWS, BYTES, **_bound("--from", start, "min"), **_bound("--to", end, "end"))
    places = places_in(paths)
    if matcher is None:
        _show(_looked_up(places, offset, moment), lines, most)
        return
    source = RecordSource(wanted)
    with progress("Searching", source.work(places), prints_lines=False) as advance:
        source.progress = advance
        _show(_scanned(places, source, matcher), lines, most, source.damage, advance.hide)


def _show(
    found: Iterator[tuple[Place, Found]],
    lines: RecordLines,
    most: int | None,
    damage: list[str] | None = None,
    before_line: Callable[[], object] = lambda: None,
) -> None:
    """Print records as they are found. End the command with exit code 1 if there are no records, or if a file is
    damaged."""
    out = sys.stdout.buffer
    at_once = sys.stdout.isatty()
    count = 0
    for place, one in found:
        before_line()
        out.write(lines.line(place, one.record, control=one.control))
        if at_once:
            out.flush()
        count += 1
        if count == most:
            break
    out.flush()
    before_line()
    lines.report_undecoded()
    for sentence in damage or ():
        print(f"kafkapy: {sentence}", file=sys.stderr)
    if not count or damage:
        raise typer.Exit(1)


def _looked_up(places: list[Place], offset: int | None, timestamp: int | None) -> Iterator[tuple[Place, Found]]:
    for place in places:
        if place.kafka_07:
            found = _record_07(place, offset)
        elif offset is not None:
            found = record_at(place.segments, offset)
        else:
            assert timestamp is not None
            found = record_since(place.segments, timestamp)
        if found is None or (offset is not None and found.record.offset != offset):
            what = f"offset {offset}" if offset is not None else "a record of that time or later"
            follows = "" if found is None else f"; the next record is at {found.record.offset}"
            name = place.name if place.whole else str(place.segments[0].path)
            print(f"{name} has no {what.removeprefix('a ')}{follows}.", file=sys.stderr)
        else:
            yield place, found


def _record_07(place: Place, offset: int | None) -> Found | None:
    """Return the first message at or after the offset in a partition of Kafka 0.7, or None. Of a compressed message,
    return the first message in it. Raises CallError without an offset, ToolError for a damaged file."""
    if offset is None:
        raise CallError(f"--time: messages of Kafka 0.7 have no timestamps ({place.name})")
    for segment in place.segments:
        if segment.base_offset + segment.size <= offset:
            continue
        try:
            with Reader07(segment.path) as log:
                for message in log.messages():
                    at = segment.base_offset + message.position
                    if at >= offset:
                        payload = bytes(next(messages_in(message)).payload)
                        return Found(Record(at, -1, None, payload, (), -1), False)
        except CorruptMessage as error:
            raise ToolError(f"{segment.path} is damaged at position {error.position}: {error}.") from error
    return None


def _scanned(places: list[Place], source: RecordSource, matcher: Matcher) -> Iterator[tuple[Place, Found]]:
    for place in places:
        for columns in source.read(place):
            for row in matcher.rows(columns):
                yield place, Found(record_in(columns, row), False)


def _key(text: str | None, digits: str | None) -> bytes | None:
    if digits is None:
        return None if text is None else text.encode()
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise CallError(f"--key-hex {digits!r} is not pairs of hexadecimal digits, as in 00ff") from None


def _expression(text: str | None, ignore_case: bool) -> "re.Pattern[bytes] | None":
    if text is None:
        return None
    try:
        return re.compile(text.encode(), re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        raise CallError(f"--value {text!r} is not a regular expression: {error}") from error


def _time(text: str) -> int:
    try:
        return timestamp_of(text)
    except ValueError as error:
        raise CallError(f"--time {text!r} is not a time, as in 2024-01-31T12:00:00Z or @1706702400000") from error


def _bound(option: str, text: str | None, side: str) -> dict[str, Any]:
    """Return the bound of an option, an offset or a time, as a keyword argument for Wanted. `side` is "min" or "end".
    Raises CallError if `text` is neither."""
    if text is None:
        return {}
    if text.isascii() and text.isdigit():
        return {f"{side}_offset": int(text)}
    try:
        return {f"{side}_timestamp": timestamp_of(text)}
    except ValueError as error:
        raise CallError(f"{option} {text!r} is neither an offset nor a time, as in 2024-01-31T12:00:00Z") from error
