"""The options of the source `kafkapy-log`: paths, and the options of the source `kafkapy` that need no broker."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kafkapy.client.cluster import TopicPartition
from kafkapy.log.offline.bounds import EARLIEST, LATEST, Bound, Bounds, Time
from kafkapy.log.offline.places import Place
from kafkapy.log.offline.selection import selected
from kafkapy.spark.options.consumer_properties import ISOLATION
from kafkapy.spark.options.given import BadOption, Options, as_word
from kafkapy.spark.options.limits import (
    LIMIT_OPTIONS,
    AtOffsets,
    Edge,
    Limit,
    check_batch_limits,
    ending_limit,
    starting_limit,
)
from kafkapy.spark.options.source_options import columns_of
from kafkapy.spark.options.subscription import WAYS, Subscription, subscription

ISOLATION_OPTION = "kafka.isolation.level"
KNOWN = (
    "path",
    "paths",
    *WAYS,
    *LIMIT_OPTIONS,
    "includeHeaders",
    "columns",
    "minPartitions",
    "maxPartitionBytes",
    "ignoreCorruptFiles",
)
# The files are divided into TASKS tasks, two for each core of the driver's machine. But a task has at most MAX_BYTES,
# and at least LEAST_BYTES, because it takes up to 0.1 s before it reads anything.
MAX_BYTES, LEAST_BYTES, TASKS = 128 << 20, 32 << 20, 2 * len(os.sched_getaffinity(0))

_UNITS = {"": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30}


@dataclass(frozen=True)
class LogOptions:
    """The checked options of the source `kafkapy-log`.

    Attributes:
        paths: The absolute paths to read.
        subscription: The topics and partitions to read, or None for all topics except Kafka's internal ones.
        starting, ending: Where the query starts and ends, or None for the beginning and end of each partition.
        committed: True to leave out aborted transactions (kafka.isolation.level is read_committed).
        max_bytes: The largest number of bytes of segment files for one task, or None for the default (MAX_BYTES).
        ignore_damage: True to skip data that cannot be read, with a warning.
    """

    paths: tuple[Path, ...]
    subscription: Subscription | None
    starting: Limit | None
    ending: Limit | None
    committed: bool
    columns: tuple[str, ...]
    min_partitions: int
    max_bytes: int | None
    ignore_damage: bool

    def places(self) -> list[Place]:
        """Return the partitions to read, each with its directory and segment files.

        Raises BadOption if an assigned partition does not exist, OfflineError or OSError if the paths cannot be read.
        """
        wanted = self.subscription
        if wanted is None:
            return selected(self.paths)
        found = selected(self.paths, wanted.named_topics)
        if wanted.pattern is not None:
            found = [place for place in found if place.topic is not None and wanted.wants_topic(place.topic, False)]
        if missing := set(wanted.assigned) - {(place.topic, place.partition) for place in found}:
            topic, number = min(missing)
            raise BadOption(f"assign names {topic}-{number}, but there is no such partition in {self._where}")
        return [place for place in found if wanted.wants((place.topic or "", place.partition or 0))]

    def bounds(self, places: list[Place]) -> Bounds:
        """Return the start and end offsets to read in these partitions.

        Raises BadOption if an option names single partitions but not all of them.
        """
        start, starts = self._edge("starting", self.starting, EARLIEST, places)
        end, ends = self._edge("ending", self.ending, LATEST, places)
        return Bounds(start, end, starts, ends)

    def _edge(
        self, which: str, limit: Limit | None, default: int, places: list[Place]
    ) -> tuple[Bound, dict[TopicPartition, Bound]]:
        """Return where the query starts or ends: one bound for all partitions, and bounds for single partitions.

        `which` is "starting" or "ending", and `default` is the bound if `limit` is None. Raises BadOption if the limit
        names single partitions, but not all of `places`.
        """
        if limit is None:
            return default, {}
        if isinstance(limit, Edge):
            return limit.at, {}
        if isinstance(limit, AtOffsets):
            option = f"{which}Offsets"
            each: dict[TopicPartition, Bound] = dict(limit.offsets)
        elif limit.all is not None:
            return Time(limit.all, limit.or_latest), {}
        else:
            option = f"{which}OffsetsByTimestamp"
            each = {where: Time(time, limit.or_latest) for where, time in limit.each.items()}
        for place in places:
            if (place.topic, place.partition) not in each:
                raise BadOption(f"{option} has nothing for {place.name}: name each partition to read")
        return default, each

    @property
    def _where(self) -> str:
        """Return the paths, separated by commas, for messages."""
        return ", ".join(map(str, self.paths))


def log_options(given: Mapping[str, str]) -> LogOptions:
    """Return the checked options of the source `kafkapy-log`. Raises BadOption for the first error."""
    options = Options(given, KNOWN, "The source kafkapy-log")
    kafka = options.kafka()
    isolation = kafka.pop("isolation.level", ISOLATION[0]).strip()
    if kafka:
        raise BadOption(
            f"kafka.{min(kafka)} is for the source kafkapy: kafkapy-log uses no broker, and of the options kafka.* has "
            f"{ISOLATION_OPTION} only"
        )
    starting, ending = starting_limit(options), ending_limit(options)
    check_batch_limits(starting, ending)
    return LogOptions(
        paths=_paths(options),
        subscription=subscription(options) if any(way in options for way in WAYS) else None,
        starting=starting,
        ending=ending,
        committed=as_word(ISOLATION_OPTION, isolation, ISOLATION) == ISOLATION[1],
        columns=columns_of(options),
        min_partitions=options.integer("minPartitions", 1, least=1) or 1,
        max_bytes=_bytes(options, "maxPartitionBytes"),
        ignore_damage=options.boolean("ignoreCorruptFiles", False),
    )


def _paths(options: Options) -> tuple[Path, ...]:
    """Return the paths that the user passed to load("...") or load([...]); Spark passes the latter as JSON.

    Raises BadOption if there is no path.
    """
    found = [] if (one := options.text("path")) is None else [one]
    if (several := options.text("paths")) is not None:
        try:
            named = json.loads(several)
        except ValueError:
            named = None
        if not isinstance(named, list) or not all(isinstance(path, str) for path in named):
            raise BadOption(f"paths is {several!r}: write a JSON list, or load([...])")
        found += named
    if not found or not all(found):
        raise BadOption(
            "a path is needed: a log directory, a topic or a partition in it, or a segment file, as in "
            'load("/var/lib/kafka/data")'
        )
    return tuple(map(_path, found))


def _path(text: str) -> Path:
    """Return a path or file: URL as an absolute path. Raise BadOption for other URLs."""
    scheme = re.match(r"([a-zA-Z][a-zA-Z0-9+.-]*):", text)
    if scheme and scheme[1].lower() != "file":
        raise BadOption(
            f"the path {text!r} is in {scheme[1]}, but the source kafkapy-log reads files: mount it on every worker"
        )
    return Path(re.sub(r"^/*", "/", text[5:]) if scheme else text).absolute()


def _bytes(options: Options, name: str) -> int | None:
    """Return an option's value, a size such as 64m, in bytes, or None if the option is not given. Raises BadOption."""
    word = options.text(name)
    if word is None:
        return None
    found = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", word.lower())
    if not found or found[2] not in _UNITS or int(found[1]) < 1:
        raise BadOption(f"{name} is {word!r}: write a size, as in 64m or 1g")
    return int(found[1]) << _UNITS[found[2]]
