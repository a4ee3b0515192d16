"""The command `kafkapy log tail`: prints the last records of partitions, and new records as they are appended."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from kafkapy.log.offline.places import places_in
from kafkapy.runtime.descriptors import raise_descriptor_limit
from kafkapy.tools.common.record_formats import ChosenFormat, Format, JsonFormat
from kafkapy.tools.log.decoders.options import (
    KeyDecoding,
    OffsetsDecoding,
    TransactionsDecoding,
    ValueDecoding,
    decoder_of,
)
from kafkapy.tools.log.record_lines import RecordLines
from kafkapy.tools.log.tail.follow import Follower, Show
from kafkapy.tools.log.tail.follow_07 import Follower07

# Between polls without new records: too short to be noticed, and almost no work.
INTERVAL_S = 0.2


def tail(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="Partitions, topics or log directories.")],
    count: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many records of each partition.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Then print new records, until Ctrl-C.")] = False,
    control: Annotated[bool, typer.Option("--control", help="Transaction markers, too.")] = False,
    form: ChosenFormat = Format.FULL,
    as_json: JsonFormat = False,
    offsets_decoder: OffsetsDecoding = False,
    transaction_log_decoder: TransactionsDecoding = False,
    key_decoder: KeyDecoding = None,
    value_decoder: ValueDecoding = None,
) -> None:
    """Print the last records of partitions from their files; with -f also records that a broker appends.

    This prints what is on disk, not only what consumers may see: records above the high watermark and of open or
    aborted transactions, too. It continues in new segments, and reports a truncated log or a deleted start.

    Examples:

        kafkapy log tail data/flights-0

        kafkapy log tail -f --json data/flights | jq .value
    """
    lines = RecordLines(
        Format.JSON if as_json else form,
        decoder_of(offsets_decoder, transaction_log_decoder, key_decoder, value_decoder),
    )
    out = sys.stdout.buffer

    def note(message: str) -> None:
        print(message, file=sys.stderr)

    followers = [
        Follower07(place, note) if place.kafka_07 else Follower(place, note, control=control)
        for place in places_in(paths)
    ]

    def shown(follower: Follower | Follower07) -> Show:
        return lambda one: out.write(lines.line(follower.place, one.record, control=one.control))

    if follow:
        raise_descriptor_limit()  # every partition keeps a file open
    try:
        for follower in followers:
            follower.last(count, shown(follower))
        out.flush()
        while follow:
            came = [follower.poll(shown(follower)) for follower in followers]
            out.flush()
            if not any(came):
                time.sleep(INTERVAL_S)
        lines.report_undecoded()
    finally:
        for follower in followers:
            follower.close()
