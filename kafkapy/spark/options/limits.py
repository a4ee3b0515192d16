"""The start and end of a query as the options state them, before brokers are asked for the actual offsets.

Source: KafkaOffsetRangeLimit and KafkaSourceProvider.getKafkaOffsetRangeLimit of Spark.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafkapy.client.cluster import TopicPartition
from kafkapy.spark.options.given import BadOption, Options, as_timestamp
from kafkapy.spark.options.offset_json import EARLIEST, LATEST, offsets_of, timestamps_of

LIMIT_OPTIONS = (
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
)


@dataclass(frozen=True)
class Edge:
    """The start or end of a query at every partition's earliest offset (`at` is EARLIEST) or latest offset (LATEST)."""

    at: int


@dataclass(frozen=True)
class AtOffsets:
    """The start or end of a query at a given offset of each partition, which may be LATEST or EARLIEST."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class AtTimestamp:
    """The start or end of a query at each partition's first record with a given timestamp (ms) or a later one.

    Attributes:
        all: The timestamp for every partition, or None if `each` is used.
        each: The timestamp for each partition.
        or_latest: True to use the end of a partition that has no such record, False to raise an error.
    """

    all: int | None
    each: Mapping[TopicPartition, int]
    or_latest: bool


Limit = Edge | AtOffsets | AtTimestamp


def starting_limit(options: Options) -> Limit | None:
    """Return where the query starts, as the options say, or None if they do not say it. Raises BadOption.

    If several are given, startingTimestamp overrides startingOffsetsByTimestamp, which overrides startingOffsets.
    """
    strategy = options.word("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    return _limit(options, "starting", or_latest=strategy == "latest")


def ending_limit(options: Options) -> Limit | None:
    """Return where the query ends, as the options say, or None if they do not say it. Raises BadOption.

    If several are given, endingTimestamp overrides endingOffsetsByTimestamp, which overrides endingOffsets. A partition
    without a record at or after the timestamp is read to its end.
    """
    return _limit(options, "ending", or_latest=True)


def check_batch_limits(starting: Limit | None, ending: Limit | None) -> None:
    """Raise BadOption if a batch query would start at the latest or end at the earliest offset of a partition."""
    for name, limit, wrong, word in (
        ("startingOffsets", starting, LATEST, "latest"),
        ("endingOffsets", ending, EARLIEST, "earliest"),
    ):
        if limit == Edge(wrong):
            raise BadOption(f"{name} is {word!r}: a batch query would read nothing; leave it out to read all there is")
        if isinstance(limit, AtOffsets):
            for (topic, index), offset in limit.offsets.items():
                if offset == wrong:
                    raise BadOption(f"{name} of {topic}-{index} is {wrong} ({word}): a batch query would read nothing")


def _limit(options: Options, which: str, *, or_latest: bool) -> Limit | None:
    """Return where the query starts (`which` is "starting") or ends ("ending"), or None if no option says it.

    Raises BadOption if the value of an option is invalid.
    """
    if (text := options.text(name := f"{which}Timestamp")) is not None:
        return AtTimestamp(as_timestamp(name, text), {}, or_latest)
    if (text := options.text(name := f"{which}OffsetsByTimestamp")) is not None:
        return AtTimestamp(None, timestamps_of(name, text), or_latest)
    if (text := options.text(name := f"{which}Offsets")) is None:
        return None
    if text.lower() in ("earliest", "latest"):
        return Edge(EARLIEST if text.lower() == "earliest" else LATEST)
    if not text.startswith("{"):
        raise BadOption(f"{name} is {text!r}: write earliest, latest, or JSON with an offset for each partition")
    return AtOffsets(offsets_of(name, text))
