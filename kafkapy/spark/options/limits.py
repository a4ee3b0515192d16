"""The offsets where a query starts and ends, as options, before they are resolved by asking brokers.

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
    """The earliest or latest offset (EARLIEST, LATEST) of every partition."""

    at: int


@dataclass(frozen=True)
class AtOffsets:
    """An offset for each partition, which may be LATEST or EARLIEST."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class AtTimestamp:
    """The first record at or after a time (ms): `all` for every partition, or `each` for single ones.

    or_latest: Whether a partition without such a record starts at its end, or is an error.
    """

    all: int | None
    each: Mapping[TopicPartition, int]
    or_latest: bool


Limit = Edge | AtOffsets | AtTimestamp


def starting_limit(options: Options) -> Limit | None:
    """Return the start: startingTimestamp, else startingOffsetsByTimestamp, else startingOffsets, else None."""
    strategy = options.word("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    return _limit(options, "starting", or_latest=strategy == "latest")


def ending_limit(options: Options) -> Limit | None:
    """Return the end, like `starting_limit`. Without a record at or after the time, it is the partition's end."""
    return _limit(options, "ending", or_latest=True)


def check_batch_limits(starting: Limit | None, ending: Limit | None) -> None:
    """Raise BadOption for a batch query that starts at the end or ends at the beginning."""
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
    """Return the limit in the options that begin with `which`, None if there is none."""
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
